// SPDX-License-Identifier: Apache-2.0
// Streams that wait, against the connections of their process (CUDA_DEVICE_MAX_CONNECTIONS), with
// sender and receiver in that process, as trainers have them. The variable is read once, so that
// each number is a process of its own.
#include <stdlib.h>
#include <unistd.h>

#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/gpu/stream_fixture.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuConnectionsTest : public GpuStreamTest {
 protected:
  // True in the parent, which runs this test once more with each number of connections.
  bool RanInChildren(std::initializer_list<uint32_t> connections) {
    if (const char* own = getenv("FERRY_TEST_CONNECTIONS"); own != nullptr) {
      EXPECT_EQ(absl::StrCat(cuda::Counts().connections), own);
      return false;
    }
    if (!Need(GetParam().gpus())) return true;
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    for (const uint32_t count : connections) {
      const Finished child =
          RunProgram({"/usr/bin/env", absl::StrCat("FERRY_TEST_CONNECTIONS=", count),
                      absl::StrCat("CUDA_DEVICE_MAX_CONNECTIONS=", count),
                      absl::StrCat("/proc/", getpid(), "/exe"),
                      absl::StrCat("--gtest_filter=", test->test_suite_name(), ".", test->name())},
                     2 * kSoon);
      EXPECT_EQ(child.status, 0) << count << " connections: " << child.output;
    }
    return true;
  }
  static uint32_t most() { return cuda::Counts().parked_most; }
};

TEST_P(GpuConnectionsTest, SixteenStreamsThatWaitStopNoOther) {
  if (RanInChildren({1, 2, 8})) return;
  constexpr uint32_t kStreams = 16;
  constexpr uint64_t kPiece = 4096 + 8;
  if (!StartEnds(kStreams * kPiece)) return;
  std::vector<Batch> receives, sends;
  std::vector<CUstream> streams;
  uint32_t refused = 0;
  for (uint32_t i = 0; i < kStreams; ++i) {
    PostOptions own = options();
    own.over_timeline = i;
    receives.push_back(Receive(destination_, source_, absl::StrCat("k", i),
                               {destination_.arena.Range(i * kPiece, kPiece)}, own));
    streams.push_back(MakeStream(destination_));
    const Status status = cuda::Wait(receives.back(), streams.back());
    if (status.ok()) continue;
    ++refused;
    EXPECT_THAT(status, Is("FAILED_PRECONDITION/WOULD_DEADLOCK",
                           AllOf(HasSubstr("waits for its other half"),
                                 HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS"))));
  }
  EXPECT_EQ(refused, kStreams - most());
  EXPECT_EQ(cuda::Counts().parked, most());
  EXPECT_EQ(cuda::Counts().would_deadlock, refused);
  // Copies and kernels of other streams run meanwhile.
  Produce(1);
  ASSERT_CU(Synchronize(producer_));
  Consume();
  ASSERT_CU(Synchronize(consumer_));
  EXPECT_TRUE(Has(source_.arena, 0, kStreams * kPiece, 1));
  for (uint32_t i = 0; i < kStreams; ++i) {
    Transfer half(destination_.device, absl::StrCat("k", i),
                  {source_.arena.Range(i * kPiece, kPiece)});
    half.defined_at = Transfer::DefinedAt{0, 1};
    PostOptions own = options();
    own.over_timeline = kStreams;
    sends.push_back(Must(source_.session.Send(source_.device, {half}, own)));
  }
  Produce(2);
  ASSERT_THAT(cuda::Define(source_.session, producer_, 0, 1), IsOk());
  for (uint32_t i = 0; i < kStreams; ++i) {
    ASSERT_THAT(cuda::Wait(receives[i], streams[i]), IsOk());
    ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(cuda::Device(destination_.arena))));
    ASSERT_CU(driver_->cuMemcpyDtoHAsync(
        seen_ + i * kPiece, Address(destination_.arena, i * kPiece), kPiece, streams[i]));
  }
  for (CUstream stream : streams) ASSERT_CU(Synchronize(stream));
  EXPECT_TRUE(HasPattern(seen_, kStreams * kPiece, 2));
  for (Batch& batch : receives) EXPECT_THAT(batch.Wait(kSoon), IsOk());
  for (Batch& batch : sends) EXPECT_THAT(batch.Wait(kSoon), IsOk());
  EXPECT_EQ(cuda::Counts().parked, 0u);
}

TEST_P(GpuConnectionsTest, PastTheBoundTheHostWaitsForWhatIsOnItsWay) {
  if (RanInChildren({1, 2, 8})) return;
  constexpr uint64_t kBytes = 64 * 1024;
  if (!StartEnds(kBytes)) return;
  // The first of each registers pages, which no stream that is stuck should hold up.
  ASSERT_THAT(cuda::Define(source_.session, producer_, 1, 1), IsOk());
  ASSERT_THAT(cuda::Define(destination_.session, consumer_, 1, 1), IsOk());
  // As many streams wait as may, for what is sent last.
  std::vector<Batch> late;
  std::vector<CUstream> streams;
  for (uint32_t i = 0; i < most(); ++i) {
    PostOptions own = options();
    own.over_timeline = i + 1;
    late.push_back(Receive(destination_, source_, absl::StrCat("late", i), {}, own));
    streams.push_back(MakeStream(destination_));
    ASSERT_THAT(cuda::Wait(late.back(), streams.back()), IsOk());
  }
  Transfer half = Half(source_, destination_.device);
  half.defined_at = Transfer::DefinedAt{0, 1};
  Batch sent = Must(source_.session.Send(source_.device, {half}, options()));
  Batch received = Must(destination_.session.Receive(
      destination_.device, {Half(destination_, source_.device)}, options()));
  // The bytes are not made before the host waits for them.
  ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(cuda::Device(source_.arena))));
  ASSERT_CU(driver_->cuLaunchHostFunc(
      producer_, [](void*) { Await([] { return cuda::Counts().host_waits > 0; }); }, nullptr));
  Produce(1);
  ASSERT_THAT(cuda::Define(source_.session, producer_, 0, 1), IsOk());
  ASSERT_THAT(cuda::Wait(received, consumer_), IsOk());
  EXPECT_TRUE(received.over());
  EXPECT_EQ(cuda::Counts().host_waits, 1u);
  EXPECT_EQ(cuda::Counts().parked, most());
  Consume();
  ASSERT_CU(Synchronize(consumer_));
  EXPECT_TRUE(HasPattern(seen_, kBytes, 1));
  EXPECT_THAT(received.Wait(kSoon), IsOk());
  EXPECT_THAT(sent.Wait(kSoon), IsOk());
  for (uint32_t i = 0; i < most(); ++i) {
    Batch last = Send(source_, destination_, absl::StrCat("late", i), {}, options());
    EXPECT_THAT(last.Wait(kSoon), IsOk());
  }
  for (CUstream stream : streams) ASSERT_CU(Synchronize(stream));
}

