// SPDX-License-Identifier: Apache-2.0
// Another process of this program, which writes one report to its fd 3 and waits until that is
// closed. So whatever the process holds stays as long as the object lives. One thread.
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
  // Returns when the process has written exactly `bytes` to `report`. An error, which says what it
  // was `doing`, if it ended before, or has not done so within a minute.
  static absl::StatusOr<Reporter> Start(std::vector<std::string> arguments, const char* doing,
                                        void* report, size_t bytes);

 private:
  Reporter(tools::ChildProcess process, UniqueFd socket)
      : process_(std::move(process)), socket_(std::move(socket)) {}

  tools::ChildProcess process_;
  UniqueFd socket_;
};

// Called in that process: writes the report, and waits. Returns the exit status.
int WriteReport(int socket, const void* report, size_t bytes);

}  // namespace ferry::bench
