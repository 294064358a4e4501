// SPDX-License-Identifier: Apache-2.0
// Another process of this program that writes one report to its fd 3 and waits until that is
// closed: what it holds is there as long as the object lives. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

class Reporter {
 public:
  // Returns when it has written exactly `bytes` to `report`; an error, which says what it was
  // `doing`, if it ended before or has not in a minute.
  static absl::StatusOr<Reporter> Start(std::vector<std::string> arguments, const char* doing,
                                        void* report, size_t bytes);

 private:
  Reporter(tools::ChildProcess process, UniqueFd socket)
      : process_(std::move(process)), socket_(std::move(socket)) {}

  tools::ChildProcess process_;
  UniqueFd socket_;
};

// As that process: writes the report, and waits. Returns the process's exit status.
int WriteReport(int socket, const void* report, size_t bytes);

}  // namespace ferry::bench
