// SPDX-License-Identifier: Apache-2.0
// Clients of two users, strangers and a peer that mean harm, on every socket of a daemon at once,
// with others beside them: the daemon lives, the others' transfers go and bring their bytes, what
// is moved with the bad peer stays where it belongs, and at the end nothing is left.
// A few seconds of it here; tools/hostile runs it for as long as one likes (FERRY_HOSTILE_SECONDS,
// FERRY_HOSTILE_SEED).
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/support/bad_client.h"
#include "tests/support/bad_peer.h"
#include "tests/support/fixtures.h"
#include "tests/support/lying_peer.h"
#include "tests/support/other_user.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  uint64_t value = 0;
  const char* const text = getenv(name);
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

constexpr uid_t kOtherUser = 61006;

// One who knows no secret, at a peer port and a peer.sock: says things, and stays for a while.
class Stranger {
 public:
  Stranger(int port, std::string peer_socket, uint64_t seed)
      : port_(port), peer_socket_(std::move(peer_socket)), nonsense_(seed) {}
  void Step() {
    const std::string address = absl::StrCat("127.0.0.1:", port_);
    switch (nonsense_.Below(5)) {
      case 0:
        KnockAt(address, nonsense_.Text());
        break;
      case 1: {
        LyingCaller caller(address);
        peer::v1::Frame frame;
        *frame.mutable_introduction() = IntroductionOf(nonsense_.Chance(70) ? "node-a" : "node-c");
        if (nonsense_.Chance(50)) nonsense_.Fill(frame);
        caller.Say(frame);
        if (nonsense_.Chance(50) && caller.Hear().has_value()) {
          nonsense_.Fill(frame);
          caller.Say(frame);
        }
        break;
      }
      case 2:
        idle_ = RawSocket(peer_socket_, SOCK_SEQPACKET);
        if (idle_.connected()) idle_.Send(nonsense_.Bytes(300));
        break;
      default:
        Dial();
    }
  }

 private:
  // Beginnings of what is said there: HTTP/2, a data connection's preamble, nothing.
  void Dial() {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port_));
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return;
    const char* const begin = nonsense_.Chance(50)   ? "FERRYTC1"
                              : nonsense_.Chance(50) ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                                     : "";
    const std::string bytes = begin + nonsense_.Bytes(200);
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    silent_[nonsense_.Below(std::size(silent_))] = std::move(fd);
  }

  const int port_;
  const std::string peer_socket_;
  Nonsense nonsense_;
  RawSocket idle_{UniqueFd()};
  UniqueFd silent_[4];
};

// node-a is played; node-b is harmed; others move bytes between node-b and node-c, and on node-b.
class HostileMixTest : public ClusterTest {
 protected:
  static constexpr size_t kPlayed = 0, kHarmed = 1, kOther = 2;
  // Of a transfer with the played one, and where in an arena it may be.
  static constexpr uint64_t kVictimBytes = 40'000, kVictimPlace = 64 << 10;
  static constexpr uint64_t kVictims = 8;

  void SetUp() override {
    ClusterOptions options;
    options.nodes = 3;
    options.secret = true;  // the played one has it
    // node-b has no UCX address of the played one, and nothing to do with any.
    options.transfer = "order: [local, mapped, tcp, ucx]";
    Start(options);
    ASSERT_EQ(chmod(nodes().directory().path().c_str(), 0755), 0);  // for other users
    nodes()[kPlayed].Kill();
  }
  BadPeerOptions AsPeer() {
    BadPeerOptions options;
    options.secret = Cluster::kSecret;
    options.node = "node-a";
    options.devices = {nodes().Device(kPlayed), nodes().Device(kPlayed, 1)};
    options.theirs = {nodes().Device(kHarmed), nodes().Device(kHarmed, 1)};
    const admin::v1::GetStatusResponse status = node(kOther).admin().Status();
    for (const admin::v1::Peer& peer : status.peers()) {
      if (peer.node() == "node-b") options.address = peer.address();
    }
    options.their_socket = node(kHarmed).runtime_dir() + "/peer/peer.sock";
    options.own_socket = nodes().directory() / "bad.sock";
    options.bytes = kVictimBytes;
    return options;
  }
  // As many things as there are, until `stop` says so.
  template <typename Bad>
  static std::thread Go(std::unique_ptr<Bad> bad, const std::atomic<bool>& stop,
                        std::atomic<uint64_t>& steps, bool as_eve = false) {
    return std::thread([bad = std::move(bad), &stop, &steps, as_eve] {
      const auto run = [&] {
        for (; !stop; ++steps) bad->Step();
      };
      if (as_eve && geteuid() == 0) return AsUser(kOtherUser, run);
      run();
    });
  }
  // Receives from the played one and sends to it, however they end: they write where they may.
  void MoveWithThePlayed(End& victim, const std::atomic<bool>& stop) {
    PostOptions options;
    options.domain = "good";
    options.deadline = std::chrono::milliseconds(300);
    const uint64_t remote = nodes().Device(kPlayed);
    for (uint64_t round = 0; !stop; ++round) {
      options.route = round % 4 < 2 ? FERRY_ROUTE_TCP : FERRY_ROUTE_ANY;
      std::vector<Result<Batch>> batches;
      for (uint64_t i = 0; i < kVictims; ++i) {
        const Transfer one(remote, absl::StrCat("v", i),
                           {victim.arena.Range(i * kVictimPlace, kVictimBytes)});
        batches.push_back(round % 2 == 0 ? victim.session.Receive(victim.device, {one}, options)
                                         : victim.session.Send(victim.device, {one}, options));
      }
      for (Result<Batch>& batch : batches) {
        if (batch.ok() && batch->Wait().ok()) ++moved_with_the_played_;
      }
    }
  }
  static bool StaysInItsPlaces(const End& victim) {
    const char* const bytes = static_cast<const char*>(victim.arena.data());
    for (uint64_t i = 0; i < kVictims; ++i) {
      const char* const end = bytes + (i + 1) * kVictimPlace;
      if (!std::all_of(end - (kVictimPlace - kVictimBytes), end, [](char c) { return c == 0; })) {
        return false;
      }
    }
    return true;
  }
  std::atomic<uint64_t> moved_with_the_played_{0};
};

