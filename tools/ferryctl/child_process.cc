// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread_limit_text.h"

extern char** environ;

namespace ferry::tools {

absl::StatusOr<ChildProcess> ChildProcess::Spawn(const SpawnOptions& options) {
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  // Of two entries with one name the first counts.
  for (const std::string& entry : options.environment) {
    environment.push_back(const_cast<char*>(entry.c_str()));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (options.output >= 0) {
    posix_spawn_file_actions_adddup2(&actions, options.output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, options.output, STDERR_FILENO);
  }
  if (options.fd >= 0) posix_spawn_file_actions_adddup2(&actions, options.fd, 3);
  // posix_spawn, not fork: this process has threads and libferry's fork handlers.
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == EAGAIN) {
    return Error(
        absl::StatusCode::kResourceExhausted, Reason::kNotReady,
        absl::StrCat("start ", options.arguments[0], ": ", strerror(error), ThreadLimitText()));
  }
  if (error != 0) {
    return ErrnoError(error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInternal,
                      Reason::kInternal, absl::StrCat("start ", options.arguments[0]), error);
  }
  return ChildProcess(pid);
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    Kill();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

ChildProcess::~ChildProcess() { Kill(); }

void ChildProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  Wait();
}

int ChildProcess::Wait(rusage* used) {
  if (pid_ < 0) return 0;
  int status = 0;
  while (wait4(pid_, &status, 0, used) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

absl::StatusOr<std::string> RunAndRead(SpawnOptions options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "make a pipe", errno);
  }
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  options.output = write_end.get();
  ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Spawn(options));
  write_end.Reset();
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(read_end.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  if (const int status = child.Wait(); status != 0) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat(options.arguments[0], " ended with ", status, ": ", text));
  }
  return text;
}

}  // namespace ferry::tools
