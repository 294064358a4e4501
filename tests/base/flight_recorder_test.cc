// SPDX-License-Identifier: Apache-2.0
#include "base/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace ferry {
namespace {

TEST(FlightRecorderTest, KeepsWhatItIsTold) {
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.Snapshot().empty());
  EXPECT_EQ(recorder.Dump(), "");
  recorder.Record("offer", 1, 2, 3, "key:1f2e");
  recorder.Record("done");
  const std::vector<FlightRecorder::Entry> entries = recorder.Snapshot();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].number, 0u);
  EXPECT_STREQ(entries[0].what, "offer");
  EXPECT_EQ(entries[0].a, 1u);
  EXPECT_EQ(entries[0].b, 2u);
  EXPECT_EQ(entries[0].c, 3u);
  EXPECT_STREQ(entries[0].text, "key:1f2e");
  EXPECT_GT(entries[0].realtime_nanos, 1'600'000'000'000'000'000);
  EXPECT_STREQ(entries[1].what, "done");
  EXPECT_STREQ(entries[1].text, "");
}

TEST(FlightRecorderTest, WrapsAndKeepsTheNewest) {
  FlightRecorder recorder;
  const uint64_t total = FlightRecorder::kCapacity + 100;
  for (uint64_t i = 0; i < total; ++i) recorder.Record("event", i, 0, 0, i % 2 ? "odd" : "");
  const std::vector<FlightRecorder::Entry> entries = recorder.Snapshot();
  ASSERT_EQ(entries.size(), FlightRecorder::kCapacity);
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].number, i + 100);
    EXPECT_EQ(entries[i].a, i + 100);
    EXPECT_STREQ(entries[i].text, i % 2 ? "odd" : "");  // nothing left of the one before
  }
}

TEST(FlightRecorderTest, CutsLongTextsAndKeepsEachEventOnOneLine) {
  FlightRecorder recorder;
  recorder.Record("long", 0, 0, 0, std::string(1000, 'x'));
  recorder.Record("lines", 1, 2, 3, absl::string_view("a\nb\0c", 5));
  const std::vector<FlightRecorder::Entry> entries = recorder.Snapshot();
  EXPECT_EQ(std::string(entries[0].text), std::string(63, 'x'));
  const std::vector<std::string> lines = absl::StrSplit(recorder.Dump(), '\n');
  ASSERT_EQ(lines.size(), 3u);
  constexpr char kDate[] = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z";
  EXPECT_THAT(lines[1], testing::MatchesRegex(absl::StrCat(
                            "  #1 ", kDate, " \\+0\\.[0-9]{6}s lines a=1 b=2 c=3 a b c")));
  EXPECT_EQ(lines[2], "");
}

TEST(FlightRecorderTest, TransfersAreShownAsPeopleKnowThem) {
  FlightRecorder recorder;
  recorder.Record("launch", MakeTransferId(SessionId(33), 1), 2, 4096);
  EXPECT_THAT(recorder.Dump(), testing::EndsWith("launch session 33 transfer 1 b=2 c=4096\n"));
}

TEST(FlightRecorderTest, LosesNothingOfManyThreads) {
  FlightRecorder recorder;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&recorder, t] {
      for (uint64_t i = 0; i < 1000; ++i) recorder.Record("event", t, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint64_t> next(4, 0);
  for (const FlightRecorder::Entry& event : recorder.Snapshot()) {
    EXPECT_EQ(event.b, next[event.a]++);
  }
  EXPECT_THAT(next, testing::Each(1000u));
}

TEST(CheckDeathTest, AFailedCheckTellsTheStory) {
  EXPECT_DEATH(
      {
        FlightRecorder::Get().Record("the.last.event", 42);
        FERRY_CHECK(1 + 1 == 3);
      },
      "check failed at .*flight_recorder_test.cc:[0-9]+: 1 \\+ 1 == 3(.|\n)*the.last.event a=42");
  FERRY_CHECK(1 + 1 == 2);
}

}  // namespace
}  // namespace ferry
