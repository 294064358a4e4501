// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/top_screen.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {
namespace {

constexpr char kChoose[] = "ndrpst";  // by TopPart
constexpr char kHelp[] =
    "q quit  n d r p s t, Tab: table  < >: sort by  R: turn round  Enter: this table alone";
// The widest cell whose text a client has chosen, except in the last column.
constexpr size_t kCell = 32;
constexpr size_t kLines = 2;  // the first and last line of the screen

// For texts that Printable has made.
size_t Characters(absl::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// The lines of a table: its header, and this many rows.
std::vector<std::string> Lines(const TopTable& table, size_t rows, bool cut) {
  std::vector<Table::Column> columns;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const TopColumn& column = table.columns[c];
    columns.push_back({absl::StrCat(column.title, c == table.sorted_by ? "*" : ""),
                       column.number ? Table::Align::kRight : Table::Align::kLeft});
  }
  Table text(std::move(columns));
  for (size_t r = 0; r < std::min(rows, table.rows.size()); ++r) {
    std::vector<std::string> cells;
    for (const TopCell& cell : table.rows[r]) {
      const bool last = cells.size() + 1 == table.columns.size();
      cells.push_back(cut && !last ? CutTo(Printable(cell.text), kCell) : cell.text);
    }
    text.AddRow(std::move(cells));
  }
  std::vector<std::string> lines = absl::StrSplit(text.ToString(), '\n', absl::SkipEmpty());
  return lines;
}

// A sequence such as "\x1b[C" is one key.
absl::string_view FirstKey(absl::string_view keys) {
  if (!absl::StartsWith(keys, "\x1b[") && !absl::StartsWith(keys, "\x1bO"))
    return keys.substr(0, 1);
  size_t end = 2;
  while (end < keys.size() && !absl::ascii_isalpha(static_cast<unsigned char>(keys[end])) &&
         keys[end] != '~') {
    ++end;
  }
  return keys.substr(0, end + 1);
}

}  // namespace

std::string CutTo(absl::string_view text, size_t characters) {
  if (Characters(text) <= characters) return std::string(text);
  size_t end = 0;
  for (size_t left = characters; left > 1; --left) {
    end += std::max<size_t>(Utf8Bytes(text.substr(end)), 1);
  }
  return characters == 0 ? "" : absl::StrCat(text.substr(0, end), "~");
}

bool TopScreen::OnKeys(absl::string_view keys) {
  while (!keys.empty()) {
    const absl::string_view key = FirstKey(keys);
    if (key == "q" || key == "Q") return false;
    OnKey(key);
    keys.remove_prefix(key.size());
  }
  return true;
}

void TopScreen::OnKey(absl::string_view key) {
  const absl::string_view choose = kChoose;
  if (const size_t table = choose.find(key[0]); key.size() == 1 && table != choose.npos) {
    chosen_ = table;
  } else if (key == "\t") {
    chosen_ = (chosen_ + 1) % kTopParts;
  } else if (key == "\r" || key == "\n") {
    alone_ = !alone_;
  } else if (key == "<" || key == "," || key == "\x1b[D" || key == "\x1bOD") {
    MoveColumn(-1);
  } else if (key == ">" || key == "." || key == "\x1b[C" || key == "\x1bOC") {
    MoveColumn(1);
  } else if (key == "R" && chosen_ < shown_.size()) {
    const TopTable& table = shown_[chosen_];
    orders_[chosen_] = {table.columns[table.sorted_by].title, !table.ascending};
    shown_[chosen_].ascending = !table.ascending;
  }
}

void TopScreen::MoveColumn(int by) {
  if (chosen_ >= shown_.size()) return;
  TopTable& table = shown_[chosen_];
  const size_t count = table.columns.size();
  table.sorted_by = (table.sorted_by + count + static_cast<size_t>(by)) % count;
  const TopColumn& column = table.columns[table.sorted_by];
  table.ascending = !column.number;  // in a column of numbers the largest matter
  orders_[chosen_] = {column.title, table.ascending};
}

void TopScreen::Arrange(std::vector<TopTable>& tables) {
  shown_.clear();
  for (size_t t = 0; t < tables.size(); ++t) {
    TopTable& table = tables[t];
    if (orders_[t]) {
      const auto column =
          std::find_if(table.columns.begin(), table.columns.end(),
                       [&](const TopColumn& one) { return one.title == orders_[t]->column; });
      if (column != table.columns.end()) {
        table.sorted_by = static_cast<size_t>(column - table.columns.begin());
        table.ascending = orders_[t]->ascending;
        table.Sort();
      }
    }
    shown_.push_back({table.name, table.columns, {}, table.sorted_by, table.ascending});
  }
}

std::vector<std::optional<size_t>> TopScreen::Fit(const std::vector<TopTable>& tables,
                                                  size_t lines) const {
  std::vector<std::optional<size_t>> rows(tables.size());
  // The chosen table gets its place first; an empty table needs none.
  std::vector<size_t> order = {chosen_};
  for (size_t t = 0; t < tables.size() && !alone_; ++t) {
    if (t != chosen_ && !tables[t].rows.empty()) order.push_back(t);
  }
  for (const size_t t : order) {
    const size_t needs = t == chosen_ ? 2 : 3;  // with the empty line before it
    if (lines < needs) break;
    rows[t] = tables[t].rows.empty() ? 0 : 1;
    lines -= needs;
  }
  for (bool more = true; more && lines > 0;) {
    more = false;
    for (size_t t = 0; t < tables.size() && lines > 0; ++t) {
      if (!rows[t] || *rows[t] >= tables[t].rows.size()) continue;
      ++*rows[t];
      --lines;
      more = true;
    }
  }
  return rows;
}

std::string TopScreen::Frame(std::vector<TopTable> tables, const std::string& title,
                             ScreenSize size) {
  Arrange(tables);
  std::vector<std::string> lines = {CutTo(title, size.columns)};
  const std::vector<std::optional<size_t>> rows =
      Fit(tables, size.rows > kLines ? size.rows - kLines : 0);
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!rows[t]) continue;
    if (lines.size() > 1) lines.emplace_back();
    const size_t hidden = tables[t].rows.size() - *rows[t];
    std::vector<std::string> of_table = Lines(tables[t], *rows[t], /*cut=*/true);
    if (hidden > 0) absl::StrAppend(&of_table[0], "  ", HumanCount(hidden), " more");
    for (std::string& line : of_table) line = CutTo(line, size.columns);
    // The chosen column in reverse, and bold: keys act on it.
    of_table[0] = absl::StrCat(t == chosen_ ? "\x1b[1;7m" : "\x1b[7m", of_table[0], "\x1b[0m");
    lines.insert(lines.end(), std::make_move_iterator(of_table.begin()),
                 std::make_move_iterator(of_table.end()));
  }
  if (size.rows >= kLines) {
    lines.resize(size.rows - 1);
    lines.push_back(CutTo(kHelp, size.columns));
  }
  // Each line is erased before it is written: after a full line the cursor is still on it.
  std::string frame = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&frame, i == 0 ? "" : "\r\n", "\x1b[K", lines[i]);
  }
  return frame;
}

std::string TopScreen::Plain(const std::vector<TopTable>& tables, const std::string& title) {
  std::string text = absl::StrCat(title, "\n");
  for (const TopTable& table : tables) {
    if (table.rows.empty()) continue;
    absl::StrAppend(&text, "\n");
    for (const std::string& line : Lines(table, table.rows.size(), /*cut=*/false)) {
      absl::StrAppend(&text, line, "\n");
    }
  }
  return absl::StrCat(text, "\n");
}

}  // namespace ferry::tools
