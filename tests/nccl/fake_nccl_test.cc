// SPDX-License-Identifier: Apache-2.0
// The fake NCCL is strict where the real one hangs or brings garbage: each misuse ends the process
// with its story. All other tests lean on that.
#include <stdlib.h>

#include <atomic>
#include <thread>

#include "two_ranks.h"

namespace ferry {
namespace {

using Operations = std::vector<Communicator::Operation>;

// Two open ranks with a stream each, by NCCL's own calls.
class Ranks {
 public:
  Ranks() : two_(uint64_t{1} << 20) {
    ncclUniqueId id = {};
    Check(api().GetUniqueId(&id));
    std::thread other([&] { Open(1, id); });
    Open(0, id);
    other.join();
  }
  const NcclApi& api() const { return two_.api(); }
  ncclComm_t comm(int rank) const { return comms_[rank]; }
  std::byte* memory(int rank) { return two_.arena(rank); }
  CudaStream& stream(int rank) { return *streams_[rank]; }

  // What `rank` launches as one group.
  void Launch(int rank, const Operations& operations) {
    stream(rank).MakeCurrent();
    Check(api().GroupStart());
    for (const Communicator::Operation& operation : operations) {
      Check(Call(rank, rank, operation));
    }
    Check(api().GroupEnd());
  }
  // One operation of `rank`, on the stream of a rank.
  ncclResult_t Call(int rank, int on, const Communicator::Operation& operation) {
    return operation.send ? api().Send(operation.memory, operation.bytes, kNcclBytes, 1 - rank,
                                       comm(rank), stream(on).handle())
                          : api().Recv(operation.memory, operation.bytes, kNcclBytes, 1 - rank,
                                       comm(rank), stream(on).handle());
  }
  Communicator::Operation Send(int rank, size_t bytes) { return {true, memory(rank), bytes}; }
  Communicator::Operation Receive(int rank, size_t bytes) { return {false, memory(rank), bytes}; }
  // Both launch, and what they have launched runs.
  void Run(const Operations& zero, const Operations& one) {
    Launch(0, zero);
    Launch(1, one);
    for (int rank : {0, 1}) {
      stream(rank).MakeCurrent();
      FERRY_CHECK(stream(rank).Await().ok());
    }
  }
  void End() {
    for (int rank : {0, 1}) Check(api().CommAbort(comm(rank)));
  }
  static void Check(ncclResult_t result) { FERRY_CHECK(result == kNcclSuccess); }

 private:
  void Open(int rank, const ncclUniqueId& id) {
    auto stream = CudaStream::Make(two_.gpu(rank), {4096, /*kernel=*/false});
    FERRY_CHECK(stream.ok());
    streams_[rank] = *std::move(stream);
    streams_[rank]->MakeCurrent();
    ncclConfig_t config = BlockingConfig(16);
    Check(api().CommInitRankConfig(&comms_[rank], 2, id, rank, &config));
  }

