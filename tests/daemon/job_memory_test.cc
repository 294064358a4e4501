// SPDX-License-Identifier: Apache-2.0
// Memory of jobs that send and receive by themselves: who has it, who waits for it, and how long.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "device/cuda/cuda_device.h"
#include "tests/daemon/job_transfers_rig.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SessionTable::Options With(uint64_t job_memory) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.quota.arenas = 100;
  options.job_memory = job_memory;
  return options;
}

// What two sessions are given of 8,192 bytes, in the order of being given.
class JobMemoryTest : public ::testing::Test {
 protected:
  JobMemoryTest() : rig_(With(8192)) {
    one_ = rig_.Open(kConnection);
    other_ = rig_.Open(kConnection + 1, kBob);
  }
  absl::StatusOr<ArenaId> Take(Session& session, uint64_t bytes) {
    auto taken = rig_.table.job_memory().Take(session, *rig_.devices.table.Find(GlobalDeviceId(1)),
                                              bytes, [this](ArenaId arena, absl::Status status) {
                                                EXPECT_THAT(status, Is("OK"));
                                                given_.push_back(arena);
                                              });
    rig_.Settle();
    return taken;
  }
  ArenaId MustTake(Session& session, uint64_t bytes) {
    const auto taken = Take(session, bytes);
    EXPECT_THAT(taken.status(), Is("OK"));
    return taken.value_or(ArenaId());
  }
  void Return(ArenaId arena) {
    rig_.table.job_memory().Return(arena);
    rig_.Settle();
  }

  SessionTableRig rig_;
  Session* one_ = nullptr;
  Session* other_ = nullptr;
  std::vector<ArenaId> given_;
};

// Making much memory takes seconds: who shares the thread has his turns.
TEST(JobMemoryPagesTest, AreMadeInTurnsWithWhatOthersWant) {
  constexpr uint64_t kBytes = 2 * HostMapping::kPagesAtOnce + 4096;
  SessionTable::Options options = With(kBytes);
  options.quota.bytes = kBytes;
  SessionTableRig rig(options);
  Session& session = *rig.Open(kConnection);
  LocalDevice& device = *rig.devices.table.Find(GlobalDeviceId(1));
  std::vector<std::string> order;
  absl::Notification posted;
  device.memory->Post([&] { posted.WaitForNotification(); });
  const auto taken =
      rig.table.job_memory().Take(session, device, kBytes, [&](ArenaId, absl::Status status) {
        order.push_back(absl::StrCat("made: ", status.ToString()));
      });
  device.memory->Post([&] { order.push_back("another's"); });
  posted.Notify();
  while (order.size() < 2) rig.Settle();
  EXPECT_THAT(order, ElementsAre("another's", "made: OK"));
  const Arena& arena = *rig.table.FindArena(*taken);
  EXPECT_EQ(arena.mapping->data()[kBytes - 1], std::byte{0});
  rig.table.job_memory().Return(*taken);
}

