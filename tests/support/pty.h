// SPDX-License-Identifier: Apache-2.0
// Runs a program in a terminal of its own as long as the object lives; types, and reads what it
// shows. One thread; the program dies with that thread (PR_SET_PDEATHSIG).
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
  // `arguments[0]` is the program's path.
  Pty(const std::vector<std::string>& arguments, int rows, int columns);
  ~Pty();
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  void Type(const std::string& keys);
  void Resize(int rows, int columns);
  // The first process that the program has started. There must be one.
  pid_t Child() const;
  // Takes the terminal away, as a broken connection does.
  void HangUp() { master_.Reset(); }

  // Reads until the output since the last Forget satisfies `condition`; false after kSoon.
  bool AwaitOutput(const std::function<bool(const std::string&)>& condition);
  bool AwaitText(const std::string& part) {
    return AwaitOutput(
        [&](const std::string& text) { return text.find(part) != std::string::npos; });
  }
  const std::string& output() const { return output_; }
  void Forget() { output_.clear(); }
  // Whether the terminal echoes and collects lines, as shells want it. The kernel restores this
  // when the program that began the terminal ends. So to see what other programs leave behind,
  // begin with a shell.
  bool IsOrdinary() const;
  // Reads until the program has ended. Returns its exit status, or 128 + the signal that ended it.
  std::optional<int> Wait();

 private:
  void ReadFor(std::chrono::milliseconds patience);

  pid_t pid_ = -1;
  UniqueFd master_;
  std::string output_;
};

}  // namespace ferry::testing