TEST_P(GpuConnectionsTest, WithOneConnectionTheHostSaysWhatIsMissing) {
  if (RanInChildren({1})) return;
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
  EXPECT_THAT(cuda::Wait(received, consumer_), Is("FAILED_PRECONDITION/WOULD_DEADLOCK",
                                                  AllOf(HasSubstr("other half is this process's"),
                                                        HasSubstr("counter 2 reaches 5"))));
  Produce(2);
  ASSERT_THAT(cuda::Define(source_.session, producer_, 2, 5), IsOk());
  ASSERT_THAT(cuda::Wait(sent, producer_), IsOk());
  ASSERT_THAT(cuda::Wait(received, consumer_), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, kBytes, 2));
  EXPECT_EQ(cuda::Counts().parked, 0u);
  EXPECT_EQ(cuda::Counts().stream_waits, 0u);
  EXPECT_GE(cuda::Counts().host_waits, 1u);
  EXPECT_EQ(cuda::Counts().would_deadlock, 5u);
}

// With three connections one stream may wait. What it is told to store before that is on its way,
// what it is told behind it hangs on what it waits for.
TEST_P(GpuConnectionsTest, AFiringBehindAWaitOfItsOwnStreamIsNotOnItsWay) {
  if (RanInChildren({3})) return;
  constexpr uint64_t kBytes = 4096;
  if (!StartEnds(kBytes)) return;
  // The first of each registers pages, which no stream that is stuck should hold up.
  ASSERT_THAT(cuda::Define(source_.session, producer_, 1, 1), IsOk());
  ASSERT_THAT(cuda::Define(destination_.session, consumer_, 1, 1), IsOk());
  Prepared receive = Must(destination_.session.PrepareReceive(
      destination_.device, {Half(destination_, source_.device)}, options()));
  Prepared send = Must(
      source_.session.PrepareSend(source_.device, {Half(source_, destination_.device)}, options()));
  Batch late = Receive(destination_, source_, "late", {}, options());
  ASSERT_THAT(cuda::Fire(receive, consumer_), IsOk());
  Produce(1);
  ASSERT_THAT(cuda::Fire(send, producer_), IsOk());
  ASSERT_THAT(cuda::Wait(late, producer_), IsOk());
  EXPECT_EQ(cuda::Counts().parked, most());
  ASSERT_THAT(cuda::Wait(receive, consumer_), IsOk());
  EXPECT_EQ(receive.over(), 1u);
  Consume();
  ASSERT_CU(Synchronize(consumer_));
  EXPECT_TRUE(HasPattern(seen_, kBytes, 1));

  Produce(2);
  ASSERT_THAT(cuda::Fire(send, producer_), IsOk());
  ASSERT_THAT(cuda::Fire(receive, consumer_), IsOk());
  EXPECT_THAT(cuda::Wait(receive, consumer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK",
                 AllOf(HasSubstr("waits itself"), HasSubstr("waits for its other half"))));
  EXPECT_EQ(cuda::Counts().would_deadlock, 1u);
  Batch sent = Send(source_, destination_, "late", {}, options());
  ASSERT_THAT(cuda::Wait(receive, consumer_), IsOk());
  Consume();
  ASSERT_CU(Synchronize(consumer_));
  EXPECT_TRUE(HasPattern(seen_, kBytes, 2));
  EXPECT_THAT(late.Wait(kSoon), IsOk());
  EXPECT_THAT(sent.Wait(kSoon), IsOk());
}

