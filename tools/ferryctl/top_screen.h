// SPDX-License-Identifier: Apache-2.0
// How the tables of `ferryctl top` are put on a screen, and what keys change of that. What others
// have said is made printable and cut, so that it stays in its place. Pure; one thread.
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

// The first `characters` of a printable text, the last of them "~" if there were more.
std::string CutTo(absl::string_view text, size_t characters);

class TopScreen {
 public:
  // Of what was read from the terminal; false: it was the key that ends.
  bool OnKeys(absl::string_view keys);

  // As it stands now: at most `size.rows` lines of at most `size.columns` characters, with what a
  // terminal needs to draw them over the ones before. `title` is the first line.
  std::string Frame(std::vector<TopTable> tables, const std::string& title, ScreenSize size);
  // All rows of all tables, as they are sorted at first, for a pipe.
  static std::string Plain(const std::vector<TopTable>& tables, const std::string& title);

 private:
  struct Order {
    std::string column;  // a title
    bool ascending = false;
  };
  void OnKey(absl::string_view key);
  void MoveColumn(int by);
  // As the keys have it, and remembers what columns there are.
  void Arrange(std::vector<TopTable>& tables);
  // How many rows of each table fit; none of one that is not shown.
  std::vector<std::optional<size_t>> Fit(const std::vector<TopTable>& tables, size_t lines) const;

  size_t chosen_ = 0;  // table, by TopPart
  bool alone_ = false;
  std::array<std::optional<Order>, kTopParts> orders_;  // that were asked for
  std::vector<TopTable> shown_;                         // the last ones, without their rows
};

}  // namespace ferry::tools
