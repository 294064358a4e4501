// SPDX-License-Identifier: Apache-2.0
#include "tests/support/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"

namespace ferry::testing {
namespace {

// Between fork and exec: only calls that are safe there.
[[noreturn]] void BecomeChild(const SpawnOptions& options, char* const* argv, char* const* envp,
                              int in, int out, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (in >= 0) dup2(in, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (out >= 0 && !options.pipes) dup2(out, STDERR_FILENO);
  if (options.uid.has_value()) {
    if (setgroups(0, nullptr) != 0 || setgid(*options.uid) != 0 || setuid(*options.uid) != 0)
      _exit(125);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user forgets it
  }
  execve(argv[0], argv, envp);
  _exit(127);
}

}  // namespace

Process::Process(const SpawnOptions& options) {
  int to_child[2] = {-1, -1};
  int from_child[2] = {-1, -1};
  UniqueFd file;
  if (options.pipes) {
    FERRY_CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(from_child, O_CLOEXEC) == 0);
  } else if (!options.output.empty()) {
    file.Reset(open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    FERRY_CHECK(file.valid());
  }
  std::vector<char*> argv;
  for (const std::string& argument : options.arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& setting : options.environment)
    envp.push_back(const_cast<char*>(setting.c_str()));
  for (char** setting = environ; *setting != nullptr; ++setting) {
    const std::string name = std::string(*setting).substr(0, std::string(*setting).find('=') + 1);
    const bool replaced = std::any_of(
        options.environment.begin(), options.environment.end(),
        [&](const std::string& ours) { return ours.compare(0, name.size(), name) == 0; });
    if (!replaced) envp.push_back(*setting);
  }
  envp.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  FERRY_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    BecomeChild(options, argv.data(), envp.data(), to_child[0],
                options.pipes ? from_child[1] : file.get(), parent);
  }
  pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  FERRY_CHECK(pidfd_.valid());
  if (options.pipes) {
    close(to_child[0]);
    close(from_child[1]);
    input_.Reset(to_child[1]);
    output_.Reset(from_child[0]);
  }
}

Process::~Process() { Kill(); }

void Process::Signal(int signal) const {
  if (status_.has_value()) return;
  kill(pid_, signal);
  if (signal != SIGSTOP) return;
  siginfo_t info{};  // it takes a moment until the last thread has stopped
  FERRY_CHECK(waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) == 0);
}

std::optional<int> Process::Wait(std::chrono::milliseconds patience) {
  if (status_.has_value()) return status_;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (poll(&ended, 1, static_cast<int>(patience.count())) <= 0) return std::nullopt;
  int status = 0;
  rusage used;
  FERRY_CHECK(wait4(pid_, &status, 0, &used) == pid_);
  peak_memory_ = static_cast<uint64_t>(used.ru_maxrss) << 10;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_;
}

void Process::Kill() {
  if (status_.has_value()) return;
  kill(pid_, SIGKILL);
  FERRY_CHECK(Wait(kSoon).has_value());
}

size_t Process::OpenFds() const {
  size_t count = 0;
  std::error_code gone;
  for (std::filesystem::directory_iterator it("/proc/" + std::to_string(pid_) + "/fd", gone), end;
       it != end; it.increment(gone)) {
    ++count;
  }
  return count;
}

size_t Process::MemfdMappings() const {
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) ++count;
  }
  return count;
}

Finished RunProgram(const std::vector<std::string>& arguments, std::chrono::milliseconds patience) {
  TemporaryDirectory directory;
  SpawnOptions options;
  options.arguments = arguments;
  options.output = directory / "output";
  Process process(options);
  Finished finished;
  finished.status = process.Wait(patience).value_or(-1);
  process.Kill();
  finished.output = ReadFile(options.output);
  return finished;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TemporaryDirectory::TemporaryDirectory() : path_("/tmp/ferry-XXXXXX") {
  FERRY_CHECK(mkdtemp(path_.data()) != nullptr);
  FERRY_CHECK(chmod(path_.c_str(), 0755) == 0);  // other users may look in
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int one = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  FERRY_CHECK(setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
              bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
              getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
}

}  // namespace ferry::testing
