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

TEST_F(MultiGpuNcclTest, ADaemonKilledWhileACommunicatorOpens) {
  const std::string gate = absl::StrCat("open_gate=", Gate("opens"));
  if (!StartWithFaults(gate, {}, gate)) return;
  WriteFile(Gate("opens"), "");
  End a = Open(0, 0, kNcclBytes);
  {
    End b = Open(1, 0, kNcclBytes);
    Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
    Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
    ASSERT_TRUE(Await([&] {
      return node(0).admin().CountComms("opening") == 1 &&
             node(1).admin().CountComms("opening") == 1;
    }));
    node(1).Kill();
    EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  }
  std::filesystem::remove(Gate("opens"));
  ASSERT_TRUE(node(1).Start());
  End b = Open(1, 0, kNcclBytes);
  ExpectMoves(a, b);
}

TEST_F(MultiGpuNcclTest, ADaemonStoppedWhileACommunicatorOpens) {
  const std::string gate = absl::StrCat("open_gate=", Gate("opens"));
  if (!StartWithFaults(gate, {}, gate)) return;
  WriteFile(Gate("opens"), "");
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  ASSERT_TRUE(Await([&] {
    return node(0).admin().CountComms("opening") == 1 && node(1).admin().CountComms("opening") == 1;
  }));
  node(1).Signal(SIGSTOP);
  EXPECT_THAT(send.Wait(6 * kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_TRUE(Await([&] { return node(0).admin().CountComms("opening") == 0; }));
  node(1).Signal(SIGCONT);
  EXPECT_THAT(receive.Wait(6 * kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  std::filesystem::remove(Gate("opens"));
  ASSERT_TRUE(nodes().AwaitLink(0, 1));
  ExpectMoves(a, b);
  ExpectMoves(b, a);
}

}  // namespace
}  // namespace ferry::testing
