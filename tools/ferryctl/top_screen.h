// SPDX-License-Identifier: Apache-2.0
// Lays the tables of `ferryctl top` out on a screen, and handles the keys that change the layout.
// Texts of others are made printable and cut, so that they stay in their cells. Pure; one thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/ferryctl/top_tables.h"

namespace ferry::tools {

struct ScreenSize {
  size_t rows = 24, columns = 80;
};

// The first `characters` characters of a printable text; the last of them is "~" if there were
// more.
std::string CutTo(absl::string_view text, size_t characters);

class TopScreen {
 public:
  // Handles keys that were read from the terminal; false if one of them was the key that ends.
  bool OnKeys(absl::string_view keys);

  // The screen as it stands now: at most `size.rows` lines of at most `size.columns` characters,
  // with what a terminal needs to draw them over the former screen. `title` is the first line.
  std::string Frame(std::vector<TopTable> tables, const std::string& title, ScreenSize size);
  // All rows of all tables, in their first order, for a pipe.
  static std::string Plain(const std::vector<TopTable>& tables, const std::string& title);

 private:
  struct Order {
    std::string column;  // title of a column
    bool ascending = false;
  };
  void OnKey(absl::string_view key);
  void MoveColumn(int by);
  // Sorts and selects as the keys have asked, and remembers the columns.
  void Arrange(std::vector<TopTable>& tables);
  // How many rows of each table fit; nothing for a table that is not shown.
  std::vector<std::optional<size_t>> Fit(const std::vector<TopTable>& tables, size_t lines) const;

  size_t chosen_ = 0;  // index of the chosen table, by TopPart
  bool alone_ = false;
  std::array<std::optional<Order>, kTopParts> orders_;  // orders that keys have asked for
  std::vector<TopTable> shown_;                         // the tables drawn last, without their rows
};

}  // namespace ferry::tools
