// SPDX-License-Identifier: Apache-2.0
// Who sends to whom: both directions, oneself, three daemons crosswise, many client processes.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

struct Counts {
  int forth, back;
};

// XLA's SuccessfulCrossHostTransfer {1,0}, {1,1}, {2,1}, on each route: what was sent stays as it
// was.
class BidirectionalTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(BidirectionalTest);

TEST_P(BidirectionalTest, ForthAndBackAtOnce) {
  constexpr uint64_t kBytes = 300'000;
  StartForRoute();
  for (const Counts counts : {Counts{1, 0}, Counts{1, 1}, Counts{2, 1}}) {
    End ends[2] = {OpenSource(4 * kBytes), OpenDestination(4 * kBytes)};
    const int sends[2] = {counts.forth, counts.back};
    std::vector<Batch> batches;
    for (int self = 0; self < 2; ++self) {
      End& end = ends[self];
      const uint64_t other = ends[1 - self].device;
      std::vector<Transfer> out, in;
      for (int i = 0; i < sends[self]; ++i) {  // [0, 2): sent; [2, 4): received
        Fill(end.arena, static_cast<uint64_t>(i) * kBytes, kBytes,
             static_cast<uint64_t>(10 * self + i));
        out.emplace_back(
            other, absl::StrCat("k", i),
            std::vector<Range>{end.arena.Range(static_cast<uint64_t>(i) * kBytes, kBytes)});
      }
      for (int i = 0; i < sends[1 - self]; ++i) {
        in.emplace_back(
            other, absl::StrCat("k", i),
            std::vector<Range>{end.arena.Range(static_cast<uint64_t>(2 + i) * kBytes, kBytes)});
      }
      if (!out.empty()) batches.push_back(Must(end.session.Send(end.device, out, options())));
      if (!in.empty()) batches.push_back(Must(end.session.Receive(end.device, in, options())));
    }
    for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
    for (int self = 0; self < 2; ++self) {
      for (int i = 0; i < sends[self]; ++i) {
        const auto seed = static_cast<uint64_t>(10 * self + i);
        EXPECT_TRUE(Has(ends[self].arena, static_cast<uint64_t>(i) * kBytes, kBytes, seed));
        EXPECT_TRUE(Has(ends[1 - self].arena, static_cast<uint64_t>(2 + i) * kBytes, kBytes, seed));
      }
    }
  }
}

// Both are addressable: XLA refuses, Ferry takes `local`.
class SelfTest : public ClusterTest {};

TEST_F(SelfTest, OneSessionExchangesOnOneDeviceAndOnTwo) {
  Start({.nodes = 1});
  Session session = nodes().Open(0);
  Arena first = Must(session.CreateArena(0, kMiB));
  Arena same = Must(session.CreateArena(0, kMiB));
  Arena second = Must(session.CreateArena(1, kMiB));
  for (const Arena* to : {&same, &second}) {
    const uint64_t device = to->device();
    Fill(first, 0, kMiB, device + 5);
    Batch send = Must(session.Send(0, {Transfer(device, "self", {first.All()})}));
    PostOptions other;
    other.over_timeline = 1 + static_cast<uint32_t>(device);
    Batch receive = Must(session.Receive(device, {Transfer(0, "self", {to->All()})}, other));
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    EXPECT_TRUE(Has(*to, 0, kMiB, device + 5));
  }
}

TEST_F(SelfTest, TwoSessionsExchangeOnOneDevice) {
  Start({.nodes = 1});
  End one = OpenEnd(0, kMiB, 0, "one");
  End two = OpenEnd(0, kMiB, 0, "two");
  ExpectTransfer(one, two, "same device");
  ExpectTransfer(two, one, "same device");
}

// From one half of an arena to the other, and onto itself.
TEST_F(SelfTest, WithinOneArena) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 2 * kMiB);
  Fill(end.arena, 0, kMiB, 1);
  Batch send = Send(end, end, "halves", {end.arena.Range(0, kMiB)});
  Batch receive = Receive(end, end, "halves", {end.arena.Range(kMiB, kMiB)});
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(end.arena, kMiB, kMiB, 1));
}

