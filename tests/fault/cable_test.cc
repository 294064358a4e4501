// SPDX-License-Identifier: Apache-2.0
// Two daemons in network namespaces of their own: what happens to the cable happens to their link
// and to UCX's own connections alike.
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/network_namespaces.h"

namespace ferry::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// What has parted two ends: UCX may be told first, or the daemons find each other silent.
const auto kParted = AnyOf(Is("UNAVAILABLE/PEER_UNREACHABLE"), Is("ABORTED/COMM_ABORTED"));

class CableTest : public RouteTest {
 protected:
  explicit CableTest(NetworkNamespaces::Cable cable = NetworkNamespaces::kOfTheKernel)
      : cable_(cable) {}
  void SetUp() override {
    std::string why;
    hosts_ = NetworkNamespaces::Create(cable_, &why);
    if (hosts_ == nullptr) GTEST_SKIP() << "no network namespaces: " << why;
    ClusterOptions options;
    for (size_t i = 0; i < 2; ++i) {
      options.hosts.push_back(hosts_->address(i));
      options.launchers.push_back(hosts_->launcher(i));
    }
    StartForRoute(options);
  }
  // A transfer of all of both arenas whose bytes are on their way.
  struct Flight {
    Batch send, receive;
  };
  Flight Launch(End& source, End& destination) {
    Fill(source.arena, 0, source.arena.bytes(), 1);
    Flight flight;
    flight.receive = Receive(destination, source, "flight", {destination.arena.All()}, options());
    flight.send = Send(source, destination, "flight", {source.arena.All()}, options());
    EXPECT_TRUE(Await([&] { return node(1).admin().Count("launched") == 1; }));
    return flight;
  }

  void ExpectNoLinkLost() {
    EXPECT_THAT(node(0).Log(), Not(HasSubstr("peer.lost")));
    EXPECT_THAT(node(1).Log(), Not(HasSubstr("peer.lost")));
  }

  const NetworkNamespaces::Cable cable_;
  std::unique_ptr<NetworkNamespaces> hosts_;
};
INSTANTIATE_ROUTES(CableTest, kTcpRoute, kUcxTcpRoute);

TEST_P(CableTest, PulledWhileBytesAreOnTheirWay) {
  End source = OpenSource(64 * kMiB), destination = OpenDestination(64 * kMiB);
  ExpectTransfer(source, destination, "before", options());
  hosts_->SetRate("100mbit");
  Flight flight = Launch(source, destination);
  hosts_->SetCable(false);
  EXPECT_THAT(flight.send.Wait(kSoon), kParted);
  EXPECT_THAT(flight.receive.Wait(kSoon), kParted);
  ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") != "up"; }));
  ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") != "up"; }));
  hosts_->SetCable(true);
  hosts_->SetRate("10gbit");
  ExpectTransfer(source, destination, "after", options());
  ExpectTransfer(destination, source, "after, backwards", options());
}

// Heartbeats share the cable with the bytes: a cable that is full for longer than a peer may be
// silent is no lost peer.
TEST_P(CableTest, FullForLongerThanAPeerMayBeSilent) {
  End source = OpenSource(64 * kMiB), destination = OpenDestination(64 * kMiB);
  ExpectTransfer(source, destination, "before", options());
  hosts_->SetRate("70mbit");
  Flight flight = Launch(source, destination);
  EXPECT_THAT(flight.send.Wait(kSoon), IsOk());
  EXPECT_THAT(flight.receive.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination.arena, 0, 64 * kMiB, 1));
  ExpectNoLinkLost();
}

// Harm to packets, below TCP.
class PacketTest : public CableTest {
 protected:
  PacketTest() : CableTest(NetworkNamespaces::kOfPackets) {}
  PacketCable& packets() { return hosts_->packets(); }
};
INSTANTIATE_ROUTES(PacketTest, kTcpRoute, kUcxTcpRoute);