TEST_F(HostileMixTest, OthersGoOnAndTheDaemonLives) {
  const uint64_t seconds = FromEnvironment("FERRY_HOSTILE_SECONDS", 4);
  uint64_t seed = FromEnvironment("FERRY_HOSTILE_SEED", 1);
  const bool told = getenv("FERRY_HOSTILE_SECONDS") != nullptr;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  constexpr auto kRound = std::chrono::seconds(20);
  const BadPeerOptions peer = AsPeer();
  End source = OpenEnd(kHarmed, kMiB, 0), local = OpenEnd(kHarmed, kMiB, 1);
  End remote = OpenEnd(kOther, kMiB, 0);
  End victim = OpenEnd(kHarmed, kVictims * kVictimPlace, 0);
  for (; std::chrono::steady_clock::now() < end && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("again: tools/hostile --seed ", seed));
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> steps{0};
    uint64_t moved = 0;
    std::vector<std::thread> bad;
    for (uint64_t i = 0; i < 3; ++i) {
      // What lingers is another user's: it is not to be served for that, but the others are.
      const bool eve = i == 2;
      bad.push_back(
          Go(std::make_unique<BadClient>(node(kHarmed).client_dir(), nodes().Device(kHarmed, i % 2),
                                         nodes().Device(kPlayed), 3 * seed + i,
                                         /*lingers=*/eve && geteuid() == 0),
             stop, steps, eve));
    }
    bad.push_back(Go(std::make_unique<BadPeer>(peer, seed), stop, steps));
    bad.push_back(Go(std::make_unique<Stranger>(nodes().port(kHarmed), peer.their_socket, seed),
                     stop, steps, /*as_eve=*/true));
    bad.emplace_back([&] { MoveWithThePlayed(victim, stop); });
    const auto round_end = std::min(std::chrono::steady_clock::now() + kRound, end);
    while (std::chrono::steady_clock::now() < round_end && !HasFailure() &&
           node(kHarmed).running()) {
      PostOptions options;
      options.domain = "good";
      ExpectTransfer(source, remote, absl::StrCat("there ", seed, " ", moved), options);
      options.route = moved % 2 == 0 ? FERRY_ROUTE_TCP : FERRY_ROUTE_ANY;
      ExpectTransfer(remote, source, absl::StrCat("back ", seed, " ", moved), options);
      options.route = FERRY_ROUTE_ANY;
      ExpectTransfer(source, local, absl::StrCat("here ", seed, " ", moved), options);
      moved += 3;
    }
    stop = true;
    for (std::thread& one : bad) one.join();
    EXPECT_TRUE(node(kHarmed).running());
    EXPECT_TRUE(StaysInItsPlaces(victim));
    EXPECT_GT(moved, 0u);
    EXPECT_GT(steps, 0u);
    if (told)
      std::cout << "seed " << seed << ": " << steps << " things said, " << moved << " transfers, "
                << moved_with_the_played_ << " with the bad peer\n";
  }
  for (End* one : {&source, &local, &remote, &victim}) *one = End();
  EXPECT_TRUE(node(kHarmed).AwaitIdle());
}

}  // namespace
}  // namespace ferry::testing
