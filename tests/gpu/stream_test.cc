// SPDX-License-Identifier: Apache-2.0
// Streams of the application that say 'defined' and wait for 'over', with real daemons: order is
// exact, and whatever dies, no stream hangs.
#include <stdlib.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

class GpuStreamTest : public GpuTest, public ::testing::WithParamInterface<GpuCase> {
 protected:
  bool StartEnds(uint64_t bytes) {
    if (!StartFor(GetParam())) return false;
    source_ = OpenSource(GetParam(), bytes);
    destination_ = OpenDestination(GetParam(), bytes);
    producer_ = MakeStream(source_);
    consumer_ = MakeStream(destination_);
    made_ = Pinned(bytes);
    seen_ = Pinned(bytes);
    return true;
  }
  void CloseEnds() override {
    source_ = {};
    destination_ = {};
  }
  // On the producer's stream: the bytes of `seed`, made on the way.
  void Produce(uint64_t seed) {
    FillPattern(made_, source_.arena.bytes(), seed);
    Upload(source_, made_, producer_);
  }
  void Upload(const End& end, const char* from, CUstream stream) {
    EXPECT_CU(driver_->cuCtxSetCurrent(driver_->context(cuda::Device(end.arena))));
    EXPECT_CU(driver_->cuMemcpyHtoDAsync(Address(end.arena), from, end.arena.bytes(), stream));
  }
  // On the consumer's: what it finds, and poison behind it.
  void Consume() {
    EXPECT_CU(driver_->cuCtxSetCurrent(driver_->context(cuda::Device(destination_.arena))));
    EXPECT_CU(driver_->cuMemcpyDtoHAsync(seen_, Address(destination_.arena),
                                         destination_.arena.bytes(), consumer_));
    EXPECT_CU(driver_->cuMemsetD8Async(Address(destination_.arena), 0xa5,
                                       destination_.arena.bytes(), consumer_));
  }
  Transfer Half(const End& of, uint64_t remote) const {
    return Transfer(remote, "k", {of.arena.All()});
  }
  PostOptions options() const {
    PostOptions options;
    options.route = GetParam().route;
    return options;
  }

  End source_, destination_;
  CUstream producer_ = nullptr, consumer_ = nullptr;
  char* made_ = nullptr;
  char* seen_ = nullptr;
};

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

// Both ends in one process, as trainers that set the variable have them; read once, so in a child.
TEST_P(GpuStreamTest, WithOneConnectionTheHostWaitsAndSaysWhatIsMissing) {
  if (getenv("FERRY_TEST_CONNECTIONS") == nullptr) {
    if (!Need(GetParam().gpus())) return;
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const Finished child =
        RunProgram({"/usr/bin/env", "FERRY_TEST_CONNECTIONS=1", "CUDA_DEVICE_MAX_CONNECTIONS=1",
                    absl::StrCat("/proc/", getpid(), "/exe"),
                    absl::StrCat("--gtest_filter=", test->test_suite_name(), ".", test->name())},
                   2 * kSoon);
    EXPECT_EQ(child.status, 0) << child.output;
    return;
  }
  constexpr uint64_t kBytes = 4096;
  if (!StartEnds(kBytes)) return;
  Prepared receive = Must(destination_.session.PrepareReceive(
      destination_.device, {Half(destination_, source_.device)}, options()));
  Prepared send = Must(
      source_.session.PrepareSend(source_.device, {Half(source_, destination_.device)}, options()));
  EXPECT_THAT(cuda::Wait(receive, consumer_, 1),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("this end was fired 0 times")));
  ASSERT_THAT(cuda::Fire(receive, consumer_), IsOk());
  EXPECT_THAT(cuda::Wait(receive, consumer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("was fired 0 times")));
  Produce(1);
  ASSERT_THAT(cuda::Fire(send, producer_), IsOk());
  ASSERT_THAT(cuda::Wait(receive, consumer_), IsOk());
  EXPECT_EQ(receive.over(), 1u);
  Consume();
  ASSERT_CU(Synchronize(consumer_));
  EXPECT_TRUE(HasPattern(seen_, kBytes, 1));

  Batch received = Must(destination_.session.Receive(
      destination_.device, {Half(destination_, source_.device)}, options()));
  EXPECT_THAT(cuda::Wait(received, consumer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("waits for its other half")));
  Transfer half = Half(source_, destination_.device);
  half.defined_at = Transfer::DefinedAt{2, 5};
  Batch sent = Must(source_.session.Send(source_.device, {half}, options()));
  EXPECT_THAT(cuda::Wait(sent, producer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("counter 2 reaches 5")));
  Produce(2);
  ASSERT_THAT(cuda::Define(source_.session, producer_, 2, 5), IsOk());
  ASSERT_THAT(cuda::Wait(sent, producer_), IsOk());
  ASSERT_THAT(cuda::Wait(received, consumer_), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, kBytes, 2));
  EXPECT_EQ(cuda::Counts().parked, 0u);
  EXPECT_EQ(cuda::Counts().stream_waits, 0u);
  EXPECT_GE(cuda::Counts().host_waits, 1u);
  EXPECT_EQ(cuda::Counts().would_deadlock, 4u);
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuStreamTest, ::testing::Values(kGpuSelf),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuStreamTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuUcxTcp),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ferry::testing
