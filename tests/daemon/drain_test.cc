// SPDX-License-Identifier: Apache-2.0
#include "daemon/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/status.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kBegin = absl::FromUnixSeconds(1'000'000);

class DrainTest : public ::testing::Test {
 protected:
  Drain::Caller Join(absl::Duration timeout, bool stops = false) {
    return drain_.Join(now_, timeout, stops,
                       [this](absl::StatusOr<uint64_t> cut) { ends_.push_back(std::move(cut)); });
  }
  // Whether it wants all to be cut off within `time`, of which nothing ends by itself.
  bool CutsWithin(absl::Duration time) {
    const absl::Time until = now_ + time;
    while (drain_.next(left_) <= until) {
      now_ = std::max(now_, drain_.next(left_));
      if (drain_.OnTime(now_, left_, failed_)) return true;
    }
    now_ = until;
    return drain_.OnTime(now_, left_, failed_);
  }
  // Of OK ends: how many were cut off.
  std::vector<uint64_t> Cut() const {
    std::vector<uint64_t> cut;
    for (const auto& end : ends_) cut.push_back(end.value_or(std::numeric_limits<uint64_t>::max()));
    return cut;
  }

  Drain drain_{"node-a"};
  absl::Time now_ = kBegin;
  size_t left_ = 3;
  uint64_t failed_ = 7;
  std::vector<absl::StatusOr<uint64_t>> ends_;
};

TEST_F(DrainTest, EndsWhatIsInFlightAtItsDeadline) {
  Join(absl::Seconds(5));
  EXPECT_TRUE(drain_.on());
  EXPECT_FALSE(CutsWithin(absl::Seconds(4)));
  EXPECT_TRUE(CutsWithin(absl::Seconds(1)));
  EXPECT_EQ(now_, kBegin + absl::Seconds(5));
  left_ = 1;
  failed_ += 2;
  EXPECT_FALSE(CutsWithin(Drain::kMercy)) << "once";
  EXPECT_THAT(Cut(), ElementsAre(3)) << "two ended, one is still there";
  EXPECT_TRUE(drain_.on());
}

TEST_F(DrainTest, EndsWhenNothingIsLeftAndThoseWhoWereToldHadTimeToAsk) {
  Join(absl::Hours(1));
  drain_.Told(now_);
  left_ = 0;
  EXPECT_FALSE(CutsWithin(Drain::kFarewell - absl::Milliseconds(1)));
  EXPECT_TRUE(ends_.empty());
  EXPECT_FALSE(CutsWithin(absl::Milliseconds(1)));
  EXPECT_THAT(Cut(), ElementsAre(0));
}

TEST_F(DrainTest, OneThatWasTakenBackEndsNothing) {
  Join(absl::Seconds(5));
  Join(absl::Seconds(7));
  EXPECT_TRUE(drain_.TakeBack().ok());
  EXPECT_FALSE(drain_.on());
  ASSERT_EQ(ends_.size(), 2u);
  for (const auto& end : ends_) {
    EXPECT_EQ(ReasonOf(end.status()), Reason::kCancelled) << end.status();
    EXPECT_THAT(std::string(end.status().message()), HasSubstr("an undrain has taken it back"));
  }
  EXPECT_FALSE(CutsWithin(absl::Hours(24)));
  // Another one knows nothing of it.
  Join(absl::Minutes(1));
  EXPECT_FALSE(CutsWithin(absl::Seconds(59)));
  EXPECT_TRUE(CutsWithin(absl::Seconds(1)));
}

TEST_F(DrainTest, WhoGoesTakesTheDeadlineAlong) {
  const Drain::Caller early = Join(absl::Seconds(5));
  const Drain::Caller late = Join(absl::Seconds(60));
  EXPECT_EQ(drain_.deadline(), kBegin + absl::Seconds(5)) << "the earliest counts";
  EXPECT_TRUE(drain_.Leave(early));
  EXPECT_FALSE(drain_.Leave(early));
  EXPECT_FALSE(CutsWithin(absl::Seconds(59)));
  EXPECT_TRUE(drain_.Leave(late));
  EXPECT_FALSE(CutsWithin(absl::Hours(24))) << "nobody waits";
  EXPECT_TRUE(drain_.on()) << "nobody has taken it back";
  EXPECT_TRUE(ends_.empty());
}

