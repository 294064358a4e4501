// SPDX-License-Identifier: Apache-2.0
// Timelines on streams. The fake's streams run later and in order, and as many that wait as there
// are connections stop all others, so that a bound that is broken is a test that hangs.
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/client/cuda/cuda_stream_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using CudaStreamDeathTest = CudaStreamTest;

// In a process of its own: what GPUs can is asked once.
TEST_F(CudaStreamDeathTest, AGpuThatCannotFlushIsNotAskedTo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto waits = [&] {
    fake_cuda_configure("no_flush=1");
    Session session = Open();
    auto from = session.CreateArena(kGpu, 1 << 20);
    auto to = session.CreateArena(kGpu, 1 << 20);
    Batch receive = PostReceive(session, *to, "k", kGpu);
    Batch send = PostSend(session, *from, "k", kGpu, Transfer::DefinedAt{3, 7});
    CUstream consumer = MakeStream();
    const uint64_t flushing = Counts().flushing_waits;
    const Status queued = cuda::Wait(receive, consumer);
    if (!queued.ok()) fprintf(stderr, "%s\n", queued.ToString().c_str());
    const bool parked = cuda::Counts().parked == 1 && Counts().flushing_waits == flushing;
    const bool defined = session.Define(3, 7).ok();
    return defined && queued.ok() && parked && cuStreamSynchronize(consumer) == CUDA_SUCCESS;
  };
  EXPECT_EXIT(_exit(waits() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST_F(CudaStreamTest, AConsumerBehindTheWaitSeesTheBytesOfTheProducer) {
  Session session = Open();
  auto from = session.CreateArena(kGpu, 1 << 20);
  auto to = session.CreateArena(kGpu, 1 << 20);
  ASSERT_OK(to);
  std::string made(1 << 20, 0), seen(1 << 20, 0);
  FillPattern(made.data(), made.size(), 7);
  EXPECT_CUDA(cuMemHostRegister(made.data(), made.size(), 0));
  EXPECT_CUDA(cuMemHostRegister(seen.data(), seen.size(), 0));
  Fill(*to, 8);
  CUstream producer = MakeStream(), consumer = MakeStream();
  Batch receive = PostReceive(session, *to, "k", kGpu);
  Batch send = PostSend(session, *from, "k", kGpu, Transfer::DefinedAt{3, 7});

  fake_cuda_hold_copies(1);
  EXPECT_CUDA(cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(from->data()), made.data(),
                                made.size(), producer));
  ASSERT_OK(cuda::Define(session, producer, 3, 7));
  const uint64_t flushing = Counts().flushing_waits;
  ASSERT_OK(cuda::Wait(receive, consumer));
  EXPECT_EQ(Counts().flushing_waits, flushing + 1);  // of what an adapter may have written
  EXPECT_CUDA(cuMemcpyDtoHAsync(seen.data(), reinterpret_cast<CUdeviceptr>(to->data()), seen.size(),
                                consumer));
  Ring(session);
  EXPECT_EQ(cuda::Counts().parked, 1u);
  EXPECT_EQ(session.DefinedValue(3), 0u);
  EXPECT_EQ(cuStreamQuery(consumer), CUDA_ERROR_NOT_READY);
  fake_cuda_hold_copies(0);
  EXPECT_CUDA(cuStreamSynchronize(producer));
  EXPECT_EQ(session.DefinedValue(3), 7u);
  Ring(session);
  EXPECT_CUDA(cuStreamSynchronize(consumer));
  EXPECT_TRUE(HasPattern(seen.data(), seen.size(), 7));
  ASSERT_OK(receive.Wait(kSoon));
  ASSERT_OK(send.Wait(kSoon));
  EXPECT_EQ(cuda::Counts().parked, 0u);
  // What is over already parks nothing.
  const uint64_t waits = cuda::Counts().stream_waits;
  ASSERT_OK(cuda::Wait(receive, consumer));
  EXPECT_EQ(cuda::Counts().stream_waits, waits);
  EXPECT_CUDA(cuMemHostUnregister(made.data()));
  EXPECT_CUDA(cuMemHostUnregister(seen.data()));
}

TEST_F(CudaStreamTest, ThePagesAreRegisteredOnceAndForgottenWithTheSession) {
  const uint64_t before = Counts().registrations;
  {
    Session session = Open();
    CUstream first = MakeStream();
    ASSERT_OK(cuda::Define(session, first, 0, 1));
    EXPECT_CUDA(cuCtxSetCurrent(contexts_[1]));
    CUstream second = MakeStream();
    ASSERT_OK(cuda::Define(session, second, 1, 2));
    ASSERT_OK(cuda::Define(session, nullptr, 2, 3));  // the default stream of what is current
    EXPECT_CUDA(cuCtxSynchronize());
    EXPECT_CUDA(cuStreamSynchronize(second));
    EXPECT_CUDA(cuCtxSetCurrent(contexts_[0]));
    EXPECT_CUDA(cuStreamSynchronize(first));
    EXPECT_EQ(session.DefinedValue(0), 1u);
    EXPECT_EQ(session.DefinedValue(1), 2u);
    EXPECT_EQ(session.DefinedValue(2), 3u);
    EXPECT_EQ(Counts().registrations, before + 1);
    CUcontext current = nullptr;
    EXPECT_CUDA(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, contexts_[0]);
    EXPECT_CUDA(cuStreamDestroy(second));
    streams_.pop_back();
  }
  EXPECT_EQ(Counts().registrations, before);
}

TEST_F(CudaStreamTest, ThePagesAreForgottenWithNoContextOnTheThread) {
  const uint64_t before = Counts().registrations;
  CUstream stream = MakeStream();
  // The second session's pages may well be where the first one's were.
  for (uint64_t value = 1; value <= 2; ++value) {
    Session session = Open();
    ASSERT_OK(cuda::Define(session, stream, 0, value));
    EXPECT_CUDA(cuStreamSynchronize(stream));
    EXPECT_EQ(session.DefinedValue(0), value);
    std::thread([&] {
      const Session last = std::move(session);
      CUcontext current = nullptr;
      EXPECT_CUDA(cuCtxGetCurrent(&current));
      EXPECT_EQ(current, nullptr);
    }).join();
    EXPECT_EQ(Counts().registrations, before);
  }
}

TEST_F(CudaStreamTest, PagesThatSomebodyElseRegisteredAreNotTakenForOurs) {
  Session session = Open();
  CUstream stream = MakeStream();
  // As if memory that was at their address had been unmapped and not unregistered.
  std::vector<void*> stale;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:timelines") == std::string::npos) continue;
    stale.push_back(reinterpret_cast<void*>(std::stoull(line, nullptr, 16)));
    EXPECT_CUDA(cuMemHostRegister(stale.back(), 4096, 0));
  }
  ASSERT_FALSE(stale.empty());
  EXPECT_THAT(std::string(cuda::Define(session, stream, 0, 1).message()),
              HasSubstr("HOST_MEMORY_ALREADY_REGISTERED"));
  for (void* pages : stale) EXPECT_CUDA(cuMemHostUnregister(pages));
  ASSERT_OK(cuda::Define(session, stream, 0, 1));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(session.DefinedValue(0), 1u);
}

TEST_F(CudaStreamTest, TheOwnStreamOfEachThreadCountsForItself) {
  Session session = Open();
  const uint32_t most = cuda::Counts().parked_most;
  ASSERT_GE(most, 2u);
  // One after the other: what a thread queued waits on when it is gone.
  const auto wait = [&](CUstream stream, uint64_t value) {
    Status status;
    std::thread([&] {
      EXPECT_CUDA(cuCtxSetCurrent(contexts_[0]));
      status = cuda::WaitOver(session, stream, 50, value);
      if (status.ok()) status = cuda::WaitOver(session, stream, 50, value);
    }).join();
    return status;
  };
  for (uint32_t i = 0; i < most; ++i) {
    ASSERT_OK(wait(CU_STREAM_PER_THREAD, i + 1));
    EXPECT_EQ(cuda::Counts().parked, i + 1);
  }
  EXPECT_EQ(wait(CU_STREAM_PER_THREAD, most + 1).reason(), "WOULD_DEADLOCK");
  PostOptions options;
  options.over_timeline = 50;
  ASSERT_OK(session.Send(kGpu, std::vector<Transfer>(most, Keyed("echo")), options));
  EXPECT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(cuda::Counts().parked, 0u);
  // The default stream is one for all threads, by either of its names.
  ASSERT_OK(wait(nullptr, most + 1));
  ASSERT_OK(wait(CU_STREAM_LEGACY, most + 1));
  EXPECT_EQ(cuda::Counts().parked, 1u);
  ASSERT_OK(session.Send(kGpu, {Keyed("echo")}, options));
  EXPECT_CUDA(cuCtxSynchronize());
}

TEST_F(CudaStreamTest, StreamsThatWaitForWhatIsNotPostedWaitOnWhenTheDaemonIsLost) {
  Session session = Open();
  auto arena = session.CreateArena(kGpu, 4096);
  ASSERT_OK(arena);
  const uint32_t most = cuda::Counts().parked_most;
  ASSERT_GE(most, 2u);
  Batch lost = PostReceive(session, *arena, "never", 77);
  ASSERT_OK(cuda::Wait(lost, MakeStream()));
  for (uint32_t i = 1; i < most; ++i) ASSERT_OK(cuda::WaitOver(session, MakeStream(), 50, i));
  EXPECT_EQ(cuda::Counts().parked, most);
  Restart(GpuBehaviour());
  EXPECT_EQ(lost.Wait(kSoon).reason(), "DAEMON_LOST");
  ASSERT_OK(session.WaitAttached(kSoon));
  EXPECT_CUDA(cuStreamSynchronize(streams_[0]));
  EXPECT_EQ(cuda::Counts().parked, most - 1);
  while (Counts().parked != most - 1) std::this_thread::yield();  // as the driver sees it
  // There is room for the one that went on, and for no other.
  ASSERT_OK(cuda::WaitOver(session, streams_[0], 50, most - 1));
  EXPECT_EQ(cuda::WaitOver(session, MakeStream(), 50, 1).reason(), "WOULD_DEADLOCK");
  // The next daemon's transfers end the waits.
  PostOptions options;
  options.over_timeline = 50;
  ASSERT_OK(session.Send(kGpu, std::vector<Transfer>(most - 1, Keyed("echo")), options));
  for (CUstream stream : streams_) EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(cuda::Counts().parked, 0u);
}

TEST_F(CudaStreamTest, StreamsThatWaitGoOnWhenTheDaemonIsLost) {
  Session session = Open();
  auto arena = session.CreateArena(kGpu, 4096);
  ASSERT_OK(arena);
  std::vector<Batch> batches;
  for (int i = 0; i < 6; ++i) {
    batches.push_back(PostReceive(session, *arena, "never" + std::to_string(i), 77));
    ASSERT_OK(cuda::Wait(batches.back(), MakeStream()));
  }
  EXPECT_EQ(cuda::Counts().parked, 6u);
  daemon_.reset();
  for (CUstream stream : streams_) EXPECT_CUDA(cuStreamSynchronize(stream));
  for (Batch& batch : batches) EXPECT_EQ(batch.Wait(kSoon).reason(), "DAEMON_LOST");
  EXPECT_EQ(cuda::Counts().parked, 0u);
}

// There is no next daemon: also what nobody posted is waited for no longer, nor can be.
TEST_F(CudaStreamTest, NoStreamWaitsOnceTheSessionIsOver) {
  SessionOptions options;
  options.reattach = false;
  Session lost = OpenWith(std::move(options));
  ASSERT_OK(cuda::WaitOver(lost, MakeStream(), 3, 5));
  daemon_.reset();
  EXPECT_CUDA(cuStreamSynchronize(streams_[0]));
  EXPECT_EQ(cuda::WaitOver(lost, MakeStream(), 4, 1).reason(), "DAEMON_LOST");
  EXPECT_EQ(cuda::Counts().parked, 0u);
}

// Closed under a stream that waits: it goes on, and what it looks at is still there.
TEST_F(CudaStreamTest, AStreamThatWaitsGoesOnWhenTheSessionIsClosed) {
  {
    Session session = Open();
    ASSERT_OK(cuda::WaitOver(session, MakeStream(), 3, 5));
  }
  EXPECT_CUDA(cuStreamSynchronize(streams_[0]));
  EXPECT_EQ(cuda::Counts().parked, 0u);
}

// What the default stream waits for may need what the host copies.
TEST_F(CudaStreamTest, TheHostCopiesWhileTheDefaultStreamWaits) {
  Session session = Open();
  auto arena = session.CreateArena(kGpu, 4096);
  ASSERT_OK(arena);
  ASSERT_OK(cuda::WaitOver(session, nullptr, 3, 1));
  Fill(*arena, 1);
  EXPECT_TRUE(Has(*arena, 1));
  PostOptions options;
  options.over_timeline = 3;
  ASSERT_OK(session.Send(kGpu, {Keyed("echo")}, options));
  EXPECT_CUDA(cuStreamSynchronize(nullptr));
}

TEST_F(CudaStreamTest, AStreamThatIsCapturedIsRefused) {
  Session session = Open();
  auto arena = session.CreateArena(kGpu, 4096);
  ASSERT_OK(arena);
  Batch receive = PostReceive(session, *arena, "k", kGpu);
  CUstream stream = MakeStream();
  EXPECT_CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const Status& refused :
       {cuda::Define(session, stream, 0, 1), cuda::WaitOver(session, stream, 0, 1),
        cuda::Wait(receive, stream)}) {
    EXPECT_EQ(refused.code_name(), "FAILED_PRECONDITION");
    EXPECT_THAT(std::string(refused.message()), HasSubstr("being captured"));
  }
  EXPECT_EQ(cuda::Counts().parked, 0u);
  CUgraph graph = nullptr;
  EXPECT_CUDA(cuStreamEndCapture(stream, &graph));
  ASSERT_OK(cuda::Define(session, stream, 0, 1));
  EXPECT_CUDA(cuStreamSynchronize(stream));  // before the session and its words go
}

