// SPDX-License-Identifier: Apache-2.0
#include "device/lane.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "device/timeline.h"
#include "tests/device/pages.h"

namespace ferry {
namespace {

// What libferry does to define a value.
void Define(TimelinePages& pages, uint32_t timeline, uint64_t value) {
  const DefinedWord word = pages.Defined(timeline);
  __atomic_store_n(const_cast<uint64_t*>(word.value), value, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(word.parked, __ATOMIC_SEQ_CST) != 0) eventfd_write(word.doorbell, 1);
}

void AwaitParked(TimelinePages& pages, uint32_t lanes) {
  while (__atomic_load_n(pages.Defined(0).parked, __ATOMIC_SEQ_CST) != lanes) {
    std::this_thread::yield();
  }
}

class LaneTest : public ::testing::TestWithParam<absl::Duration> {
 protected:
  std::unique_ptr<TimelinePages> pages_ = testing::MakePages();
  std::atomic<uint64_t> reached_{0};
  Lane lane_{"test-lane", GetParam()};

  void Watch(Lane& lane, uint64_t transfer, uint32_t timeline, uint64_t target) {
    lane.RunAndWait([&] {
      lane.WatchWord(TransferId(transfer), pages_->Defined(timeline), target,
                     [this, &lane](TransferId) {
                       EXPECT_TRUE(lane.IsCurrent());
                       reached_.fetch_add(1);
                       reached_.notify_all();
                     });
      EXPECT_EQ(reached_.load(), 0u) << "never inline";
    });
  }
  void AwaitReached(uint64_t count) {
    for (uint64_t now; (now = reached_.load()) < count;) reached_.wait(now);
  }
};

INSTANTIATE_TEST_SUITE_P(Spin, LaneTest,
                         ::testing::Values(absl::ZeroDuration(), absl::Microseconds(50)),
                         [](const auto& info) {
                           return info.param == absl::ZeroDuration() ? "None" : "Some";
                         });

TEST_P(LaneTest, RunsTasksInOrder) {
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) lane_.Post([&seen, i] { seen.push_back(i); });
  lane_.RunAndWait([] {});
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
  EXPECT_FALSE(lane_.IsCurrent());
}

TEST_P(LaneTest, AWordIsBelievedUpToOneMoreThanWhatIsOver) {
  std::atomic<uint64_t> over{0};
  Define(*pages_, 4, 1000);
  std::vector<uint64_t> seen;
  lane_.RunAndWait([&] {
    for (const uint64_t target : {1, 2, 3}) {
      DefinedWord word = pages_->Defined(4);
      word.over = &over;
      lane_.WatchWord(TransferId(target), word, target, [this, &seen](TransferId transfer) {
        seen.push_back(transfer.value());
        reached_.fetch_add(1);
        reached_.notify_all();
      });
    }
  });
  for (const uint64_t n : {1, 2, 3}) {
    AwaitReached(n);
    AwaitParked(*pages_, n < 3 ? 1 : 0);  // so it has looked, and sees no more
    EXPECT_EQ(reached_.load(), n);
    over.store(n);
    eventfd_write(pages_->Defined(4).doorbell, 1);
  }
  lane_.RunAndWait([&] { EXPECT_EQ(lane_.watches(), 0u); });
  EXPECT_EQ(seen, (std::vector<uint64_t>{1, 2, 3}));
}

TEST_P(LaneTest, AlreadyReachedWordIsSeen) {
  Define(*pages_, 4, 10);
  lane_.RunAndWait([&] {
    lane_.WatchWord(TransferId(1), pages_->Defined(4), 10, [this](TransferId) {
      reached_.fetch_add(1);
      reached_.notify_all();
    });
    EXPECT_EQ(reached_.load(), 0u);
  });
  AwaitReached(1);
}

TEST_P(LaneTest, ParkedLaneWakesByDoorbell) {
  for (uint64_t round = 1; round <= 200; ++round) {
    reached_ = 0;
    Watch(lane_, round, round % 64, round);
    AwaitParked(*pages_, 1);
    EXPECT_EQ(reached_.load(), 0u);
    Define(*pages_, round % 64, round);
    AwaitReached(1);
  }
  lane_.RunAndWait([&] { EXPECT_EQ(lane_.watches(), 0u); });
}

// The store may fall anywhere around parking.
TEST_P(LaneTest, StoreRacesWithParking) {
  for (uint64_t round = 1; round <= 3000; ++round) {
    reached_ = 0;
    Watch(lane_, round, 0, round);
    for (uint64_t spin = round % 97; spin > 0; --spin) reached_.load();
    Define(*pages_, 0, round);
    AwaitReached(1);  // a lost wake-up hangs here
  }
}

TEST_P(LaneTest, TwoLanesShareADoorbell) {
  Lane other("other-lane", GetParam());
  for (uint64_t round = 1; round <= 100; ++round) {
    reached_ = 0;
    Watch(lane_, round, 1, round);
    Watch(other, round, 2, round);
    AwaitParked(*pages_, 2);
    Define(*pages_, 1, round);
    AwaitReached(1);
    AwaitParked(*pages_, 1);  // the one that woke up must not have silenced the doorbell
    Define(*pages_, 2, round);
    AwaitReached(2);
  }
}

TEST_P(LaneTest, TargetsOfOneWordInAnyOrder) {
  for (uint64_t i = 0; i < 500; ++i) Watch(lane_, i + 1, 3, (i * 7919) % 500 + 1);
  AwaitParked(*pages_, 1);
  for (uint64_t value : {1u, 2u, 100u, 499u}) {
    Define(*pages_, 3, value);
    AwaitReached(value);
    lane_.RunAndWait([] {});
    EXPECT_EQ(reached_.load(), value);
  }
  lane_.RunAndWait([&] { EXPECT_EQ(lane_.watches(), 1u); });
}

TEST_P(LaneTest, UnwatchForgets) {
  Watch(lane_, 1, 0, 5);
  Watch(lane_, 2, 0, 5);
  lane_.RunAndWait([&] {
    lane_.Unwatch(TransferId(1));
    lane_.Unwatch(TransferId(77));
    EXPECT_EQ(lane_.watches(), 1u);
  });
  Define(*pages_, 0, 5);
  AwaitReached(1);
  lane_.RunAndWait([] {});
  EXPECT_EQ(reached_.load(), 1u);
}

// One callback may forget another watch that was reached at the same time.
TEST_P(LaneTest, CallbackForgetsAnother) {
  lane_.RunAndWait([&] {
    for (uint64_t id : {1u, 2u}) {
      lane_.WatchWord(TransferId(id), pages_->Defined(0), 1, [this, id](TransferId) {
        lane_.Unwatch(TransferId(3 - id));
        reached_.fetch_add(1);
        reached_.notify_all();
      });
    }
    Define(*pages_, 0, 1);
  });
  AwaitReached(1);
  lane_.RunAndWait([&] { EXPECT_EQ(lane_.watches(), 0u); });
  EXPECT_EQ(reached_.load(), 1u);
}

// After UnwatchPages the pages go away under a lane that had parked on them; another session's
// stay.
TEST_P(LaneTest, UnwatchPagesBeforeUnmapping) {
  auto other = testing::MakePages();
  for (uint64_t i = 1; i <= 64; ++i) Watch(lane_, i, i - 1, 1);
  lane_.RunAndWait([&] {
    lane_.WatchWord(TransferId(100), other->Defined(0), 1, [this](TransferId) {
      reached_.fetch_add(1);
      reached_.notify_all();
    });
  });
  AwaitParked(*pages_, 1);
  lane_.RunAndWait([&] { lane_.UnwatchPages(pages_->begin(), pages_->end()); });
  pages_.reset();
  lane_.RunAndWait([&] { EXPECT_EQ(lane_.watches(), 1u); });
  Define(*other, 0, 1);
  AwaitReached(1);
}

TEST_P(LaneTest, GarbageInTheSignalsHurtsNobodyElse) {
  auto victim = testing::MakePages();
  Watch(lane_, 1, 0, 1);
  lane_.RunAndWait([&] {
    lane_.WatchWord(TransferId(2), victim->Defined(0), 1, [this](TransferId) {
      reached_.fetch_add(1);
      reached_.notify_all();
    });
  });
  AwaitParked(*pages_, 1);
  __atomic_store_n(pages_->Defined(0).parked, 0xFFFFFFFF, __ATOMIC_SEQ_CST);
  for (int i = 0; i < 100; ++i) eventfd_write(pages_->doorbell(), uint64_t{1} << 56);
  AwaitParked(*victim, 1);
  Define(*victim, 0, 1);
  AwaitReached(1);
}

// As epoll refuses it: a doorbell that is no doorbell, or one watch too many.
TEST_P(LaneTest, AWordWhoseDoorbellCannotBeHeardIsLookedAt) {
  const UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  lane_.RunAndWait([&] {
    DefinedWord word = pages_->Defined(0);
    word.doorbell = file.get();
    lane_.WatchWord(TransferId(1), word, 1, [this](TransferId) {
      reached_.fetch_add(1);
      reached_.notify_all();
    });
  });
  AwaitParked(*pages_, 1);
  __atomic_store_n(const_cast<uint64_t*>(pages_->Defined(0).value), 1, __ATOMIC_SEQ_CST);
  AwaitReached(1);
}

class FdPoller : public Poller {
 public:
  bool Poll() override {
    uint64_t value = 0;
    if (read(fd_.get(), &value, sizeof(value)) != sizeof(value)) return false;
    seen_.fetch_add(value);
    seen_.notify_all();
    return true;
  }
  bool Busy() const override { return busy_; }
  int EventFd() const override { return fd_.get(); }
  bool PrepareToPark() override { return ++prepared_ % 3 != 0; }

