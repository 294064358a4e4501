// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/compile_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/executor.h"
#include "base/status.h"
#include "compute/cuda/compile/compile_wire.h"

namespace ferry::compute {
namespace {

absl::Status NotStarted(const std::string& program, int error) {
  return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
               absl::StrCat("start ", program, ", which compiles kernels: ", strerror(error)));
}

// Relative to the folder of a program of a build, then of one that is installed.
constexpr const char* kPlaces[] = {"ferry-compile", "../libexec/ferry/ferry-compile"};

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("it was ended by signal ", WTERMSIG(status));
  return absl::StrCat("it ended with status ", WEXITSTATUS(status));
}

}  // namespace

std::string FindCompiler() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* const place : kPlaces) {
    const std::filesystem::path path = (own.parent_path() / place).lexically_normal();
    if (!error && access(path.c_str(), X_OK) == 0) return path.string();
  }
  return "";
}

absl::StatusOr<std::string> CompileChild::Version() {
  home_.Check();
  if (version_.empty()) RETURN_IF_ERROR(Start());
  return version_;
}

absl::StatusOr<CompiledKernel> CompileChild::Compile(const std::string& source, const GpuArch& arch,
                                                     Tier tier) {
  home_.Check();
  if (pid_ < 0) RETURN_IF_ERROR(Start());
  const absl::Time until = MonotonicNow() + options_.patience;
  const std::string request = Encode(CompileRequest{std::string(arch.name), source, tier});
  absl::Status sent = Write(Framed(request), until);
  absl::StatusOr<std::string> payload = sent.ok() ? ReadFrame(until) : sent;
  if (!payload.ok()) {
    Kill();
    return Annotate(payload.status(), "compile a kernel");
  }
  absl::StatusOr<CompiledKernel> answer = DecodeAnswer(*payload);
  return answer;
}

absl::Status CompileChild::Start() {
  RETURN_IF_ERROR(Spawn());
  ++started_;
  const absl::StatusOr<std::string> payload = ReadFrame(MonotonicNow() + options_.patience);
  absl::StatusOr<std::string> version =
      payload.ok() ? DecodeGreeting(*payload) : absl::StatusOr<std::string>(payload.status());
  if (!version.ok()) {
    Kill();
    return Annotate(version.status(), absl::StrCat("start ", options_.program));
  }
  version_ = *std::move(version);
  return absl::OkStatus();
}

absl::Status CompileChild::Spawn() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return NotStarted(options_.program, errno);
  }
  stream_.Reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  std::vector<std::string> words = {options_.program, absl::StrCat(options_.memory_bytes)};
  if (!options_.nvrtc.empty()) words.push_back(options_.nvrtc);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Nothing of ours but where the loader looks.
  std::string libraries = "LD_LIBRARY_PATH=";
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  std::vector<char*> environment;
  if (path != nullptr) {
    libraries += path;
    environment.push_back(libraries.data());
  }
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), fd);
  }
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  // Signals as a new process has them, whatever ours are.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawn(&pid_, options_.program.c_str(), &actions, &attributes,
                                arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  stream_.Reset();
  return NotStarted(options_.program, error);
}

absl::StatusOr<std::string> CompileChild::ReadFrame(absl::Time until) {
  std::string header(kFrameHeader, '\0');
  RETURN_IF_ERROR(Read(header.data(), header.size(), until));
  ASSIGN_OR_RETURN(const uint64_t bytes, PayloadOf(header));
  std::string payload(bytes, '\0');
  RETURN_IF_ERROR(Read(payload.data(), payload.size(), until));
  return payload;
}

absl::Status CompileChild::Read(char* to, size_t bytes, absl::Time until) {
  while (bytes > 0) {
    const ssize_t got = recv(stream_.get(), to, bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return Ended(until);
    if (got > 0) {
      to += got;
      bytes -= static_cast<size_t>(got);
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(Await(POLLIN, until));
    } else if (errno != EINTR) {
      return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "hear from ferry-compile",
                        errno);
    }
  }
  return absl::OkStatus();
}

absl::Status CompileChild::Write(absl::string_view bytes, absl::Time until) {
  while (!bytes.empty()) {
    const ssize_t sent =
        send(stream_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(Await(POLLOUT, until));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Ended(until);
    } else if (errno != EINTR) {
      return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "tell ferry-compile",
                        errno);
    }
  }
  return absl::OkStatus();
}

absl::Status CompileChild::Await(short events, absl::Time until) {
  const absl::Duration left = until - MonotonicNow();
  if (left <= absl::ZeroDuration()) {
    return Error(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting,
                 absl::StrCat("ferry-compile was not done within ", DurationText(options_.patience),
                              " and was killed"));
  }
  pollfd wait[2] = {{stream_.get(), events, 0}, {options_.stop, POLLIN, 0}};  // -1 is passed over
  poll(wait, 2, static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, 60'000)));
  if (wait[1].revents == 0) return absl::OkStatus();
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled,
               "nobody waits for ferry-compile any more");
}

absl::Status CompileChild::Ended(absl::Time until) {
  // It has let go of the stream, as one that ends does; but it may do so and stay.
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  pollfd wait{process.get(), POLLIN, 0};
  const int64_t left = absl::ToInt64Milliseconds(until - MonotonicNow());
  if (poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000))) <= 0) {
    kill(pid_, SIGKILL);
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat("ferry-compile is gone: ", HowItEnded(status)));
}

void CompileChild::Kill() {
  stream_.Reset();
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace ferry::compute
