// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/link_news.h"

#include "absl/strings/str_cat.h"
#include "base/duration.h"

namespace ferry {
namespace {

std::string Since(absl::Time begin, absl::Time now) {
  return DurationText(absl::Trunc(now - begin, absl::Seconds(1)));
}

}  // namespace

std::optional<LinkNews::Line> LinkNews::OnLost(absl::Time now, const absl::Status& why,
                                               bool goodbye) {
  home_.Check();
  const std::string text(why.message());
  if (!lost_) {
    *this = LinkNews();
    lost_ = true;
    goodbye_ = goodbye;
    since_ = now;
    next_ = now + kPeriod;
    return Line{!goodbye, text};
  }
  ++attempts_;
  if (now < next_) return std::nullopt;
  next_ = now + kPeriod;
  return Line{!goodbye_, absl::StrCat("for ", Since(since_, now), " now, ", attempts_,
                                      " attempts failed; the last: ", text)};
}

std::string LinkNews::OnUp(absl::Time now) {
  home_.Check();
  const std::string after =
      lost_ ? absl::StrCat("after ", Since(since_, now), " and ", attempts_, " attempts, ") : "";
  lost_ = false;
  return after;
}

}  // namespace ferry
