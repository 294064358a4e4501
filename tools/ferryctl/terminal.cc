// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"

namespace ferry::tools {
namespace {

// The alternate screen, without a cursor. The terminal cuts off what does not fit a line, whatever
// width it gives to a character.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr char kAgain[] = "\x1b[?25l\x1b[?7l\x1b[2J";  // still the alternate screen
constexpr char kLeave[] = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
// How long to wait, when leaving, for a terminal that takes no output.
constexpr int kPatienceMs = 200;

sigset_t HeardSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH}) {
    sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

bool Terminal::Present() { return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0; }

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Open() {
  std::unique_ptr<Terminal> terminal(new Terminal());
  if (tcgetattr(STDIN_FILENO, &terminal->modes_) != 0) {
    return absl::ErrnoToStatus(errno, "ask the terminal for its modes");
  }
  terminal->screen_.Reset(open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  // The terminal may belong to another user, as behind su.
  if (!terminal->screen_.valid()) {
    terminal->screen_.Reset(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  }
  const sigset_t heard = HeardSignals();
  terminal->signals_.Reset(signalfd(-1, &heard, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!terminal->screen_.valid() || !terminal->signals_.valid()) {
    return absl::ErrnoToStatus(errno, "open the terminal");
  }
  pthread_sigmask(SIG_BLOCK, &heard, nullptr);
  return terminal;
}

Terminal::~Terminal() { Leave(); }

void Terminal::Enter() {
  const bool again = std::exchange(entered_, true);
  termios modes = modes_;
  modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &modes);
  unwritten_.clear();
  Draw(again ? kAgain : kEnter);
}

void Terminal::Leave() {
  if (!entered_) return;
  entered_ = false;
  // Ends what is half written: ESC begins a new escape sequence.
  unwritten_ = kLeave;
  while (busy()) {
    pollfd screen = {screen_.get(), POLLOUT, 0};
    if (poll(&screen, 1, kPatienceMs) <= 0) break;
    WriteMore();
  }
  // At once: waiting until everything is shown could take for ever.
  tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
}

ScreenSize Terminal::size() const {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    return {};
  }
  return {size.ws_row, size.ws_col};
}

void Terminal::Draw(const std::string& frame) {
  if (busy()) return;
  unwritten_ = frame;
  WriteMore();
}

void Terminal::WriteMore() {
  while (busy()) {
    const ssize_t written = write(screen_.get(), unwritten_.data(), unwritten_.size());
    if (written >= 0) {
      unwritten_.erase(0, static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      unwritten_.clear();  // the terminal is gone; ReadKeys will notice
    }
  }
}

bool Terminal::ReadKeys(std::string& keys) {
  char buffer[256];
  const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (got > 0) keys.assign(buffer, static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

int Terminal::ReadSignals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGTSTP) {
      Stop();
    } else if (signal == SIGCONT) {
      // After a SIGSTOP, which nobody is told of, the shell has changed the terminal's modes.
      if (entered_) Enter();
    } else if (signal != SIGWINCH) {
      return signal;
    }
  }
  return 0;
}

void Terminal::Stop() {
  Leave();
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);  // the program stops here
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  Enter();
}

void Terminal::EndBy(int signal) {
  Leave();
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::abort();
}

}  // namespace ferry::tools
