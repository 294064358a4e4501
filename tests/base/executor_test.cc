// SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;

// Set once, waited for.
class Event {
 public:
  void Set() {
    MutexLock lock(mutex_);
    set_ = true;
    cv_.notify_all();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!set_) cv_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  std::condition_variable_any cv_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(SerialExecutorTest, RunsTasksInTheOrderOfPosting) {
  std::vector<int> ran;
  {
    SerialExecutor executor("test");
    for (int i = 0; i < 1000; ++i) executor.Post([&ran, i] { ran.push_back(i); });
  }
  ASSERT_EQ(ran.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ran[i], i);
}

TEST(SerialExecutorTest, NeverRunsATaskInline) {
  SerialExecutor executor("test");
  std::vector<int> order;
  executor.RunAndWait([&] {
    executor.Post([&order] { order.push_back(2); });
    order.push_back(1);
  });
  executor.RunAndWait([&order] { order.push_back(3); });
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

TEST(SerialExecutorTest, KnowsItsThreadAndNamesIt) {
  SerialExecutor executor("a-name-longer-than-fits");
  SerialExecutor other("other");
  EXPECT_FALSE(executor.IsCurrent());
  executor.RunAndWait([&] {
    EXPECT_TRUE(executor.IsCurrent());
    EXPECT_FALSE(other.IsCurrent());
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    EXPECT_STREQ(name, "a-name-longer-t");
  });
}

TEST(SerialExecutorTest, PostsFromManyThreadsAllRunEachThreadsInOrder) {
  constexpr int kThreads = 4;
  constexpr int kPosts = 20'000;
  SerialExecutor executor("test");
  std::vector<int> last(kThreads, -1);  // the executor's own
  int out_of_order = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        executor.Post([&, t, i] {
          if (last[t] != i - 1) ++out_of_order;
          last[t] = i;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  executor.Stop();
  EXPECT_EQ(out_of_order, 0);
  EXPECT_THAT(last, testing::Each(kPosts - 1));
}

TEST(SerialExecutorTest, AfterTasksRunsAfterTasks) {
  SerialExecutor executor("test");
  std::vector<std::string> events;
  executor.SetAfterTasks([&] {
    events.push_back("after");
    return absl::InfiniteFuture();
  });
  executor.RunAndWait([&] { events.clear(); });
  executor.RunAndWait([&] { events.push_back("task"); });
  executor.Stop();
  // The first "after" is that of the run which cleared, unless both tasks were one run.
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "after");
  EXPECT_EQ(events[events.size() - 2], "task");
}

TEST(SerialExecutorTest, AfterTasksRunsWithinARunThatTakesLong) {
  SerialExecutor executor("test");
  int runs = 0;
  executor.SetAfterTasks([&] {
    ++runs;
    return absl::InfiniteFuture();
  });
  std::vector<int> seen;
  Event posted;
  executor.Post([&] { posted.Wait(); });
  for (int i = 0; i < 3; ++i) {
    executor.Post([&] {
      const absl::Time until = MonotonicNow() + SerialExecutor::kLongRun;
      while (MonotonicNow() < until) continue;
      seen.push_back(runs);
    });
  }
  posted.Set();
  executor.RunAndWait([] {});
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_GT(seen[1], seen[0]);
  EXPECT_GT(seen[2], seen[1]);
}

TEST(SerialExecutorTest, AfterTasksIsATimer) {
  SerialExecutor executor("test");
  Event fired;
  const absl::Time start = MonotonicNow();
  const absl::Time due = start + absl::Milliseconds(30);
  absl::Time seen = absl::InfinitePast();
  executor.SetAfterTasks([&] {
    const absl::Time now = MonotonicNow();
    if (now < due) return due;
    if (seen == absl::InfinitePast()) {
      seen = now;
      fired.Set();
    }
    return absl::InfiniteFuture();
  });
  fired.Wait();  // nothing is posted any more: only the timer can do it
  executor.Stop();
  EXPECT_GE(seen, due);
  EXPECT_LT(seen, due + absl::Seconds(5));
}

TEST(SerialExecutorTest, ATimerFarAwayKeepsNobodyFromPosting) {
  SerialExecutor executor("test");
  int calls = 0;
  executor.SetAfterTasks([&] {
    ++calls;
    return MonotonicNow() + absl::Hours(24 * 365 * 400);
  });
  for (int i = 0; i < 100; ++i) executor.RunAndWait([] {});
  executor.Stop();
  EXPECT_GE(calls, 1);
  EXPECT_LE(calls, 102);  // it did not spin
}

TEST(SerialExecutorTest, PostOrRunRunsHereWhenIdleAndIsThenCurrent) {
  SerialExecutor executor("test");
  executor.RunAndWait([] {});
  std::thread::id ran;
  bool current = false;
  // The thread may still be on its way back to sleep after RunAndWait, and then runs the task
  // itself.
  for (int i = 0; i < 1000 && ran != std::this_thread::get_id(); ++i) {
    executor.PostOrRun([&] {
      ran = std::this_thread::get_id();
      current = executor.IsCurrent();
    });
    executor.RunAndWait([] {});
  }
  EXPECT_EQ(ran, std::this_thread::get_id());
  EXPECT_TRUE(current);
  EXPECT_FALSE(executor.IsCurrent());
}

TEST(SerialExecutorTest, PostOrRunAndPostNeverRunTwoTasksAtOnce) {
  SerialExecutor executor("test");
  int counter = 0;  // no lock: the executor is one
  int after = 0;
  executor.SetAfterTasks([&] {
    ++after;
    return absl::InfiniteFuture();
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5000; ++i) {
        if ((i + t) % 2 == 0) {
          executor.Post([&] { ++counter; });
        } else {
          executor.PostOrRun([&] { ++counter; });
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  executor.RunAndWait([] {});
  int seen = 0;
  int runs = 0;
  executor.RunAndWait([&] {
    seen = counter;
    runs = after;
  });
  EXPECT_EQ(seen, 20000);
  EXPECT_GT(runs, 0);
}

TEST(SerialExecutorTest, ALongTaskIsTheThreadsAndTheCallerGoesOn) {
  SerialExecutor executor("test");
  executor.RunAndWait([] {});
  std::atomic<bool> open = false;
  std::thread::id ran;
  executor.PostLong([&] {
    open.wait(false);
    ran = std::this_thread::get_id();
  });
  open = true;  // which the task waits for
  open.notify_all();
  executor.RunAndWait([] {});
  EXPECT_NE(ran, std::thread::id());
  EXPECT_NE(ran, std::this_thread::get_id());
}

class SerialExecutorBoundTest : public ::testing::TestWithParam<void (SerialExecutor::*)(Task)> {};

INSTANTIATE_TEST_SUITE_P(Calls, SerialExecutorBoundTest,
                         ::testing::Values(&SerialExecutor::PostOrRun, &SerialExecutor::PostLong));

TEST_P(SerialExecutorBoundTest, WhoPostsWaitsWhileTooManyTasksDo) {
  SerialExecutor executor("test");
  const auto post = [&](Task task) { (executor.*GetParam())(std::move(task)); };
  std::atomic<bool> started = false, open = false;
  executor.Post([&] {
    started = true;
    started.notify_all();
    open.wait(false);
  });
  started.wait(false);
  constexpr size_t kTasks = 3 * SerialExecutor::kMostWaiting;
  std::atomic<size_t> posted = 0, ran = 0;
  std::thread outside([&] {
    for (size_t i = 0; i < kTasks; ++i) {
      post([&] {
        // Who runs here may go on: nobody else would make room.
        if (ran++ == 0) {
          for (size_t j = 0; j < kTasks; ++j) post([&] { ++ran; });
        }
      });
      ++posted;
    }
  });
  while (posted < SerialExecutor::kMostWaiting) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_EQ(posted, SerialExecutor::kMostWaiting);
  open = true;
  open.notify_all();
  outside.join();
  executor.RunAndWait([] {});
  EXPECT_EQ(ran, 2 * kTasks);
}

TEST(SerialExecutorTest, ATimerAskedForByAnInlineTaskFiresOnTheThread) {
  SerialExecutor executor("test");
  absl::Time due = absl::InfiniteFuture();
  int fired = 0;
  Mutex mutex;
  std::condition_variable_any changed;
  executor.SetAfterTasks([&] {
    if (due <= MonotonicNow()) {
      due = absl::InfiniteFuture();
      MutexLock lock(mutex);
      ++fired;
      changed.notify_all();
    }
    return due;
  });
  for (int round = 1; round <= 50; ++round) {
    executor.PostOrRun([&] { due = MonotonicNow() + absl::Milliseconds(1); });
    MutexLock lock(mutex);
    while (fired < round) changed.wait(mutex);
  }
  EXPECT_EQ(fired, 50);
}

TEST(SerialExecutorTest, StopRunsWhatWasPostedAndDropsTheRest) {
  SerialExecutor executor("test");
  Event entered;
  Event release;
  std::atomic<int> ran = 0;
  executor.Post([&] {
    entered.Set();
    release.Wait();
  });
  entered.Wait();
  for (int i = 0; i < 10; ++i) executor.Post([&] { ++ran; });
  // Posted by a task that runs before Stop has a say or after: dropped or run, never half done.
  release.Set();
  executor.Stop();
  EXPECT_EQ(ran, 10);
  auto held = std::make_shared<int>(1);
  executor.Post([held] { FAIL() << "ran after Stop"; });
  EXPECT_EQ(held.use_count(), 1);  // dropped means destroyed
  executor.Stop();
}

TEST(SerialExecutorTest, RunAndWaitOnAStoppedExecutorReturns) {
  SerialExecutor executor("test");
  executor.Stop();
  bool ran = false;
  executor.RunAndWait([&] { ran = true; });
  EXPECT_FALSE(ran);
}

TEST(SerialExecutorTest, MonotonicTimeDoesNotGoBack) {
  absl::Time last = MonotonicNow();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = MonotonicNow();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(SerialExecutorDeathTest, StoppingItselfIsABrokenInvariant) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SerialExecutor executor("test");
        executor.RunAndWait([&] { executor.Stop(); });
      },
      "check failed at .*executor.cc");
}

}  // namespace
}  // namespace ferry
