// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pty.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/check.h"

namespace ferry::testing {

Pty::Pty(const std::vector<std::string>& arguments, int rows, int columns) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  winsize size{};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  const pid_t parent = getpid();
  int master = -1;
  pid_ = forkpty(&master, nullptr, nullptr, &size);
  FERRY_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  master_.Reset(master);
  fcntl(master, F_SETFD, FD_CLOEXEC);
}

Pty::~Pty() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Pty::Type(const std::string& keys) {
  FERRY_CHECK(write(master_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void Pty::Resize(int rows, int columns) {
  winsize size{};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  FERRY_CHECK(ioctl(master_.get(), TIOCSWINSZ, &size) == 0);
}

pid_t Pty::Child() const {
  pid_t child = -1;
  std::ifstream("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children") >>
      child;
  FERRY_CHECK(child > 0);
  return child;
}

void Pty::ReadFor(std::chrono::milliseconds patience) {
  pollfd master = {master_.get(), POLLIN, 0};  // none, if it is hung up
  if (poll(&master, 1, static_cast<int>(patience.count())) <= 0) return;
  char buffer[4096];
  const ssize_t got = read(master_.get(), buffer, sizeof(buffer));
  if (got > 0) {
    output_.append(buffer, static_cast<size_t>(got));
  } else {
    poll(nullptr, 0, static_cast<int>(patience.count()));  // nobody has it open any more
  }
}

bool Pty::AwaitOutput(const std::function<bool(const std::string&)>& condition) {
  const auto deadline = Clock::now() + kSoon;
  while (!condition(output_)) {
    if (Clock::now() >= deadline) return false;
    ReadFor(std::chrono::milliseconds(10));
  }
  return true;
}

bool Pty::IsOrdinary() const {
  termios modes{};
  FERRY_CHECK(tcgetattr(master_.get(), &modes) == 0);
  constexpr tcflag_t kBoth = ICANON | ECHO;
  return (modes.c_lflag & kBoth) == kBoth;
}

std::optional<int> Pty::Wait() {
  const auto deadline = Clock::now() + kSoon;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline) return std::nullopt;
    ReadFor(std::chrono::milliseconds(10));
  }
  pid_ = -1;
  for (size_t before = output_.size() + 1; before != output_.size();) {  // what is left
    before = output_.size();
    ReadFor(std::chrono::milliseconds(0));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ferry::testing
