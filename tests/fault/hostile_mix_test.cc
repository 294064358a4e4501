// SPDX-License-Identifier: Apache-2.0
// Clients and a peer that mean harm, on every socket of a daemon at once, with others beside them:
// the daemon lives, the others' transfers go and bring their bytes, and at the end nothing is left.
// A few seconds of it here; tools/hostile runs it for as long as one likes (FERRY_HOSTILE_SECONDS,
// FERRY_HOSTILE_SEED).
#include <stdlib.h>

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

namespace ferry::testing {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  uint64_t value = 0;
  const char* const text = getenv(name);
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// node-a is played; node-b is harmed; others move bytes between node-b and node-c, and on node-b.
class HostileMixTest : public ClusterTest {
 protected:
  static constexpr size_t kPlayed = 0, kHarmed = 1, kOther = 2;

  void SetUp() override {
    ClusterOptions options;
    options.nodes = 3;
    options.secret = true;  // the played one has it
    // node-b has no UCX address of the played one, and nothing to do with any.
    options.transfer = "order: [local, mapped, ucx]";
    Start(options);
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
    return options;
  }
  // As many things as there are, until `stop` says so.
  template <typename Bad>
  static std::thread Go(std::unique_ptr<Bad> bad, const std::atomic<bool>& stop,
                        std::atomic<uint64_t>& steps) {
    return std::thread([bad = std::move(bad), &stop, &steps] {
      for (; !stop; ++steps) bad->Step();
    });
  }
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
  for (; std::chrono::steady_clock::now() < end && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("again: tools/hostile --seed ", seed));
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> steps{0};
    uint64_t moved = 0;
    std::vector<std::thread> bad;
    for (uint64_t i = 0; i < 2; ++i) {
      bad.push_back(
          Go(std::make_unique<BadClient>(node(kHarmed).client_dir(), nodes().Device(kHarmed, i),
                                         nodes().Device(kPlayed), 2 * seed + i),
             stop, steps));
    }
    bad.push_back(Go(std::make_unique<BadPeer>(peer, seed), stop, steps));
    const auto round_end = std::min(std::chrono::steady_clock::now() + kRound, end);
    while (std::chrono::steady_clock::now() < round_end && !HasFailure() &&
           node(kHarmed).running()) {
      PostOptions options;
      options.domain = "good";
      ExpectTransfer(source, remote, absl::StrCat("there ", seed, " ", moved), options);
      ExpectTransfer(remote, source, absl::StrCat("back ", seed, " ", moved), options);
      ExpectTransfer(source, local, absl::StrCat("here ", seed, " ", moved), options);
      moved += 3;
    }
    stop = true;
    for (std::thread& one : bad) one.join();
    EXPECT_TRUE(node(kHarmed).running());
    EXPECT_GT(moved, 0u);
    EXPECT_GT(steps, 0u);
    if (told)
      std::cout << "seed " << seed << ": " << steps << " things said, " << moved << " transfers\n";
  }
  for (End* one : {&source, &local, &remote}) *one = End();
  EXPECT_TRUE(node(kHarmed).AwaitIdle());
}

}  // namespace
}  // namespace ferry::testing
