// SPDX-License-Identifier: Apache-2.0
// What is known of transfers whose daemon is gone, and of those that nobody was told of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/life.h"
#include "client/timelines.h"
#include "client/unheard.h"

namespace ferry::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StatusPtr Lost() { return Error(kUnavailable, kReasonDaemonLost, "lost"); }

CounterLines Lines(const CounterLine& first) {
  CounterLines lines{};
  lines[0] = first;
  return lines;
}

std::string ReasonAtEnd(const Life& life, uint64_t value) {
  const StatusPtr status = life.StatusAtEnd(value, 0, value);
  return status == nullptr ? "OK" : status->reason;
}

TEST(LifeTest, WhatTheDaemonHadToldCountsAndTheRestIsLost) {
  Life life({});
  life.End(Lost(), Lines({5, 3, 1}));
  EXPECT_TRUE(life.ended());
  EXPECT_EQ(ReasonAtEnd(life, 2), "OK");
  EXPECT_EQ(ReasonAtEnd(life, 3), kReasonDaemonLost);  // it failed, nobody knows why
  EXPECT_EQ(ReasonAtEnd(life, 4), "OK");               // the only failure was 3
  EXPECT_EQ(ReasonAtEnd(life, 6), kReasonDaemonLost);
}

TEST(LifeTest, AfterSeveralFailuresOnlyWhatWasBeforeThemIsKnown) {
  Life life({});
  life.End(Lost(), Lines({5, 3, 2}));
  EXPECT_EQ(ReasonAtEnd(life, 2), "OK");
  EXPECT_EQ(ReasonAtEnd(life, 4), kReasonDaemonLost);
}

TEST(LifeTest, OfAClosedSessionWhatIsNotKnownIsNotFound) {
  Life life({});
  life.End(Error(kCancelled, kReasonCancelled, "closed"), Lines({5, 3, 2}));
  EXPECT_EQ(ReasonAtEnd(life, 2), "OK");
  EXPECT_EQ(ReasonAtEnd(life, 4), kReasonTransferNotFound);
  EXPECT_EQ(ReasonAtEnd(life, 6), kReasonCancelled);
}

TEST(LifeTest, FailuresOfOlderLivesAreNotItsOwn) {
  const CounterLine begin{10, 4, 6};
  Life well(Lines(begin));
  EXPECT_TRUE(well.AllWell(0, {20, 4, 6}, 11, 20));
  EXPECT_FALSE(well.AllWell(0, {20, 4, 7}, 11, 20));
  well.End(Lost(), Lines({20, 4, 6}));
  EXPECT_EQ(ReasonAtEnd(well, 11), "OK");
  EXPECT_EQ(ReasonAtEnd(well, 21), kReasonDaemonLost);
  // One of its own failed: the line does not say which, so nothing of it is known.
  Life failed(Lines(begin));
  failed.End(Lost(), Lines({20, 4, 7}));
  EXPECT_EQ(ReasonAtEnd(failed, 11), kReasonDaemonLost);
  EXPECT_EQ(ReasonAtEnd(failed, 20), kReasonDaemonLost);
}

TEST(LifeTest, AfterAResetTheFieldsSpeakOfWhatCameLater) {
  Life life(Lines({10, 4, 6}));
  life.BeginReset(0);
  life.EndReset(0, 15);
  EXPECT_FALSE(life.AllWell(0, {18, 0, 0}, 15, 16));
  EXPECT_TRUE(life.AllWell(0, {18, 0, 0}, 16, 18));
  life.End(Lost(), Lines({18, 17, 1}));
  EXPECT_EQ(ReasonAtEnd(life, 15), kReasonDaemonLost);
  EXPECT_EQ(ReasonAtEnd(life, 16), "OK");
  EXPECT_EQ(ReasonAtEnd(life, 17), kReasonDaemonLost);
  EXPECT_EQ(ReasonAtEnd(life, 18), "OK");
}

// The daemon has cleared the fields, and nobody knows yet of which values.
TEST(LifeTest, WhileAResetIsUnderWayTheFieldsSayNothing) {
  Life life({});
  EXPECT_TRUE(life.AllWell(0, {18, 0, 0}, 15, 16));
  life.BeginReset(0);
  EXPECT_FALSE(life.AllWell(0, {18, 0, 0}, 15, 16));
  EXPECT_TRUE(life.AllWell(1, {18, 0, 0}, 15, 16)) << "another counter";
  const uint64_t before = life.ResetsOver(0);
  life.EndReset(0, 15);
  EXPECT_TRUE(life.AllWell(0, {18, 0, 0}, 16, 16));
  life.Posted(0, 17, before);  // the answer to the post came later than that to the reset
  EXPECT_FALSE(life.AllWell(0, {18, 0, 0}, 16, 16));
  life.Posted(0, 18, life.ResetsOver(0));
  EXPECT_TRUE(life.AllWell(0, {18, 0, 0}, 18, 18));
  life.BeginReset(0);
  life.End(Lost(), Lines({18, 0, 0}));
  EXPECT_EQ(ReasonAtEnd(life, 18), kReasonDaemonLost) << "it may have been carried out";
}

std::vector<uint64_t> Ids(Unheard& unheard) {
  std::vector<uint64_t> ids;
  for (const Unheard::Batch& batch : unheard.TakeAll()) {
    for (uint64_t i = 0; i < batch.count; ++i) {
      EXPECT_EQ(batch.first_value + i, batch.first_id + i + 100);  // as they are posted below
      ids.push_back(batch.first_id + i);
    }
  }
  return ids;
}
Unheard::Batch Batch(uint64_t first, uint64_t count) { return {first, count, 0, first + 100}; }

