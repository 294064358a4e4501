// SPDX-License-Identifier: Apache-2.0
// Communicators between daemons with a GPU each: what groups are opened on, and what becomes of
// transfers when one is aborted, fails, or loses its other end. Those that need a
// failure at a certain point are for the fake NCCL.
#include <signal.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/gpu/nccl_fixture.h"
#include "tests/support/await.h"
#include "tests/support/process.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(MultiGpuNcclTest, OneCommunicatorServesBothDirectionsAndManyBatches) {
  ClusterOptions options;
  options.transfer = "nccl: { environment: { NCCL_DEBUG_SUBSYS: INIT } }";
  if (!StartDaemons(2, options)) return;
  End a = Open(0, 0, 2 * kNcclBytes), b = Open(1, 0, 2 * kNcclBytes);
  for (int round = 0; round < 5; ++round) {
    std::vector<Batch> batches;
    Fill(a.arena, 0, kNcclBytes, 2 * round);
    Fill(b.arena, 0, kNcclBytes, 2 * round + 1);
    batches.push_back(Receive(b, a, "up", {b.arena.Range(kNcclBytes, kNcclBytes)}, Nccl()));
    batches.push_back(Receive(a, b, "down", {a.arena.Range(kNcclBytes, kNcclBytes)}, Nccl()));
    batches.push_back(Send(a, b, "up", {a.arena.Range(0, kNcclBytes)}, Nccl()));
    batches.push_back(Send(b, a, "down", {b.arena.Range(0, kNcclBytes)}, Nccl()));
    for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
    ASSERT_TRUE(Has(b.arena, kNcclBytes, kNcclBytes, 2 * round));
    ASSERT_TRUE(Has(a.arena, kNcclBytes, kNcclBytes, 2 * round + 1));
  }
  for (size_t i : {0, 1}) {
    const auto comms = node(i).admin().Comms();
    ASSERT_EQ(comms.comms_size(), 1);
    EXPECT_EQ(comms.comms(0).state(), "open");
    EXPECT_EQ(comms.comms(0).attempt(), 1u);
    EXPECT_EQ(comms.comms(0).low_device_id(), a.device);
    EXPECT_EQ(comms.comms(0).high_device_id(), b.device);
    EXPECT_EQ(comms.comms(0).device_id(), i == 0 ? a.device : b.device);
    EXPECT_GE(comms.comms(0).groups(), 5u);
    EXPECT_EQ(comms.comms(0).moved_bytes(), 10 * kNcclBytes);
    EXPECT_GT(comms.comms(0).bytes(), 0u);
    EXPECT_NE(comms.comms(0).low_incarnation(), comms.comms(0).high_incarnation());
    const std::string groups =
        absl::StrCat("\"group: GPUs ", a.device, " and ", b.device, ", group ");
    EXPECT_THAT(
        Ferryctl("flight dump --trace", 0, i),
        ::testing::AllOf(
            HasSubstr(groups),
            HasSubstr(absl::StrCat("lane of device ", i == 0 ? a.device : b.device, ": groups"))));
    EXPECT_THAT(node(i).admin().Status().nccl(), HasSubstr("2."));
    EXPECT_THAT(node(i).admin().Status().nccl_environment(),
                ::testing::IsSupersetOf({"NCCL_RAS_ENABLE=0", "NCCL_DEBUG_SUBSYS=INIT"}));
  }
}

TEST_F(MultiGpuNcclTest, TheOrderInWhichClientsPostNeverMatters) {
  if (!StartDaemons(2)) return;
  constexpr uint64_t kPiece = 70'001;
  constexpr int kEach = 20;
  std::vector<End> as, bs;
  for (int i = 0; i < 2; ++i) {
    as.push_back(Open(0, 0, kPiece * kEach));
    bs.push_back(Open(1, 0, kPiece * kEach));
    for (int k = 0; k < kEach; ++k) Fill(as[i].arena, k * kPiece, kPiece, 100 * i + k);
  }
  std::vector<Batch> batches;
  const auto key = [](int i, int k) { return absl::StrCat("k", i, "-", k); };
  const auto range = [&](const End& end, int k) { return end.arena.Range(k * kPiece, kPiece); };
  for (int k = 0; k < kEach; ++k) {
    batches.push_back(Send(as[0], bs[0], key(0, k), {range(as[0], k)}, Nccl()));
    batches.push_back(Send(as[1], bs[1], key(1, k), {range(as[1], k)}, Nccl()));
    const int last = kEach - 1 - k;
    batches.push_back(Receive(bs[1], as[1], key(1, last), {range(bs[1], last)}, Nccl()));
    batches.push_back(Receive(bs[0], as[0], key(0, last), {range(bs[0], last)}, Nccl()));
  }
  for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < kEach; ++k) {
      ASSERT_TRUE(Has(bs[i].arena, k * kPiece, kPiece, 100 * i + k));
    }
  }
}

