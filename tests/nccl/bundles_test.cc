// SPDX-License-Identifier: Apache-2.0
// Prepared transfers on the lanes: when a firing is wanted, what it moves, and who is told.
#include "transfer/nccl/bundles.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "device/timeline.h"
#include "two_ranks.h"

namespace ferry {
namespace {

constexpr uint64_t kBundlesArena = uint64_t{96} << 20;
constexpr uint64_t kBundle = 5;

// What libferry does with the words of one prepared batch.
class Client {
 public:
  explicit Client(uint32_t transfers) : pages_(*TimelinePages::Create()) {
    raw_ = static_cast<ferry_timeline_pages*>(const_cast<void*>(pages_->begin()));
    batch_ = pages_->Prepare(0, transfers);
  }
  void Fire(uint64_t n) {
    __atomic_store_n(&raw_->prepared_defined[0].value, n, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&raw_->signals.lane_parked, __ATOMIC_SEQ_CST) != 0) {
      eventfd_write(pages_->doorbell(), 1);
    }
  }
  uint64_t Over() { return __atomic_load_n(&raw_->prepared_over[0].value, __ATOMIC_SEQ_CST); }
  PreparedBatch& batch() { return *batch_; }

 private:
  std::unique_ptr<TimelinePages> pages_;
  ferry_timeline_pages* raw_ = nullptr;
  std::unique_ptr<PreparedBatch> batch_;
};

class BundlesTest : public testing::Test {
 protected:
  BundlesTest() : two_(kBundlesArena) {
    const auto [own, other] = two_.Open();
    EXPECT_TRUE(own.ok()) << own;
    EXPECT_TRUE(other.ok()) << other;
  }
  ~BundlesTest() override {
    for (int end : {0, 1}) two_.Reap(end, Why());
  }
  static absl::Status Why() {
    return Error(absl::StatusCode::kAborted, Reason::kCommAborted, "the test wants it");
  }
  // From end 0 to end 1: so many transfers of so many bytes, with gaps, the last ones first.
  void Prepare(uint32_t count, uint64_t bytes) {
    count_ = count;
    bytes_ = bytes;
    for (int end : {0, 1}) clients_[end] = std::make_unique<Client>(count);
    for (int end : {0, 1}) {
      std::vector<TransportOp> halves;
      for (uint64_t i = 0; i < count; ++i)
        halves.push_back(Half(end, end == 0 ? i : count - 1 - i));
      two_.Arm(end, std::move(halves));
    }
  }
  TransportOp Half(int end, uint64_t i) {
    return two_.Half(end, end == 0, TransferId(i + 1), kBundle, 100 + i, clients_[end]->batch(),
                     Layout({Range{ArenaId(1), At(end, i), bytes_}}));
  }
  uint64_t At(int end, uint64_t i) const { return i * (bytes_ + (end == 0 ? 16 : 48)); }
  void Fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < count_; ++i) {
      for (uint64_t at = 0; at < bytes_; at += 64) {
        const uint64_t value = random();
        memcpy(two_.arena(0) + At(0, i) + at, &value, std::min<uint64_t>(8, bytes_ - at));
      }
    }
  }
  bool Arrived() {
    for (uint64_t i = 0; i < count_; ++i) {
      if (memcmp(two_.arena(0) + At(0, i), two_.arena(1) + At(1, i), bytes_) != 0) return false;
    }
    return true;
  }
  // Both clients fire, and what the engines then decide is done: groups of so many bytes.
  void Fire(uint64_t firing, uint64_t most = ~uint64_t{0}) {
    for (int end : {0, 1}) clients_[end]->Fire(firing);
    for (int end : {0, 1}) two_.answers(end).AwaitWanted(kBundle, firing);
    const uint64_t all = count_ * bytes_;
    for (uint64_t at = 0; at < all;) {
      for (int end : {0, 1}) EXPECT_EQ(clients_[end]->Over(), firing - 1);
      const uint64_t bytes = std::min(most, all - at);
      ++group_;
      for (int end : {0, 1}) two_.LaunchFiring(end, group_, {kBundle, at, bytes});
      for (int end : {0, 1}) EXPECT_TRUE(two_.answers(end).Await(group_).ok());
      at += bytes;
    }
    for (int end : {0, 1}) EXPECT_EQ(clients_[end]->Over(), firing);
  }

  uint64_t count_ = 0, bytes_ = 0, group_ = 0;
  std::unique_ptr<Client> clients_[2];  // outlive the lanes
  TwoRanks two_;
};