TEST_F(JobMemoryTest, WhatNeverFitsIsRefusedAndWhatFitsLaterWaits) {
  const ArenaId first = MustTake(*one_, 6000);
  EXPECT_THAT(Take(*other_, 9000).status(),
              Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY", "8192 bytes (limits.job_memory)"));
  EXPECT_THAT(Take(*other_, uint64_t{2} << 20).status(), Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY"));
  const ArenaId second = MustTake(*other_, 6000);
  EXPECT_TRUE(rig_.table.job_memory().Awaits(second));
  EXPECT_EQ(other_->use().arenas, 0u) << "it counts when it is there";
  EXPECT_THAT(other_->arenas().List(), IsEmpty());
  EXPECT_THAT(rig_.table.job_memory().TextOf(second),
              ::testing::AllOf(HasSubstr("6000 bytes, of which 2192 of 8192"),
                               HasSubstr("(trainer) 6000 bytes")));
  Return(first);
  EXPECT_THAT(given_, ElementsAre(first, second));
  EXPECT_EQ(one_->use().arenas, 0u) << "what its jobs had left made room";
  EXPECT_EQ(other_->use().bytes, 6000u);
  Return(second);
  EXPECT_EQ(rig_.table.job_memory().spares(other_->id()).size(), 1u);
  EXPECT_EQ(MustTake(*other_, 4000), second) << "the one that is there";
}

// Device 2 is a GPU, whose arenas together may have 4 MiB.
class GpuJobMemoryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;
  static SessionTable::Options Options() {
    SessionTable::Options options = With(64 * kMiB);
    options.quota.bytes = 64 * kMiB;
    options.gpu_bytes = 4 * kMiB;
    return options;
  }
  GpuJobMemoryTest() : rig_(Options()) {
    const auto found = FindGpus(FAKE_CUDA_LIBRARY);
    gpu_ = std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, (*found)[0], std::vector<int>{0});
    device_ = rig_.devices.table.Find(GlobalDeviceId(2));
    device_->gpu = gpu_.get();
    one_ = rig_.Open(kConnection);
    other_ = rig_.Open(kConnection + 1, kBob);
  }
  ~GpuJobMemoryTest() override {
    for (const Door::ConnectionId connection : {kConnection, kConnection + 1}) {
      rig_.table.OnClosed(connection);
      rig_.Settle();
    }
    device_->gpu = nullptr;
  }
  absl::StatusOr<ArenaId> Take(Session& session, uint64_t bytes) {
    auto taken = rig_.table.job_memory().Take(session, *device_, bytes,
                                              [this](ArenaId arena, const absl::Status& status) {
                                                EXPECT_THAT(status, Is("OK"));
                                                given_.push_back(arena);
                                              });
    rig_.Settle();
    return taken;
  }
  void Return(ArenaId arena) {
    rig_.table.job_memory().Return(arena);
    rig_.Settle();
  }

  std::unique_ptr<CudaDevice> gpu_;
  SessionTableRig rig_;
  LocalDevice* device_ = nullptr;
  Session* one_ = nullptr;
  Session* other_ = nullptr;
  std::vector<ArenaId> given_;
};

TEST_F(GpuJobMemoryTest, IsTheGpusAndCountsInWholeGranules) {
  const ArenaId taken = *Take(*one_, 100);
  ASSERT_THAT(given_, ElementsAre(taken));
  const Arena& arena = *rig_.table.FindArena(taken);
  EXPECT_EQ(arena.kind, MemoryKind::kCudaAllocate);
  EXPECT_EQ(arena.mapping->share().kind, MemoryKind::kCudaVmm);
  EXPECT_EQ(arena.held, 2 * kMiB);
  EXPECT_EQ(device_->arena_bytes, 2 * kMiB);
  EXPECT_EQ(gpu_->usage().holds, 1u);
  Return(taken);
  EXPECT_EQ(*Take(*one_, kMiB), taken) << "the one that is there";
}

