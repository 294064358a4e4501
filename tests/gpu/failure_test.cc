// SPDX-License-Identifier: Apache-2.0
// Clients and daemons that are killed or stopped while GPUs copy, and GPUs that fail. On the fake
// copies take long enough to be in the middle of; on a real GPU they may be over by then, and then
// have ended well.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kEach = 16 * kMiB;
constexpr uint64_t kCount = 12;
constexpr uint64_t kBytes = kEach * kCount;

class GpuLossTest : public GpuTest, public ::testing::WithParamInterface<GpuCase> {
 protected:
  bool StartSlow() { return StartFor(GetParam(), FakeWith("copy_us=3000")); }
  size_t destination_node() const { return GetParam().one_node ? 0 : 1; }
  uint64_t source_device() { return nodes().Gpu(0); }
  uint64_t destination_device() {
    return GetParam().one_node && !GetParam().same_gpu ? nodes().Gpu(0, 1)
                                                       : nodes().Gpu(destination_node());
  }
  PostOptions options() const {
    PostOptions options;
    options.route = GetParam().route;
    return options;
  }
  // A client process with one arena, which is its number 0.
  std::unique_ptr<ClientProcess> Spawn(bool source) {
    auto client = std::make_unique<ClientProcess>(
        node(source ? 0 : destination_node()).client_dir(), source ? "source" : "destination");
    EXPECT_EQ(client->Tell(absl::StrCat("arena ", source ? source_device() : destination_device(),
                                        " ", kBytes)),
              "OK 0");
    return client;
  }
  std::string Words(bool source) {
    return absl::StrCat(source ? "send " : "receive ",
                        source ? source_device() : destination_device(), " ",
                        source ? destination_device() : source_device(), " k 0 0 ", kEach,
                        " count=", kCount, " route=", GetParam().route);
  }
  uint64_t Received() { return node(destination_node()).admin().Status().bytes_received(); }
  // `before`: what had been received when the copies were posted. On a real GPU they may be over.
  bool AwaitCopies(uint64_t before) {
    return Await([&] {
      return Received() > before || node(destination_node()).admin().Count("launched") > 0;
    });
  }
  uint64_t ArenaBytes() {
    uint64_t bytes = 0;
    for (size_t i = 0; i < nodes().size(); ++i) bytes += node(i).admin().ArenaBytes();
    return bytes;
  }
};

TEST_P(GpuLossTest, AClientKilledInCopiesLeavesNothingAndItsPartnerIsTold) {
  if (!StartSlow()) return;
  // Somebody else, who keeps the GPUs' contexts too.
  End witness[] = {OpenSource(GetParam(), kMiB), OpenDestination(GetParam(), kMiB)};
  ExpectTransfer(witness[0], witness[1], "before", options());
  const uint64_t held = ArenaBytes();
  const uint64_t free_bytes = driver_->FreeBytes(0);
  for (const bool sender : {true, false}) {
    auto source = Spawn(true), destination = Spawn(false);
    const uint64_t before = Received();
    ASSERT_EQ(destination->Tell(Words(false)), "OK 0");
    ASSERT_EQ(source->Tell(Words(true)), "OK 0");
    ASSERT_TRUE(AwaitCopies(before));
    ClientProcess& dies = sender ? *source : *destination;
    ClientProcess& lives = sender ? *destination : *source;
    dies.Kill();
    EXPECT_THAT(lives.Tell("wait 0 20000"), AnyOf("OK", StartsWith("ABORTED/POISONED"),
                                                  StartsWith("ABORTED/PEER_CLIENT_GONE")));
    EXPECT_EQ(lives.Finish(), 0);
    EXPECT_TRUE(Await([&] { return ArenaBytes() == held; })) << ArenaBytes() - held;
    if (!fake()) {  // the fake counts what a process allocated itself
      EXPECT_TRUE(Await([&] { return driver_->FreeBytes(0) + 16 * kMiB >= free_bytes; }));
    }
  }
  ExpectTransfer(witness[0], witness[1], "after", options());
}

