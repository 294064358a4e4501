// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/communicator.h"

#include <stdlib.h>

#include <atomic>
#include <thread>
#include <vector>

#include "two_ranks.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(LoadNcclTest, SaysWhatIsMissing) {
  const auto missing = LoadNccl("/nowhere/libnccl.so.2", {});
  EXPECT_EQ(ReasonOf(missing.status()), Reason::kRouteUnavailable);
  EXPECT_THAT(Text(missing.status()), HasSubstr("/nowhere/libnccl.so.2"));
  const auto other = LoadNccl(FAKE_CUDA_LIBRARY, {});
  EXPECT_THAT(Text(other.status()), HasSubstr("it has no ncclGetVersion"));
}

TEST(LoadNcclTest, TheConfigurationsEnvironmentIsNcclsAndRasIsOff) {
  unsetenv("NCCL_RAS_ENABLE");
  setenv("NCCL_DEBUG", "INFO", 1);
  const auto api = LoadNccl(FAKE_NCCL_LIBRARY, {{"NCCL_DEBUG", "WARN"}, {"NCCL_IB_HCA", "mlx5"}});
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_EQ((*api)->version_text(), "2.28.9");
  EXPECT_THAT(NcclEnvironment(),
              testing::IsSupersetOf({"NCCL_DEBUG=WARN", "NCCL_IB_HCA=mlx5", "NCCL_RAS_ENABLE=0"}));
}

// Whose sockets believe whoever connects.
TEST(LoadNcclTest, ListensOnTheInterfaceOfTheLinks) {
  unsetenv("NCCL_SOCKET_IFNAME");
  ASSERT_TRUE(LoadNccl(FAKE_NCCL_LIBRARY, {}).ok());
  EXPECT_EQ(getenv("NCCL_SOCKET_IFNAME"), nullptr);
  ASSERT_TRUE(LoadNccl(FAKE_NCCL_LIBRARY, {}, "lo").ok());
  EXPECT_STREQ(getenv("NCCL_SOCKET_IFNAME"), "=lo");
  ASSERT_TRUE(LoadNccl(FAKE_NCCL_LIBRARY, {{"NCCL_SOCKET_IFNAME", "eth0"}}, "lo").ok());
  EXPECT_STREQ(getenv("NCCL_SOCKET_IFNAME"), "eth0");
  unsetenv("NCCL_SOCKET_IFNAME");
}

// Over an NCCL with and without revocations.
class CommunicatorTest : public testing::TestWithParam<const char*> {
 protected:
  ~CommunicatorTest() override {
    for (int device : {0, 1}) {
      // What remains is the arena's and the lane's.
      EXPECT_LE(fake_cuda_allocated(device), before_[device]);
    }
  }
  TwoRanks two_{kMiB, GetParam()};
  const uint64_t before_[2] = {fake_cuda_allocated(0), fake_cuda_allocated(1)};
};

TEST_P(CommunicatorTest, IsOpenWhenBothEndsAreAndTellsWhatItTook) {
  for (int end : {0, 1}) two_.Make(end);
  const auto id = two_.communicator(0).MakeId();
  ASSERT_TRUE(id.ok());
  EXPECT_NE(*id, *two_.communicator(0).MakeId()) << "of this attempt alone";
  absl::StatusOr<Communicator::Opened> other;
  std::thread opener([&] { other = two_.communicator(1).Open(*id); });
  const auto opened = two_.communicator(0).Open(*id);
  opener.join();
  ASSERT_TRUE(opened.ok() && other.ok()) << opened.status() << other.status();
  EXPECT_EQ(opened->bytes, 8 * kMiB);
  EXPECT_EQ(two_.communicator(0).state(), Communicator::State::kOpen);
  EXPECT_TRUE(two_.communicator(0).AsyncError().ok());
  for (int end : {0, 1}) {
    two_.communicator(end).End();
    two_.communicator(end).Reap();
  }
}