// a->b, b->c, c->a and back, posted in another order on every node.
TEST(ThreeDaemonsTest, CrossedPairsInDifferentOrders) {
  constexpr uint64_t kBytes = 100'000;
  ClusterOptions options;
  options.nodes = 3;
  options.devices = 1;
  Cluster cluster(options);
  ASSERT_TRUE(cluster.Start());
  {
    std::vector<Session> sessions;
    std::vector<Arena> arenas;
    for (size_t i = 0; i < 3; ++i) {
      sessions.push_back(cluster.Open(i));
      arenas.push_back(Must(sessions[i].CreateArena(i, 6 * kBytes)));
      for (uint64_t other = 0; other < 3; ++other)
        Fill(arenas[i], other * kBytes, kBytes, 10 * i + other);
    }
    for (int round = 0; round < 5; ++round) {
      std::vector<Batch> batches;
      for (size_t i = 0; i < 3; ++i) {
        const auto send = [&](uint64_t to) {
          batches.push_back(Must(
              sessions[i].Send(i, {Transfer(to, "x", {arenas[i].Range(to * kBytes, kBytes)})})));
        };
        const auto receive = [&](uint64_t from) {
          batches.push_back(Must(sessions[i].Receive(
              i, {Transfer(from, "x", {arenas[i].Range((3 + from) * kBytes, kBytes)})})));
        };
        const uint64_t next = (i + 1) % 3, last = (i + 2) % 3;
        if (i == 0) send(next), send(last), receive(next), receive(last);
        if (i == 1) receive(last), send(last), receive(next), send(next);
        if (i == 2) receive(next), receive(last), send(next), send(last);
      }
      for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk()) << round;
    }
    for (size_t i = 0; i < 3; ++i) {
      for (uint64_t from = 0; from < 3; ++from) {
        if (from == i) continue;
        EXPECT_TRUE(Has(arenas[i], (3 + from) * kBytes, kBytes, 10 * from + i))
            << from << " to " << i;
      }
    }
  }
  cluster.ExpectCleanEnd();
}

class ProcessesTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(ProcessesTest);

// Four processes at each end, each with its own partner, in several rounds.
TEST_P(ProcessesTest, ManyClientProcessesAtOnce) {
  constexpr int kPairs = 4;
  constexpr int kEach = 64;
  constexpr uint64_t kBytes = 20'000;
  StartForRoute();
  std::vector<std::unique_ptr<ClientProcess>> sources, destinations;
  for (int i = 0; i < kPairs; ++i) {
    sources.push_back(SpawnSource(kEach * kBytes));
    destinations.push_back(SpawnDestination(kEach * kBytes));
    ASSERT_EQ(sources[i]->Tell(absl::StrCat("fill 0 0 ", kEach * kBytes, " ", i)), "OK");
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kPairs; ++i) {
      const std::string what =
          absl::StrCat(" pair", i, " 0 0 ", kBytes, " count=", kEach, route_option());
      sources[i]->Order(absl::StrCat("send ", source_device(), " ", destination_device(), what));
      destinations[i]->Order(
          absl::StrCat("receive ", destination_device(), " ", source_device(), what));
    }
    for (auto* all : {&sources, &destinations}) {
      for (auto& client : *all) {
        ASSERT_EQ(client->Answer(), absl::StrCat("OK ", round));
        client->Order(absl::StrCat("wait ", round, " 30000"));
      }
    }
    for (auto* all : {&sources, &destinations}) {
      for (auto& client : *all) ASSERT_EQ(client->Answer(), "OK");
    }
  }
  for (int i = 0; i < kPairs; ++i) {
    EXPECT_EQ(destinations[i]->Tell(absl::StrCat("check 0 0 ", kEach * kBytes, " ", i)), "OK");
    EXPECT_EQ(sources[i]->Finish(), std::optional<int>(0));
    EXPECT_EQ(destinations[i]->Finish(), std::optional<int>(0));
  }
}

}  // namespace
}  // namespace ferry::testing
