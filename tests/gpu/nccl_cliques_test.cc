// SPDX-License-Identifier: Apache-2.0
// Communicators between more than two daemons with a GPU each: cliques that share a GPU.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/gpu/nccl_fixture.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

// Every end sends to every other one, all at once; each has room for its own bytes and for those of
// the others behind them.
class MultiGpuCrossedNcclTest : public MultiGpuNcclTest {
 protected:
  std::vector<End> OpenAll(size_t count) {
    std::vector<End> ends;
    for (size_t i = 0; i < count; ++i) ends.push_back(Open(i, 0, (count + 1) * kNcclBytes));
    return ends;
  }
  void Exchange(std::vector<End>& ends, int seed) {
    std::vector<Batch> batches;
    for (size_t i = 0; i < ends.size(); ++i) Fill(ends[i].arena, 0, kNcclBytes, seed + i);
    ForEachPair(ends.size(), [&](size_t i, size_t j) {
      const std::string key = absl::StrCat(i, "-", j);
      batches.push_back(Send(ends[i], ends[j], key, {ends[i].arena.Range(0, kNcclBytes)}, Nccl()));
      batches.push_back(Receive(ends[j], ends[i], key,
                                {ends[j].arena.Range(kNcclBytes * (1 + i), kNcclBytes)}, Nccl()));
    });
    for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
    ForEachPair(ends.size(), [&](size_t i, size_t j) {
      ASSERT_TRUE(Has(ends[j].arena, kNcclBytes * (1 + i), kNcclBytes, seed + i));
    });
  }

 private:
  template <typename Body>
  static void ForEachPair(size_t count, const Body& body) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) {
        if (i != j) body(i, j);
      }
    }
  }
};

TEST_F(MultiGpuCrossedNcclTest, PairsOfThreeDaemons) {
  if (!StartDaemons(3)) return;
  std::vector<End> ends = OpenAll(3);
  for (int round = 0; round < 5; ++round) ASSERT_NO_FATAL_FAILURE(Exchange(ends, 10 * round));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(node(i).admin().CountComms("open"), 2u);
}

TEST_F(MultiGpuCrossedNcclTest, PairsOfFourDaemonsWithRoomForTwoCommunicators) {
  ClusterOptions options;
  // Each GPU has three cliques, which take turns.
  options.limits = fake() ? "comm_bytes_per_gpu: 20MiB" : "comm_bytes_per_gpu: 300MiB";
  if (!StartDaemons(4, options)) return;
  std::vector<End> ends = OpenAll(4);
  for (int round = 0; round < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(Exchange(ends, 10 * round));
    // Idle ones go until two are left.
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(Await([&] { return node(i).admin().CountComms("open") <= 2; }));
    }
  }
}

TEST_F(MultiGpuNcclTest, ANodeThatLeavesByAReloadTakesItsCommunicatorsAlong) {
  if (!StartDaemons(3)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes), c = Open(2, 0, kNcclBytes);
  ExpectMoves(a, b);
  ExpectMoves(a, c);
  EXPECT_EQ(node(0).admin().CountComms("open"), 2u);
  const std::string whole = ReadFile(node(0).config_file());
  const size_t line = whole.find("    - { name: node-c");
  WriteFile(node(0).config_file(),
            absl::StrCat(whole.substr(0, line), whole.substr(whole.find('\n', line) + 1)));
  Batch waits = Receive(a, c, "nobody sends this", {a.arena.All()}, Nccl());
  Ferryctl("reload --wait");
  EXPECT_THAT(waits.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  for (const size_t i : {0, 2}) {
    EXPECT_TRUE(Await([&] { return node(i).admin().CountComms("open") == (i == 0 ? 1 : 0); }));
  }
  ExpectMoves(a, b);
  WriteFile(node(0).config_file(), whole);
  Ferryctl("reload --wait");
  ExpectMoves(c, a);
  EXPECT_EQ(node(0).admin().CountComms("open"), 2u);
}

TEST_F(MultiGpuNcclTest, AnOpeningThatHangsHoldsUpNoOtherClique) {
  if (!StartWithFaults("hang_open=1", {}, "", 3)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes), c = Open(2, 0, kNcclBytes);
  Batch receive = Receive(b, a, "k", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "k", {a.arena.All()}, Nccl());
  ASSERT_TRUE(Await([&] { return node(1).admin().CountComms("opening") == 1; }));
  End other = Open(0, 0, kNcclBytes);  // another session: batches of one end in order
  ExpectMoves(other, c);
  ExpectMoves(c, other);
  EXPECT_EQ(node(1).admin().CountComms("opening"), 1u);
  node(0).admin().AbortComm(a.device, b.device);
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
}

TEST_F(MultiGpuNcclTest, AGroupThatHangsAbortsNoOtherClique) {
  if (!StartWithFaults(absl::StrCat("group_gate=", Gate("groups")), {}, "", 3)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes), c = Open(2, 0, kNcclBytes);
  End other = Open(1, 0, kNcclBytes);  // another session: batches of one end in order
  ExpectMoves(a, b);
  ExpectMoves(other, c);
  WriteFile(Gate("groups"), "");
  Batch receive = Receive(b, a, "hangs", {b.arena.All()}, Nccl());
  Batch send = Send(a, b, "hangs", {a.arena.All()}, Nccl());
  ASSERT_TRUE(Await([&] { return node(1).admin().Count("launched") > 0; }));
  // On the same GPU, behind it; at node c, where nothing is before it, it is late as well.
  Fill(other.arena, 0, kNcclBytes, 7);
  Batch behind = Receive(c, other, "waits", {c.arena.All()}, Nccl());
  Batch waits = Send(other, c, "waits", {other.arena.All()}, Nccl());
  for (Batch* hangs : {&receive, &send}) {
    EXPECT_THAT(hangs->Wait(kSoon), Is("DEADLINE_EXCEEDED/EXECUTING"));
  }
  for (Batch* other_clique : {&behind, &waits}) EXPECT_THAT(other_clique->Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(c.arena, 0, kNcclBytes, 7));
  EXPECT_EQ(AttemptAt(2), 1u);
  std::filesystem::remove(Gate("groups"));
  ExpectMoves(a, b);
}

TEST_F(MultiGpuNcclTest, BeyondTheirBytesIdleCommunicatorsGo) {
  ClusterOptions options;
  options.limits = "comm_bytes_per_gpu: 1MiB";  // the one used last stays all the same
  if (!StartDaemons(3, options)) return;
  std::vector<End> ends;
  for (size_t i = 0; i < 3; ++i) ends.push_back(Open(i, 0, kNcclBytes));
  for (int round = 0; round < 3; ++round) {
    ExpectMoves(ends[1], ends[0]);
    ExpectMoves(ends[2], ends[1]);
    ASSERT_TRUE(Await([&] {
      return node(0).admin().CountComms("open") == 0 && node(1).admin().CountComms("open") == 1;
    }));
  }
  EXPECT_EQ(AttemptAt(2), 3u);
}

}  // namespace
}  // namespace ferry::testing