TEST_P(GpuConnectionsTest, OfABatchOnlyWhatIsWaitedForMustBeDefined) {
  if (RanInChildren({1})) return;
  constexpr uint64_t kPiece = 4096;
  if (!StartEnds(2 * kPiece)) return;
  std::vector<Transfer> sends, receives;
  for (uint64_t i = 0; i < 2; ++i) {
    const std::string key = absl::StrCat("k", i);
    sends.emplace_back(destination_.device, key,
                       std::vector{source_.arena.Range(i * kPiece, kPiece)});
    sends.back().defined_at = Transfer::DefinedAt{0, i + 1};
    receives.emplace_back(source_.device, key,
                          std::vector{destination_.arena.Range(i * kPiece, kPiece)});
  }
  PostOptions own = options();
  own.over_timeline = 1;
  Batch received = Must(destination_.session.Receive(destination_.device, receives, options()));
  Batch sent = Must(source_.session.Send(source_.device, sends, own));
  Produce(1);
  ASSERT_THAT(cuda::Define(source_.session, producer_, 0, 1), IsOk());
  ASSERT_THAT(cuda::WaitOver(destination_.session, consumer_, 0, 1), IsOk());
  ASSERT_THAT(cuda::WaitOver(source_.session, producer_, 1, 1), IsOk());
  for (const auto& [session, timeline] :
       {std::make_pair(&destination_.session, 0u), std::make_pair(&source_.session, 1u)}) {
    EXPECT_THAT(cuda::WaitOver(*session, consumer_, timeline, 2),
                Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("counter 0 reaches 2")));
  }
  ASSERT_THAT(cuda::Define(source_.session, producer_, 0, 2), IsOk());
  ASSERT_THAT(cuda::Wait(received, consumer_), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, 2 * kPiece, 1));
  EXPECT_THAT(sent.Wait(kSoon), IsOk());
}

TEST_P(GpuConnectionsTest, ADefinitionBehindAFiringThatNobodyMadeIsNotOnItsWay) {
  if (RanInChildren({3})) return;
  constexpr uint64_t kBytes = 4096;
  if (!StartEnds(kBytes)) return;
  ASSERT_THAT(cuda::Define(source_.session, producer_, 1, 1), IsOk());
  ASSERT_THAT(cuda::Define(destination_.session, consumer_, 1, 1), IsOk());
  // What the producer's stream waits for: that its end has gone out, which nobody has asked for.
  Transfer out(destination_.device, "turn"), in(source_.device, "turn");
  Prepared turn = Must(source_.session.PrepareSend(source_.device, {out}, options()));
  Prepared turned = Must(destination_.session.PrepareReceive(destination_.device, {in}, options()));
  Batch sent[2], received[2];
  for (uint64_t i = 0; i < 2; ++i) {
    Transfer half(destination_.device, absl::StrCat("k", i), {source_.arena.All()});
    half.defined_at = Transfer::DefinedAt{0, i + 1};
    PostOptions own = options();
    own.over_timeline = static_cast<uint32_t>(i);
    received[i] =
        Receive(destination_, source_, absl::StrCat("k", i), {destination_.arena.All()}, own);
    own.over_timeline += 2;
    sent[i] = Must(source_.session.Send(source_.device, {half}, own));
  }
  Produce(1);
  ASSERT_THAT(cuda::Define(source_.session, producer_, 0, 1), IsOk());
  ASSERT_THAT(cuda::Wait(turn, producer_, 1), IsOk());
  EXPECT_EQ(cuda::Counts().parked, most());
  ASSERT_THAT(cuda::Define(source_.session, producer_, 0, 2), IsOk());
  ASSERT_THAT(cuda::Wait(sent[0], consumer_), IsOk());
  EXPECT_THAT(cuda::Wait(sent[1], consumer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK",
                 AllOf(HasSubstr("waits itself"), HasSubstr("this end was fired 0 times"))));
  ASSERT_THAT(turn.Fire(), IsOk());
  EXPECT_THAT(cuda::Wait(sent[1], consumer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("other end of it")));
  ASSERT_THAT(turned.Fire(), IsOk());
  ASSERT_THAT(cuda::Wait(sent[1], consumer_), IsOk());
  ASSERT_THAT(cuda::Wait(received[1], consumer_), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, kBytes, 1));
  EXPECT_EQ(cuda::Counts().would_deadlock, 2u);
  for (Batch& batch : sent) EXPECT_THAT(batch.Wait(kSoon), IsOk());
  for (Batch& batch : received) EXPECT_THAT(batch.Wait(kSoon), IsOk());
}

