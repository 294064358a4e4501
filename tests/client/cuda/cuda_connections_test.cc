// SPDX-License-Identifier: Apache-2.0
// How many streams of a process may wait, and what is refused past that bound. It depends on the
// connections of the process, which are read once: each case is a child.
#include <stdlib.h>
#include <unistd.h>

#include <thread>

#include "tests/client/cuda/cuda_stream_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaConnectionsTest : public CudaStreamTest {
 protected:
  void SetUp() override {
    if (getenv("FERRY_TEST_CONNECTIONS") == nullptr) return;
    connections_ = static_cast<uint32_t>(atoi(getenv("FERRY_TEST_CONNECTIONS")));
    EXPECT_EQ(cuda::Counts().connections, connections_);
    EXPECT_EQ(cuda::Counts().parked_most, most());
  }
  uint32_t most() const { return connections_ > 2 ? connections_ - 2 : 0; }
  // In the parent: runs this test in processes of their own with 1, 2 and 8 connections. False in
  // such a process.
  bool RanInChildren() {
    if (connections_ != 0) return false;
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    for (const int connections : {1, 2, 8}) {
      const std::string count = std::to_string(connections);
      const std::string command = "CUDA_DEVICE_MAX_CONNECTIONS=" + count +
                                  " FERRY_TEST_CONNECTIONS=" + count + " timeout 60 /proc/" +
                                  std::to_string(getpid()) +
                                  "/exe --gtest_brief=1 --gtest_filter=CudaConnectionsTest." + name;
      EXPECT_EQ(system(command.c_str()), 0) << command;
    }
    return true;
  }

  // Has as many streams wait as may, for what somebody posts some day: 'over' counter 50.
  void ParkStreams(Session& session) {
    for (uint32_t i = 0; i < most(); ++i) {
      ASSERT_OK(cuda::WaitOver(session, MakeStream(), kSomeday, i + 1));
    }
  }
  // Posts that, and waits for all streams.
  void FreeStreams(Session& session) {
    PostOptions options;
    options.over_timeline = kSomeday;
    ASSERT_OK(
        session.Send(kGpu, std::vector<Transfer>(std::max(most(), 1u), Keyed("echo")), options));
    for (CUstream stream : streams_) EXPECT_CUDA(cuStreamSynchronize(stream));
  }

  static constexpr uint32_t kSomeday = 50;
  uint32_t connections_ = 0;
};

TEST_F(CudaConnectionsTest, SixteenReceivesBeforeTheirSendsAreRefusedPastTheBound) {
  if (RanInChildren()) return;
  Session session = Open();
  auto from = session.CreateArena(kGpu, 4096);
  auto to = session.CreateArena(kOtherGpu, 16 * 4096);
  ASSERT_OK(to);
  Fill(*from, 1);
  std::vector<Batch> receives;
  uint32_t refused = 0;
  for (uint32_t i = 0; i < 16; ++i) {
    PostOptions options;
    options.over_timeline = i;
    auto batch = session.Receive(
        kOtherGpu, {Keyed("k" + std::to_string(i), {to->Range(i * 4096, 4096)}, kGpu)}, options);
    ASSERT_OK(batch);
    receives.push_back(std::move(*batch));
    const Status status = cuda::Wait(receives.back(), MakeStream());
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.reason(), "WOULD_DEADLOCK");
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("waits for its other half"),
                                                     HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS")));
  }
  EXPECT_EQ(refused, 16 - most());
  EXPECT_EQ(cuda::Counts().parked, most());
  EXPECT_EQ(cuda::Counts().would_deadlock, refused);
  EXPECT_EQ(cuda::Counts().host_waits, 0u);
  // No stream of the process starves meanwhile.
  ASSERT_OK(cuda::Define(session, streams_.back(), 5, 1));
  EXPECT_CUDA(cuStreamSynchronize(streams_.back()));
  for (int i = 0; i < 16; ++i) {
    PostOptions options;
    options.over_timeline = 20;
    ASSERT_OK(
        session.Send(kGpu, {Keyed("k" + std::to_string(i), {from->All()}, kOtherGpu)}, options));
  }
  for (size_t i = 0; i < 16; ++i) ASSERT_OK(cuda::Wait(receives[i], streams_[i]));
  for (CUstream stream : streams_) EXPECT_CUDA(cuStreamSynchronize(stream));
  for (Batch& batch : receives) ASSERT_OK(batch.Wait(kSoon));
}