TEST_P(GpuLossTest, AStoppedClientsTransfersGoOn) {
  if (!StartSlow()) return;
  auto source = Spawn(true), destination = Spawn(false);
  ASSERT_EQ(source->Tell(absl::StrCat("fill 0 0 ", kBytes, " 5")), "OK");
  ASSERT_EQ(destination->Tell(Words(false)), "OK 0");
  ASSERT_EQ(source->Tell(Words(true)), "OK 0");
  ASSERT_TRUE(AwaitCopies(0));
  source->Signal(SIGSTOP);
  EXPECT_EQ(destination->Tell("wait 0 20000"), "OK");
  EXPECT_EQ(destination->Tell(absl::StrCat("check 0 0 ", kBytes, " 5")), "OK");
  source->Signal(SIGCONT);
  EXPECT_EQ(source->Tell("wait 0 20000"), "OK");
  EXPECT_EQ(source->Finish(), 0);
  EXPECT_EQ(destination->Finish(), 0);
}

// The client's streams are this program's, once more in a process of its own: one waits for the
// transfer, and what is behind it looks at the bytes.
TEST_P(GpuLossTest, AClientKilledOrStoppedWhileItsStreamWaits) {
  if (const char* directory = getenv("FERRY_TEST_WAITER"); directory != nullptr) {
    SessionOptions session;
    session.client_dir = directory;
    End end;
    end.session = Must(Session::Open(session));
    end.device = strtoull(getenv("FERRY_TEST_DEVICE"), nullptr, 10);
    const uint64_t remote = strtoull(getenv("FERRY_TEST_REMOTE"), nullptr, 10);
    end.arena = Must(end.session.CreateArena(end.device, kMiB));
    Batch batch = Must(
        end.session.Receive(end.device, {Transfer(remote, "k", {end.arena.All()})}, options()));
    char* const seen = Pinned(kMiB);
    const CUstream stream = MakeStream(end);  // whose context is current from here on
    ASSERT_THAT(cuda::Wait(batch, stream), IsOk());
    ASSERT_CU(driver_->cuMemcpyDtoHAsync(seen, Address(end.arena), kMiB, stream));
    ASSERT_EQ(write(STDERR_FILENO, "waits\n", 6), 6);
    ASSERT_CU(Synchronize(stream));
    EXPECT_TRUE(HasPattern(seen, kMiB, 7));
    return;
  }
  if (!StartFor(GetParam())) return;
  End source = OpenSource(GetParam(), kMiB);
  Fill(source.arena, 0, kMiB, 7);
  const uint64_t held = ArenaBytes();
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  for (const bool killed : {true, false}) {
    TemporaryDirectory directory;
    SpawnOptions spawn;
    spawn.arguments = {absl::StrCat("/proc/", getpid(), "/exe"),
                       absl::StrCat("--gtest_filter=", test->test_suite_name(), ".", test->name())};
    spawn.environment = {"FERRY_TEST_WAITER=" + node(destination_node()).client_dir(),
                         absl::StrCat("FERRY_TEST_DEVICE=", destination_device()),
                         absl::StrCat("FERRY_TEST_REMOTE=", source.device)};
    spawn.output = directory / "output";
    Process waiter(spawn);
    const auto said = [&] { return ReadFile(spawn.output); };
    ASSERT_TRUE(Await([&] { return said().find("waits\n") != std::string::npos; })) << said();
    Transfer later(destination_device(), "k", {source.arena.All()});
    const uint64_t value = killed ? 1 : 2;
    later.defined_at = Transfer::DefinedAt{0, value};
    Batch send = Must(source.session.Send(source.device, {later}, options()));
    ASSERT_TRUE(Await([&] { return node(destination_node()).admin().Count("matched") > 0; }));
    if (killed) {
      waiter.Kill();
      EXPECT_THAT(send.Wait(kSoon), Is("ABORTED/PEER_CLIENT_GONE"));
      EXPECT_THAT(source.session.Define(0, value), IsOk());
    } else {
      waiter.Signal(SIGSTOP);
      EXPECT_THAT(source.session.Define(0, value), IsOk());
      EXPECT_THAT(send.Wait(kSoon), IsOk());
      waiter.Signal(SIGCONT);
      EXPECT_EQ(waiter.Wait(), std::optional<int>(0)) << said();
    }
    EXPECT_TRUE(Await([&] { return ArenaBytes() == held; })) << ArenaBytes() - held;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuLossTest, ::testing::Values(kGpuSelf),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuLossTest,
                         ::testing::Values(kGpuMapped, kGpuNccl, kGpuTcp, kGpuUcxTcp),
                         [](const auto& info) { return std::string(info.param.name); });

using GpuDaemonLossTest = GpuLossTest;

TEST_P(GpuDaemonLossTest, EitherDaemonKilledInCopies) {
  if (!StartSlow()) return;
  End source = OpenSource(GetParam(), kBytes), destination = OpenDestination(GetParam(), kBytes);
  Arena kept = Must(destination.session.CreateArena(destination.device, kMiB));
  Fill(kept, 0, kMiB, 3);
  for (const bool source_dies : {true, false}) {
    Fill(source.arena, 0, kBytes, 1);
    std::vector<Transfer> sends, receives;
    for (uint64_t i = 0; i < kCount; ++i) {
      sends.emplace_back(destination.device, absl::StrCat(i),
                         std::vector<Range>{source.arena.Range(i * kEach, kEach)});
      receives.emplace_back(source.device, absl::StrCat(i),
                            std::vector<Range>{destination.arena.Range(i * kEach, kEach)});
    }
    const uint64_t before = Received();
    Batch receive = Must(destination.session.Receive(destination.device, receives, options()));
    Batch send = Must(source.session.Send(source.device, sends, options()));
    ASSERT_TRUE(AwaitCopies(before));
    const size_t victim = source_dies ? 0 : destination_node();
    node(victim).Kill();
    Batch& own = source_dies ? send : receive;
    Batch& others = source_dies ? receive : send;
    EXPECT_THAT(NameOf(own.Wait(kSoon)), AnyOf("UNAVAILABLE/DAEMON_LOST", "OK"));
    EXPECT_THAT(NameOf(others.Wait(kSoon)),
                AnyOf("OK", "UNAVAILABLE/PEER_UNREACHABLE", "ABORTED/COMM_ABORTED"));
    ASSERT_TRUE(node(victim).Start());
    ASSERT_THAT((source_dies ? source : destination).session.WaitAttached(kSoon), IsOk());
    EXPECT_TRUE(Has(source.arena, 0, kBytes, 1));
    EXPECT_TRUE(Has(kept, 0, kMiB, 3));
    ExpectTransfer(source, destination, absl::StrCat("again ", source_dies), options());
  }
}

INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuDaemonLossTest,
                         ::testing::Values(kGpuMapped, kGpuNccl, kGpuTcp, kGpuUcxTcp),
                         [](const auto& info) { return std::string(info.param.name); });