// How often a session was told of each transfer's end.
class Endings {
 public:
  void operator()(uint64_t id, const ferry_status* /*status*/) {
    std::lock_guard lock(mutex_);
    ++times_[id];
  }
  std::map<uint64_t, int> Times() {
    std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, int> times_;
};

TEST_P(PacketTest, LossDoublesAndDisorderOnlyTakeTime) {
  packets().Set({.lost = 0.02,
                 .doubled = 0.02,
                 .late = 0.1,
                 .delay = microseconds(200),
                 .lateness = microseconds(2000)});
  constexpr uint64_t kMany = 200, kEach = 16 << 10, kBytes = kMany * kEach, kFirings = 20;
  Endings told[2];
  End ends[2] = {OpenSource(2 * kBytes), OpenDestination(2 * kBytes)};
  for (int i : {0, 1}) ASSERT_THAT(ends[i].session.Watch(&told[i]), IsOk());
  // Both ways at once, many small ones and one that is large.
  std::vector<Batch> batches;
  for (int from : {0, 1}) {
    End &source = ends[from], &destination = ends[1 - from];
    const uint64_t half = static_cast<uint64_t>(from) * kBytes;
    Fill(source.arena, half, kBytes, 1 + from);
    for (uint64_t i = 0; i < kMany / 2; ++i) {
      const std::string key = absl::StrCat("small-", i);
      const uint64_t at = half + i * kEach;
      batches.push_back(
          Receive(destination, source, key, {destination.arena.Range(at, kEach)}, options()));
      batches.push_back(Send(source, destination, key, {source.arena.Range(at, kEach)}, options()));
    }
    const uint64_t at = half + kBytes / 2;
    batches.push_back(Receive(destination, source, "large",
                              {destination.arena.Range(at, kBytes / 2)}, options()));
    batches.push_back(
        Send(source, destination, "large", {source.arena.Range(at, kBytes / 2)}, options()));
  }
  for (Batch& batch : batches) EXPECT_THAT(batch.Wait(kSoon), IsOk());
  for (int from : {0, 1}) {
    const uint64_t half = static_cast<uint64_t>(from) * kBytes;
    EXPECT_TRUE(Has(ends[1 - from].arena, half, kBytes, 1 + from));
  }
  for (Endings& endings : told) {
    EXPECT_TRUE(Await([&] { return endings.Times().size() == kMany + 2; }));
    EXPECT_THAT(endings.Times(), Each(Pair(::testing::_, 1)));
  }
  // Each firing is agreed on by the link.
  Prepared receive = Must(ends[1].session.PrepareReceive(
      ends[1].device, {Transfer(ends[0].device, "again", {ends[1].arena.Range(0, kEach)})},
      options()));
  Prepared send = Must(ends[0].session.PrepareSend(
      ends[0].device, {Transfer(ends[1].device, "again", {ends[0].arena.Range(0, kEach)})},
      options()));
  for (uint64_t firing = 1; firing <= kFirings; ++firing) {
    Fill(ends[0].arena, 0, kEach, 100 + firing);
    EXPECT_THAT(receive.Fire(), IsOk());
    EXPECT_THAT(send.Fire(), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    EXPECT_TRUE(Has(ends[1].arena, 0, kEach, 100 + firing));
  }
  ExpectNoLinkLost();
  EXPECT_GT(packets().lost(), 20u);
  EXPECT_GT(packets().doubled(), 20u);
  EXPECT_GT(packets().overtaken(), 20u);
}

// The end of one direction, or both, for less than a peer may be silent.
TEST_P(PacketTest, AShortSilenceIsForgiven) {
  End source = OpenSource(16 * kMiB), destination = OpenDestination(16 * kMiB);
  ExpectTransfer(source, destination, "before", options());
  hosts_->SetRate("50mbit");
  for (const std::vector<int>& silent : {std::vector{0}, {1}, {0, 1}}) {
    Flight flight = Launch(source, destination);
    for (int from : silent) packets().Silence(from, true);
    EXPECT_THAT(flight.send.Wait(seconds(1)), Is("DEADLINE_EXCEEDED"));
    for (int from : silent) packets().Silence(from, false);
    EXPECT_THAT(flight.send.Wait(kSoon), IsOk());
    EXPECT_THAT(flight.receive.Wait(kSoon), IsOk());
    EXPECT_TRUE(Has(destination.arena, 0, 16 * kMiB, 1));
  }
  ExpectNoLinkLost();
}

// Nothing comes from one end any more, in the middle of UCX's bytes.
TEST_P(PacketTest, SilenceOfOneEndPartsThem) {
  End source = OpenSource(16 * kMiB), destination = OpenDestination(16 * kMiB);
  for (int from : {0, 1}) {
    SCOPED_TRACE(absl::StrCat("silent: ", from));
    hosts_->SetRate("10gbit");
    ExpectTransfer(source, destination, absl::StrCat("before ", from), options());
    hosts_->SetRate("50mbit");
    Flight flight = Launch(source, destination);
    packets().Silence(from, true);
    EXPECT_THAT(flight.send.Wait(kSoon), kParted);
    EXPECT_THAT(flight.receive.Wait(kSoon), kParted);
    ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") != "up"; }));
    ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") != "up"; }));
    packets().Silence(from, false);
  }
  hosts_->SetRate("10gbit");
  ExpectTransfer(source, destination, "after", options());
  ExpectTransfer(destination, source, "after, backwards", options());
}

}  // namespace
}  // namespace ferry::testing
