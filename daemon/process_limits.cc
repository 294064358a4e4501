// SPDX-License-Identifier: Apache-2.0
#include "daemon/process_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread_limit_text.h"
#include "base/thread_room.h"
#include "proto/ferry/v1/timeline_layout.h"
#include "transfer/mapped/link_page.h"

namespace ferry {
namespace {

absl::Status TooSmall(std::string text) {
  return Error(absl::StatusCode::kResourceExhausted, Reason::kNotReady, std::move(text));
}

// The limit after it was raised as far as it goes; RLIM_INFINITY if there is none.
rlim_t Raised(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return RLIM_INFINITY;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return setrlimit(resource, &limit) == 0 ? limit.rlim_cur : before;
}

// With fewer descriptors the daemon could not serve anybody, or could not even stop: gRPC takes a
// missing descriptor for a fault of the program. Measured: 20 for a daemon that is alone and 2 for
// each of its host devices; 13 for a link, and the data connections of each pair of devices; 8 for
// a session, and its arenas. Each of the 7 sockets lets in at least 4 (daemon/socket_bounds.cc).
size_t DescriptorsNeeded(const Config& config) {
  constexpr size_t kItsOwn = 20, kAtItsDoors = 7 * 4, kOfSessions = 6 * 8;
  constexpr size_t kHostDevice = 2, kGpu = 32, kLink = 16;
  const size_t peers = std::max<size_t>(config.membership.nodes.size(), 1) - 1;
  return kItsOwn + kAtItsDoors + kOfSessions + kHostDevice * config.devices.host +
         kGpu * config.devices.gpus.size() + (kLink + 1 + config.transfer.tcp.connections) * peers;
}

// Memory that a session shares with the daemon, or a link with its peer, is a file of fixed size in
// memory. The limit also bounds the scratch memory of jobs, but a job that asks for more is told
// so.
absl::Status CheckFileSize() {
  constexpr rlim_t kNeeded = std::max<rlim_t>(FERRY_TIMELINE_BYTES, LinkPage::kBytes);
  constexpr rlim_t kUnit = 1024;  // the unit of the shell's ulimit
  const rlim_t limit = Raised(RLIMIT_FSIZE);
  if (limit >= kNeeded) return absl::OkStatus();
  return TooSmall(absl::StrCat("start with at most ", limit,
                               " bytes in a file: what is shared with each session has ", kNeeded,
                               ", and memory of jobs is files too; set `ulimit -f ",
                               (kNeeded + kUnit - 1) / kUnit, "` or more (systemd: LimitFSIZE)"));
}

// Threads of the daemon's parts, of gRPC's servers and of its calls to peers, and some to spare.
absl::Status CheckThreads(const Config& config) {
  const size_t threads = 8 + 3 * config.devices.host + JobThreads(config) + 2 * kGrpcThreads;
  const int error = RoomForThreads(threads);
  if (error == 0) return absl::OkStatus();
  return TooSmall(absl::StrCat("start ", threads, " threads: ", strerror(error),
                               ThreadLimitText(threads), " (systemd: TasksMax)"));
}

}  // namespace

size_t JobThreads(const Config& config) {
  constexpr size_t kMost = 16;  // all threads are woken for each large step
  if (config.limits.job_threads > 0) return config.limits.job_threads;
  const size_t cores = std::thread::hardware_concurrency();
  return std::clamp<size_t>(cores, 2, kMost + 1) - 1;
}

absl::Status CheckDescriptors(const Config& config) {
  const rlim_t limit = Raised(RLIMIT_NOFILE);
  const size_t needed = DescriptorsNeeded(config);
  if (limit >= needed) return absl::OkStatus();
  return TooSmall(absl::StrCat("run with ", limit, " descriptors: this configuration needs ",
                               needed, ", and some more for each session; set `ulimit -n ", needed,
                               "` or more (systemd: LimitNOFILE)"));
}

absl::Status PrepareProcessLimits(const Config& config) {
  RETURN_IF_ERROR(CheckDescriptors(config));
  RETURN_IF_ERROR(CheckFileSize());
  return CheckThreads(config);
}

}  // namespace ferry
