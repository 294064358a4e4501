// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace ferry::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TopCell Number(double value) { return {absl::StrCat(value), value}; }

// Six tables of `rows` rows each: name, a number that falls, and one that is the same.
std::vector<TopTable> SomeTables(size_t rows) {
  std::vector<TopTable> tables;
  for (const char* name : {"daemons", "devices", "routes", "peers", "sessions", "transfers"}) {
    TopTable table{name, {{"NAME", "name"}, {"LOAD", "load", true}, {"SAME", "same", true}}, {}};
    for (size_t r = 0; r < rows; ++r) {
      table.rows.push_back(
          {{absl::StrCat(name, r)}, Number(static_cast<double>(rows - r)), Number(1)});
    }
    table.sorted_by = 1;
    tables.push_back(std::move(table));
  }
  return tables;
}

// The lines of a frame, without what only terminals see.
std::vector<std::string> Lines(const std::string& frame) {
  return absl::StrSplit(
      absl::StrReplaceAll(
          frame,
          {{"\x1b[H", ""}, {"\x1b[K", ""}, {"\x1b[7m", ""}, {"\x1b[1;7m", ""}, {"\x1b[0m", ""}}),
      "\r\n");
}

TEST(TopScreenTest, AFrameFillsTheScreenAndNoMore) {
  TopScreen screen;
  for (const size_t rows : {1, 2, 3, 5, 10, 24, 60, 200}) {
    for (const size_t columns : {1, 10, 80}) {
      const auto lines = Lines(screen.Frame(SomeTables(8), "the title", {rows, columns}));
      EXPECT_EQ(lines.size(), rows);
      for (const std::string& line : lines) EXPECT_LE(line.size(), columns) << line;
    }
  }
}

TEST(TopScreenTest, EveryTableHasItsShare) {
  TopScreen screen;
  const auto lines = Lines(screen.Frame(SomeTables(100), "title", {40, 80}));
  for (const char* row : {"daemons0", "devices0", "routes0", "peers0", "sessions0", "transfers0"}) {
    EXPECT_THAT(lines, ::testing::Contains(StartsWith(row)));
  }
  EXPECT_THAT(lines[1], HasSubstr(" more"));
}

TEST(TopScreenTest, WhatIsChosenIsShownWhereThereIsNoRoomForAll) {
  TopScreen screen;
  EXPECT_TRUE(screen.OnKeys("t"));
  const auto lines = Lines(screen.Frame(SomeTables(9), "title", {6, 80}));
  EXPECT_THAT(lines, ::testing::Contains(StartsWith("transfers0")));
  EXPECT_THAT(lines, Not(::testing::Contains(StartsWith("devices"))));
}

TEST(TopScreenTest, TablesWithNothingInThemTakeNoRoom) {
  TopScreen screen;
  std::vector<TopTable> tables = SomeTables(1);
  tables[3].rows.clear();
  const std::string frame = screen.Frame(tables, "title", {60, 80});
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(frame, "NAME")).size(), 6u);
}

TEST(TopScreenTest, EnterShowsOneTableAlone) {
  TopScreen screen;
  screen.OnKeys("s\r");
  auto lines = Lines(screen.Frame(SomeTables(30), "title", {40, 80}));
  EXPECT_THAT(lines, ::testing::Contains(StartsWith("sessions29")));
  EXPECT_THAT(lines, Not(::testing::Contains(StartsWith("devices0"))));
  screen.OnKeys("\n");
  lines = Lines(screen.Frame(SomeTables(30), "title", {40, 80}));
  EXPECT_THAT(lines, ::testing::Contains(StartsWith("devices0")));
}

TEST(TopScreenTest, KeysSayByWhatIsSorted) {
  TopScreen screen;
  const auto first = [&] { return Lines(screen.Frame(SomeTables(3), "title", {60, 80})); };
  ASSERT_THAT(first()[1], HasSubstr("LOAD*"));
  screen.OnKeys("R");
  EXPECT_THAT(first()[2], StartsWith("daemons2"));
  screen.OnKeys("<");
  EXPECT_THAT(first()[1], StartsWith("NAME*"));
  EXPECT_THAT(first()[2], StartsWith("daemons0")) << "texts upwards";
  screen.OnKeys("\x1b[D");
  EXPECT_THAT(first()[1], HasSubstr("SAME*")) << "round the end";
  screen.OnKeys("\x1bOC>");
  EXPECT_THAT(first()[1], HasSubstr("LOAD*"));
  EXPECT_THAT(first()[2], StartsWith("daemons0")) << "numbers downwards";
  // Another table has its own order.
  screen.OnKeys("\tR");
  EXPECT_THAT(first()[2], StartsWith("daemons0"));
  EXPECT_THAT(first()[7], StartsWith("devices2"));
}

TEST(TopScreenTest, KeysBeforeTheFirstFrameAndUnknownOnesDoNoHarm) {
  TopScreen screen;
  EXPECT_TRUE(screen.OnKeys("R<>\x1b\x1b[99;3~xyz\xff"));
  EXPECT_EQ(Lines(screen.Frame(SomeTables(1), "title", {24, 80}))[0], "title");
  EXPECT_FALSE(screen.OnKeys("sq"));
}

TEST(TopScreenTest, WhatOthersSayStaysInItsPlace) {
  TopScreen screen;
  std::vector<TopTable> tables = SomeTables(1);
  tables[4].rows[0][0].text = "\x1b[2J\x1b]0;mine\x07\r\nnode-z\xc2\x9b" + std::string(500, 'x');
  const std::string frame = screen.Frame(tables, "title", {40, 80});
  EXPECT_THAT(frame, Not(HasSubstr("\x1b[2J")));
  EXPECT_THAT(frame, Not(HasSubstr("\x1b]0")));
  EXPECT_THAT(frame, Not(HasSubstr("\x07")));
  EXPECT_THAT(frame, HasSubstr("\\x1b[2J\\x1b]0;mine\\x07"));
  const auto lines = Lines(frame);
  EXPECT_EQ(lines.size(), 40u);
  EXPECT_THAT(lines, ::testing::Contains(
                         ::testing::AllOf(StartsWith("\\x1b[2J"), HasSubstr("~      1     1"))));
  const std::string plain = TopScreen::Plain(tables, "title");
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  EXPECT_THAT(plain, HasSubstr(std::string(500, 'x')));
}

TEST(TopScreenTest, TextIsCutBetweenCharacters) {
  EXPECT_EQ(CutTo("abc", 3), "abc");
  EXPECT_EQ(CutTo("abcd", 3), "ab~");
  EXPECT_EQ(CutTo("abcd", 1), "~");
  EXPECT_EQ(CutTo("abcd", 0), "");
  EXPECT_EQ(CutTo("\xc3\xa4\xc3\xa4\xc3\xa4", 3), "\xc3\xa4\xc3\xa4\xc3\xa4");
  EXPECT_EQ(CutTo("\xc3\xa4\xc3\xa4\xc3\xa4", 2), "\xc3\xa4~");
}

}  // namespace
}  // namespace ferry::tools
