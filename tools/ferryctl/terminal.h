// SPDX-License-Identifier: Apache-2.0
// A terminal that a program has for itself: the other screen, keys one by one, no cursor. Whatever
// ends or stops the program but SIGKILL and SIGSTOP leaves the terminal as it was. Made before
// other threads, because signals are blocked for all of them and heard here. One thread.
#pragma once

#include <signal.h>
#include <termios.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "tools/ferryctl/top_screen.h"

namespace ferry::tools {

class Terminal {
 public:
  // Whether standard input and output are one.
  static bool Present();
  // Blocks the signals; nothing is drawn before Enter.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Enter();
  ScreenSize size() const;
  // Replaces what is on the screen. While the terminal does not take what it is given, as after
  // Ctrl-S, nothing waits for it, and what is drawn meanwhile is lost.
  void Draw(const std::string& frame);
  bool busy() const { return !unwritten_.empty(); }

  // To be waited for: keys; signals; with `busy`, that more can be written.
  int keys_fd() const { return STDIN_FILENO; }
  int signals_fd() const { return signals_.get(); }
  int screen_fd() const { return screen_.get(); }
  void WriteMore();
  // What was typed; false if nobody can type any more.
  bool ReadKeys(std::string& keys);
  // What was signalled. Stops the program by itself if that is asked, and then comes back. The
  // signal that shall end the program, or 0.
  int ReadSignals();

  // Ends the program by `signal`, as it would have without us.
  [[noreturn]] void EndBy(int signal);

 private:
  Terminal() = default;
  void Leave();
  void Stop();

  bool entered_ = false;
  termios modes_{};  // as they were
  UniqueFd signals_;
  UniqueFd screen_;  // of our own, so that it never waits and nobody else's does not
  std::string unwritten_;
};

}  // namespace ferry::tools
