// SPDX-License-Identifier: Apache-2.0
// A program in a terminal of its own, for as long as its object lives: what is typed, what it
// shows. One thread; the program dies with it (PR_SET_PDEATHSIG).
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tests/support/await.h"

namespace ferry::testing {

class Pty {
 public:
  // `arguments[0]`: path of the program.
  Pty(const std::vector<std::string>& arguments, int rows, int columns);
  ~Pty();
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  void Type(const std::string& keys);
  void Resize(int rows, int columns);
  // The first process that the program has started, which must have.
  pid_t Child() const;
  // The terminal is gone, as when a connection breaks.
  void HangUp() { master_.Reset(); }

  // Reads until what was written since the last Forget satisfies `condition`; false after kSoon.
  bool AwaitOutput(const std::function<bool(const std::string&)>& condition);
  bool AwaitText(const std::string& part) {
    return AwaitOutput(
        [&](const std::string& text) { return text.find(part) != std::string::npos; });
  }
  const std::string& output() const { return output_; }
  void Forget() { output_.clear(); }
  // Whether the terminal echoes and gathers lines, as shells want it. The kernel makes it so when
  // the program that has begun the terminal ends: to see what others leave, begin with a shell.
  bool IsOrdinary() const;
  // Reads on until the program has ended: its exit status, or 128 + the signal that ended it.
  std::optional<int> Wait();

 private:
  void ReadFor(std::chrono::milliseconds patience);

  pid_t pid_ = -1;
  UniqueFd master_;
  std::string output_;
};

}  // namespace ferry::testing
