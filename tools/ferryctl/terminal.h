// SPDX-License-Identifier: Apache-2.0
// A terminal that this program has for itself: the alternate screen, keys one by one, no cursor.
// Whatever ends or stops the program, except SIGKILL and SIGSTOP, leaves the terminal as it was.
// Must be made before other threads are started, because signals are blocked for all threads and
// read here. One thread.
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
  // Whether standard input and output are a terminal.
  static bool Present();
  // Blocks the signals. Nothing is drawn before Enter.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Enter();
  ScreenSize size() const;
  // Replaces what is on the screen. If the terminal takes no output (as after Ctrl-S), Draw does
  // not wait: what is drawn meanwhile is lost.
  void Draw(const std::string& frame);
  bool busy() const { return !unwritten_.empty(); }

  // Descriptors to poll: for keys, for signals, and, while busy, for room to write.
  int keys_fd() const { return STDIN_FILENO; }
  int signals_fd() const { return signals_.get(); }
  int screen_fd() const { return screen_.get(); }
  void WriteMore();
  // Reads what was typed; false if nobody can type any more.
  bool ReadKeys(std::string& keys);
  // Handles the signals that came. A signal that stops the program stops it here, until it is
  // continued. Returns the signal that must end the program, or 0.
  int ReadSignals();

  // Ends the program by `signal`, as if this class had not blocked it.
  [[noreturn]] void EndBy(int signal);

 private:
  Terminal() = default;
  void Leave();
  void Stop();

  bool entered_ = false;
  termios modes_{};  // the terminal's modes before Enter
  UniqueFd signals_;
  UniqueFd screen_;  // opened anew, so that only this descriptor is non-blocking
  std::string unwritten_;
};

}  // namespace ferry::tools
