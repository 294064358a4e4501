// SPDX-License-Identifier: Apache-2.0
// The states of a half: every step from every state, the picture of docs/architecture.md, and the
// tables of docs/states-of-a-half.md.
#include "transfer/half_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "transfer/peer_message.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;
using Step = HalfState::Step;

constexpr size_t kStates = std::variant_size_v<HalfState::Any>;

void Do(HalfState& state, Step step) {
  switch (step) {
    case Step::kOffer:
      return state.Offer();
    case Step::kAsk:
      return state.Ask({}, absl::CancelledError("asked"));
    case Step::kMatch:
      return state.Match();
    case Step::kTryAgain:
      return state.TryAgain();
    case Step::kAwaitFiring:
      return state.AwaitFiring();
    case Step::kHandOver:
      return state.HandOver();
    case Step::kEnterGroup:
      return state.EnterGroup();
    case Step::kLaunch:
    case Step::kFire:
    case Step::kArm:
      return state.Begin(step);
    case Step::kLeave:
      return state.Leave(absl::CancelledError("left"));
  }
}

// A half in each state, by the shortest way there.
HalfState InState(size_t number) {
  static const std::map<std::string, std::vector<Step>> ways = {
      {"waiting", {}},
      {"offered", {Step::kOffer}},
      {"asking", {Step::kAsk}},
      {"matched", {Step::kMatch}},
      {"awaits firing", {Step::kMatch, Step::kAwaitFiring}},
      {"handed over", {Step::kMatch, Step::kHandOver}},
      {"in groups", {Step::kOffer, Step::kEnterGroup}},
      {"launched", {Step::kMatch, Step::kLaunch}},
      {"firing", {Step::kMatch, Step::kAwaitFiring, Step::kFire}},
      {"armed", {Step::kMatch, Step::kArm}},
      {"leaving", {Step::kMatch, Step::kLaunch, Step::kLeave}},
  };
  HalfState state;
  for (const Step step : ways.at(HalfState::Name(number))) Do(state, step);
  EXPECT_EQ(state.number(), number);
  return state;
}

TEST(HalfStateTest, EachStepLeadsWhereItsRuleSaysOrIsRefused) {
  for (size_t number = 0; number < kStates; ++number) {
    for (const HalfState::Rule& rule : HalfState::Rules()) {
      SCOPED_TRACE(absl::StrCat(rule.name, " of what is ", HalfState::Name(number)));
      HalfState state = InState(number);
      const bool may = (rule.from & (1u << number)) != 0;
      EXPECT_EQ(state.May(rule.step), may);
      if (!may) continue;
      Do(state, rule.step);
      EXPECT_EQ(state.number(), rule.to);
    }
  }
}

TEST(HalfStateDeathTest, AStepThatIsNoneEndsTheProcess) {
  EXPECT_DEATH(
      {
        HalfState state;
        state.Launch();
      },
      "May");
}

TEST(HalfStateTest, WhatIsMatchedAndWhatIsLaunched) {
  std::vector<std::string> matched, launched;
  for (size_t number = 0; number < kStates; ++number) {
    const HalfState state = InState(number);
    if (state.matched()) matched.push_back(state.name());
    if (state.launched()) launched.push_back(state.name());
  }
  EXPECT_EQ(absl::StrJoin(matched, ", "),
            "matched, awaits firing, handed over, in groups, launched, firing, armed, leaving");
  EXPECT_EQ(absl::StrJoin(launched, ", "), "in groups, launched, firing, armed");
}

TEST(HalfStateTest, AFiringThatArrivedIsStillCountedWhenTheHalfLeaves) {
  HalfState state;
  state.Match();
  state.AwaitFiring();
  state.Fire();
  state.As<HalfState::Firing>()->arrived = true;
  state.Leave(absl::CancelledError("first"));
  state.Leave(absl::AbortedError("last"));
  EXPECT_TRUE(state.As<HalfState::Leaving>()->arrived);
  EXPECT_EQ(state.As<HalfState::Leaving>()->outcome, absl::AbortedError("last"));
}

