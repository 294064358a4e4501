// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr int kFirstSocket = 3;  // the first descriptor that systemd passes
constexpr absl::string_view kNames[] = {"client", "attach", "admin", "metrics"};

std::string Find(const Supervisor::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// Another process id means that the process which has forked this one was meant.
bool IsFor(const std::string& named, pid_t self) {
  pid_t pid = 0;
  return absl::SimpleAtoi(named, &pid) && pid == self;
}

}  // namespace

Supervisor::Supervisor(const Environment& environment, pid_t self)
    : path_(Find(environment, "NOTIFY_SOCKET")) {
  if (path_.size() < 2 || (path_[0] != '/' && path_[0] != '@')) path_.clear();
  int64_t microseconds = 0;
  const std::string watched = Find(environment, "WATCHDOG_PID");
  if (absl::SimpleAtoi(Find(environment, "WATCHDOG_USEC"), &microseconds) && microseconds > 0 &&
      (watched.empty() || IsFor(watched, self))) {
    watchdog_ = absl::Microseconds(microseconds);
  }
  if (IsFor(Find(environment, "LISTEN_PID"), self) &&
      absl::SimpleAtoi(Find(environment, "LISTEN_FDS"), &sockets_)) {
    names_ = Find(environment, "LISTEN_FDNAMES");
  }
}

absl::StatusOr<GivenSockets> Supervisor::TakeSockets() {
  GivenSockets given;
  const std::vector<std::string> names = absl::StrSplit(names_, ':');
  const int count = std::exchange(sockets_, 0);
  for (int i = 0; i < count; ++i) {
    UniqueFd socket(kFirstSocket + i);
    fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
    const std::string name = static_cast<size_t>(i) < names.size() ? names[i] : "";
    bool known = false;
    for (const absl::string_view one : kNames) known |= one == name;
    if (!known) {
      FERRY_LOG(warn, "supervisor.socket",
                "a socket of the name {} was given, which is none of client, attach, admin and "
                "metrics (FileDescriptorName=); it is closed",
                Printable(name));
      continue;
    }
    if (!given.try_emplace(name, std::move(socket)).second) {
      return Error(
          absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
          absl::StrCat("take the sockets that were given: there are two of the name ", name,
                       "; a FileDescriptorName= is for one ListenStream= or "
                       "ListenSequentialPacket="));
    }
  }
  return given;
}

void Supervisor::Ready(absl::string_view status) { Send("READY=1\n", status); }
void Supervisor::Reloading(absl::string_view status) {
  // By the time systemd tells which of several reloads the message is about.
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", absl::ToUnixMicros(MonotonicNow()), "\n"),
       status);
}
void Supervisor::Alive(absl::string_view status) { Send("WATCHDOG=1\n", status); }
void Supervisor::Silent(absl::string_view status) { Send("", status); }
void Supervisor::Stopping(absl::string_view status, absl::Duration more) {
  Send(absl::StrCat("STOPPING=1\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(more),
                    "\n"),
       status);
}

void Supervisor::Send(absl::string_view words, absl::string_view status) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.empty() || path_.size() >= sizeof(address.sun_path)) return;
  memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const std::string text =
      absl::StrCat(words, "STATUS=", absl::StrReplaceAll(status, {{"\n", " "}}));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  if (sendto(socket.get(), text.data(), text.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address), size) < 0) {
    FERRY_LOG_LIMITED(warn, "supervisor.deaf", LogFields(), "tell $NOTIFY_SOCKET {}: {}",
                      Printable(path_), strerror(errno));
  }
}

}  // namespace ferry