TEST_F(CudaConnectionsTest, WhatIsPostedAndUndefinedIsRefusedPastTheBound) {
  if (RanInChildren()) return;
  Session session = Open();
  auto from = session.CreateArena(kGpu, 4096);
  auto to = session.CreateArena(kOtherGpu, 4096);
  ASSERT_OK(to);
  ParkStreams(session);
  CUstream stream = MakeStream();
  EXPECT_THAT(std::string(cuda::WaitOver(session, stream, 50, 1).message()),
              HasSubstr("not posted yet"));
  Batch receive = PostReceive(session, *to, "k", kGpu);
  Batch send = PostSend(session, *from, "k", kOtherGpu, Transfer::DefinedAt{3, 7});
  EXPECT_THAT(std::string(cuda::Wait(send, stream).message()),
              HasSubstr("counter 3 reaches 7, which nothing was told to see to"));
  // Told to a stream that waits itself for what nobody has posted, it is not better.
  if (most() > 0) {
    ASSERT_OK(cuda::Define(session, streams_[0], 3, 7));
    EXPECT_THAT(std::string(cuda::Wait(send, stream).message()), HasSubstr("not posted yet"));
  }
  FreeStreams(session);
  if (most() == 0) ASSERT_OK(cuda::Define(session, stream, 3, 7));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  Ring(session);
  ASSERT_OK(receive.Wait(kSoon));
}

// Both halves are posted, and what they take to meet has no bound.
TEST_F(CudaConnectionsTest, TheHostWaitsForHalvesThatHaveYetToMeet) {
  if (RanInChildren()) return;
  Session session = Open();
  auto from = session.CreateArena(kGpu, 4096);
  auto to = session.CreateArena(kOtherGpu, 4096);
  ASSERT_OK(to);
  ParkStreams(session);
  CUstream consumer = MakeStream();
  Batch receive = PostReceive(session, *to, "far", kGpu);
  Batch send = PostSend(session, *from, "far", kOtherGpu);
  std::thread meets([&] {
    while (cuda::Counts().host_waits + cuda::Counts().would_deadlock == 0)
      std::this_thread::yield();
    daemon_->Meet();
  });
  const Status waited = cuda::Wait(receive, consumer);
  meets.join();
  ASSERT_OK(waited);
  EXPECT_EQ(cuda::Counts().host_waits, 1u);
  EXPECT_EQ(cuda::Counts().would_deadlock, 0u);
  ASSERT_OK(send.Wait(kSoon));
  FreeStreams(session);
}

TEST_F(CudaConnectionsTest, TheHostWaitsForWhatIsOnItsWay) {
  if (RanInChildren()) return;
  Session session = Open();
  auto from = session.CreateArena(kGpu, 4096);
  auto to = session.CreateArena(kOtherGpu, 4096);
  ASSERT_OK(to);
  ParkStreams(session);
  std::string made(4096, 'm');
  EXPECT_CUDA(cuMemHostRegister(made.data(), made.size(), 0));
  CUstream producer = MakeStream(), consumer = MakeStream();
  Batch receive = PostReceive(session, *to, "k", kGpu);
  Batch send = PostSend(session, *from, "k", kOtherGpu, Transfer::DefinedAt{3, 7});
  fake_cuda_hold_copies(1);
  EXPECT_CUDA(
      cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(from->data()), made.data(), 4096, producer));
  ASSERT_OK(cuda::Define(session, producer, 3, 7));
  std::thread opens([&] {
    while (cuda::Counts().host_waits == 0) std::this_thread::yield();
    fake_cuda_hold_copies(0);
    while (session.DefinedValue(3) < 7) std::this_thread::yield();
    Ring(session);
  });
  ASSERT_OK(cuda::Wait(receive, consumer));  // returns when it is over
  EXPECT_TRUE(receive.over());
  opens.join();
  EXPECT_EQ(cuda::Counts().host_waits, 1u);
  ASSERT_OK(receive.Wait(Duration{0}));
  FreeStreams(session);
  EXPECT_CUDA(cuMemHostUnregister(made.data()));
}

}  // namespace
}  // namespace ferry::testing
