// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/format.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/nearest.h"
#include "base/status.h"
#include "ferry/ferry.h"
#include "ferry/v1/types.pb.h"

namespace ferry::tools {
namespace {

constexpr absl::string_view kRoutePrefix = "ROUTE_";

// Every value of ferry.v1.Route is a route, named as its value is: "any", "local", "mapped".
std::vector<std::string> RouteTexts() {
  std::vector<std::string> texts;
  for (int route = 0; route < ferry::v1::Route_ARRAYSIZE; ++route)
    texts.push_back(RouteText(route));
  return texts;
}

absl::Status Invalid(absl::string_view text) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, text);
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(const std::string& text) {
  double seconds = 0;
  absl::Duration value;
  if (absl::SimpleAtod(text, &seconds)) {
    value = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &value)) {
    return Invalid(absl::StrCat("'", text, "' is not a duration, such as 10s or 250ms"));
  }
  if (value < absl::ZeroDuration())
    return Invalid(absl::StrCat("duration '", text, "' is negative"));
  return value;
}

absl::StatusOr<absl::Duration> ParseDeadline(const std::string& text) {
  ASSIGN_OR_RETURN(absl::Duration value, ParseDuration(text));
  if (value == absl::ZeroDuration()) return Invalid(absl::StrCat("deadline '", text, "' is zero"));
  if (value > absl::Hours(24 * 365)) {  // the daemon's own bound
    return Invalid(absl::StrCat("deadline '", text, "' is more than a year"));
  }
  return value;
}

absl::StatusOr<int> ParseRoute(const std::string& text) {
  const std::vector<std::string> known = RouteTexts();
  const auto route = std::find(known.begin(), known.end(), text);
  if (route != known.end()) return static_cast<int>(route - known.begin());
  const std::string meant = Nearest(text, known);
  return Invalid(absl::StrCat("'", text, "' is not a route: ", absl::StrJoin(known, ", "),
                              meant.empty() ? "" : absl::StrCat(" (did you mean '", meant, "'?)")));
}

std::string RouteText(int route) {
  if (route == ferry::v1::ROUTE_UNSPECIFIED) return "any";
  const absl::string_view name = ferry::v1::Route_Name(route);
  if (!absl::StartsWith(name, kRoutePrefix)) return absl::StrCat("route ", route);
  return absl::AsciiStrToLower(name.substr(kRoutePrefix.size()));
}

std::string HumanSize(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  constexpr const char* kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  if (value == std::floor(value)) return absl::StrFormat("%.0f %s", value, kNames[unit]);
  return absl::StrFormat("%.2f %s", value, kNames[unit]);
}

std::string HumanCount(uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

double GigabytesPerSecond(uint64_t bytes, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].title.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto line = [&](auto cell) {
    std::string row;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) row += "  ";
      const std::string padding(widths[c] - cell(c).size(), ' ');
      const bool right = columns_[c].align == Align::kRight;
      absl::StrAppend(&row, right ? padding : "", cell(c), right ? "" : padding);
    }
    absl::StripTrailingAsciiWhitespace(&row);
    absl::StrAppend(&text, row, "\n");
  };
  line([&](size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& row : rows_) line([&](size_t c) -> const std::string& { return row[c]; });
  return text;
}

std::string PrintableLines(const std::string& text) {
  return absl::StrJoin(
      absl::StrSplit(text, '\n'), "\n",
      [](std::string* shown, absl::string_view line) { absl::StrAppend(shown, Printable(line)); });
}

}  // namespace ferry::tools