// A counter says how far a timeline is over. Behind a transfer that still waits others may have
// ended, and their keys may have been used again.
TEST_P(GpuConnectionsTest, WhatHasEndedBehindAnOlderOneIsNoReason) {
  if (RanInChildren({2})) return;
  constexpr uint64_t kPiece = 4096;
  if (!StartEnds(2 * kPiece)) return;
  const auto over = [&](uint32_t timeline) {
    PostOptions own = options();
    own.over_timeline = timeline;
    return own;
  };
  const auto sends = [&](const std::string& key, uint64_t i, Transfer::DefinedAt defined) {
    Transfer half(destination_.device, key, {source_.arena.Range(i * kPiece, kPiece)});
    half.defined_at = defined;
    return half;
  };
  const auto receives = [&](const std::string& key, uint64_t i) {
    return Transfer(source_.device, key, {destination_.arena.Range(i * kPiece, kPiece)});
  };
  Transfer late = sends("late", 1, {1, 9});
  late.deadline = std::chrono::milliseconds(50);
  Batch received = Must(destination_.session.Receive(
      destination_.device, {receives("k", 0), receives("late", 1)}, over(0)));
  // Without a link the late send would end before the receive could hear of it.
  if (!GetParam().one_node) {
    ASSERT_TRUE(nodes().AwaitLink(0, 1));
  }
  Batch sent = Must(source_.session.Send(source_.device, {sends("k", 0, {0, 1}), late}, over(1)));
  ASSERT_TRUE(Await([&] {
    for (size_t i = 0; i < (GetParam().one_node ? 1 : 2); ++i) {
      const admin::v1::ListTransfersResponse all = node(i).admin().Transfers();
      for (const auto& row : all.transfers()) {
        if (absl::StrContains(row.key(), "late")) return false;
      }
    }
    return true;
  }));
  EXPECT_THAT(cuda::Wait(sent, producer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("counter 0 reaches 1")));

  // The key's next halves, on timelines behind the first ones'.
  Batch again =
      Must(destination_.session.Receive(destination_.device, {receives("late", 1)}, over(2)));
  Batch resent = Must(source_.session.Send(source_.device, {sends("late", 1, {0, 2})}, over(3)));
  EXPECT_THAT(cuda::Wait(again, consumer_),
              Is("FAILED_PRECONDITION/WOULD_DEADLOCK", HasSubstr("counter 0 reaches 2")));

  Produce(1);
  ASSERT_THAT(cuda::Define(source_.session, producer_, 0, 2), IsOk());
  for (Batch* batch : {&again, &resent, &received, &sent}) {
    EXPECT_THAT(cuda::Wait(*batch, consumer_), IsOk());
  }
  EXPECT_TRUE(Has(destination_.arena, 0, 2 * kPiece, 1));
  EXPECT_EQ(cuda::Counts().would_deadlock, 2u);
  EXPECT_THAT(again.Wait(kSoon), IsOk());
  EXPECT_THAT(resent.Wait(kSoon), IsOk());
  EXPECT_FALSE(received.Wait(kSoon).ok());
  EXPECT_FALSE(sent.Wait(kSoon).ok());
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuConnectionsTest, ::testing::Values(kGpuSelf),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuConnectionsTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ferry::testing
