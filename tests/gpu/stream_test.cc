// SPDX-License-Identifier: Apache-2.0
// Streams of the application that say 'defined' and wait for 'over', with real daemons: order is
// exact, and whatever dies, no stream hangs.
#include <future>

#include "absl/strings/str_cat.h"
#include "tests/gpu/stream_fixture.h"

namespace ferry::testing {
namespace {

TEST_P(GpuStreamTest, AConsumerBehindOverNeverSeesOldBytes) {
  constexpr uint64_t kBytes = 1 * kMiB + 4;
  if (!StartEnds(kBytes)) return;
  for (uint64_t round = 1; round <= 50; ++round) {
    // Both halves wait for their streams: the producer's bytes, and the consumer's use of the last.
    Transfer send = Half(source_, destination_.device),
             receive = Half(destination_, source_.device);
    send.defined_at = Transfer::DefinedAt{0, round};
    receive.defined_at = Transfer::DefinedAt{1, round};
    Batch received = Must(destination_.session.Receive(destination_.device, {receive}, options()));
    Batch sent = Must(source_.session.Send(source_.device, {send}, options()));
    ASSERT_THAT(cuda::Define(destination_.session, consumer_, 1, round), IsOk());
    Produce(round);
    ASSERT_THAT(cuda::Define(source_.session, producer_, 0, round), IsOk());
    ASSERT_THAT(cuda::Wait(received, consumer_), IsOk());
    Consume();
    ASSERT_CU(Synchronize(consumer_));
    ASSERT_TRUE(HasPattern(seen_, kBytes, round)) << "round " << round;
    ASSERT_THAT(received.Wait(kSoon), IsOk());
    ASSERT_THAT(sent.Wait(kSoon), IsOk());
  }
}

TEST_P(GpuStreamTest, PreparedFromStreamToStreamWithoutACall) {
  constexpr uint64_t kBytes = 64 * 1024 + 8;
  if (!StartEnds(kBytes)) return;
  Prepared receive = Must(destination_.session.PrepareReceive(
      destination_.device, {Half(destination_, source_.device)}, options()));
  Prepared send = Must(
      source_.session.PrepareSend(source_.device, {Half(source_, destination_.device)}, options()));
  for (uint64_t round = 1; round <= 100; ++round) {
    uint64_t firing = 0;
    ASSERT_THAT(cuda::Fire(receive, consumer_, &firing), IsOk());
    EXPECT_EQ(firing, round);
    Produce(round);
    ASSERT_THAT(cuda::Fire(send, producer_), IsOk());
    ASSERT_THAT(cuda::Wait(send, producer_), IsOk());  // its bytes may be made anew
    ASSERT_THAT(cuda::Wait(receive, consumer_), IsOk());
    Consume();
    ASSERT_CU(Synchronize(consumer_));
    ASSERT_TRUE(HasPattern(seen_, kBytes, round)) << "round " << round;
    ASSERT_CU(Synchronize(producer_));
  }
  EXPECT_EQ(receive.over(), 100u);
}

TEST_P(GpuStreamTest, StreamsGoOnWhenTheDaemonIsKilledAndTheBytesAreStillThere) {
  constexpr uint64_t kBytes = 2 * kMiB + 1;
  if (!StartEnds(kBytes)) return;
  Fill(source_.arena, 0, kBytes, 1);
  Fill(destination_.arena, 0, kBytes, 2);
  Prepared never = Must(destination_.session.PrepareReceive(
      destination_.device, {Transfer(source_.device, "never", {destination_.arena.All()})}));
  ASSERT_THAT(never.Fire(), IsOk());
  std::vector<Batch> batches;
  std::vector<CUstream> streams;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(
        Receive(destination_, source_, absl::StrCat("never", i), {destination_.arena.All()}));
    streams.push_back(MakeStream(destination_));
    ASSERT_THAT(cuda::Wait(batches.back(), streams.back()), IsOk());
  }
  streams.push_back(MakeStream(destination_));
  ASSERT_THAT(cuda::Wait(never, streams.back(), 1), IsOk());
  const size_t killed = GetParam().one_node ? 0 : 1;
  node(killed).Kill();
  for (CUstream stream : streams) ASSERT_CU(Synchronize(stream));
  for (Batch& batch : batches) EXPECT_THAT(batch.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  ASSERT_TRUE(node(killed).Start());
  ASSERT_THAT(destination_.session.WaitAttached(kSoon), IsOk());
  ASSERT_THAT(source_.session.WaitAttached(kSoon), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, kBytes, 2));
  EXPECT_TRUE(Has(source_.arena, 0, kBytes, 1));
  never = Prepared();
  ExpectTransfer(source_, destination_, "again");
}

// The stream is still at work in front of its wait when the daemon dies, and until the batch has
// been prepared again.
TEST_P(GpuStreamTest, AStreamThatGetsToItsWaitWhenTheDaemonIsBackGoesOn) {
  constexpr uint64_t kBytes = 64 * 1024;
  if (!StartEnds(kBytes)) return;
  const auto prepare_send = [&] {
    return Must(source_.session.PrepareSend(source_.device, {Half(source_, destination_.device)},
                                            options()));
  };
  Prepared receive = Must(destination_.session.PrepareReceive(
      destination_.device, {Half(destination_, source_.device)}, options()));
  Prepared send = prepare_send();
  const auto fire_both = [&](uint64_t seed) {
    uint64_t firing = 0;
    Fill(source_.arena, 0, kBytes, seed);
    ASSERT_THAT(cuda::Fire(receive, consumer_, &firing), IsOk());
    EXPECT_EQ(firing, seed);
    ASSERT_THAT(cuda::Fire(send, producer_), IsOk());
    ASSERT_THAT(cuda::Wait(send, producer_), IsOk());
    ASSERT_THAT(cuda::Wait(receive, consumer_), IsOk());
    ASSERT_CU(Synchronize(producer_));
    ASSERT_CU(Synchronize(consumer_));
    EXPECT_EQ(receive.over(), seed);
    EXPECT_TRUE(Has(destination_.arena, 0, kBytes, seed));
  };
  for (uint64_t seed = 1; seed <= 3; ++seed) fire_both(seed);
  ASSERT_THAT(receive.Fire(), IsOk());
  const CUstream late = MakeStream(destination_);
  std::promise<void> gate;
  ASSERT_CU(driver_->cuLaunchHostFunc(
      late, [](void* open) { static_cast<std::promise<void>*>(open)->get_future().wait(); },
      &gate));
  ASSERT_THAT(cuda::Wait(receive, late), IsOk());
  EXPECT_EQ(cuda::Counts().parked, 1u);
  Batch never = Receive(destination_, source_, "never", {destination_.arena.All()}, options());
  const size_t killed = GetParam().one_node ? 0 : 1;
  node(killed).Kill();
  ASSERT_TRUE(node(killed).Start());
  EXPECT_THAT(never.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  ASSERT_THAT(destination_.session.WaitAttached(kSoon), IsOk());
  EXPECT_EQ(cuda::Counts().parked, 0u);
  EXPECT_THAT(receive.Health(), IsOk());
  gate.set_value();
  ASSERT_CU(Synchronize(late));
  ASSERT_THAT(source_.session.WaitAttached(kSoon), IsOk());
  if (!GetParam().one_node) {
    EXPECT_THAT(send.Wait(1000, kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
    send = Prepared();
    send = prepare_send();
  }
  for (uint64_t seed = 1; seed <= 3; ++seed) fire_both(seed);
}

class GpuCaptureTest : public GpuTest {};

TEST_F(GpuCaptureTest, AStreamThatIsCapturedIsRefusedAndItsCaptureGoesOn) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  End end = Open(0, 0, 4096);
  End host = Open(0, -1, 4096);
  Fill(host.arena, 0, 4096, 1);
  const CUstream stream = MakeStream(end);
  const Transfer to_host(host.device, "posted", {end.arena.All()});
  Batch posted = Must(end.session.Send(end.device, {to_host}));
  Prepared receive = Must(end.session.PrepareReceive(
      end.device, {Transfer(host.device, "prepared", {end.arena.All()})}));
  Prepared send = Must(host.session.PrepareSend(
      host.device, {Transfer(end.device, "prepared", {host.arena.All()})}));
  uint64_t firing = 0;
  ASSERT_CU(driver_->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const Status& refused :
       {cuda::Define(end.session, stream, 0, 1), cuda::WaitOver(end.session, stream, 0, 1),
        cuda::Wait(posted, stream), cuda::Fire(receive, stream, &firing),
        cuda::Wait(receive, stream, 1)}) {
    EXPECT_EQ(refused.code_name(), "FAILED_PRECONDITION");
    EXPECT_THAT(TextOf(refused), ::testing::HasSubstr("being captured"));
  }
  EXPECT_EQ(firing, 0u);
  EXPECT_EQ(receive.fired(), 0u);
  EXPECT_EQ(cuda::Counts().parked, 0u);
  CUgraph graph = nullptr;
  EXPECT_CU(driver_->cuStreamEndCapture(stream, &graph));  // the refusals did not break it
  ASSERT_THAT(cuda::Define(end.session, stream, 0, 1), IsOk());
  ASSERT_CU(Synchronize(stream));
  EXPECT_EQ(end.session.DefinedValue(0), 1u);
  ASSERT_THAT(cuda::Fire(receive, stream, &firing), IsOk());
  EXPECT_EQ(firing, 1u);  // the one that was refused is none
  ASSERT_THAT(send.Fire(), IsOk());
  ASSERT_THAT(cuda::Wait(receive, stream, 1), IsOk());
  ASSERT_CU(Synchronize(stream));
  EXPECT_TRUE(Has(end.arena, 0, 4096, 1));
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuStreamTest, ::testing::Values(kGpuSelf),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuStreamTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ferry::testing
