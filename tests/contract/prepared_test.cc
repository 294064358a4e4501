// SPDX-License-Identifier: Apache-2.0
// PreparedRunner on local and mapped, with real lanes and pages: what is fired, when, what both
// ends are told, and that nothing is allocated on the way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/host/copy.h"
#include "device/timeline.h"
#include "tests/contract/allocations.h"
#include "tests/contract/prepared_client.h"
#include "tests/contract/rig.h"
#include "tests/contract/stepped_copier.h"
#include "transfer/local/prepared_runner.h"
#include "transfer/mapped/link_page.h"

namespace ferry {
namespace {

struct LaneEnd {
  explicit LaneEnd(std::unique_ptr<Copier> copier = nullptr) : lane("lane", absl::ZeroDuration()) {
    if (copier == nullptr) copier = std::make_unique<HostCopier>(helper);
    runner = std::make_unique<PreparedRunner>(lane, std::move(copier), answers.Sink());
  }
  void Arm(std::vector<TransportOp> ops) {
    lane.RunAndWait([&] { runner->Launch(std::move(ops)); });
  }
  void Abort(uint64_t id) {
    lane.RunAndWait([&] {
      answers.BeginCall();
      runner->Abort(TransferId(id), 1, absl::AbortedError("the test wants so"));
      answers.EndCall();
    });
  }
  uint64_t Allocations() {
    uint64_t now = 0;
    lane.RunAndWait([&] { now = ferry::Allocations(); });
    return now;
  }
  CopyHelper helper;
  Answers answers;
  Lane lane;
  std::unique_ptr<PreparedRunner> runner;
};

TransportOp Op(uint64_t id, PreparedEnds ends, LaunchRole role = LaunchRole::kCopy) {
  TransportOp op;
  op.transfer = TransferId(id);
  op.attempt = 1;
  op.role = role;
  op.prepared = std::move(ends);
  return op;
}
TransportOp Copies(TransportOp op, std::byte* to, const std::byte* from, const Layout& layout) {
  op.copy.emplace(layout, absl::InlinedVector<const std::byte*, 1>{from}, layout,
                  absl::InlinedVector<std::byte*, 1>{to});
  return op;
}
TransportOp Copies(TransportOp op, std::byte* to, const std::byte* from, uint64_t bytes) {
  return Copies(std::move(op), to, from, Layout{{ArenaId(1), 0, bytes}});
}

class PreparedTest : public ::testing::Test {
 protected:
  PreparedTest() : from_(8 << 20), to_(8 << 20) {}
  static PreparedEnds Local(PreparedBatch& receive, PreparedBatch& send) {
    return {&receive, &send, nullptr, 0};
  }
  void Fill(uint64_t seed, uint64_t bytes) { FillRandom(from_.data(), bytes, seed); }
  bool Arrived(uint64_t bytes) { return memcmp(to_.data(), from_.data(), bytes) == 0; }

  // First: they outlive the lanes.
  PreparedClient sender_, receiver_;
  std::vector<std::byte> from_, to_;
  LaneEnd lane_;
};

TEST_F(PreparedTest, FiresAgainAndAgainAndAllocatesNothing) {
  lane_.Arm({Copies(Op(1, Local(receiver_.Prepare(1), sender_.Prepare(1))), to_.data(),
                    from_.data(), 8)});
  uint64_t before = 0;
  for (uint64_t n = 1; n <= 2000; ++n) {
    if (n == 1) before = lane_.Allocations();
    Fill(n, 8);
    (n % 2 == 0 ? sender_ : receiver_).Fire(0, n);
    (n % 2 == 0 ? receiver_ : sender_).Fire(0, n);
    receiver_.AwaitOver(0, n);
    sender_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(8)) << n;
  }
  EXPECT_EQ(lane_.Allocations(), before);
  EXPECT_EQ(lane_.answers.count(), 0u);
  lane_.Abort(1);
  lane_.answers.AwaitCount(1);
}

TEST_F(PreparedTest, ABundleOfManyIsFiredAsOneAndAllocatesNothing) {
  constexpr uint32_t kCount = 1024;
  constexpr uint64_t kBytes = 4096;
  PreparedBatch& receive = receiver_.Prepare(kCount);
  PreparedBatch& send = sender_.Prepare(kCount);
  std::vector<TransportOp> ops;
  for (uint64_t i = 0; i < kCount; ++i) {
    ops.push_back(Copies(Op(i + 1, Local(receive, send)), to_.data() + i * kBytes,
                         from_.data() + i * kBytes, kBytes));
  }
  lane_.Arm(std::move(ops));
  uint64_t before = 0;
  for (uint64_t n = 1; n <= 30; ++n) {
    if (n == 1) before = lane_.Allocations();
    Fill(n, kCount * kBytes);
    sender_.Fire(0, n);
    receiver_.Fire(0, n);
    receiver_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(kCount * kBytes)) << n;
    sender_.AwaitOver(0, n);
  }
  EXPECT_EQ(lane_.Allocations(), before);
}