TEST(UnheardTest, KeepsWhatWasPostedAndNotHeard) {
  Unheard unheard(0);
  unheard.Posted(Batch(1, 5));
  unheard.Posted(Batch(6, 1));
  unheard.Posted(Batch(7, 0));
  for (const uint64_t id : {3, 1, 5, 6}) EXPECT_TRUE(unheard.Heard(id));
  EXPECT_EQ(unheard.Finish(), 6u);
  EXPECT_FALSE(unheard.Heard(2)) << "it is told with those that are left";
  EXPECT_THAT(Ids(unheard), ElementsAre(2, 4));
  EXPECT_THAT(Ids(unheard), IsEmpty());
}

TEST(UnheardTest, AnEndingMayOvertakeItsAnswer) {
  Unheard unheard(40);
  EXPECT_TRUE(unheard.Heard(51));
  EXPECT_TRUE(unheard.Heard(53));
  unheard.Posted(Batch(50, 3));
  EXPECT_THAT(Ids(unheard), ElementsAre(50, 52));
  EXPECT_EQ(unheard.Finish(), 53u) << "of a batch whose answer never came";
}

TEST(UnheardTest, ForgetsWhatIsOverOnceThereIsMuchOfIt) {
  Timelines timelines;
  const int memfd = memfd_create("timelines", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memfd, FERRY_TIMELINE_BYTES), 0);
  auto* pages = static_cast<ferry_timeline_pages*>(
      mmap(nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  ASSERT_EQ(timelines.Map(memfd, -1), nullptr);
  Unheard unheard(0);
  pages->over[0].value = 100 + 990;
  for (uint64_t id = 1; id <= 1000; ++id) {
    unheard.Posted(Batch(id, 1));
    unheard.ForgetOver(timelines);
  }
  const std::vector<uint64_t> left = Ids(unheard);
  EXPECT_LT(left.size(), 300u);
  EXPECT_EQ(left.back(), 1000u);
  munmap(pages, FERRY_TIMELINE_BYTES);
}

TEST(TimelinesTest, AnEndReachesEveryPostedValueAndABeginGoesOn) {
  Timelines timelines;
  const int memfd = memfd_create("timelines", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memfd, FERRY_TIMELINE_BYTES), 0);
  auto* pages = static_cast<ferry_timeline_pages*>(
      mmap(nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  ASSERT_EQ(timelines.Map(memfd, -1), nullptr);
  timelines.Posted(3, 10);
  pages->over[3] = {4, 2, 1, 0, {}};
  timelines.End();
  EXPECT_EQ(timelines.WaitOver(3, 10, 0), Timelines::Wait::kReached);
  EXPECT_EQ(timelines.WaitOver(3, 11, kForever), Timelines::Wait::kEnded);
  EXPECT_EQ(timelines.Over(3).first_failed, 2u);
  EXPECT_EQ(timelines.Over(3).failures, 7u);
  pages->over[3] = {5, 2, 1, 0, {}};  // the daemon that is gone had one more word to say
  pages->over[9].value = 77;          // and was over with what it never told us of
  const CounterLines settled = timelines.Settle();
  EXPECT_EQ(settled[3].value, 10u);
  EXPECT_EQ(settled[3].failures, 7u);
  EXPECT_EQ(timelines.Over(3).value, 10u);
  EXPECT_EQ(settled[9].value, 77u);
  timelines.Begin(-1);
  EXPECT_EQ(timelines.WaitOver(3, 11, 0), Timelines::Wait::kTimeout);
  timelines.Posted(3, 11);
  pages->over[3].value = 11;
  EXPECT_EQ(timelines.WaitOver(3, 11, kForever), Timelines::Wait::kReached);
  munmap(pages, FERRY_TIMELINE_BYTES);
}

TEST(TimelinesTest, WhereTheNextLifeBeginsIsNeverBelowWhatAStreamWaitsFor) {
  Timelines timelines;
  Life first({});
  EXPECT_TRUE(timelines.TellStream(first, 9));
  EXPECT_TRUE(timelines.TellStream(first, 4));
  EXPECT_EQ(timelines.prepared_from(), 9u);
  first.End(Lost(), {});
  EXPECT_FALSE(timelines.TellStream(first, 10)) << "it would wait for the next life's";
  EXPECT_EQ(timelines.prepared_from(), 9u);
  Life second({}, 9);
  EXPECT_TRUE(timelines.TellStream(second, 3));
  EXPECT_EQ(timelines.prepared_from(), 12u);
  // Numbers that nobody fires so often: they wait for the end.
  EXPECT_EQ(Timelines::PreparedValue(second, FERRY_PREPARED_ENDED - 9), FERRY_PREPARED_ENDED);
  for (const uint64_t far : {FERRY_PREPARED_ENDED, ~uint64_t{0}}) {
    EXPECT_EQ(Timelines::PreparedValue(second, far), FERRY_PREPARED_ENDED);
    EXPECT_TRUE(timelines.TellStream(second, far));
  }
  EXPECT_EQ(timelines.prepared_from(), 12u);
  const uint64_t last = (uint64_t{1} << 62) - 1;
  Life late({}, last);
  EXPECT_TRUE(timelines.TellStream(late, 1));
  EXPECT_EQ(timelines.prepared_from(), last) << "a daemon takes no more";
}

}  // namespace
}  // namespace ferry::client
