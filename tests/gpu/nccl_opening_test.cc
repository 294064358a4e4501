// SPDX-License-Identifier: Apache-2.0
// How communicators between daemons with a GPU each are opened, and what becomes of an opening that
// fails, hangs, or loses its other end. Those that need a failure at a certain point are for the
// fake NCCL.
#include <signal.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/gpu/nccl_fixture.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

// Whoever leads; the fake ends the process where two ranks' numbers differ, as NCCL might hang.
TEST_F(MultiGpuNcclTest, BothEndsTakeTheSmallerNumberOfCtas) {
  ClusterOptions options;
  for (const int ctas : {16, 8, 0}) {  // 0: any number
    options.transfers.push_back(absl::StrCat("nccl: { max_ctas: ", ctas, " }"));
  }
  if (!StartDaemons(3, options)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes), c = Open(2, 0, kNcclBytes);
  ExpectMoves(a, b);
  ExpectMoves(b, c);
  ExpectMoves(c, a);
}

TEST_F(MultiGpuNcclTest, TwoVersionsOfNcclDoNotMeet) {
  if (!StartWithFaults("", {}, "version=22703")) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  EXPECT_THAT(receive.Wait(kSoon), Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE",
                                      HasSubstr("NCCL is 2.27.3 here and 2.28.9 at node-a")));
  EXPECT_THAT(send.Wait(kSoon), Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE"));
}

TEST_F(MultiGpuNcclTest, WhatCannotBeOpenedGoesByTheNextRouteAndIsTriedAgain) {
  ClusterOptions options;
  options.transfer = "order: [nccl, mapped]";
  if (!StartWithFaults("fail_open=1", options)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  ExpectMoves(a, b, {});
  const auto failed = node(0).admin().Comms();
  ASSERT_EQ(failed.comms_size(), 1);
  EXPECT_THAT(failed.comms(0).error(), HasSubstr("the test wants this opening to fail"));
  ExpectMoves(a, b);  // after a while
  EXPECT_EQ(AttemptAt(0), 2u);
}

TEST_F(MultiGpuNcclTest, AnErrorThatNcclFindsInAnOpeningEndsIt) {
  if (!StartWithFaults("async_error=1")) return;  // of the warm-up
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  for (Batch* batch : {&receive, &send}) {  // long before its deadline
    EXPECT_THAT(batch->Wait(std::chrono::seconds(10)),
                Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE", HasSubstr("remote process exited")));
  }
  ExpectMoves(a, b);
  EXPECT_EQ(AttemptAt(0), 2u);
}

// The node at one end is lost while a communicator opens: the leader's or the follower's.
class MultiGpuNcclLossTest : public MultiGpuNcclTest, public ::testing::WithParamInterface<size_t> {
 protected:
  size_t lost() const { return GetParam(); }
  size_t survivor() const { return 1 - lost(); }
  bool StartWithGate() {
    const std::string gate = absl::StrCat("open_gate=", Gate("opens"));
    if (!StartWithFaults(gate, {}, gate)) return false;
    WriteFile(Gate("opens"), "");
    return true;
  }
  bool AwaitOpening() {
    return Await([&] {
      return node(0).admin().CountComms("opening") == 1 &&
             node(1).admin().CountComms("opening") == 1;
    });
  }
};

TEST_P(MultiGpuNcclLossTest, ADaemonKilledWhileACommunicatorOpens) {
  if (!StartWithGate()) return;
  End here = Open(survivor(), 0, kNcclBytes);
  {
    End there = Open(lost(), 0, kNcclBytes);
    Batch receive = Receive(there, here, "k", {there.arena.All()}, Nccl());
    Batch send = Send(here, there, "k", {here.arena.All()}, Nccl());
    ASSERT_TRUE(AwaitOpening());
    node(lost()).Kill();
    EXPECT_THAT(send.Wait(kKilled), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  }
  EXPECT_TRUE(Await([&] { return node(survivor()).admin().CountComms("opening") == 0; }));
  std::filesystem::remove(Gate("opens"));
  ASSERT_TRUE(node(lost()).Start());
  End back = Open(lost(), 0, kNcclBytes);
  ExpectMoves(here, back);
  ExpectMoves(back, here);
}

TEST_P(MultiGpuNcclLossTest, ADaemonStoppedWhileACommunicatorOpens) {
  if (!StartWithGate()) return;
  End here = Open(survivor(), 0, kNcclBytes), there = Open(lost(), 0, kNcclBytes);
  Batch receive = Receive(there, here, "k", {there.arena.All()}, Nccl());
  Batch send = Send(here, there, "k", {here.arena.All()}, Nccl());
  ASSERT_TRUE(AwaitOpening());
  node(lost()).Signal(SIGSTOP);
  EXPECT_THAT(send.Wait(kStopped), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_TRUE(Await([&] { return node(survivor()).admin().CountComms("opening") == 0; }));
  node(lost()).Signal(SIGCONT);
  EXPECT_THAT(receive.Wait(kStopped), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  std::filesystem::remove(Gate("opens"));
  ASSERT_TRUE(nodes().AwaitLink(0, 1));
  ExpectMoves(here, there);
  ExpectMoves(there, here);
}

INSTANTIATE_TEST_SUITE_P(Of, MultiGpuNcclLossTest, ::testing::Values(0, 1),
                         [](const auto& node) { return node.param == 0 ? "leader" : "follower"; });

}  // namespace
}  // namespace ferry::testing