TEST_F(PreparedTest, BatchesMayBeCutDifferentlyAndLieOnSeveralLanes) {
  LaneEnd other;
  PreparedBatch& send = sender_.Prepare(2);
  PreparedBatch& here = receiver_.Prepare(1);
  PreparedBatch& there = receiver_.Prepare(1);
  lane_.Arm({Copies(Op(1, Local(here, send)), to_.data(), from_.data(), 4096)});
  other.Arm({Copies(Op(2, Local(there, send)), to_.data() + 4096, from_.data() + 4096, 4096)});
  for (uint64_t n = 1; n <= 500; ++n) {
    Fill(n, 8192);
    sender_.Fire(0, n);
    receiver_.Fire(0, n);
    receiver_.AwaitOver(0, n);
    EXPECT_EQ(sender_.Over(0), n - 1) << "half of it is not over";
    receiver_.Fire(1, n);
    receiver_.AwaitOver(1, n);
    sender_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(8192)) << n;
  }
}

TEST_F(PreparedTest, NothingIsFiredBeforeAllOfABatchAreArmed) {
  PreparedBatch& send = sender_.Prepare(2);
  PreparedBatch& receive = receiver_.Prepare(2);
  lane_.Arm({Copies(Op(1, Local(receive, send)), to_.data(), from_.data(), 8)});
  Fill(1, 16);
  sender_.Fire(0, 1);
  receiver_.Fire(0, 1);
  lane_.lane.RunAndWait([] {});  // it has looked since
  EXPECT_EQ(memcmp(to_.data(), from_.data(), 8) == 0, false);
  lane_.Arm({Copies(Op(2, Local(receive, send)), to_.data() + 8, from_.data() + 8, 8)});
  receiver_.AwaitOver(0, 1);
  EXPECT_TRUE(Arrived(16));
}

TEST_F(PreparedTest, WhoStoresAheadIsServedFiringByFiring) {
  LaneEnd other;
  PreparedBatch& send = sender_.Prepare(2);
  PreparedBatch& here = receiver_.Prepare(1);
  PreparedBatch& there = receiver_.Prepare(1);
  lane_.Arm({Copies(Op(1, Local(here, send)), to_.data(), from_.data(), 8)});
  other.Arm({Copies(Op(2, Local(there, send)), to_.data() + 8, from_.data() + 8, 8)});
  sender_.Fire(0, 1'000'000);
  for (uint64_t n = 1; n <= 300; ++n) {
    receiver_.Fire(0, n);
    receiver_.Fire(1, n);
    receiver_.AwaitOver(0, n);
    receiver_.AwaitOver(1, n);
  }
  sender_.AwaitOver(0, 300);
  EXPECT_EQ(sender_.Over(0), 300u);
}

// Firings with names, of sessions, on a lane that copies nothing.
class PreparedOrderTest : public PreparedTest {
 protected:
  static constexpr uint64_t kStep = uint64_t{2} << 20;
  struct Firing {
    char name;
    uint32_t session;
    uint64_t bytes;
  };
  void Arm(std::vector<Firing> firings) {
    firings_ = std::move(firings);
    std::vector<TransportOp> ops;
    for (uint64_t i = 0; i < firings_.size(); ++i) {
      TransportOp op = Op(0, Local(receiver_.Prepare(1), sender_.Prepare(1)));
      op.transfer = MakeTransferId(SessionId(firings_[i].session), i + 1);
      ops.push_back(Copies(std::move(op), to_.data(), from_.data() + i, firings_[i].bytes));
    }
    stepped_.Arm(std::move(ops));
  }
  // Fires these, by their names. No step is over before Order().
  void Fire(const std::string& names) {
    for (const char name : names) {
      const auto number = static_cast<uint32_t>(
          std::find_if(firings_.begin(), firings_.end(),
                       [&](const Firing& firing) { return firing.name == name; }) -
          firings_.begin());
      sender_.Fire(number, 1);
      receiver_.Fire(number, 1);
    }
  }
  // The firings' names, by step.
  std::string Order() {
    held_ = false;
    for (uint32_t number = 0; number < firings_.size(); ++number) receiver_.AwaitOver(number, 1);
    std::string order;
    stepped_.lane.RunAndWait([&] {
      for (const SteppedCopier::Step& step : steps_) {
        order += firings_[static_cast<size_t>(step.source - from_.data()) % kStep].name;
      }
    });
    return order;
  }

