// SPDX-License-Identifier: Apache-2.0
#include "daemon/failure_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

std::string TextOf(const Ended& ended) {
  return absl::StrCat(
      ended.side == Side::kSend ? "send" : "receive",
      ended.route == Route::kUnspecified ? "" : absl::StrCat(" by ", RouteName(ended.route)), ": ",
      absl::StatusCodeToString(ended.status.code()), " ", ReasonName(ReasonOf(ended.status)), ": ",
      ended.status.message());
}

}  // namespace

std::optional<FailureLog::Line> FailureLog::OnFailed(absl::Time now, const Ended& ended) {
  home_.Check();
  Line line{ended.transfer, TextOf(ended)};
  if (now >= next_ && left_out_ == 0) {
    next_ = now + kPeriod;
    return line;
  }
  left_out_ += ended.count;
  last_ = std::move(line);
  return std::nullopt;
}

std::optional<FailureLog::Line> FailureLog::OnTime(absl::Time now) {
  home_.Check();
  if (now < next()) return std::nullopt;
  const uint64_t others = std::exchange(left_out_, 0) - 1;
  next_ = now + kPeriod;
  Line line = std::move(last_);
  if (others > 0) absl::StrAppend(&line.text, " (and ", others, " more since the last line)");
  return line;
}

}  // namespace ferry
