// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/link_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry {
namespace {

using ::testing::HasSubstr;

const absl::Time kFirst = absl::FromUnixSeconds(1'000'000);
const absl::Status kRefused = absl::UnavailableError("refused");

TEST(LinkNews, ALossIsOneLineAndThenOneAMinuteWithACount) {
  LinkNews news;
  const auto first = news.OnLost(kFirst, absl::UnavailableError("it was silent"), false);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->warn);
  EXPECT_EQ(first->text, "it was silent");
  size_t lines = 0;
  std::string last;
  for (int second = 3; second < 60 * 60; second += 3) {
    if (const auto line = news.OnLost(kFirst + absl::Seconds(second), kRefused, false)) {
      ++lines;
      last = line->text;
      EXPECT_TRUE(line->warn);
    }
  }
  EXPECT_EQ(lines, 59u);
  EXPECT_THAT(last, HasSubstr("for 59 min now, 1180 attempts failed; the last: refused"));
  EXPECT_EQ(news.OnUp(kFirst + absl::Hours(1)), "after 60 min and 1199 attempts, ");
  EXPECT_EQ(news.OnUp(kFirst + absl::Hours(1)), "") << "it was said";
  EXPECT_TRUE(news.OnLost(kFirst + absl::Hours(1), kRefused, false).has_value());
}

TEST(LinkNews, AGoodbyeIsNoWarningNorIsThatTheOneWhoSaidItStaysAway) {
  LinkNews news;
  const auto first = news.OnLost(kFirst, absl::UnavailableError("node-b stops"), true);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(first->warn);
  EXPECT_FALSE(news.OnLost(kFirst + absl::Seconds(3), kRefused, false).has_value());
  const auto later = news.OnLost(kFirst + absl::Minutes(2), kRefused, false);
  ASSERT_TRUE(later.has_value());
  EXPECT_FALSE(later->warn);
  EXPECT_EQ(news.OnUp(kFirst + absl::Minutes(3)), "after 3 min and 2 attempts, ");
  EXPECT_TRUE(news.OnLost(kFirst + absl::Minutes(4), kRefused, false)->warn);
}

}  // namespace
}  // namespace ferry