TEST_F(CudaStreamTest, TheDefaultStreamIsRefusedWhileItWouldJoinACapture) {
  Session session = Open();
  CUstream captured = nullptr;
  EXPECT_CUDA(cuStreamCreate(&captured, CU_STREAM_DEFAULT));
  EXPECT_CUDA(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (const Status& refused :
       {cuda::Define(session, nullptr, 0, 1), cuda::WaitOver(session, nullptr, 0, 1)}) {
    EXPECT_EQ(refused.code_name(), "FAILED_PRECONDITION");
    EXPECT_THAT(std::string(refused.message()), HasSubstr("being captured"));
  }
  CUgraph graph = nullptr;
  EXPECT_CUDA(cuStreamEndCapture(captured, &graph));
  ASSERT_OK(cuda::Define(session, nullptr, 0, 1));
  EXPECT_CUDA(cuStreamSynchronize(nullptr));
  EXPECT_CUDA(cuStreamDestroy(captured));
}

TEST_F(CudaStreamTest, BadArgumentsAreRefused) {
  Session session = Open();
  CUstream stream = MakeStream();
  EXPECT_EQ(cuda::Define(session, stream, 64, 1).reason(), "FIELD_INVALID");
  EXPECT_EQ(cuda::WaitOver(session, stream, 64, 1).reason(), "FIELD_INVALID");
  EXPECT_FALSE(cuda::Define(session, reinterpret_cast<CUstream>(0x77), 0, 1).ok());
  EXPECT_CUDA(cuCtxSetCurrent(nullptr));
  EXPECT_FALSE(cuda::Define(session, nullptr, 0, 1).ok());  // of which context?
  EXPECT_CUDA(cuCtxSetCurrent(contexts_[0]));
}

}  // namespace
}  // namespace ferry::testing
