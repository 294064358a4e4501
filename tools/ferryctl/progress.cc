// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/progress.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {

Progress::Progress(std::string what, std::optional<uint64_t> total_bytes, bool enabled)
    : what_(std::move(what)),
      total_(total_bytes),
      shown_(enabled && isatty(STDERR_FILENO)),
      start_(absl::Now()) {}

Progress::~Progress() {
  // Clears the line: the result follows.
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::Show(uint64_t bytes) {
  const absl::Time now = absl::Now();
  if (!shown_ || now - last_ < absl::Milliseconds(100)) return;
  last_ = now;
  std::string line = absl::StrFormat("\r%s ", what_);
  if (total_.has_value()) {
    constexpr int kWidth = 30;
    const int filled = *total_ == 0 ? kWidth : static_cast<int>(bytes * kWidth / *total_);
    absl::StrAppendFormat(&line, "[%s%s] %s of %s", std::string(filled, '#'),
                          std::string(kWidth - filled, '-'), HumanSize(bytes), HumanSize(*total_));
  } else {
    absl::StrAppend(&line, HumanSize(bytes));
  }
  absl::StrAppendFormat(&line, ", %.2f GB/s\x1b[K", GigabytesPerSecond(bytes, now - start_));
  std::fputs(line.c_str(), stderr);
}

}  // namespace ferry::tools
