// SPDX-License-Identifier: Apache-2.0
#include "bench/limited_loopback.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry::bench {
namespace {

absl::Status Shell(const std::string& command) {
  const int status = std::system(command.c_str());  // NOLINT: words of this file
  if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
               absl::StrCat("limit a link: '", command, "' failed"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LimitedLoopback>> LimitedLoopback::Enter(const std::string& rate) {
  UniqueFd before(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!before.valid() || unshare(CLONE_NEWNET) != 0) {
    return ErrnoError(absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
                      "limit a link (needs root): make a network namespace", errno);
  }
  std::unique_ptr<LimitedLoopback> made(new LimitedLoopback(std::move(before)));
  RETURN_IF_ERROR(Shell("ip link set lo up"));
  // Packets of the loopback have up to 64 KiB, and the bucket must hold some.
  RETURN_IF_ERROR(
      Shell(absl::StrCat("tc qdisc add dev lo root tbf rate ", rate, " burst 1mb latency 50ms")));
  return made;
}

LimitedLoopback::~LimitedLoopback() { FERRY_CHECK(setns(before_.get(), CLONE_NEWNET) == 0); }

}  // namespace ferry::bench