  std::atomic<bool> held_ = true;
  std::vector<SteppedCopier::Step> steps_;
  std::vector<Firing> firings_;
  LaneEnd stepped_{std::make_unique<SteppedCopier>(kStep, steps_, &held_)};
};

// Sessions have steps in turn. Each firing of session 1 is carried out to its end, in the order in
// which they began, whatever order they were armed in; but the small one comes early.
TEST_F(PreparedOrderTest, WhatBeganFirstIsOverFirst) {
  Arm({{'s', 1, 4096}, {'b', 1, 2 * kStep}, {'a', 1, 3 * kStep}, {'o', 2, 2 * kStep}});
  for (const char* const name : {"a", "b", "o", "s"}) {
    Fire(name);
    for (int i = 0; i < 2; ++i) stepped_.lane.RunAndWait([] {});  // the lane looks in between
  }
  EXPECT_EQ(Order(), "aosoaabb");
}

TEST_F(PreparedOrderTest, OfFiringsThatAreFoundInOneLookTheFirstArmedIsFirst) {
  Arm({{'a', 1, 2 * kStep}, {'b', 1, 2 * kStep}, {'c', 1, 2 * kStep}});
  stepped_.lane.RunAndWait([&] { Fire("cba"); });  // meanwhile the lane does not look
  EXPECT_EQ(Order(), "aabbcc");
}

TEST_F(PreparedOrderTest, ALargeFiringGoesOnAmongManySmallOnes) {
  Arm({{'s', 1, 4096}, {'t', 1, 4096}, {'u', 1, 4096}, {'a', 1, 3 * kStep}});
  stepped_.lane.RunAndWait([&] { Fire("stua"); });
  EXPECT_EQ(Order(), "sataua");
}

TEST_F(PreparedTest, AnAbortIsAnsweredOnceAndNothingFiresAfterwards) {
  PreparedBatch& send = sender_.Prepare(1);
  PreparedBatch& receive = receiver_.Prepare(1);
  // Several steps, so that some aborts meet a firing that has begun.
  const Layout blocks = *Layout::Strided(ArenaId(1), 0, 8, 16, 50'000);
  lane_.Arm({Copies(Op(1, Local(receive, send)), to_.data(), from_.data(), blocks)});
  sender_.Fire(0, 1);
  receiver_.Fire(0, 1);
  lane_.Abort(1);
  EXPECT_EQ(lane_.answers.Await(TransferId(1)).message(), "the test wants so");
  const uint64_t over = receiver_.Over(0);
  EXPECT_EQ(sender_.Over(0), over);
  receive.End();
  send.End();
  EXPECT_EQ(receiver_.Over(0), FERRY_PREPARED_ENDED);
  EXPECT_EQ(receiver_.over(0).first_failed, over + 1);
  EXPECT_EQ(receive.firings(), over);
  receiver_.Fire(0, over + 1);
  sender_.Fire(0, over + 1);
  lane_.lane.RunAndWait([] {});
  EXPECT_EQ(receive.firings(), over);
  EXPECT_EQ(lane_.answers.count(), 1u);
}

TEST_F(PreparedTest, WhatIsArmedIsAnsweredWhenTheLaneGoes) {
  lane_.Arm({Copies(Op(1, Local(receiver_.Prepare(1), sender_.Prepare(1))), to_.data(),
                    from_.data(), 8)});
  lane_.runner.reset();
  EXPECT_EQ(ReasonOf(lane_.answers.Await(TransferId(1))), Reason::kDraining);
}

class MappedPreparedTest : public PreparedTest {
 protected:
  MappedPreparedTest() {
    auto made = LinkPage::Create();
    EXPECT_TRUE(made.ok()) << made.status();
    makers_ = *std::move(made);
    auto taken =
        LinkPage::Map(UniqueFd(dup(makers_->memfd())), UniqueFd(dup(makers_->makers_doorbell())),
                      UniqueFd(dup(makers_->takers_doorbell())));
    EXPECT_TRUE(taken.ok()) << taken.status();
    takers_ = *std::move(taken);
  }
  // One transfer of `bytes`, armed at both ends.
  void Arm(uint64_t bytes, uint32_t slot = 3) {
    source_.Arm({Op(1, {&sender_.Prepare(1), nullptr, makers_, slot}, LaunchRole::kSend)});
    lane_.Arm({Copies(Op(1, {&receiver_.Prepare(1), nullptr, takers_, slot}), to_.data(),
                      from_.data(), bytes)});
  }

  std::shared_ptr<LinkPage> makers_, takers_;
  LaneEnd source_;
};

TEST_F(MappedPreparedTest, TwoLanesAgreeBySlotAndAllocateNothing) {
  Arm(8);
  uint64_t before[2] = {};
  for (uint64_t n = 1; n <= 2000; ++n) {
    if (n == 1) before[0] = lane_.Allocations(), before[1] = source_.Allocations();
    Fill(n, 8);
    (n % 2 == 0 ? sender_ : receiver_).Fire(0, n);
    (n % 2 == 0 ? receiver_ : sender_).Fire(0, n);
    receiver_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(8)) << n;
    sender_.AwaitOver(0, n);
  }
  EXPECT_EQ(lane_.Allocations(), before[0]);
  EXPECT_EQ(source_.Allocations(), before[1]);
}