TEST_P(CommunicatorTest, WhatNobodyMeetsComesOffTheStreamByItsEnd) {
  EXPECT_EQ(two_.api().CommRevoke == nullptr, two_.api().version < 22800);
  const auto [own, other] = two_.Open();
  ASSERT_TRUE(own.ok() && other.ok()) << own << other;
  auto stream = CudaStream::Make(two_.gpu(0), {4096});
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(two_.communicator(0).Launch(**stream, {{true, (*stream)->staging(), 8}}).ok());
  ASSERT_TRUE((*stream)->Mark().ok());
  EXPECT_EQ(*(*stream)->Reached(), 0u);
  for (int end : {0, 1}) {
    two_.communicator(end).End();
    two_.communicator(end).Reap();
  }
  (*stream)->MakeCurrent();
  EXPECT_TRUE((*stream)->Await().ok());
  EXPECT_EQ(*(*stream)->Reached(), 1u);
}

TEST_P(CommunicatorTest, AnIdOfAnotherSizeIsRefused) {
  const auto opened = two_.Make(0).Open("short");
  EXPECT_EQ(ReasonOf(opened.status()), Reason::kRouteUnavailable);
  two_.communicator(0).End();
  two_.communicator(0).Reap();
}

TEST_P(CommunicatorTest, AnOpeningToWhichNobodyComesIsFreedByTheReaper) {
  const auto id = two_.Make(0).MakeId();
  absl::Status status;
  std::thread opener([&] { status = two_.communicator(0).Open(*id).status(); });
  two_.communicator(0).End();
  two_.communicator(0).Reap();
  opener.join();
  EXPECT_FALSE(status.ok());
}

TEST_P(CommunicatorTest, NothingBeginsOnceItHasEnded) {
  const auto [own, other] = two_.Open();
  ASSERT_TRUE(own.ok() && other.ok());
  auto stream = CudaStream::Make(two_.gpu(0), {4096});
  ASSERT_TRUE(stream.ok());
  for (int end : {0, 1}) two_.communicator(end).End();
  const absl::Status status =
      two_.communicator(0).Launch(**stream, {{true, (*stream)->staging(), 8}});
  EXPECT_EQ(ReasonOf(status), Reason::kCommAborted);
  EXPECT_TRUE(two_.communicator(0).AsyncError().ok());
  for (int end : {0, 1}) two_.communicator(end).Reap();
}

// The fake ends the process if anybody comes into it with a communicator that is being aborted.
TEST_P(CommunicatorTest, WhoeverIsInsideIsOutBeforeItIsAborted) {
  for (int round = 0; round < 10; ++round) {
    const auto [own, other] = two_.Open();
    ASSERT_TRUE(own.ok() && other.ok()) << own << other;
    std::atomic<int> inside{0};
    std::vector<std::thread> lanes;
    for (int end : {0, 1}) {
      lanes.emplace_back([&, end] {
        Communicator& communicator = two_.communicator(end);
        auto stream = CudaStream::Make(two_.gpu(end), {4096});
        ASSERT_TRUE(stream.ok());
        const auto memory = (*stream)->staging();
        ++inside;
        while (communicator.Launch(**stream, {{true, memory, 8}, {false, memory + 8, 8}}).ok()) {
          for (int i = 0; i < 20; ++i) EXPECT_TRUE(communicator.AsyncError().ok());
        }
      });
    }
    while (inside < 2) std::this_thread::yield();
    for (int end : {0, 1}) {
      two_.communicator(end).End();
      two_.communicator(end).Reap();
    }
    for (std::thread& lane : lanes) lane.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorTest,
                         testing::Values(FAKE_NCCL_LIBRARY, FAKE_NCCL_2_18_LIBRARY),
                         [](const auto& library) {
                           return library.index == 0 ? "new" : "without_revocations";
                         });

}  // namespace
}  // namespace ferry