TEST_F(GpuJobMemoryTest, IsWithinWhatTheGpusArenasMayHave) {
  EXPECT_THAT(Take(*one_, 5 * kMiB).status(),
              Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY", "4194304 bytes (limits.gpu_bytes)"));
  const ArenaId first = *Take(*one_, 3 * kMiB);
  const ArenaId second = *Take(*other_, kMiB);
  EXPECT_TRUE(rig_.table.job_memory().Awaits(second));
  EXPECT_THAT(rig_.table.job_memory().TextOf(second),
              HasSubstr("and 0 of 4194304 of the GPU (limits.gpu_bytes) were left"));
  Return(first);
  EXPECT_THAT(given_, ElementsAre(first, second)) << "what its jobs had left made room";
  EXPECT_EQ(device_->arena_bytes, 2 * kMiB);
}

TEST_F(GpuJobMemoryTest, ARoomThatAReloadGivesIsTaken) {
  const ArenaId first = *Take(*one_, 3 * kMiB);
  const ArenaId second = *Take(*other_, kMiB);
  EXPECT_THAT(given_, ElementsAre(first));
  SessionTable::Options more = Options();
  more.gpu_bytes = 8 * kMiB;
  rig_.table.SetLimits(more);
  rig_.Settle();
  EXPECT_THAT(given_, ElementsAre(first, second));
}

// The client dies while its arena is being mapped.
TEST_F(GpuJobMemoryTest, WhatADeadClientWouldHaveHadIsTaken) {
  rig_.table.OnCommand(
      kConnection, kAlice,
      {++rig_.sequence,
       AttachRegisterArena{GlobalDeviceId(2), {MemoryKind::kCudaAllocate, 4 * kMiB}, false}},
      {});
  EXPECT_EQ(device_->coming_bytes, 4 * kMiB);
  const auto mapped = [&](ArenaId arena, const absl::Status& status) {
    EXPECT_THAT(status, Is("OK"));
    given_.push_back(arena);
  };
  const ArenaId awaited = *rig_.table.job_memory().Take(*other_, *device_, kMiB, mapped);
  EXPECT_TRUE(rig_.table.job_memory().Awaits(awaited));
  rig_.table.OnClosed(kConnection);
  rig_.Settle();
  EXPECT_EQ(device_->coming_bytes, 0u);
  EXPECT_THAT(given_, ElementsAre(awaited));
}

TEST_F(JobMemoryTest, NobodyPassesBySomethingLarge) {
  const ArenaId first = MustTake(*one_, 5000);
  const ArenaId large = MustTake(*one_, 8000);
  const ArenaId small = MustTake(*one_, 100);
  EXPECT_THAT(given_, ElementsAre(first)) << "there is room for the small one";
  Return(first);
  EXPECT_THAT(given_, ElementsAre(first, large, small));
}

TEST_F(JobMemoryTest, SessionsTakeTurns) {
  const ArenaId first = MustTake(*one_, 8000);
  std::vector<ArenaId> mine;
  for (int i = 0; i < 3; ++i) mine.push_back(MustTake(*one_, 8000));
  const ArenaId others = MustTake(*other_, 8000);
  given_.clear();
  for (const ArenaId arena : {first, others, mine[0], mine[1]}) Return(arena);
  EXPECT_THAT(given_, ElementsAre(others, mine[0], mine[1], mine[2]));
}

TEST_F(JobMemoryTest, WhoIsAtHisQuotaHoldsUpNobodyElse) {
  const uint64_t quota = one_->limits().quota.bytes;
  rig_.RegisterGood(kConnection, quota - 8192);
  const ArenaId first = MustTake(*one_, 4096);
  EXPECT_THAT(Take(*one_, 8193).status(), Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY"));
  rig_.RegisterGood(kConnection, 4096);  // now nothing is left
  const ArenaId second = MustTake(*one_, 4000);
  EXPECT_TRUE(rig_.table.job_memory().Awaits(second));
  const ArenaId others = MustTake(*other_, 100);
  EXPECT_FALSE(rig_.table.job_memory().Awaits(others));
  Return(first);
  EXPECT_FALSE(rig_.table.job_memory().Awaits(second));
  // All that is left is the client's own: it would wait for itself.
  rig_.table.job_memory().Return(second);
  rig_.RegisterGood(kConnection, 4096);
  EXPECT_THAT(Take(*one_, 4000).status(), Is("RESOURCE_EXHAUSTED/QUOTA_BYTES"));
}

// What is given back too early would be given out twice.
TEST_F(JobMemoryTest, WhatOthersHaveLeftIsNotThereBeforeItsOwnerIsTold) {
  rig_.RegisterGood(kConnection + 1, other_->limits().quota.bytes - 4096);
  MustTake(*other_, 4000);
  ASSERT_TRUE(rig_.table.job_memory().Awaits(MustTake(*other_, 4000)))
      << "so that others queue too";
  Return(MustTake(*one_, 4000));
  ASSERT_EQ(rig_.table.job_memory().spares(one_->id()).size(), 1u);
  given_.clear();
  const auto taken = rig_.table.job_memory().Take(
      *one_, *rig_.devices.table.Find(GlobalDeviceId(1)), 4000,
      [this](ArenaId arena, const absl::Status&) { given_.push_back(arena); });
  ASSERT_THAT(taken.status(), Is("OK"));
  EXPECT_FALSE(rig_.table.job_memory().Awaits(*taken));
  EXPECT_EQ(rig_.table.FindArena(*taken)->mapping, nullptr)
      << "it looks as if it could be returned";
  rig_.Settle();
  EXPECT_THAT(given_, ElementsAre(*taken));
  EXPECT_NE(rig_.table.FindArena(*taken)->mapping, nullptr);
  Return(*taken);
  EXPECT_THAT(rig_.table.job_memory().spares(one_->id()), ElementsAre(*taken));
}

TEST_F(JobMemoryTest, WhatIsAwaitedNoMoreMakesWay) {
  const ArenaId first = MustTake(*one_, 5000);
  const ArenaId large = MustTake(*one_, 8000);
  const ArenaId small = MustTake(*other_, 100);
  Return(large);
  EXPECT_THAT(given_, ElementsAre(first, small));
  EXPECT_EQ(rig_.table.FindArena(large), nullptr);
}

// Jobs with 64 bytes each for what they send and 64 for what they receive.
class JobWaitsForMemoryTest : public JobTransfersRig {
 protected:
  JobWaitsForMemoryTest() : JobTransfersRig({}, With(1024)) {}
  // How many it takes until one waits.
  size_t Fill() {
    for (size_t n = 0;; ++n) {
      const PostReply reply = jobs_.Post(*session_, Exchange(128 + 64 * n, absl::StrCat("/", n)));
      EXPECT_THAT(reply.status, Is("OK"));
      Run();
      const auto row = jobs_.Find(MakeTransferId(session_->id(), reply.first_transfer_id));
      if (!row || n == 30) return 0;
      if (row->waits_for.find("its memory") == 0) return n;
    }
  }
};

TEST_F(JobWaitsForMemoryTest, UntilOthersAreOver) {
  const size_t began = Fill();
  ASSERT_GT(began, 0u);
  EXPECT_EQ(defined_.size(), 2 * began) << "all but the last have begun";
  EXPECT_EQ(posted_.size(), 2 * began + 2) << "it can be matched already";
  for (const TransferId id : std::vector(defined_)) Over(id);
  EXPECT_EQ(defined_.size(), 2 * began + 2);
  EXPECT_EQ(jobs_.in_flight(), 1u);
  for (size_t i = 2 * began; i < defined_.size(); ++i) Over(defined_[i]);
  EXPECT_EQ(jobs_.counts().ok, began + 1);
}

TEST_F(JobWaitsForMemoryTest, UntilItsDeadline) {
  ASSERT_GT(Fill(), 0u);
  PostBatch batch = Exchange(3000, "/late");
  batch.deadlines[0] = absl::Seconds(2);
  const PostReply reply = jobs_.Post(*session_, batch);
  ASSERT_THAT(reply.status, Is("OK"));
  Run();
  jobs_.OnTime(rig_.control.Now() + absl::Seconds(3));
  for (const auto& [id, why] : std::map(poisoned_)) Over(id, why);
  EXPECT_THAT(
      *session_->endings().FindFailure(reply.first_transfer_id),
      Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY", "not begun within 2 s; it waited for its memory"));
}

TEST_F(JobWaitsForMemoryTest, OrIsCancelledOrEndsWithItsSession) {
  ASSERT_GT(Fill(), 0u);
  const PostReply reply = jobs_.Post(*session_, Exchange(3000, "/cancelled"));
  EXPECT_TRUE(jobs_.Cancel(MakeTransferId(session_->id(), reply.first_transfer_id),
                           Error(absl::StatusCode::kCancelled, Reason::kCancelled, "enough")));
  for (const auto& [id, why] : std::map(poisoned_)) Over(id, why);
  EXPECT_THAT(*session_->endings().FindFailure(reply.first_transfer_id), Is("CANCELLED/CANCELLED"));
  poisoned_.clear();
  const SessionId id = session_->id();
  rig_.table.OnClosed(kConnection);
  jobs_.EndSession(id);
  for (const auto& [transfer, why] : std::map(poisoned_)) Over(transfer, why);
  Run();
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(rig_.table.Find(id), nullptr);
  EXPECT_EQ(rig_.devices.table.Find(GlobalDeviceId(1))->arena_bytes, 0u);
}

}  // namespace
}  // namespace ferry::testing