TEST(HalfStateTest, AFurtherGroupKeepsAWishThatCameTooLate) {
  HalfState state;
  state.Match();
  state.HandOver();
  EXPECT_EQ(state.late_wish(), nullptr);
  state.EnterGroup();
  *state.late_wish() = absl::CancelledError("too late");
  state.EnterGroup();
  EXPECT_EQ(*state.late_wish(), absl::CancelledError("too late"));
  EXPECT_EQ(state.for_source(), nullptr);
}

TEST(HalfStateTest, ASendAsksOnceForItsEndAndStaysInItsState) {
  std::vector<std::string> may;
  for (size_t number = 0; number < kStates; ++number) {
    HalfState state = InState(number);
    EXPECT_EQ(state.is_ending(), state.Is<HalfState::Asking>() || state.Is<HalfState::Leaving>());
    if (!state.MayWithdraw()) continue;
    may.push_back(state.name());
    state.Withdraw();
    EXPECT_EQ(state.number(), number);
    EXPECT_TRUE(state.withdrawn() && state.is_ending());
    EXPECT_FALSE(state.MayWithdraw());
  }
  EXPECT_EQ(absl::StrJoin(may, ", "),
            "offered, matched, awaits firing, handed over, firing, armed");
}

TEST(HalfStateTest, AWordThatCrossesAWithdrawalStillCounts) {
  HalfState state;
  state.Offer();
  state.Withdraw();
  EXPECT_TRUE(state.May(Step::kLaunch));
  state.Launch();
  EXPECT_TRUE(state.withdrawn() && state.launched());
}

TEST(HalfStateDeathTest, WhatWasNotOfferedIsNotWithdrawn) {
  EXPECT_DEATH(
      {
        HalfState state;
        state.Withdraw();
      },
      "MayWithdraw");
}

// --- The page.