TEST_F(MultiGpuNcclTest, OperatorsWarmEvictAndAbort) {
  if (!StartDaemons(2)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  const auto open = [&](size_t count) {
    return Await([&] {
      return node(0).admin().CountComms("open") == count &&
             node(1).admin().CountComms("open") == count;
    });
  };
  node(1).admin().WarmComm(b.device, a.device);  // the follower asks
  ASSERT_TRUE(open(1));
  EXPECT_EQ(AttemptAt(0), 1u);
  EXPECT_EQ(node(1).admin().EvictComm(a.device, b.device), 1u);
  ASSERT_TRUE(open(0));
  ExpectMoves(a, b);
  EXPECT_EQ(AttemptAt(1), 2u);
  EXPECT_EQ(node(0).admin().AbortComm(a.device, b.device), 2u);
  ASSERT_TRUE(open(0));
  ExpectMoves(b, a);
  EXPECT_EQ(AttemptAt(0), 3u);
  EXPECT_EQ(node(1).admin().AbortComm(a.device, b.device), 3u);
  ASSERT_TRUE(open(0));
  node(0).admin().WarmComm(a.device, b.device);
  ASSERT_TRUE(open(1));
  EXPECT_EQ(AttemptAt(1), 4u);
  // As people do it.
  const auto ferryctl = [&](const std::string& command, int expected) {
    std::vector<std::string> arguments = {FerryctlProgram(), "--runtime-dir", node(1).runtime_dir(),
                                          "comms"};
    for (absl::string_view word : absl::StrSplit(command, ' ')) arguments.emplace_back(word);
    const Finished finished = RunProgram(arguments);
    EXPECT_EQ(finished.status, expected) << command;
    return finished.output;
  };
  const std::string both = absl::StrCat(a.device, " ", b.device);
  EXPECT_THAT(ferryctl("list", 0), ::testing::ContainsRegex(" 4  +open "));
  EXPECT_THAT(ferryctl(absl::StrCat("abort ", both, " --attempt 3"), 3),
              HasSubstr("attempt 4 (open)"));
  EXPECT_EQ(node(0).admin().CountComms("open"), 1u);
  EXPECT_THAT(ferryctl(absl::StrCat("abort ", both, " --attempt 4"), 0),
              HasSubstr("attempt 4 of the communicator of devices"));
  ASSERT_TRUE(open(0));
  EXPECT_THAT(ferryctl(absl::StrCat("evict ", both, " --attempt 4"), 1), HasSubstr("--attempt"));
  EXPECT_THAT(ferryctl(absl::StrCat("warm ", both), 0), HasSubstr("is being opened"));
  ASSERT_TRUE(open(1));
  EXPECT_THAT(ferryctl(absl::StrCat("evict ", both), 0), HasSubstr("attempt 5 of"));
  ASSERT_TRUE(open(0));
}

TEST_F(MultiGpuNcclTest, ADaemonKilledInTheMiddleOfGroupsIsToldAndComesBack) {
  ClusterOptions options;
  options.fake_nccl = absl::StrCat("group_gate=", Gate("groups"));
  if (!StartDaemons(2, options)) return;
  const uint64_t bytes = fake() ? kNcclBytes : 256 * kMiB;
  End a = Open(0, 0, bytes);
  {
    End b = Open(1, 0, bytes);
    ExpectMoves(a, b);
    WriteFile(Gate("groups"), "");
    std::vector<Batch> sends, receives;
    for (int i = 0; i < (fake() ? 3 : 200); ++i) {
      const std::string key = absl::StrCat("lost-", i);
      receives.push_back(Receive(b, a, key, {b.arena.All()}, Nccl()));
      sends.push_back(Send(a, b, key, {a.arena.All()}, Nccl()));
    }
    ASSERT_TRUE(Await([&] { return node(0).admin().Count("launched") > 0; }));
    node(1).Kill();
    size_t lost = 0;
    for (Batch& send : sends) {
      const Status status = send.Wait(kKilled);
      if (status.ok()) continue;
      ++lost;
      EXPECT_THAT(status, Is("UNAVAILABLE/PEER_UNREACHABLE"));
    }
    EXPECT_GT(lost, 0u);
  }
  std::filesystem::remove(Gate("groups"));
  ASSERT_TRUE(Await([&] { return node(0).admin().CountComms("open") == 0; }));
  ASSERT_TRUE(node(1).Start());
  End b = Open(1, 0, bytes);
  ExpectMoves(a, b);
  ExpectMoves(b, a);
}

// By the books of the daemon that has lived through all of it and by what it is told of its GPU:
// the fake driver knows of a process's own memory only.
TEST_F(MultiGpuNcclTest, NothingIsLeftOfCommunicatorsThatWereAbortedOrLostTheirPeer) {
  ClusterOptions options;
  options.fake_nccl = absl::StrCat("group_gate=", Gate("groups"), ";open_gate=", Gate("opens"));
  if (!StartDaemons(2, options)) return;
  const uint64_t bytes = fake() ? kNcclBytes : 256 * kMiB;
  const uint64_t noise = fake() ? 0 : 16 * kMiB;  // of others that use the GPU
  End a = Open(0, 0, bytes);
  const auto free_now = [&] {
    const admin::v1::ListDevicesResponse devices = node(0).admin().Devices();
    for (const admin::v1::ClusterDevice& device : devices.devices()) {
      if (device.device().global_device_id() != a.device) continue;
      EXPECT_TRUE(device.memory_known());
      return device.memory_free_bytes();
    }
    ADD_FAILURE() << "the daemon does not know its GPU";
    return uint64_t{0};
  };
  const auto booked = [&](const std::string& comm_bytes) {
    return HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics")
               .find(absl::StrCat("ferry_comm_bytes{device=\"", a.device, "\"} ", comm_bytes)) !=
           std::string::npos;
  };
  const auto close_all = [&] {
    node(0).admin().EvictComm(a.device, nodes().Gpu(1, 0));
    return Await([&] {
      return node(0).admin().Comms().comms_size() == 0 && node(1).admin().Comms().comms_size() == 0;
    });
  };
  uint64_t free_bytes = 0;
  {
    End b = Open(1, 0, bytes);
    ExpectMoves(a, b);
    ASSERT_TRUE(close_all());
    ASSERT_TRUE(Await([&] { return booked("0\n"); }));
    free_bytes = free_now();
    ExpectMoves(a, b);
    EXPECT_LT(free_now(), free_bytes);
    EXPECT_FALSE(booked("0\n"));
    for (const size_t by : {0, 1}) {
      node(by).admin().AbortComm(a.device, b.device);
      ExpectMoves(b, a);
    }
  }
  if (fake()) {  // openings that hang
    ASSERT_TRUE(close_all());
    WriteFile(Gate("opens"), "");
    const auto opening = [&](size_t count) {
      return Await([&] {
        return node(0).admin().CountComms("opening") == count &&
               node(1).admin().CountComms("opening") == count;
      });
    };
    for (const size_t by : {0, 1}) {
      node(0).admin().WarmComm(a.device, nodes().Gpu(1, 0));
      ASSERT_TRUE(opening(1));
      node(by).admin().AbortComm(a.device, nodes().Gpu(1, 0));
      ASSERT_TRUE(opening(0));
    }
    std::filesystem::remove(Gate("opens"));
  }
  for (int round = 0; round < 2; ++round) {
    End b = Open(1, 0, bytes);
    ExpectMoves(a, b);
    WriteFile(Gate("groups"), "");
    std::vector<Batch> sends, receives;
    for (int i = 0; i < (fake() ? 3 : 100); ++i) {
      const std::string key = absl::StrCat("lost-", i);
      receives.push_back(Receive(b, a, key, {b.arena.All()}, Nccl()));
      sends.push_back(Send(a, b, key, {a.arena.All()}, Nccl()));
    }
    ASSERT_TRUE(Await([&] { return node(0).admin().Count("launched") > 0; }));
    node(1).Kill();
    for (Batch& send : sends) (void)send.Wait(kKilled);
    std::filesystem::remove(Gate("groups"));
    ASSERT_TRUE(node(1).Start());
  }
  End b = Open(1, 0, bytes);
  ExpectMoves(a, b);
  ASSERT_TRUE(close_all());
  EXPECT_TRUE(Await([&] { return free_now() + noise >= free_bytes; }))
      << free_bytes << " bytes were free, " << free_now() << " are";
  EXPECT_TRUE(booked("0\n"));
}

// An abort takes the real one half a second, and nothing of that is anybody's memory.
TEST_F(MultiGpuNcclTest, TransfersEndBeforeAnAbortIsBack) {
  const std::string gates =
      absl::StrCat("group_gate=", Gate("groups"), ";abort_gate=", Gate("aborts"));
  if (!StartWithFaults(gates, {}, gates)) return;
  End a = Open(0, 0, kNcclBytes);
  {
    End b = Open(1, 0, kNcclBytes);
    ExpectMoves(a, b);
    WriteFile(Gate("groups"), "");
    WriteFile(Gate("aborts"), "");
    Batch receive = Receive(b, a, "lost", {b.arena.All()}, Nccl());
    Batch send = Send(a, b, "lost", {a.arena.All()}, Nccl());
    ASSERT_TRUE(Await([&] { return node(0).admin().Count("launched") > 0; }));
    node(1).Kill();
    EXPECT_THAT(send.Wait(kKilled), Is("UNAVAILABLE/PEER_UNREACHABLE"));
    EXPECT_EQ(node(0).admin().CountComms("aborting"), 1u);
  }
  std::filesystem::remove(Gate("groups"));
  ASSERT_TRUE(node(1).Start());
  End b = Open(1, 0, kNcclBytes);
  ExpectMoves(a, b);  // the next attempt does not wait for that either
  EXPECT_EQ(node(0).admin().CountComms("aborting"), 1u);
  std::filesystem::remove(Gate("aborts"));
  EXPECT_TRUE(Await([&] { return node(0).admin().CountComms("aborting") == 0; }));
  ExpectMoves(b, a);
}

TEST_F(MultiGpuNcclTest, AStoppedDaemonIsLostAfterItsSilence) {
  ClusterOptions options;
  options.fake_nccl = absl::StrCat("group_gate=", Gate("groups"));
  if (!StartDaemons(2, options)) return;
  const uint64_t bytes = fake() ? kNcclBytes : 256 * kMiB;
  End a = Open(0, 0, bytes), b = Open(1, 0, bytes);
  ExpectMoves(a, b);
  WriteFile(Gate("groups"), "");
  std::vector<Batch> sends, receives;
  for (int i = 0; i < (fake() ? 3 : 200); ++i) {
    const std::string key = absl::StrCat("lost-", i);
    receives.push_back(Receive(b, a, key, {b.arena.All()}, Nccl()));
    sends.push_back(Send(a, b, key, {a.arena.All()}, Nccl()));
  }
  ASSERT_TRUE(Await([&] { return node(0).admin().Count("launched") > 0; }));
  node(1).Signal(SIGSTOP);
  for (Batch& send : sends) {
    const Status status = send.Wait(kStopped);
    if (status.ok()) continue;  // before it was stopped
    EXPECT_THAT(status, Is("UNAVAILABLE/PEER_UNREACHABLE"));
  }
  EXPECT_THAT(sends.back().Wait(kStopped), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  node(1).Signal(SIGCONT);
  std::filesystem::remove(Gate("groups"));
  for (Batch& receive : receives) (void)receive.Wait(kStopped);
  ASSERT_TRUE(
      Await([&] { return node(0).admin().CountComms("open") == 0 && nodes().AwaitLink(0, 1); }));
  ExpectMoves(a, b);
}

// What ends it must not wait for the other rank, as ncclCommDestroy does.
TEST_F(MultiGpuNcclTest, AnIdleCommunicatorIsClosedThoughThePeerIsStopped) {
  if (!StartDaemons(2)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  ExpectMoves(a, b);
  node(1).Signal(SIGSTOP);
  node(0).admin().EvictComm(a.device, b.device);
  EXPECT_TRUE(Await(
      [&] {
        const admin::v1::ListCommsResponse comms = node(0).admin().Comms();
        return comms.comms_size() == 0 || comms.comms(0).state() == "failed";
      },
      kStopped));
  node(1).Signal(SIGCONT);
  ASSERT_TRUE(nodes().AwaitLink(0, 1));
  ExpectMoves(a, b);
  ExpectMoves(b, a);
  EXPECT_EQ(AttemptAt(0), AttemptAt(1));
}

TEST_F(MultiGpuNcclTest, AnErrorThatNcclFindsEndsWhatIsOnTheCommunicator) {
  if (!StartWithFaults("async_error=2")) return;  // the first is the warm-up
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  EXPECT_THAT(receive.Wait(kSoon), Is("ABORTED/COMM_ABORTED", HasSubstr("remote process exited")));
  EXPECT_THAT(send.Wait(kSoon), Is("ABORTED/COMM_ABORTED"));
  ExpectMoves(a, b);
  EXPECT_EQ(AttemptAt(0), 2u);
}

TEST_F(MultiGpuNcclTest, ADaemonWithoutNcclSaysWhatIsMissing) {
  ClusterOptions options;
  options.environment = {"FERRY_NCCL_LIBRARY=/nowhere/libnccl.so.2"};
  if (!StartDaemons(2, options)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  ExpectMoves(a, b, {});
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  EXPECT_THAT(receive.Wait(kSoon), Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE",
                                      HasSubstr("opening /nowhere/libnccl.so.2")));
  EXPECT_THAT(node(0).admin().Status().nccl(), HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_THAT(send.Wait(kSoon), Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE"));
}

}  // namespace
}  // namespace ferry::testing
