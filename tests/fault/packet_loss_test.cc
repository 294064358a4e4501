// SPDX-License-Identifier: Apache-2.0
// The packets of one port, or of data connections only, are lost for longer than a peer may be
// silent, or their connections are reset, in the middle of bytes: between two daemons in network
// namespaces of their own.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/network_namespaces.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Values;
using Fate = PacketCable::Fate;

// Which packets.
enum class Packets { kAll, kOfThePeerPort, kOfDataConnections };
enum class From { kBoth, kFirst, kSecond };
enum class Family { kIpv4, kIpv6 };

// Bounds of the product, of which a test allows so many times as much.
constexpr seconds kAfterDeadline{1};
constexpr seconds kAfterLoss{5};
constexpr int kGenerosity = 10;

struct Case {
  RouteCase route;
  Family family;
  Packets packets;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.route.name; }

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  const char* const packets[] = {"all", "peer_port", "data"};
  return absl::StrCat(info.param.route.name, info.param.family == Family::kIpv6 ? "_ipv6" : "", "_",
                      packets[static_cast<int>(info.param.packets)]);
}

// One end's half of a transfer that may fail, but must end in time.
class Half {
 public:
  Half(Batch batch, Clock::duration bound) : batch_(std::move(batch)), bound_(bound) {}
  void ExpectEnd() {
    const auto left = std::max<Clock::duration>(posted_ + bound_ - Clock::now(), seconds(1));
    const Status status = batch_.Wait(std::chrono::duration_cast<milliseconds>(left));
    EXPECT_TRUE(batch_.over()) << status.ToString();
  }

 private:
  Batch batch_;
  Clock::time_point posted_ = Clock::now();
  Clock::duration bound_;
};

class PacketLossTest : public ClusterTest, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    std::string why;
    hosts_ = NetworkNamespaces::Create(NetworkNamespaces::kOfPackets, &why);
    if (hosts_ == nullptr) GTEST_SKIP() << "no network namespaces: " << why;
    ClusterOptions options;
    for (size_t i = 0; i < 2; ++i) {
      options.hosts.push_back(GetParam().family == Family::kIpv6
                                  ? absl::StrCat("[", hosts_->address6(i), "]")
                                  : hosts_->address(i));
      options.launchers.push_back(hosts_->launcher(i));
    }
    options.transfer = GetParam().route.transfer;
    Start(options);
    ends_[0] = OpenEnd(0, kBytes, 0, "source");
    ends_[1] = OpenEnd(1, kBytes, 0, "destination");
  }

  void TearDown() override {
    halves_.clear();
    for (End& end : ends_) end = {};
    ClusterTest::TearDown();
  }

  PostOptions Options(milliseconds deadline = {}) const {
    PostOptions options;
    options.route = GetParam().route.route;
    options.deadline = deadline;
    return options;
  }

  // A transfer from end `from`; it takes long at the rate that Harm sets.
  void Post(size_t from, seconds deadline) {
    const std::string key = absl::StrCat("transfer ", ++posted_);
    End &source = ends_[from], &destination = ends_[1 - from];
    // What is under way ends with its link, too, but that is not for this side to see.
    const auto bound = deadline + kGenerosity * kAfterDeadline;
    halves_.emplace_back(
        Receive(destination, source, key, {destination.arena.All()}, Options(deadline)), bound);
    halves_.emplace_back(Send(source, destination, key, {source.arena.All()}, Options(deadline)),
                         bound);
  }
  void AwaitLaunched(size_t count) {
    EXPECT_TRUE(Await([&] { return node(0).admin().Count("launched") == count; }));
  }

  void SetRule(Fate fate, From from) {
    hosts_->packets().SetRule([this, fate, from](const PacketCable::Segment& segment) {
      if (from == From::kFirst && segment.from != 0) return Fate::kCarried;
      if (from == From::kSecond && segment.from != 1) return Fate::kCarried;
      const auto is = [&](int port) {
        return segment.source == port || segment.destination == port;
      };
      const bool peer_port = is(nodes().port(0)) || is(nodes().port(1));
      // The link's own connection is one of HTTP/2.
      const bool link = peer_port && absl::StartsWith(segment.opening, "PRI ");
      switch (GetParam().packets) {
        case Packets::kAll:
          return fate;
        case Packets::kOfThePeerPort:
          return peer_port ? fate : Fate::kCarried;
        case Packets::kOfDataConnections:
          return link ? Fate::kCarried : fate;
      }
      return Fate::kCarried;
    });
  }

  // Loses packets, with transfers under way both ways, and others that are posted meanwhile.
  void Lose(From from, seconds lasting) {
    SCOPED_TRACE(absl::StrCat("from ", static_cast<int>(from)));
    hosts_->SetRate("50mbit");
    const uint64_t ruled_out = hosts_->packets().ruled_out();
    Post(0, seconds(2));
    Post(1, seconds(3));
    Post(0, lasting + seconds(60));
    AwaitLaunched(3);
    const auto until = Clock::now() + lasting;
    SetRule(Fate::kLost, from);
    for (size_t i = 0; Clock::now() < until; ++i) {
      Post(i % 2, seconds(1));
      // Both halves end in about their second: that is the clock of this loop.
      for (size_t half = halves_.size() - 2; half < halves_.size(); ++half)
        halves_[half].ExpectEnd();
    }
    hosts_->packets().SetRule(nullptr);
    hosts_->SetRate("10gbit");
    EXPECT_GT(hosts_->packets().ruled_out(), ruled_out);
    ExpectRecovery();
  }

  // All has ended, and transfers go again, from both ends, before long.
  void ExpectRecovery() {
    for (Half& half : std::exchange(halves_, {})) half.ExpectEnd();
    for (size_t from : {0, 1}) {
      Status last;
      EXPECT_TRUE(Await(
          [&] {
            End &source = ends_[from], &destination = ends_[1 - from];
            const std::string key = absl::StrCat("again ", ++posted_);
            Batch receive =
                Receive(destination, source, key, {destination.arena.All()}, Options(seconds(5)));
            last = Send(source, destination, key, {source.arena.All()}, Options(seconds(5))).Wait();
            return last.ok() && receive.Wait().ok();
          },
          kGenerosity * kAfterLoss))
          << last.ToString();
    }
    ExpectTransfer(ends_[0], ends_[1], absl::StrCat("after ", posted_), Options());
    ExpectTransfer(ends_[1], ends_[0], absl::StrCat("after, backwards ", posted_), Options());
  }

  static constexpr uint64_t kBytes = 64 * kMiB;
  std::unique_ptr<NetworkNamespaces> hosts_;
  End ends_[2];
  std::vector<Half> halves_;
  uint64_t posted_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Networks, PacketLossTest,
                         Values(Case{kTcpRoute, Family::kIpv4, Packets::kOfThePeerPort},
                                Case{kTcpRoute, Family::kIpv4, Packets::kOfDataConnections},
                                Case{kTcpRoute, Family::kIpv6, Packets::kOfThePeerPort},
                                Case{kTcpRoute, Family::kIpv6, Packets::kOfDataConnections},
                                Case{kUcxTcpRoute, Family::kIpv4, Packets::kAll},
                                Case{kUcxTcpRoute, Family::kIpv4, Packets::kOfThePeerPort},
                                Case{kUcxTcpRoute, Family::kIpv4, Packets::kOfDataConnections}),
                         CaseName);

