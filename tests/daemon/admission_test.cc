// SPDX-License-Identifier: Apache-2.0
#include "daemon/admission.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr double kOften = 1e9;

TEST(Admission, AVisitorHasItsShareAndKeepsNobodyElseOut) {
  Admission admission({"a door", 10, 3, kOften, kOften});
  std::vector<Admission::Pass> passes;
  const auto come = [&](const std::string& who) {
    absl::StatusOr<Admission::Pass> pass = admission.Admit({who, 7}, kStart);
    if (pass.ok()) passes.push_back(*std::move(pass));
    return pass.status();
  };
  for (int i = 0; i < 3; ++i) EXPECT_THAT(come("uid 1"), Is("OK"));
  EXPECT_THAT(come("uid 1"),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "3 of at most 3 connections of uid 1"));
  EXPECT_THAT(come("uid 2"), Is("OK"));
  EXPECT_EQ(passes.back().uid(), 7u);
  passes.erase(passes.begin());  // who leaves may come again
  EXPECT_THAT(come("uid 1"), Is("OK"));
  EXPECT_EQ(admission.open(), 4u);
  EXPECT_EQ(admission.refused(), 1u);
}

TEST(Admission, ADoorHasRoomForSoManyInAll) {
  Admission admission({"a door", 4, 3, kOften, kOften});
  std::vector<Admission::Pass> passes;
  for (const char* who : {"a", "b", "c", "d"}) passes.push_back(*admission.Admit({who}, kStart));
  EXPECT_THAT(admission.Admit({"e"}, kStart).status(),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "4 of at most 4 of all"));
  passes.clear();
  EXPECT_THAT(admission.Admit({"e"}, kStart).status(), Is("OK"));
}

TEST(Admission, WhoComesTooOftenWaits) {
  Admission admission({"a door", 100, 100, 10, 20});
  for (int i = 0; i < 20; ++i) EXPECT_THAT(admission.Admit({"a"}, kStart).status(), Is("OK"));
  const absl::Status refused = admission.Admit({"a"}, kStart).status();
  EXPECT_THAT(refused, Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "more than 10 times a second"));
  EXPECT_EQ(RetryAfterOf(refused), absl::Milliseconds(100));
  EXPECT_THAT(admission.Admit({"b"}, kStart).status(), Is("OK"));
  EXPECT_THAT(admission.Admit({"a"}, kStart + absl::Milliseconds(100)).status(), Is("OK"));
  EXPECT_FALSE(admission.Admit({"a"}, kStart + absl::Milliseconds(100)).ok());
  EXPECT_EQ(admission.open(), 0u) << "their passes went at once";
}

TEST(Admission, OtherBoundsHoldForWhoComesNext) {
  Admission admission({"a door", 10, 3, 10, 20});
  std::vector<Admission::Pass> passes;
  for (int i = 0; i < 3; ++i) passes.push_back(*admission.Admit({"a"}, kStart));
  admission.SetBounds({"a door", 10, 2, 1, 1});
  EXPECT_EQ(admission.open(), 3u) << "who is there stays";
  EXPECT_THAT(admission.Admit({"a"}, kStart).status(),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "3 of at most 2 connections of a"));
  EXPECT_THAT(admission.Admit({"a"}, kStart).status(),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "more than 1 times a second"));
  admission.SetBounds({"a door", 10, 4, 10, 20});
  EXPECT_THAT(admission.Admit({"a"}, kStart + absl::Seconds(1)).status(), Is("OK"));
}

// Every visitor is remembered while it comes too often, and no longer.
TEST(Admission, MillionsOfVisitorsTakeNoMemory) {
  Admission admission({"a door", 10, 10, 10, 20});
  absl::Time now = kStart;
  for (int i = 0; i < 100'000; ++i) {
    now += absl::Milliseconds(1);
    ASSERT_TRUE(admission.Admit({absl::StrCat(i)}, now).ok());
  }
  EXPECT_LE(admission.remembered(), 2048u);
}