TEST_F(BundlesTest, AFiringMovesAllInOneOrderAtBothEnds) {
  Prepare(300, 4000);
  fake_cuda_counts before, after;
  for (uint64_t firing = 1; firing <= 20; ++firing) {
    Fill(firing);
    fake_cuda_get_counts(&before);
    Fire(firing);
    fake_cuda_get_counts(&after);
    EXPECT_EQ(after.launches - before.launches, 2u);  // a gather there, a scatter here
    ASSERT_TRUE(Arrived()) << firing;
  }
}

// Both ways, with and without descriptions of before, with what goes alone between; staging is
// shared, and so are operations, which both ends have to join alike.
TEST_F(BundlesTest, FiringsOfAGroupAreGatheredAndScatteredByOneKernelAnEnd) {
  struct Way {
    int source;
    uint64_t bundle, bytes;
    uint64_t fired = 0;
    std::unique_ptr<Client> clients[2] = {};  // outlive the lanes' last use: see the aborts
  };
  constexpr uint64_t kCount = 40;
  Way ways[] = {{0, 11, 3000}, {1, 12, 500}, {0, 13, 70}, {1, 14, 4096}, {0, 15, 300'000}};
  const auto at = [](const Way& way, int end, uint64_t i) {
    return way.bundle * 1'000'000 + (end == way.source ? i : kCount - 1 - i) * (way.bytes + 16);
  };
  for (Way& way : ways) {
    for (int end : {0, 1}) {
      way.clients[end] = std::make_unique<Client>(kCount);
      std::vector<TransportOp> halves;
      for (uint64_t i = 0; i < kCount; ++i) {
        const Layout layout({Range{ArenaId(1), at(way, end, i), way.bytes}});
        halves.push_back(two_.Half(end, end == way.source, TransferId(way.bundle * 1000 + i),
                                   way.bundle, i, way.clients[end]->batch(), layout));
      }
      two_.Arm(end, std::move(halves));
    }
  }
  // `ahead`: what end 0 sends of it is gathered before; of so many firings more than are launched.
  const auto fire = [&](uint64_t group, std::vector<Way*> fired, bool ahead = false, int more = 0) {
    std::vector<GroupOp::Firing> firings;
    std::mt19937_64 random(group);
    for (Way* way : fired) {
      ++way->fired;
      for (uint64_t i = 0; i < kCount; ++i) {
        std::byte* const memory = two_.arena(way->source) + at(*way, way->source, i);
        std::generate_n(memory, way->bytes, [&] { return std::byte(random()); });
      }
      for (int end : {0, 1}) way->clients[end]->Fire(way->fired);
      for (int end : {0, 1}) two_.answers(end).AwaitWanted(way->bundle, way->fired);
      firings.push_back({way->bundle, 0, kCount * way->bytes});
    }
    fake_cuda_counts before, after;
    fake_cuda_get_counts(&before);
    if (ahead) {
      std::vector<GroupOp::Firing> thought = firings;
      for (int i = 0; i < more; ++i) thought.insert(thought.begin(), {ways[0].bundle, 0, 120'000});
      for (int i = 0; i > more; --i) thought.pop_back();
      two_.GatherAhead(0, group, thought);
    }
    for (int end : {0, 1}) two_.LaunchFirings(end, group, firings);
    for (int end : {0, 1}) ASSERT_TRUE(two_.answers(end).Await(group).ok());
    fake_cuda_get_counts(&after);
    const bool both_ways = std::any_of(fired.begin(), fired.end(), [&](const Way* way) {
      return way->source != fired[0]->source;
    });
    EXPECT_EQ(after.launches - before.launches, (both_ways ? 4u : 2u) + (more != 0 ? 1u : 0u));
    for (Way* way : fired) {
      for (int end : {0, 1}) EXPECT_EQ(way->clients[end]->Over(), way->fired);
      for (uint64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(
            memcmp(two_.arena(0) + at(*way, 0, i), two_.arena(1) + at(*way, 1, i), way->bytes), 0)
            << "bundle " << way->bundle << ", transfer " << i;
      }
    }
  };
  fire(1, {&ways[0]});
  fire(2, {&ways[1], &ways[3], &ways[2]});
  fire(3, {&ways[3], &ways[0], &ways[2], &ways[1], &ways[4]});
  fire(4, {&ways[2]});
  fire(5, {&ways[0], &ways[4], &ways[2]});
  fire(6, {&ways[1], &ways[2], &ways[0]});
  fire(7, {&ways[2]}, true);
  fire(8, {&ways[1], &ways[2], &ways[4], &ways[0]}, true);
  fire(9, {&ways[4], &ways[3], &ways[2]}, true, 1);  // the other end has refused the first
  fire(10, {&ways[3], &ways[0], &ways[2]}, true, -1);
  for (Way& way : ways) {
    for (int end : {0, 1}) {
      for (uint64_t i = 0; i < kCount; ++i) {
        two_.Abort(end, TransferId(way.bundle * 1000 + i), Why());
      }
    }
  }
}

TEST_F(BundlesTest, AFiringInSeveralGroupsIsOverWithTheLast) {
  Prepare(7, 100'000);
  for (uint64_t firing = 1; firing <= 4; ++firing) {
    Fill(firing);
    Fire(firing, firing == 3 ? ~uint64_t{0} : 123'456);
    ASSERT_TRUE(Arrived()) << firing;
  }
}

TEST_F(BundlesTest, WhatIsLargeIsCopiedByNobody) {
  Prepare(3, 2 << 20);
  fake_cuda_counts before, after;
  Fill(1);
  fake_cuda_get_counts(&before);
  Fire(1);
  fake_cuda_get_counts(&after);
  EXPECT_EQ(after.launches, before.launches);
  EXPECT_TRUE(Arrived());
}

// More than the tables for it hold, so each firing describes it anew.
TEST_F(BundlesTest, ManyPiecesAreFiredAllTheSame) {
  count_ = 1;
  bytes_ = (2 * CudaStream::kPieces + 7) * 8;
  for (int end : {0, 1}) clients_[end] = std::make_unique<Client>(1);
  const auto layout = [&](uint64_t apart) {
    return *Layout::Strided(ArenaId(1), 0, 8, apart, bytes_ / 8);
  };
  for (int end : {0, 1}) {
    two_.Arm(end, {two_.Half(end, end == 0, TransferId(1), kBundle, 1, clients_[end]->batch(),
                             layout(end == 0 ? 24 : 40))});
  }
  for (uint64_t firing = 1; firing <= 3; ++firing) {
    for (uint64_t i = 0; i < bytes_ / 8; ++i) {
      const uint64_t value = firing * 1'000'000 + i;
      memcpy(two_.arena(0) + i * 24, &value, 8);
    }
    Fire(firing);
    for (uint64_t i = 0; i < bytes_ / 8; ++i) {
      ASSERT_EQ(memcmp(two_.arena(0) + i * 24, two_.arena(1) + i * 40, 8), 0) << i;
    }
  }
}

TEST_F(BundlesTest, NothingIsWantedBeforeAllOfABatchAreArmed) {
  count_ = 2;
  bytes_ = 64;
  for (int end : {0, 1}) clients_[end] = std::make_unique<Client>(2);
  for (int end : {0, 1}) {
    two_.Arm(end, {Half(end, 1)});
    clients_[end]->Fire(1);
  }
  for (int i = 0; i < 10; ++i) two_.lane(0).RunAndWait([] {});
  two_.answers(0).AwaitWanted(kBundle, 0);
  for (int end : {0, 1}) two_.Arm(end, {Half(end, 0)});
  Fill(1);
  Fire(1);
  EXPECT_TRUE(Arrived());
}

TEST_F(BundlesTest, WhatIsAbortedIsAnsweredOnceAndFiredNoMore) {
  Prepare(2, 64);
  Fill(1);
  Fire(1);
  two_.Abort(0, TransferId(1), Why());
  EXPECT_EQ(two_.answers(0).AwaitArmed(TransferId(1)), Why());
  two_.Abort(0, TransferId(1), Why());
  clients_[0]->Fire(2);
  for (int i = 0; i < 10; ++i) two_.lane(0).RunAndWait([] {});
  two_.answers(0).AwaitWanted(kBundle, 1);
  two_.Abort(0, TransferId(2), Why());
  EXPECT_EQ(two_.answers(0).AwaitArmed(TransferId(2)), Why());
  EXPECT_EQ(clients_[0]->Over(), 1u);
}

class GatherAheadTest : public BundlesTest {
 protected:
  ~GatherAheadTest() override { fake_cuda_hold_copies(0); }
  // The first firing describes its copies, which nothing can be gathered ahead of.
  void SetUp() override {
    Prepare(50, 4000);
    Fill(1);
    Fire(1);
  }
  // What the client of end 0 does, and the engine of its end when it has cut the group.
  void FireAhead(uint64_t firing, uint64_t group) {
    Fill(firing);
    for (int end : {0, 1}) clients_[end]->Fire(firing);
    for (int end : {0, 1}) two_.answers(end).AwaitWanted(kBundle, firing);
    two_.GatherAhead(0, group, {Whole()});
  }
  GroupOp::Firing Whole() const { return {kBundle, 0, count_ * bytes_}; }
  void Launch(uint64_t group) {
    for (int end : {0, 1}) two_.LaunchFiring(end, group, Whole());
    for (int end : {0, 1}) EXPECT_TRUE(two_.answers(end).Await(group).ok());
  }
  static fake_cuda_counts Counts() {
    fake_cuda_counts counts;
    fake_cuda_get_counts(&counts);
    return counts;
  }
  static uint64_t Launches() { return Counts().launches; }
  // Since the counts were so.
  void AwaitGathered(const fake_cuda_counts& before) const {
    while (Counts().bytes_copied < before.bytes_copied + count_ * bytes_) std::this_thread::yield();
  }
};

TEST_F(GatherAheadTest, WhatIsGatheredAheadIsNotGatheredAgain) {
  for (uint64_t firing = 2; firing <= 10; ++firing) {
    const fake_cuda_counts before = Counts();
    FireAhead(firing, 100 + firing);
    EXPECT_EQ(Launches() - before.launches, 1u);
    if (firing % 2 == 0) AwaitGathered(before);  // else they meet on the stream
    Launch(100 + firing);
    EXPECT_EQ(Launches() - before.launches, 2u);
    ASSERT_TRUE(Arrived()) << firing;
  }
}

TEST_F(GatherAheadTest, AGroupThatCameBetweenIsInNobodysWay) {
  FireAhead(2, 102);
  for (int end : {0, 1}) {  // from end 1, through staging at both
    std::vector<GroupPart> parts;
    for (uint64_t i = 0; i < 100; ++i) {
      parts.push_back(two_.Part(
          end, end == 1, Layout({Range{ArenaId(1), (uint64_t{32} << 20) + i * 8192, 4096}})));
    }
    two_.Launch(end, 101, std::move(parts));
  }
  for (int end : {0, 1}) EXPECT_TRUE(two_.answers(end).Await(101).ok());
  Launch(102);
  EXPECT_TRUE(Arrived());
}

// It was never launched; the next one is of other bytes.
TEST_F(GatherAheadTest, WhatWasForAnotherGroupIsNotTaken) {
  const fake_cuda_counts before = Counts();
  FireAhead(2, 102);
  AwaitGathered(before);
  Fill(3);
  Launch(103);
  EXPECT_TRUE(Arrived());
}

TEST_F(GatherAheadTest, MemoryIsNotLetGoWhileItIsGathered) {
  fake_cuda_hold_copies(1);
  FireAhead(2, 102);
  for (uint64_t i = 0; i < count_; ++i) two_.Abort(0, TransferId(i + 1), Why());
  for (int i = 0; i < 10; ++i) two_.lane(0).RunAndWait([] {});
  two_.End(0, Why());
  EXPECT_EQ(two_.answers(0).armed(), 0u);
  EXPECT_EQ(two_.answers(0).let_go(), 0u);
  fake_cuda_hold_copies(0);
  for (uint64_t i = 0; i < count_; ++i) {
    EXPECT_EQ(two_.answers(0).AwaitArmed(TransferId(i + 1)), Why());
  }
  while (two_.answers(0).let_go() == 0) std::this_thread::yield();
  two_.End(1, Why());
  EXPECT_EQ(two_.answers(1).let_go(), 1u);
}

TEST_F(GatherAheadTest, WhatIsHeldWhenTheLaneGoesIsAnswered) {
  fake_cuda_hold_copies(1);
  FireAhead(2, 102);
  two_.Abort(0, TransferId(1), Why());
  std::thread release([] { fake_cuda_hold_copies(0); });
  two_.DestroyTransport(0);
  release.join();
  for (uint64_t i = 0; i < count_; ++i) {
    EXPECT_FALSE(two_.answers(0).AwaitArmed(TransferId(i + 1)).ok());
  }
}

TEST_F(GatherAheadTest, OnlyWhatCanBeGatheredAheadIs) {
  const uint64_t before = Launches();
  two_.GatherAhead(1, 102, {Whole()});  // it receives
  two_.GatherAhead(0, 102, {{kBundle, 0, count_ * bytes_ - 1}});
  two_.GatherAhead(0, 102, {{kBundle + 1, 0, 8}});
  fake_cuda_configure("fail_copy=1");
  two_.GatherAhead(0, 102, {Whole()});
  EXPECT_EQ(Launches(), before);
  fake_cuda_hold_copies(1);
  two_.GatherAhead(0, 102, {Whole()});
  two_.GatherAhead(0, 103, {Whole()});  // one at a time
  EXPECT_EQ(Launches(), before + 1);
  Fill(2);  // while the kernel that gathers it is held
  fake_cuda_hold_copies(0);
  Fire(2);
  EXPECT_TRUE(Arrived());
}

// Descriptions of copies share memory of one size.
TEST_F(BundlesTest, ATableThatIsFreedMakesPlaceForTheNext) {
  constexpr uint64_t kTask = 24;
  auto made = CudaStream::Make(two_.gpu(0), {4096, true, 10 * kTask});
  ASSERT_TRUE(made.ok()) << made.status();
  CudaStream& stream = **made;
  const auto pieces = [&](size_t count, uint64_t seed) {
    std::vector<CopyPiece> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back({stream.staging() + 8 * i, two_.arena(0) + 64 * (i + seed), 8});
    }
    return all;
  };
  const auto table = [&](size_t count) {
    auto table = stream.MakeTable(pieces(count, count), /*gathers=*/true);
    EXPECT_TRUE(table.ok()) << table.status();
    EXPECT_TRUE(stream.Await().ok());
    EXPECT_TRUE(stream.Reached().ok());
    return *table;
  };
  const auto first = table(3), second = table(4), third = table(3);
  ASSERT_TRUE(first && second && third);
  EXPECT_FALSE(table(1));
  stream.FreeTable(*first);
  stream.FreeTable(*second);
  EXPECT_FALSE(table(8));
  const auto joined = table(7);
  ASSERT_TRUE(joined);
  count_ = 64;
  bytes_ = 48;
  Fill(3);
  for (const auto& [used, count] : {std::make_pair(*joined, 7), std::make_pair(*third, 3)}) {
    ASSERT_TRUE(stream.Copy({{used, 0}}).ok());
    ASSERT_TRUE(stream.Await().ok());
    for (const CopyPiece& piece : pieces(count, count)) {
      EXPECT_EQ(memcmp(piece.destination, piece.source, 8), 0);
    }
  }
}

TEST_F(BundlesTest, ATableThatCannotBeMadeLeavesItsPlace) {
  auto made = CudaStream::Make(two_.gpu(0), {4096, true, 24});  // of one task
  ASSERT_TRUE(made.ok()) << made.status();
  CudaStream& stream = **made;
  stream.MakeCurrent();
  const std::vector<CopyPiece> pieces = {{stream.staging(), two_.arena(0), 8}};
  fake_cuda_configure("fail_copy=1");
  EXPECT_FALSE(stream.MakeTable(pieces, /*gathers=*/true).ok());
  fake_cuda_configure("fail_copy=0");
  const auto table = stream.MakeTable(pieces, /*gathers=*/true);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->has_value());
  EXPECT_TRUE(stream.Await().ok());
}

}  // namespace
}  // namespace ferry