// Twice: what was opened after the first loss must bear another one.
TEST_P(PacketLossTest, SevenSecondsFromBothEnds) {
  ExpectTransfer(ends_[0], ends_[1], "before", Options());
  Lose(From::kBoth, seconds(7));
  Lose(From::kBoth, seconds(7));
}

TEST_P(PacketLossTest, SevenSecondsFromTheDialler) {
  ExpectTransfer(ends_[0], ends_[1], "before", Options());
  Lose(From::kFirst, seconds(7));
  Lose(From::kFirst, seconds(7));
}

TEST_P(PacketLossTest, SevenSecondsFromTheDialled) {
  ExpectTransfer(ends_[0], ends_[1], "before", Options());
  Lose(From::kSecond, seconds(7));
  Lose(From::kSecond, seconds(7));
}

TEST_P(PacketLossTest, FortySecondsFromBothEnds) {
  ExpectTransfer(ends_[0], ends_[1], "before", Options());
  Lose(From::kBoth, seconds(40));
}

// Long enough for whatever the kernel or a library does last.
class OneSidedPacketLossTest : public PacketLossTest {};
INSTANTIATE_TEST_SUITE_P(Networks, OneSidedPacketLossTest,
                         Values(Case{kTcpRoute, Family::kIpv4, Packets::kOfThePeerPort},
                                Case{kTcpRoute, Family::kIpv6, Packets::kOfDataConnections},
                                Case{kUcxTcpRoute, Family::kIpv4, Packets::kAll},
                                Case{kUcxTcpRoute, Family::kIpv4, Packets::kOfDataConnections}),
                         CaseName);

TEST_P(OneSidedPacketLossTest, FortySeconds) {
  ExpectTransfer(ends_[0], ends_[1], "before", Options());
  Lose(From::kFirst, seconds(40));
  Lose(From::kSecond, seconds(40));
}

// Nothing is lost: connections are reset, as by a firewall or a host that has forgotten them.
TEST_P(PacketLossTest, Resets) {
  ExpectTransfer(ends_[0], ends_[1], "before", Options());
  for (From from : {From::kBoth, From::kFirst, From::kSecond}) {
    hosts_->SetRate("50mbit");
    const uint64_t ruled_out = hosts_->packets().ruled_out();
    Post(0, seconds(10));
    Post(1, seconds(10));
    AwaitLaunched(2);
    SetRule(Fate::kReset, from);
    EXPECT_TRUE(Await([&] { return hosts_->packets().ruled_out() > ruled_out + 8; }));
    hosts_->packets().SetRule(nullptr);
    hosts_->SetRate("10gbit");
    ExpectRecovery();
  }
}

}  // namespace
}  // namespace ferry::testing
