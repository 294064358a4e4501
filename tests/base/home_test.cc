// SPDX-License-Identifier: Apache-2.0
#include "base/home.h"

#include <gtest/gtest.h>

#include <thread>
#include <type_traits>

#include "base/executor.h"

namespace ferry {
namespace {

// A class as its header would say: "Home: control."
class Counter {
 public:
  void Add() {
    home_.Check();
    ++count_;
  }
  int count() const { return count_; }

 private:
  int count_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

TEST(HomeTest, AThreadIsAtTheInnermostHome) {
  const Home outer("outer");
  const Home inner("inner");
  EXPECT_FALSE(outer.IsCurrent());
  EXPECT_FALSE(outer.IsUnderWay());
  {
    const AtHome at(outer);
    EXPECT_TRUE(outer.IsCurrent());
    {
      const AtHome nested(inner);
      EXPECT_TRUE(inner.IsCurrent());
      EXPECT_FALSE(outer.IsCurrent());
      EXPECT_TRUE(outer.IsUnderWay());
      std::thread([&] { EXPECT_FALSE(inner.IsCurrent()); }).join();
    }
    EXPECT_TRUE(outer.IsCurrent());
    EXPECT_FALSE(inner.IsUnderWay());
  }
  EXPECT_FALSE(outer.IsUnderWay());
}

TEST(HomeTest, ATaskThatRunsAnothersTaskIsBackAtItsOwnHomeAfterwards) {
  SerialExecutor one("one");
  SerialExecutor other("other");
  one.RunAndWait([&] {
    other.PostOrRun([&] {
      EXPECT_TRUE(other.IsCurrent());
      EXPECT_FALSE(one.IsCurrent());
    });
    EXPECT_TRUE(one.IsCurrent());
    EXPECT_FALSE(other.IsCurrent());
  });
}

TEST(HomeTest, WhoRunsAnothersTaskMustNotWaitForItsOwnHome) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SerialExecutor one("one");
        SerialExecutor other("other");
        one.RunAndWait([&] { other.PostOrRun([&] { one.RunAndWait([] {}); }); });
      },
      "check failed at .*executor.cc:[0-9]+: !home_.IsUnderWay");
}

TEST(HomeCheckerTest, WhateverThreadRunsAHomesTasksIsAtThatHome) {
  SerialExecutor executor("executor");
  Counter counter;
  executor.RunAndWait([&] { counter.Add(); });
  executor.PostOrRun(
      [&] { counter.Add(); });  // on this thread, unless the executor is not idle yet
  executor.RunAndWait([&] { counter.Add(); });
  EXPECT_EQ(counter.count(), 3);
}

TEST(HomeCheckerTest, WhatIsAtNoHomeYetMayBeCalledFromAnywhere) {
  Counter counter;
  counter.Add();
  std::thread([&] { counter.Add(); }).join();
  SerialExecutor executor("executor");
  executor.RunAndWait([&] { counter.Add(); });
  EXPECT_EQ(counter.count(), 3);
}

TEST(HomeCheckerTest, OnceItsHomeHasEndedAnyThreadMayTakeItDown) {
  SerialExecutor executor("executor");
  Counter counter;
  executor.RunAndWait([&] { counter.Add(); });
  executor.Stop();
  counter.Add();
  SerialExecutor next("next");  // from now on its home
  next.RunAndWait([&] { counter.Add(); });
  EXPECT_EQ(counter.count(), 3);
}

#ifndef NDEBUG

TEST(HomeCheckerTest, ACallFromAnotherHomeEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SerialExecutor control("control");
        SerialExecutor memory("memory");
        Counter counter;
        control.RunAndWait([&] { counter.Add(); });
        memory.RunAndWait([&] { counter.Add(); });
      },
      "check failed at .*home_test.cc:[0-9]+: Add is called at 'memory', the object's home is "
      "'control'");
}

TEST(HomeCheckerTest, ACallFromAThreadAtNoHomeEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SerialExecutor control("control");
        Counter counter;
        control.RunAndWait([&] { counter.Add(); });
        std::thread([&] { counter.Add(); }).join();
      },
      "Add is called at no home, the object's home is 'control'");
}

TEST(HomeCheckerTest, ANestedTaskIsNotAtTheHomeAroundIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SerialExecutor lane("lane");
        SerialExecutor control("control");
        Counter counter;
        lane.RunAndWait([&] { counter.Add(); });
        lane.RunAndWait([&] { control.PostOrRun([&] { counter.Add(); }); });
      },
      "Add is called at 'control', the object's home is 'lane'");
}

TEST(HomeCheckerTest, ACopyIsAnotherObjectWithAHomeOfItsOwn) {
  SerialExecutor one("one");
  SerialExecutor other("other");
  Counter counter;
  one.RunAndWait([&] { counter.Add(); });
  Counter copy = counter;
  other.RunAndWait([&] { copy.Add(); });
  one.RunAndWait([&] { counter.Add(); });
  EXPECT_EQ(copy.count(), 2);
}

#else

TEST(HomeCheckerTest, ChecksNothingAndIsEmptyWithoutAssertions) {
  EXPECT_TRUE(std::is_empty_v<HomeChecker>);
  EXPECT_EQ(sizeof(Counter), sizeof(int));
}

#endif

}  // namespace
}  // namespace ferry
