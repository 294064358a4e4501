// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/reporter.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry::bench {

absl::StatusOr<Reporter> Reporter::Start(std::vector<std::string> arguments, const char* doing,
                                         void* report, size_t bytes) {
  constexpr timeval kPatience = {60, 0};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "make a socket pair", errno);
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  tools::SpawnOptions options;
  options.arguments = std::move(arguments);
  options.fd = theirs.get();
  ASSIGN_OR_RETURN(tools::ChildProcess process, tools::ChildProcess::Spawn(options));
  theirs.Reset();
  Reporter reporter(std::move(process), std::move(ours));
  setsockopt(reporter.socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  if (recv(reporter.socket_.get(), report, bytes, 0) != static_cast<ssize_t>(bytes)) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat(doing, ": another process, which has 60 s for it, did not"));
  }
  return reporter;
}

int WriteReport(int socket, const void* report, size_t bytes) {
  if (send(socket, report, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) return 1;
  char byte;
  return recv(socket, &byte, 1, 0) == 0 ? 0 : 1;
}

}  // namespace ferry::bench