class GpuFaultTest : public GpuTest {
 protected:
  // False, and the test is skipped, where GPUs cannot be told to fail.
  bool NeedFake() {
    if (driver_ == nullptr) return false;
    [&] {
      if (!fake()) GTEST_SKIP() << "SKIPPED: a real GPU cannot be told to fail";
    }();
    return fake();
  }
};

TEST_F(GpuFaultTest, AnErrorThatStaysEndsTheDaemonAndItsClientsGoOnWithTheNext) {
  if (!NeedFake()) return;
  StartNodes(2, 2, "", FakeWith("sticky=3"));  // of each life's copies the third
  End source = Open(0, 0, kMiB), destination = Open(1, 0, kMiB), witness = Open(1, -1, kMiB);
  Arena kept = Must(destination.session.CreateArena(destination.device, 3 * kMiB));
  Fill(kept, 0, 3 * kMiB, 3);
  PostOptions mapped;
  mapped.route = FERRY_ROUTE_MAPPED;
  ExpectTransfer(source, destination, "one", mapped);
  ExpectTransfer(source, destination, "two", mapped);
  Batch never = Receive(witness, source, "never", {witness.arena.All()});
  Batch receive = Receive(destination, source, "three", {destination.arena.All()}, mapped);
  Batch send = Send(source, destination, "three", {source.arena.All()}, mapped);
  EXPECT_THAT(receive.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(never.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_EQ(node(1).process().Wait(), std::optional<int>(128 + SIGABRT));
  EXPECT_THAT(node(1).Log(), HasSubstr("daemon.cuda_lost"));
  EXPECT_THAT(node(1).Log(), HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE"));
  EXPECT_THAT(node(1).Log(), HasSubstr("flight recorder"));
  ASSERT_TRUE(node(1).Start());
  ASSERT_THAT(destination.session.WaitAttached(kSoon), IsOk());
  ASSERT_THAT(witness.session.WaitAttached(kSoon), IsOk());
  EXPECT_TRUE(Has(kept, 0, 3 * kMiB, 3));
  ExpectTransfer(source, destination, "four", mapped);
}

// Without peer access nothing can be mapped: tried once for each arena (and once more after 10 s,
// which this does not take), and again over a new link.
TEST_F(GpuFaultTest, AnArenaThatCannotBeMappedIsNotTriedByEveryTransfer) {
  if (!NeedFake()) return;
  StartNodes(2, 2, "", FakeWith("no_peer=1"));
  End source = Open(0, 0, kMiB), destination = Open(1, 0, kMiB);
  const auto fallbacks = [&] {
    const std::string log = node(1).Log();
    size_t count = 0;
    for (size_t at = 0; (at = log.find("route.fallback", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  for (int i = 0; i < 3; ++i) ExpectTransfer(source, destination, absl::StrCat("first ", i));
  EXPECT_EQ(fallbacks(), 1u);
  const auto explained = node(1).admin().Explain(source.device, destination.device);
  ASSERT_GT(explained.options_size(), 1);
  EXPECT_EQ(explained.options(1).route(), v1::ROUTE_MAPPED);
  EXPECT_THAT(explained.options(1).reason(), HasSubstr("not for 1 arenas of the source: "));
  Arena other = Must(source.session.CreateArena(source.device, kMiB));
  std::swap(source.arena, other);
  for (int i = 0; i < 3; ++i) ExpectTransfer(source, destination, absl::StrCat("second ", i));
  EXPECT_EQ(fallbacks(), 2u);
  node(0).Kill();
  ASSERT_TRUE(node(0).Start());
  ASSERT_THAT(source.session.WaitAttached(kSoon), IsOk());
  for (int i = 0; i < 3; ++i) ExpectTransfer(source, destination, absl::StrCat("third ", i));
  EXPECT_EQ(fallbacks(), 3u);
}

// Staged: at the source, then at the destination. The next transfer has all memory for staging.
TEST_F(GpuFaultTest, ACopyThatFailsOnTheWayByTcpEndsItsTransferAtBothEnds) {
  if (!NeedFake()) return;
  for (const bool at_source : {true, false}) {
    cluster_.reset();
    StartNodes(2, 2, kGpuTcp.transfer, FakeWith("fail_copy=2"));
    End gpu = Open(at_source ? 0 : 1, 0, 40 * kMiB), host = Open(at_source ? 1 : 0, -1, 40 * kMiB);
    End& source = at_source ? gpu : host;
    End& destination = at_source ? host : gpu;
    PostOptions tcp;
    tcp.route = FERRY_ROUTE_TCP;
    Batch receive = Receive(destination, source, "k", {destination.arena.All()}, tcp);
    Batch send = Send(source, destination, "k", {source.arena.All()}, tcp);
    EXPECT_THAT(send.Wait(kSoon),
                Is("INTERNAL/INTERNAL", HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")));
    EXPECT_THAT(receive.Wait(kSoon),
                Is("INTERNAL/INTERNAL", HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")));
    for (int i = 0; i < 3; ++i) ExpectTransfer(source, destination, absl::StrCat("next ", i), tcp);
    EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), 0u);
  }
}

}  // namespace
}  // namespace ferry::testing
