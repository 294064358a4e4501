// SPDX-License-Identifier: Apache-2.0
// The daemon's programs and jobs, for people or as JSON, and those that it does not run on GPUs.
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ferry/admin/v1/admin.pb.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

// A line for each job, and how many there are.
std::string JobsText(const ferry::admin::v1::ListJobsResponse& response);
absl::StatusOr<std::string> ListPrograms(const Globals& globals);
// The programs that are barred from GPUs.
absl::StatusOr<std::string> ListBarredPrograms(const Globals& globals);
// Lets GPUs run barred programs again, which are named by the beginnings of their fingerprints in
// hexadecimal, or all of them if there are none.
absl::StatusOr<std::string> ReleasePrograms(const Globals& globals,
                                            const std::vector<std::string>& names);

}  // namespace ferry::tools
