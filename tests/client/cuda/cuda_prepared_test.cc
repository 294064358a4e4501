// SPDX-License-Identifier: Apache-2.0
// Streams that wait for firings, or make them, and get there only when the daemon has gone and come
// back: none of them waits for what the next one will never do.
#include <future>

#include "tests/client/cuda/cuda_fixture.h"

namespace ferry::testing {
namespace {

class CudaPreparedTest : public CudaTest {
 protected:
  static Prepared Prepare(Session& session, const std::string& key) {
    auto prepared = session.PrepareSend(kGpu, {Keyed(key)});
    EXPECT_TRUE(prepared.ok()) << prepared.status().ToString();
    return std::move(*prepared);
  }
  // The stream is at work, as if on a kernel, until the gate is open.
  static void Work(CUstream stream, std::promise<void>& gate) {
    EXPECT_CUDA(cuLaunchHostFunc(
        stream, [](void* open) { static_cast<std::promise<void>*>(open)->get_future().wait(); },
        &gate));
  }
  void NextDaemon(Session& session) {
    auto pending = session.Receive(0, {Keyed("never")});
    ASSERT_OK(pending);
    Restart(GpuBehaviour());
    EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
    ASSERT_OK(session.WaitAttached(kSoon));
  }
};

TEST_F(CudaPreparedTest, AStreamThatGetsToItsWaitTooLateGoesOn) {
  Session session = Open();
  Prepared never = Prepare(session, "never"), echo = Prepare(session, "echo");
  ASSERT_OK(never.Fire());
  std::promise<void> gates[2];
  const CUstream fired = MakeStream(), ahead = MakeStream();
  Work(fired, gates[0]);
  ASSERT_OK(cuda::Wait(never, fired, 1));
  Work(ahead, gates[1]);
  ASSERT_OK(cuda::Wait(never, ahead, 1000));  // nobody has fired that
  EXPECT_EQ(cuda::Counts().parked, 2u);
  for (std::promise<void>& gate : gates) {
    NextDaemon(session);
    EXPECT_EQ(cuda::Counts().parked, 0u) << "they will not stop there";
    ASSERT_OK(never.Fire());
    gate.set_value();
    EXPECT_CUDA(cuStreamSynchronize(&gate == gates ? fired : ahead));
  }
  // A wait for a firing of the new life is one.
  const CUstream now = MakeStream();
  ASSERT_OK(cuda::Wait(echo, now, 1));
  EXPECT_EQ(cuStreamQuery(now), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda::Counts().parked, 1u);
  ASSERT_OK(echo.Fire());
  EXPECT_CUDA(cuStreamSynchronize(now));
  EXPECT_EQ(echo.over(), 1u);
}

TEST_F(CudaPreparedTest, AFiringThatAStreamMakesTooLateIsNotTheNextLifes) {
  Session session = Open();
  Prepared echo = Prepare(session, "echo"), other = Prepare(session, "echo");
  std::promise<void> gate;
  const CUstream stream = MakeStream();
  Work(stream, gate);
  uint64_t firing = 0;
  ASSERT_OK(cuda::Fire(echo, stream, &firing));
  EXPECT_EQ(firing, 1u);
  NextDaemon(session);
  gate.set_value();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  ASSERT_OK(other.Fire());  // this rings, and the daemon looks at all words
  ASSERT_OK(other.Wait(1, kSoon));
  EXPECT_EQ(echo.over(), 0u);
  ASSERT_OK(cuda::Fire(echo, stream, &firing));
  EXPECT_EQ(firing, 1u);
  EXPECT_CUDA(cuStreamSynchronize(stream));
  ASSERT_OK(other.Fire());
  ASSERT_OK(echo.Wait(1, kSoon));
}

TEST_F(CudaPreparedTest, WhatWasQueuedForAFiringAfterTheLossIsRefused) {
  Session session = Open();
  Prepared never = Prepare(session, "never");
  const CUstream stream = MakeStream();
  ASSERT_OK(never.Fire());
  daemon_.reset();
  EXPECT_EQ(never.Wait(1, kSoon).reason(), "DAEMON_LOST");
  EXPECT_EQ(cuda::Wait(never, stream, 1).reason(), "DAEMON_LOST");
  EXPECT_EQ(cuda::Fire(never, stream).reason(), "DAEMON_LOST");
  EXPECT_CUDA(cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace ferry::testing
