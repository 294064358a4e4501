// SPDX-License-Identifier: Apache-2.0
#include "device/timeline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/device/pages.h"
#include "tests/support/await.h"

namespace ferry {
namespace {

// The client's mapping of a session's pages.
class Client {
 public:
  explicit Client(const TimelinePages& pages)
      : pages_(static_cast<ferry_timeline_pages*>(mmap(
            nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, pages.memfd(), 0))) {
  }
  ~Client() { munmap(pages_, FERRY_TIMELINE_BYTES); }
  ferry_timeline_pages* operator->() const { return pages_; }

  // The waiter of timeline_layout.h.
  void WaitOver(uint32_t timeline, uint64_t value) const {
    ferry_timeline_line& line = pages_->over[timeline];
    __atomic_fetch_add(&line.waiters, 1, __ATOMIC_SEQ_CST);
    for (uint64_t now; (now = __atomic_load_n(&line.value, __ATOMIC_SEQ_CST)) < value;) {
      syscall(SYS_futex, &line.value, FUTEX_WAIT, static_cast<uint32_t>(now), nullptr, nullptr, 0);
    }
    __atomic_fetch_sub(&line.waiters, 1, __ATOMIC_SEQ_CST);
  }

 private:
  ferry_timeline_pages* const pages_;
};

TEST(TimelinePages, LowWaterMark) {
  auto pages = testing::MakePages();
  const Client client(*pages);
  EXPECT_EQ(pages->Reserve(3, 2), 1u);
  EXPECT_EQ(pages->Reserve(3, 3), 3u);
  EXPECT_EQ(pages->reserved(3), 5u);
  pages->End(3, 2, true);
  pages->End(3, 4, true);
  pages->Flush();
  EXPECT_EQ(client->over[3].value, 0u);
  pages->End(3, 1, true);
  EXPECT_EQ(client->over[3].value, 0u) << "written by Flush only";
  pages->Flush();
  EXPECT_EQ(client->over[3].value, 2u);
  pages->End(3, 3, true);
  pages->End(3, 5, true);
  pages->Flush();
  EXPECT_EQ(client->over[3].value, 5u);
  EXPECT_EQ(pages->over_value(3), 5u);
  EXPECT_EQ(client->signals.events, 2u) << "one event for each Flush that advanced something";
  EXPECT_EQ(client->over[3].failures, 0u);
}

TEST(TimelinePages, FailuresComeFirstAndStay) {
  auto pages = testing::MakePages();
  const Client client(*pages);
  pages->Reserve(0, 4);
  pages->End(0, 3, false);
  pages->Flush();
  EXPECT_EQ(client->over[0].value, 0u);
  EXPECT_EQ(client->over[0].first_failed, 3u);
  pages->End(0, 2, false);
  pages->End(0, 1, true);
  pages->Flush();
  EXPECT_EQ(client->over[0].value, 3u);
  EXPECT_EQ(client->over[0].first_failed, 2u);
  EXPECT_EQ(client->over[0].failures, 2u);
  pages->ResetFailures(0);
  EXPECT_EQ(client->over[0].first_failed, 0u);
  EXPECT_EQ(client->over[0].failures, 0u);
  pages->End(0, 4, false);
  pages->Flush();
  EXPECT_EQ(client->over[0].first_failed, 4u);
  EXPECT_EQ(client->over[0].failures, 1u);
}

TEST(TimelinePages, AnyOrderOfManyOutstanding) {
  std::mt19937 random(7);
  auto pages = testing::MakePages();
  const Client client(*pages);
  uint64_t first = 1;
  for (const uint64_t count : {uint64_t{1}, uint64_t{63}, uint64_t{64}, uint64_t{65},
                               uint64_t{1000}, uint64_t{100'000}, uint64_t{17}}) {
    EXPECT_EQ(pages->Reserve(9, count), first);
    std::vector<uint64_t> order(count);
    std::iota(order.begin(), order.end(), first);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<bool> over(count, false);
    uint64_t mark = 0;
    for (const uint64_t value : order) {
      pages->End(9, value, true);
      over[value - first] = true;
      while (mark < count && over[mark]) ++mark;
      ASSERT_EQ(pages->over_value(9), first - 1 + mark);
    }
    first += count;
    pages->Flush();
    EXPECT_EQ(client->over[9].value, first - 1);
  }
}

// Growing while some have ended already must not lose them.
TEST(TimelinePages, ReservesWhileOthersAreOut) {
  std::mt19937 random(11);
  auto pages = testing::MakePages();
  std::vector<uint64_t> out;
  uint64_t ended = 0;
  while (pages->reserved(1) < 50'000) {
    const uint64_t count = random() % 300;
    const uint64_t first = pages->Reserve(1, count);
    for (uint64_t i = 0; i < count; ++i) out.push_back(first + i);
    for (size_t i = random() % 280; i > 0 && !out.empty(); --i) {
      std::swap(out[random() % out.size()], out.back());
      pages->End(1, out.back(), true);
      out.pop_back();
      ++ended;
    }
    const uint64_t lowest =
        out.empty() ? pages->reserved(1) + 1 : *std::min_element(out.begin(), out.end());
    ASSERT_EQ(pages->over_value(1), lowest - 1);
  }
  EXPECT_GT(ended, 40'000u);
}

TEST(TimelinePages, WakesSleepers) {
  auto pages = testing::MakePages();
  const Client client(*pages);
  pages->Reserve(5, 1000);
  std::thread waiter([&] { client.WaitOver(5, 1000); });
  for (uint64_t value = 1; value <= 1000; ++value) {
    pages->End(5, value, true);
    pages->Flush();
  }
  waiter.join();  // a lost wake-up hangs here
}

TEST(TimelinePages, WakesEventSleepers) {
  auto pages = testing::MakePages();
  const Client client(*pages);
  pages->Reserve(0, 500);
  std::thread waiter([&] {
    __atomic_fetch_add(&client->signals.event_waiters, 1, __ATOMIC_SEQ_CST);
    for (uint32_t now; (now = __atomic_load_n(&client->signals.events, __ATOMIC_SEQ_CST)) < 500;) {
      syscall(SYS_futex, &client->signals.events, FUTEX_WAIT, now, nullptr, nullptr, 0);
    }
  });
  for (uint64_t value = 1; value <= 500; ++value) {
    pages->End(0, value, true);
    pages->Flush();
  }
  waiter.join();
}

TEST(TimelinePages, GarbageOfTheClientChangesNothingHere) {
  auto pages = testing::MakePages();
  const Client client(*pages);
  pages->Reserve(2, 3);
  std::fill_n(reinterpret_cast<uint8_t*>(&client->over[0]), FERRY_TIMELINE_BYTES, 0xFF);
  pages->End(2, 1, true);
  pages->End(2, 2, false);
  pages->Flush();
  EXPECT_EQ(pages->over_value(2), 2u);
  EXPECT_EQ(client->over[2].value, 2u);
  EXPECT_EQ(client->over[2].first_failed, 2u);
  EXPECT_EQ(client->over[2].failures, 1u);
  EXPECT_EQ(pages->Reserve(2, 1), 4u);
  EXPECT_NE(ftruncate(pages->memfd(), 0), 0) << "sealed";
}

TEST(TimelinePages, DefinedWordIsTheClients) {
  auto pages = testing::MakePages();
  const Client client(*pages);
  __atomic_store_n(&client->defined[63].value, 42, __ATOMIC_SEQ_CST);
  EXPECT_EQ(pages->DefinedValue(63), 42u);
  const DefinedWord word = pages->Defined(63);
  EXPECT_EQ(*word.value, 42u);
  EXPECT_GE(static_cast<const void*>(word.value), pages->begin());
  EXPECT_LT(static_cast<const void*>(word.value), pages->end());
  EXPECT_EQ(word.doorbell, pages->doorbell());
  EXPECT_EQ(word.own_bell, pages->own_bell());
}

UniqueFd Duplicate(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

TEST(TimelinePages, TheDaemonDefinesAsTheClientWouldAndRings) {
  auto pages = *TimelinePages::Create();
  Client client(*pages);
  pages->Define(5, 42);
  EXPECT_EQ(client->defined[5].value, 42u);
  uint64_t rung = 0;
  EXPECT_EQ(read(pages->own_bell(), &rung, sizeof(rung)), static_cast<ssize_t>(sizeof(rung)));
  pages->Define(5, 41);  // smaller: ignored
  EXPECT_EQ(pages->DefinedValue(5), 42u);
}

// The client has the doorbell's flags and its count.
TEST(TimelinePages, ADoorbellThatIsFullAndBlocksHoldsNobody) {
  auto pages = testing::MakePages();
  const auto batch = pages->Prepare(1, 1);
  ASSERT_EQ(fcntl(pages->doorbell(), F_SETFL, 0), 0);
  ASSERT_EQ(eventfd_write(pages->doorbell(), UINT64_MAX - 1), 0);
  std::atomic<bool> done{false};
  std::thread daemon([&] {
    pages->Define(5, 1);
    batch->Arm();
    batch->Define(2);
    batch->Over(1, 1);
    done = true;
  });
  EXPECT_TRUE(testing::Await([&] { return done.load(); }));
  eventfd_t count = 0;
  EXPECT_EQ(eventfd_read(pages->doorbell(), &count), 0);  // lets go of a writer
  daemon.join();
}

TEST(TimelinePages, WithoutDescriptorsWhoAttachesIsToldToTryAgain) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(STDERR_FILENO);
  close(next);
  for (int free = 0; free < 3; ++free) {
    const rlimit few{static_cast<rlim_t>(next + free), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const absl::Status refused = TimelinePages::Create().status();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(refused), Reason::kTooManySessions) << refused;
    EXPECT_GT(RetryAfterOf(refused), absl::ZeroDuration());
  }
}

TEST(TimelinePages, AnotherDaemonGoesOnWithThePagesOfOneThatIsGone) {
  auto gone = testing::MakePages();
  const Client client(*gone);
  const int memfd = gone->memfd();
  gone->Reserve(2, 5);
  __atomic_store_n(&client->defined[7].value, 70, __ATOMIC_SEQ_CST);
  __atomic_store_n(&client->signals.lane_parked, 1, __ATOMIC_SEQ_CST);
  for (const bool same_daemon : {true, false}) {
    client->over[2].value = 3;  // the last word of the one that is gone, which the client overruled
    auto resumed =
        TimelinePages::Resume(Duplicate(memfd), {{0, 0, 0}, {0, 0, 0}, {5, 2, 3}}, 0, same_daemon);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    TimelinePages& pages = **resumed;
    EXPECT_NE(pages.doorbell(), gone->doorbell());
    EXPECT_EQ(client->signals.lane_parked, same_daemon ? 1u : 0u);
    EXPECT_EQ(pages.DefinedValue(7), 70u);
    EXPECT_EQ(client->over[2].value, 5u);
    EXPECT_EQ(client->over[2].first_failed, 2u);
    EXPECT_EQ(client->over[2].failures, 3u);
    EXPECT_EQ(pages.over_value(2), 5u);
    EXPECT_EQ(pages.Reserve(2, 2), 6u);
    EXPECT_EQ(pages.Reserve(0, 1), 1u);
    pages.End(2, 7, false);
    pages.Flush();
    EXPECT_EQ(client->over[2].value, 5u);
    EXPECT_EQ(client->over[2].first_failed, 2u);
    EXPECT_EQ(client->over[2].failures, 4u);
    pages.End(2, 6, true);
    pages.Flush();
    EXPECT_EQ(client->over[2].value, 7u);
  }
}

TEST(TimelinePages, RogueResumesAreRefused) {
  const auto refusal = [](UniqueFd memfd, const std::vector<TimelinePages::Mark>& over,
                          uint64_t prepared_from = 0) {
    const auto resumed = TimelinePages::Resume(std::move(memfd), over, prepared_from, false);
    return resumed.ok() ? "OK" : std::string(ReasonName(ReasonOf(resumed.status())));
  };
  auto pages = testing::MakePages();
  const auto good = [&] { return Duplicate(pages->memfd()); };
  constexpr uint64_t kBeyond = uint64_t{1} << 62;
  EXPECT_EQ(refusal(good(), {}), "OK");
  EXPECT_EQ(refusal(good(), std::vector<TimelinePages::Mark>(64, {kBeyond - 1, 1, 1})), "OK");
  EXPECT_EQ(refusal(good(), std::vector<TimelinePages::Mark>(65)), "FIELD_INVALID");
  EXPECT_EQ(refusal(good(), {{kBeyond, 0, 0}}), "FIELD_INVALID");
  EXPECT_EQ(refusal(good(), {{~uint64_t{0}, 0, 0}}), "FIELD_INVALID");
  EXPECT_EQ(refusal(good(), {{5, 6, 1}}), "FIELD_INVALID");
  EXPECT_EQ(refusal(good(), {{5, 1, 6}}), "FIELD_INVALID");
  EXPECT_EQ(refusal(good(), {}, kBeyond - 1), "OK");
  EXPECT_EQ(refusal(good(), {}, kBeyond), "FIELD_INVALID");
  EXPECT_EQ(refusal(good(), {}, ~uint64_t{0}), "FIELD_INVALID");

  const auto memfd = [](off_t bytes, int seals) {
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_EQ(refusal(memfd(FERRY_TIMELINE_BYTES, kSeals), {}), "OK");
  EXPECT_EQ(refusal(memfd(FERRY_TIMELINE_BYTES - 1, kSeals), {}), "FIELD_INVALID");
  EXPECT_EQ(refusal(memfd(FERRY_TIMELINE_BYTES, F_SEAL_GROW), {}), "MEMFD_UNSEALED");
  EXPECT_NE(refusal(memfd(FERRY_TIMELINE_BYTES, kSeals | F_SEAL_FUTURE_WRITE), {}), "OK");
  EXPECT_EQ(refusal(UniqueFd(eventfd(0, EFD_CLOEXEC)), {}), "FIELD_INVALID");
  EXPECT_EQ(refusal(UniqueFd(), {}), "FIELD_INVALID");
}

}  // namespace
}  // namespace ferry