std::string TextOf(const std::string& path) {
  std::ifstream file(FERRY_SOURCE "/" + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A section of a page; "" if it has none of this heading.
std::string Section(const std::string& path, const std::string& heading) {
  const std::string page = TextOf(path);
  const size_t begin = page.find("## " + heading + "\n");
  const size_t end = page.find("\n## ", begin);
  return begin == std::string::npos ? "" : page.substr(begin, end - begin);
}

std::string Picture() {
  std::string picture;
  for (const absl::string_view line :
       absl::StrSplit(Section("docs/architecture.md", "States of a half"), '\n')) {
    if (line.substr(0, 4) == "    ") absl::StrAppend(&picture, line, "\n");
  }
  return picture;
}

TEST(HalfStateTest, ThePageHasTheRules) {
  std::vector<std::string> rows;
  for (const HalfState::Rule& rule : HalfState::Rules()) {
    std::vector<std::string> from;
    for (size_t number = 0; number < kStates; ++number) {
      if ((rule.from & (1u << number)) != 0) from.push_back(HalfState::Name(number));
    }
    rows.push_back(absl::StrCat("`", rule.name, "` | ", absl::StrJoin(from, ", "), " | ",
                                HalfState::Name(rule.to)));
  }
  std::vector<std::string> told;
  const std::string section = Section("docs/states-of-a-half.md", "Steps");
  for (absl::string_view line : absl::StrSplit(section, '\n')) {
    if (line.substr(0, 3) != "| `") continue;
    line.remove_prefix(2);
    line.remove_suffix(2);
    std::vector<std::string> cells = absl::StrSplit(line, absl::string_view(" | "));
    ASSERT_EQ(cells.size(), 3u) << line;
    told.push_back(std::string(line));
  }
  const auto sorted = [](std::vector<std::string> lines) {
    for (std::string& line : lines) {  // the states of a cell in the order of their numbers
      std::vector<std::string> cells = absl::StrSplit(line, absl::string_view(" | "));
      std::vector<std::string> states = absl::StrSplit(cells[1], absl::string_view(", "));
      std::sort(states.begin(), states.end());
      line = absl::StrCat(cells[0], " | ", absl::StrJoin(states, ", "), " | ", cells[2]);
    }
    return lines;
  };
  EXPECT_EQ(absl::StrJoin(sorted(told), "\n"), absl::StrJoin(sorted(rows), "\n"));
}

// "begin --Step--> end" of each line of the picture, and whatever else is in it.
std::vector<std::string> Arrows(absl::string_view picture) {
  std::vector<std::string> arrows;
  std::string begin;
  for (const absl::string_view line : absl::StrSplit(picture, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> at = absl::StrSplit(line, absl::string_view("--"));
    if (at.size() != 3 || at[2].substr(0, 1) != ">") {
      arrows.push_back(absl::StrCat("no arrow: ", line));
      continue;
    }
    const absl::string_view named = absl::StripAsciiWhitespace(at[0]);
    if (!named.empty()) begin = std::string(named);
    absl::string_view end = absl::StripLeadingAsciiWhitespace(at[2].substr(1));
    end = absl::StripTrailingAsciiWhitespace(end.substr(0, end.find("  ")));
    arrows.push_back(absl::StrCat(begin, " --", at[1], "--> ", end));
  }
  return arrows;
}

TEST(HalfStateTest, ThePictureHasEveryStateAndEveryStep) {
  const std::string picture = Picture();
  std::vector<std::string> arrows;
  for (const HalfState::Rule& rule : HalfState::Rules()) {
    for (size_t number = 0; number < kStates; ++number) {
      if ((rule.from & (1u << number)) == 0) continue;
      arrows.push_back(absl::StrCat(HalfState::Name(number), " --", rule.name, "--> ",
                                    HalfState::Name(rule.to)));
    }
  }
  EXPECT_THAT(Arrows(picture), UnorderedElementsAreArray(arrows));
  for (size_t number = 0; number < kStates; ++number) {
    EXPECT_THAT(picture, HasSubstr(HalfState::Name(number)));
  }
  for (const HalfState::Rule& rule : HalfState::Rules()) {
    EXPECT_THAT(picture, HasSubstr(absl::StrCat("-", rule.name)));
  }
}

// The words behind each of the two marks: "Go" of ">Go, <Go: tcp", or of "`Go`, `Done`".
std::set<std::string> WordsBehind(absl::string_view text, absl::string_view marks) {
  std::set<std::string> words;
  for (size_t at = text.find_first_of(marks); at != absl::string_view::npos;
       at = text.find_first_of(marks, at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && absl::ascii_isalnum(text[end])) ++end;
    if (end > at + 1) words.emplace(text.substr(at + 1, end - at - 1));
  }
  return words;
}

// The messages that stand on arrows: behind the state that the arrow leads to.
std::set<std::string> MessagesOnArrows() {
  std::set<std::string> found;
  const std::string picture = Picture();
  for (const absl::string_view line : absl::StrSplit(picture, '\n', absl::SkipEmpty())) {
    const size_t arrow = line.find("-->");
    if (arrow != absl::string_view::npos) found.merge(WordsBehind(line.substr(arrow + 3), "<>"));
  }
  return found;
}

// The alternatives of PeerMessage, as its header lists them.
std::set<std::string> PeerMessages() {
  const std::string header = TextOf("transfer/peer_message.h");
  const size_t begin = header.find("std::variant<", header.find("using PeerMessage")) + 13;
  std::set<std::string> names;
  for (const absl::string_view name :
       absl::StrSplit(header.substr(begin, header.find('>', begin) - begin), ',')) {
    names.emplace(absl::StripAsciiWhitespace(name));
  }
  EXPECT_EQ(names.size(), std::variant_size_v<PeerMessage>);
  return names;
}

TEST(HalfStateTest, EachMessageStandsOnAnArrowOrInTheTable) {
  std::set<std::string> in_table;
  const std::string section = Section("docs/states-of-a-half.md", "Messages on no arrow");
  for (const absl::string_view line : absl::StrSplit(section, '\n')) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, absl::string_view(" | "));
    if (cells[0].substr(0, 3) == "| `") in_table.merge(WordsBehind(cells[0], "`"));
  }
  const std::set<std::string> on_arrows = MessagesOnArrows();
  const std::set<std::string> all = PeerMessages();
  EXPECT_THAT(all, IsSupersetOf(on_arrows));
  for (const std::string& message : all) {
    EXPECT_NE(on_arrows.contains(message), in_table.contains(message)) << message;
  }
  EXPECT_THAT(all, IsSupersetOf(in_table));
}

}  // namespace
}  // namespace ferry