  UniqueFd fd_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::atomic<uint64_t> seen_{0};
  std::atomic<bool> busy_{false};
  uint64_t prepared_ = 0;
};

TEST_P(LaneTest, ParksOnAPollersDescriptor) {
  FdPoller poller;
  for (const bool busy : {false, true}) {
    poller.busy_ = busy;
    poller.seen_ = 0;
    lane_.RunAndWait([&] { lane_.AddPoller(&poller); });
    for (uint64_t i = 0; i < 500; ++i) {
      eventfd_write(poller.fd_.get(), 1);
      for (uint64_t now; (now = poller.seen_.load()) <= i;) poller.seen_.wait(now);
    }
    lane_.RunAndWait([&] { lane_.RemovePoller(&poller); });
  }
  eventfd_write(poller.fd_.get(), 1);
  lane_.RunAndWait([] {});
  EXPECT_EQ(poller.seen_.load(), 500u);
}

// A poller that has no work but something left to do, which its descriptor does not tell.
class UnreadyPoller : public FdPoller {
 public:
  bool Poll() override {
    ready_ = true;
    ready_.notify_all();
    return true;
  }
  bool PrepareToPark() override { return ready_; }
  std::atomic<bool> ready_{false};
};

TEST_P(LaneTest, PollsWhatIsNotReadyToPark) {
  UnreadyPoller poller;
  lane_.RunAndWait([&] { lane_.AddPoller(&poller); });
  poller.ready_.wait(false);
  lane_.RunAndWait([&] { lane_.RemovePoller(&poller); });
}

class CountingPoller : public Poller {
 public:
  bool Poll() override {
    polls_.fetch_add(1);
    return progress_;
  }
  bool Busy() const override { return busy_; }
  bool progress_ = false;
  std::atomic<uint64_t> polls_{0};
  std::atomic<bool> busy_{true};
};

TEST_P(LaneTest, PollsWithoutDescriptorWhileBusy) {
  CountingPoller poller;
  lane_.RunAndWait([&] { lane_.AddPoller(&poller); });
  while (poller.polls_.load() < 100) std::this_thread::yield();
  poller.busy_ = false;
  lane_.RunAndWait([] {});
  const uint64_t before = poller.polls_.load();
  lane_.RunAndWait([] {});
  EXPECT_EQ(poller.polls_.load(), before);
  lane_.RunAndWait([&] { lane_.RemovePoller(&poller); });
}

// A lane that another poller keeps from parking, by its progress or because it may spin.
TEST_P(LaneTest, HearsAPollersDescriptorWhileItDoesNotPark) {
  for (const bool progress : {false, true}) {
    CountingPoller working;
    working.progress_ = progress;
    FdPoller idle;
    lane_.RunAndWait([&] {
      lane_.AddPoller(&working);
      lane_.AddPoller(&idle);
    });
    for (uint64_t i = 0; i < 10; ++i) {
      eventfd_write(idle.fd_.get(), 1);
      for (uint64_t now; (now = idle.seen_.load()) <= i;) idle.seen_.wait(now);
    }
    lane_.RunAndWait([&] {
      lane_.RemovePoller(&working);
      lane_.RemovePoller(&idle);
    });
  }
}

// With a watch, a busy poller and nothing happening the lane's own clock stands still.
TEST_P(LaneTest, IdleLaneUsesNoCpu) {
  FdPoller poller;
  poller.busy_ = true;
  Watch(lane_, 1, 0, 1);
  clockid_t clock = 0;
  lane_.RunAndWait([&] {
    lane_.AddPoller(&poller);
    ASSERT_EQ(pthread_getcpuclockid(pthread_self(), &clock), 0);
  });
  AwaitParked(*pages_, 1);
  const auto cpu = [&] {
    timespec now;
    clock_gettime(clock, &now);
    return absl::DurationFromTimespec(now);
  };
  const absl::Duration before = cpu();
  // Our own CPU time passes meanwhile; a lane that spun would use as much.
  const absl::Time end = MonotonicNow() + absl::Milliseconds(300);
  while (MonotonicNow() < end) std::this_thread::yield();
  EXPECT_LT(cpu() - before, absl::Milliseconds(30));
  lane_.RunAndWait([&] { lane_.RemovePoller(&poller); });
}

TEST_P(LaneTest, StopRunsWhatWasPosted) {
  int ran = 0;
  for (int i = 0; i < 100; ++i) lane_.Post([&ran] { ++ran; });
  lane_.Stop();
  EXPECT_EQ(ran, 100);
  lane_.Post([&ran] { ++ran; });
  EXPECT_EQ(ran, 100);
  lane_.RunAndWait([&] {
    EXPECT_TRUE(lane_.IsCurrent());
    ++ran;
  });
  EXPECT_EQ(ran, 101);
  EXPECT_FALSE(lane_.IsCurrent());
}

TEST(LaneCpuTest, TimeThatTheThreadTakesIsCounted) {
  Lane lane("test-lane", absl::ZeroDuration());
  const absl::Duration before = lane.CpuTime();
  lane.RunAndWait([&] {
    // Its own clock says when it has taken so much, however little the machine gives it.
    timespec now{};
    const auto taken = [&] {
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return absl::DurationFromTimespec(now);
    };
    const absl::Duration end = taken() + absl::Milliseconds(5);
    while (taken() < end) {
    }
  });
  EXPECT_GE(lane.CpuTime() - before, absl::Milliseconds(5));
  lane.Stop();
  EXPECT_EQ(lane.CpuTime(), absl::ZeroDuration());
}

}  // namespace
}  // namespace ferry
