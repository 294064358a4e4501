// SPDX-License-Identifier: Apache-2.0
// Threads of a daemon that are stuck in a call of NCCL's, which only an abort from another thread
// frees: with an NCCL that has revocations, and with one that has none.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/gpu/nccl_fixture.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

class MultiGpuNcclStuckTest : public MultiGpuNcclTest,
                              public ::testing::WithParamInterface<const char*> {
 protected:
  // Of node a.
  bool Start(const std::string& fault) {
    ClusterOptions options;
    options.environment = {absl::StrCat("FERRY_NCCL_LIBRARY=", GetParam())};
    if (!StartWithFaults(absl::StrCat(fault, ";stuck_mark=", Gate("stuck")), std::move(options))) {
      return false;
    }
    const bool old = GetParam() == std::string(FAKE_NCCL_2_18_LIBRARY);
    EXPECT_EQ(node(0).admin().Status().nccl(), old ? "2.18.3" : "2.28.9");
    return true;
  }
};

TEST_P(MultiGpuNcclStuckTest, AWarmUpThatIsStuckInNcclIsFreedByAnAbort) {
  if (!Start("stuck_launch=1")) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(Gate("stuck")); }));
  EXPECT_EQ(node(0).admin().CountComms("opening"), 1u);
  node(0).admin().AbortComm(a.device, b.device);  // and the next attempt goes well
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_EQ(AttemptAt(0), 2u);
}

TEST_P(MultiGpuNcclStuckTest, AnOpeningThatHangsIsFreedByAnAbort) {
  if (!Start("hang_open=1")) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  ASSERT_TRUE(Await([&] { return node(1).admin().CountComms("opening") == 1; }));
  node(1).admin().AbortComm(a.device, b.device);  // and the next attempt goes well
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
}

TEST_P(MultiGpuNcclStuckTest, ALaneThatIsStuckInNcclIsFreedByAnAbort) {
  if (!Start("stuck_launch=2")) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  // An abort that comes before has nothing to free, and the next launch sticks.
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(Gate("stuck")); }));
  node(1).admin().AbortComm(a.device, b.device);
  EXPECT_THAT(receive.Wait(kSoon), Is("ABORTED/COMM_ABORTED", HasSubstr("an operator wants it")));
  EXPECT_THAT(send.Wait(kSoon), Is("ABORTED/COMM_ABORTED"));
  ExpectMoves(a, b);
}

INSTANTIATE_TEST_SUITE_P(Over, MultiGpuNcclStuckTest,
                         ::testing::Values(FAKE_NCCL_LIBRARY, FAKE_NCCL_2_18_LIBRARY),
                         [](const auto& library) {
                           return library.index == 0 ? "new" : "without_revocations";
                         });

}  // namespace
}  // namespace ferry::testing