// Connections that may give way, and which of them were asked to.
struct Idle {
  Idle(Admission& admission, const std::string& who, int count) {
    for (int i = 0; i < count; ++i) {
      passes.push_back(*admission.Admit({who}, kStart));
      passes.back().MayGiveWay([this, i] { left.push_back(i); });
    }
  }
  std::vector<int> left;
  std::vector<Admission::Pass> passes;
};

TEST(Admission, TheOldestOfTheSameVisitorGivesWay) {
  Admission admission({"a door", 100, 3, kOften, kOften});
  Idle idle(admission, "a", 3), other(admission, "b", 3);
  idle.passes[0].Stays();
  for (int i = 0; i < 2; ++i) {
    absl::StatusOr<Admission::Pass> pass = admission.Admit({"a"}, kStart);
    EXPECT_THAT(pass.status(), Is("OK"));
    idle.passes.push_back(*std::move(pass));
  }
  EXPECT_THAT(idle.left, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(admission.Admit({"a"}, kStart).status(), Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS"))
      << "nobody of them may";
  EXPECT_THAT(other.left, ::testing::IsEmpty());
  EXPECT_EQ(admission.open(), 8u) << "these are not closed yet";
  idle.passes.clear();
  EXPECT_EQ(admission.open(), 3u);
  Idle again(admission, "a", 3);
  EXPECT_THAT(again.left, ::testing::IsEmpty());
}

TEST(Admission, WhoHasMostGivesWayWhereTheDoorIsAlmostFull) {
  Admission admission({"a door", 80, 60, kOften, kOften});
  Idle few(admission, "few", 10), many(admission, "many", 60);
  absl::StatusOr<Admission::Pass> newcomer = admission.Admit({"new"}, kStart);
  EXPECT_THAT(newcomer.status(), Is("OK"));
  EXPECT_THAT(many.left, ::testing::ElementsAre(0));
  EXPECT_THAT(few.left, ::testing::IsEmpty());
}

// Those that give way hold their descriptors until they are closed.
TEST(Admission, ThereAreNeverMoreThanAllMayBe) {
  Admission admission({"a door", 80, 60, kOften, kOften});
  Idle many(admission, "many", 60), more(admission, "more", 20);
  EXPECT_EQ(many.left.size(), 10u);
  EXPECT_EQ(admission.open(), 80u);
  EXPECT_THAT(admission.Admit({"new"}, kStart).status(),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "80 of at most 80 of all"));
  many.passes.erase(many.passes.begin());
  EXPECT_THAT(admission.Admit({"new"}, kStart).status(), Is("OK"));
}

// A visitor who comes faster than those that give way are closed.
TEST(Admission, AndOfAVisitorNotManyMoreThanItsShare) {
  Admission admission({"a door", 1000, 8, kOften, kOften});
  Idle idle(admission, "a", 8 + Admission::kMostLeaving);
  EXPECT_FALSE(admission.Admit({"a"}, kStart).ok());
  idle.passes.erase(idle.passes.begin());
  EXPECT_TRUE(admission.Admit({"a"}, kStart).ok());
}

TEST(Admission, PassesMayOutliveIt) {
  std::optional<Admission> admission(std::in_place, Admission::Bounds{"a door", 9, 9, 1, 9});
  Admission::Pass pass = *admission->Admit({"a"}, kStart);
  admission.reset();
  pass.MayGiveWay([] { FAIL(); });
  pass = Admission::Pass();
}

TEST(Admission, ASweepMakesRoomBeforeSomebodyIsRefused) {
  std::optional<Admission::Pass> held;
  int sweeps = 0;
  Admission admission({"a door", 1, 1, kOften, kOften}, [&] {
    ++sweeps;
    held.reset();
  });
  held = *admission.Admit({"a"}, kStart);
  EXPECT_EQ(sweeps, 0);
  EXPECT_TRUE(admission.Admit({"b"}, kStart).ok());
  EXPECT_EQ(sweeps, 1);
}

}  // namespace
}  // namespace ferry