TEST_F(DrainTest, AStopIsNotTakenBackAndHurries) {
  Join(absl::Hours(1));
  const Drain::Caller signal = Join(absl::Minutes(2), true);
  const absl::Status refused = drain_.TakeBack();
  EXPECT_EQ(ReasonOf(refused), Reason::kDraining);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("node-a was told to stop"));
  EXPECT_EQ(drain_.deadline(), kBegin + absl::Minutes(2));
  drain_.Hurry(signal, now_);
  EXPECT_TRUE(CutsWithin(absl::ZeroDuration()));
  left_ = 0;
  EXPECT_FALSE(CutsWithin(Drain::kFarewell));
  EXPECT_THAT(Cut(), ElementsAre(0, 0)) << "both are told the same";
}

// What any order of calls must give, said once more in the plainest way.
class Plain {
 public:
  void Join(Drain::Caller caller, absl::Time deadline) { deadlines_[caller] = deadline; }
  void Leave(Drain::Caller caller) { deadlines_.erase(caller); }
  void Clear() { deadlines_.clear(); }
  bool Waits(Drain::Caller caller) const { return deadlines_.count(caller) > 0; }
  absl::Time deadline() const {
    absl::Time earliest = absl::InfiniteFuture();
    for (const auto& entry : deadlines_) earliest = std::min(earliest, entry.second);
    return earliest;
  }
  size_t waiting() const { return deadlines_.size(); }

 private:
  std::map<Drain::Caller, absl::Time> deadlines_;
};

TEST(DrainSimulation, InAnyOrderNothingIsEndedThatNobodyWaitsForAndEachCallerHearsOnce) {
  for (uint32_t seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t most) { return static_cast<uint32_t>(random() % most); };
    Drain drain("node-a");
    Plain plain;
    std::map<Drain::Caller, int> heard;
    std::vector<Drain::Caller> callers;
    absl::Time now = kBegin;
    size_t left = below(4);
    uint64_t failed = 0;
    bool stops = false, cut = false;
    for (int step = 0; step < 200; ++step) {
      const Drain::Caller any = callers.empty() ? 0 : callers[below(callers.size())];
      switch (below(8)) {
        case 0: {
          const absl::Duration timeout = absl::Milliseconds(below(5000));
          const Drain::Caller next = callers.size() + 1;
          stops = stops || below(20) == 0;
          if (plain.waiting() == 0) cut = false;
          const Drain::Caller got =
              drain.Join(now, timeout, stops, [&heard, &plain, next](const auto&) {
                ++heard[next];
                plain.Leave(next);
              });
          ASSERT_EQ(got, next);
          callers.push_back(got);
          plain.Join(got, now + timeout);
          break;
        }
        case 1:
          EXPECT_EQ(drain.Leave(any), plain.Waits(any));
          plain.Leave(any);
          break;
        case 2:
          if (plain.Waits(any)) plain.Join(any, now);
          drain.Hurry(any, now);
          break;
        case 3:
          EXPECT_EQ(drain.TakeBack().ok(), !stops);
          EXPECT_EQ(drain.on(), stops && !callers.empty());
          if (!stops) {
            EXPECT_EQ(plain.waiting(), 0u);
          }
          break;
        case 4:
          left = below(4);
          break;
        default: {
          now += absl::Milliseconds(below(1000));
          const bool due = left > 0 && !cut && plain.deadline() <= now;
          const bool ended = drain.OnTime(now, left, failed);
          EXPECT_EQ(ended, due);
          if (ended) {
            cut = true;
            failed += left;
          }
          if (!ended && plain.waiting() > 0) {
            EXPECT_GT(drain.next(left), now);
          }
          break;
        }
      }
    }
    for (const auto& [caller, times] : heard) EXPECT_EQ(times, 1) << caller;
  }
}

}  // namespace
}  // namespace ferry
