// SPDX-License-Identifier: Apache-2.0
// Reads and shows numbers as people write them ("256 MiB", "10s"), and prints tables. Sizes are
// read by base/size, and durations shown by base/duration. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/printable.h"
#include "base/size.h"

namespace ferry::tools {

// "10s", "250ms", "1m30s"; a bare number is seconds. A negative duration is an error.
absl::StatusOr<absl::Duration> ParseDuration(const std::string& text);
// As ParseDuration, but zero is an error too, because zero means "not said" to Ferry.
absl::StatusOr<absl::Duration> ParseDeadline(const std::string& text);
// "any", "local", "mapped", "ucx", "nccl", "tcp" to FERRY_ROUTE_*.
absl::StatusOr<int> ParseRoute(const std::string& text);
std::string RouteText(int route);

std::string HumanSize(uint64_t bytes);   // "64 KiB", "1.00 GiB"
std::string HumanCount(uint64_t count);  // "1,234,567"
double GigabytesPerSecond(uint64_t bytes, absl::Duration elapsed);

// A table whose columns are as wide as their widest cell. Cells are shown as Printable makes them,
// because much of what they show was said by others.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void AddRow(std::vector<std::string> cells);
  std::string ToString() const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// As Printable, for a text of several lines, whose line ends are kept.
std::string PrintableLines(const std::string& text);

}  // namespace ferry::tools