  TwoRanks two_;
  std::unique_ptr<CudaStream> streams_[2];
  ncclComm_t comms_[2] = {};
};

// Each in a process of its own, which then has no other threads but its own.
class FakeNcclDeathTest : public testing::Test {
 protected:
  FakeNcclDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(FakeNcclDeathTest, WhatBothRanksLaunchAlikeIsFine) {
  Ranks ranks;
  ranks.Run({ranks.Send(0, 8), ranks.Receive(0, 16), ranks.Send(0, 0)},
            {ranks.Send(1, 16), ranks.Receive(1, 8), ranks.Receive(1, 0)});
  ranks.End();
}

TEST_F(FakeNcclDeathTest, OtherSizesAtTheTwoRanks) {
  EXPECT_DEATH(
      {
        Ranks ranks;
        ranks.Run({ranks.Send(0, 8)}, {ranks.Receive(1, 16)});
      },
      "receive 0 is of 16 bytes, what is sent has 8");
}

TEST_F(FakeNcclDeathTest, AnotherNumberOfOperationsAtTheTwoRanks) {
  EXPECT_DEATH(
      {
        Ranks ranks;
        ranks.Run({ranks.Send(0, 8), ranks.Send(0, 8)}, {ranks.Receive(1, 8)});
      },
      "sends and . receives; the other rank's launch 1 has");
}

TEST_F(FakeNcclDeathTest, OperationsInAnotherOrder) {
  EXPECT_DEATH(
      {
        Ranks ranks;
        ranks.Run({ranks.Send(0, 8), ranks.Send(0, 24)},
                  {ranks.Receive(1, 24), ranks.Receive(1, 8)});
      },
      "receive 0 is of 24 bytes, what is sent has 8");
}

// Rank 0 sends first, rank 1 does too: over NCCL both would wait for the other for ever.
TEST_F(FakeNcclDeathTest, GroupsInAnotherOrder) {
  EXPECT_DEATH(
      {
        Ranks ranks;
        ranks.Launch(0, {ranks.Send(0, 8)});
        ranks.Launch(0, {ranks.Receive(0, 8)});
        ranks.Run({}, {ranks.Send(1, 8)});
      },
      "has 1 sends and 0 receives; the other rank's launch 1 has 1 and 0");
}

TEST_F(FakeNcclDeathTest, TwoThreadsInOneCommunicator) {
  EXPECT_DEATH(
      {
        TwoRanks two(4096);
        ncclUniqueId id = {};
        Ranks::Check(two.api().GetUniqueId(&id));
        ncclComm_t comm = nullptr;
        auto stream = CudaStream::Make(two.gpu(0), {4096, /*kernel=*/false});
        std::thread opener([&] {  // to which nobody comes
          (*stream)->MakeCurrent();
          ncclConfig_t config = BlockingConfig(16);
          (void)two.api().CommInitRankConfig(&comm, 2, id, 0, &config);
        });
        while (__atomic_load_n(&comm, __ATOMIC_ACQUIRE) == nullptr) std::this_thread::yield();
        (*stream)->MakeCurrent();
        (void)two.api().Send(two.arena(0), 8, kNcclBytes, 1, comm, (*stream)->handle());
        opener.join();
      },
      "a launch while another thread is in the same communicator");
}

TEST_F(FakeNcclDeathTest, UseAfterAnAbort) {
  const auto aborted = [](const auto& use) {
    Ranks ranks;
    for (int rank : {0, 1}) Ranks::Check(ranks.api().CommAbort(ranks.comm(rank)));
    use(ranks);
  };
  EXPECT_DEATH(aborted([](Ranks& ranks) { ranks.Launch(0, {ranks.Send(0, 8)}); }),
               "an operation after the communicator was aborted");
  EXPECT_DEATH(aborted([](Ranks& ranks) { (void)ranks.api().CommAbort(ranks.comm(0)); }),
               "ncclCommAbort after the communicator was aborted");
  EXPECT_DEATH(aborted([](Ranks& ranks) { (void)ranks.api().CommRevoke(ranks.comm(1), 0); }),
               "ncclCommRevoke after the communicator was aborted");
  EXPECT_DEATH(aborted([](Ranks& ranks) {
                 ncclResult_t error = kNcclSuccess;
                 (void)ranks.api().CommGetAsyncError(ranks.comm(0), &error);
               }),
               "ncclCommGetAsyncError after the communicator was aborted");
}

TEST_F(FakeNcclDeathTest, UseWhileAnAbortRuns) {
  const auto beside = [](const auto& use) {
    setenv("FERRY_FAKE_NCCL", "abort_gate=/dev/null", 1);  // closed for good
    Ranks ranks;
    std::thread reaper([&] { (void)ranks.api().CommAbort(ranks.comm(0)); });
    while (true) use(ranks);  // until the abort has begun
  };
  EXPECT_DEATH(beside([](Ranks& ranks) { ranks.Launch(0, {ranks.Send(0, 8)}); }),
               "(an operation|a launch) while the communicator is being aborted");
  EXPECT_DEATH(beside([](Ranks& ranks) {
                 ncclResult_t error = kNcclSuccess;
                 (void)ranks.api().CommGetAsyncError(ranks.comm(0), &error);
               }),
               "ncclCommGetAsyncError while the communicator is being aborted");
}

// Unlike an abort, a revocation is waited for by whoever frees the communicator.
TEST_F(FakeNcclDeathTest, WhatIsLaunchedAfterARevocationIsRefused) {
  Ranks ranks;
  ranks.Check(ranks.api().CommRevoke(ranks.comm(0), 0));
  ranks.stream(0).MakeCurrent();
  EXPECT_NE(ranks.Call(0, 0, ranks.Send(0, 8)), kNcclSuccess);
  ranks.End();
}

TEST_F(FakeNcclDeathTest, WhatAGpuMayNotTouchAndOtherGpusStreams) {
  EXPECT_DEATH(
      {
        Ranks ranks;
        static std::byte host[8];
        ranks.Launch(0, {{true, host, sizeof(host)}});
      },
      "an operation of 8 bytes on memory that is not all a GPU's");
  EXPECT_DEATH(
      {
        Ranks ranks;
        (void)ranks.Call(0, /*on=*/1, ranks.Send(0, 8));
      },
      "a launch on a stream of another GPU");
}

TEST_F(FakeNcclDeathTest, ASettingThatIsMisspelt) {
  EXPECT_DEATH(
      {
        setenv("FERRY_FAKE_NCCL", "group_gates=/nowhere", 1);
        Ranks ranks;
      },
      "unknown setting 'group_gates'");
}

}  // namespace
}  // namespace ferry