TEST_F(MappedPreparedTest, ASendBatchMayGoToSeveralReceiveBatches) {
  LaneEnd other;
  PreparedBatch& send = sender_.Prepare(2);
  source_.Arm({Op(1, {&send, nullptr, makers_, 1}, LaunchRole::kSend),
               Op(2, {&send, nullptr, makers_, 1}, LaunchRole::kSend)});
  lane_.Arm(
      {Copies(Op(1, {&receiver_.Prepare(1), nullptr, takers_, 1}), to_.data(), from_.data(), 8)});
  other.Arm({Copies(Op(2, {&receiver_.Prepare(1), nullptr, takers_, 1}), to_.data() + 8,
                    from_.data() + 8, 8)});
  for (uint64_t n = 1; n <= 300; ++n) {
    Fill(n, 16);
    sender_.Fire(0, n);
    receiver_.Fire(n % 2, n);
    receiver_.AwaitOver(n % 2, n);
    EXPECT_EQ(sender_.Over(0), n - 1);
    receiver_.Fire(1 - n % 2, n);
    receiver_.AwaitOver(1 - n % 2, n);
    sender_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(16)) << n;
  }
}

TEST_F(MappedPreparedTest, BytesCopiedFromALinkThatWasGivenUpAreNotBelieved) {
  Arm(8);
  sender_.Fire(0, 1);
  receiver_.Fire(0, 1);
  receiver_.AwaitOver(0, 1);
  sender_.AwaitOver(0, 1);
  makers_->Revoke();
  sender_.Fire(0, 2);
  receiver_.Fire(0, 2);
  receiver_.AwaitParked(1);  // it has looked, and sleeps in spite of what it has seen
  source_.lane.RunAndWait([] {});
  lane_.Abort(1);
  lane_.answers.AwaitCount(1);
  EXPECT_EQ(receiver_.Over(0), 1u);
  EXPECT_EQ(sender_.Over(0), 1u);
}

uint64_t Load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_SEQ_CST); }

TEST_F(MappedPreparedTest, ASlotIsClearWhenTheSourceHasLetGo) {
  Arm(8, 5);
  sender_.Fire(0, 1);
  receiver_.Fire(0, 1);
  sender_.AwaitOver(0, 1);
  EXPECT_EQ(Load(takers_->slot(5).fired), 1u);
  EXPECT_EQ(Load(takers_->slot(5).carried), 1u);
  lane_.Abort(1);
  source_.Abort(1);
  source_.answers.AwaitCount(1);
  EXPECT_EQ(Load(takers_->slot(5).fired), 0u);
  EXPECT_EQ(Load(takers_->slot(5).carried), 0u);
}

}  // namespace
}  // namespace ferry
