// SPDX-License-Identifier: Apache-2.0
#include "base/duration.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ferry {
namespace {

// A number with at most so many digits after the point; the last of them is no zero.
std::string Short(double value, int digits, const char* unit) {
  std::string text = absl::StrFormat("%.*f", digits, value);
  if (digits > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return absl::StrCat(text, " ", unit);
}

std::string TwoUnits(int64_t larger, const char* unit, int64_t lesser, const char* lesser_unit) {
  return lesser == 0 ? absl::StrCat(larger, " ", unit)
                     : absl::StrCat(larger, " ", unit, " ", lesser, " ", lesser_unit);
}

}  // namespace

std::string DurationText(absl::Duration value) {
  if (value == absl::InfiniteDuration()) return "for ever";
  if (value < absl::ZeroDuration()) return absl::StrCat("-", DurationText(-value));
  const double seconds = absl::ToDoubleSeconds(value);
  // A unit ends where rounding would give a thousand of it.
  if (value == absl::ZeroDuration()) return "0 s";
  if (seconds < 999.5e-9) return Short(seconds * 1e9, 0, "ns");
  if (seconds < 999.95e-6) return Short(seconds * 1e6, 1, "us");
  if (seconds < 999.995e-3) return Short(seconds * 1e3, 2, "ms");
  if (seconds < 120) return Short(seconds, seconds < 9.995 ? 2 : seconds < 99.95 ? 1 : 0, "s");
  const auto minutes = static_cast<int64_t>(seconds) / 60;
  if (minutes < 120) return TwoUnits(minutes, "min", static_cast<int64_t>(seconds) % 60, "s");
  const int64_t hours = minutes / 60;
  if (hours < 48) return TwoUnits(hours, "h", minutes % 60, "min");
  return TwoUnits(hours / 24, "d", hours % 24, "h");
}

}  // namespace ferry
