// SPDX-License-Identifier: Apache-2.0
#include "base/size.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ferry {
namespace {

struct Unit {
  absl::string_view name;
  uint64_t bytes;
};
constexpr Unit kUnits[] = {{"TiB", uint64_t{1} << 40},
                           {"GiB", uint64_t{1} << 30},
                           {"MiB", uint64_t{1} << 20},
                           {"KiB", uint64_t{1} << 10},
                           {"TB", 1'000'000'000'000},
                           {"GB", 1'000'000'000},
                           {"MB", 1'000'000},
                           {"KB", 1'000},
                           {"B", 1},
                           {"", 1}};
constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();

absl::Status TooLarge(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is more than 2^63 bytes"));
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(const std::string& input) {
  const absl::string_view text = input;
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const absl::string_view digits = text.substr(0, end);
  const absl::string_view name = absl::StripAsciiWhitespace(text.substr(end));
  const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& known) {
    return absl::EqualsIgnoreCase(known.name, name);
  });
  double number = 0;
  if (unit == std::end(kUnits) || !absl::SimpleAtod(digits, &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is not a size; a number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, as "
                     "64 GiB, or of bytes alone"));
  }
  uint64_t whole = 0;  // may be too large for a double
  if (absl::SimpleAtoi(digits, &whole)) {
    if (whole > kMost / unit->bytes) return TooLarge(text);
    return whole * unit->bytes;
  }
  const double bytes = number * static_cast<double>(unit->bytes);
  if (bytes >= static_cast<double>(kMost)) return TooLarge(text);
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string FormatSize(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    const bool binary = (unit.bytes & (unit.bytes - 1)) == 0;
    if (binary && bytes >= unit.bytes && bytes % unit.bytes == 0) {
      return absl::StrCat(bytes / unit.bytes, " ", unit.name);
    }
  }
  return absl::StrCat(bytes, " B");
}

}  // namespace ferry
