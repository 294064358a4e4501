// SPDX-License-Identifier: Apache-2.0
// A cable between two network namespaces whose packets pass through this process. Seeded dice do to
// them what networks do below TCP: loss, doubles, reordering, delay, and silence in one direction
// or both. A rule may decide what becomes of the packets of some TCP connections. A direction is
// named by the end that its packets come from. Settings are for any thread; a thread of the cable's
// own carries the packets.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ferry::testing {

// Probabilities, from 0 to 1, for each packet.
struct PacketFaults {
  double lost = 0;
  double doubled = 0;
  double late = 0;  // held for up to `lateness` longer, so that others overtake it
  std::chrono::microseconds delay{0};  // delay of every packet
  std::chrono::microseconds lateness{0};
};

class PacketCable {
 public:
  // A TCP packet, as rules see it.
  struct Segment {
    int from = 0;
    uint16_t source = 0;
    uint16_t destination = 0;
    absl::string_view
        opening;  // what the connection's opener said first; "" if it has said nothing
  };
  // kReset: a reset of its connection is carried instead.
  enum class Fate { kCarried, kLost, kReset };
  using Rule = std::function<Fate(const Segment&)>;

  // Makes `interface` in each of two namespaces that `ip netns` knows. The interfaces have no
  // addresses and are not up. Null, and the reason in `why`, where that cannot be done.
  static std::unique_ptr<PacketCable> Create(const std::string (&namespaces)[2],
                                             const std::string& interface, uint64_t seed,
                                             std::string* why);
  ~PacketCable();
  PacketCable(const PacketCable&) = delete;
  PacketCable& operator=(const PacketCable&) = delete;

  void Set(const PacketFaults& faults);
  // With true, everything that end `from` (0 or 1) sends is lost.
  void Silence(int from, bool silent) { silent_[from] = silent; }
  // Decides the fate of TCP packets before anything else does; called on the cable's thread.
  void SetRule(Rule rule);

  // Counts of packets so far. Lost: by the dice, not by silence. Ruled out: lost or reset by the
  // rule.
  uint64_t carried() const { return carried_; }
  uint64_t lost() const { return lost_; }
  uint64_t doubled() const { return doubled_; }
  uint64_t overtaken() const { return overtaken_; }
  uint64_t ruled_out() const { return ruled_out_; }

 private:
  struct Connection {
    int opener = 0;
    std::string opening;
  };
  PacketCable(UniqueFd first, UniqueFd second, uint64_t seed);
  void Run(uint64_t seed);
  // Replaces the packet by a reset if the rule says so. False if the packet is lost.
  bool Apply(const Rule& rule, int from, std::string& packet);

  const UniqueFd ends_[2];
  const UniqueFd stop_;
  std::mutex mutex_;  // guards faults_ and rule_
  PacketFaults faults_;
  Rule rule_;
  std::map<std::pair<uint16_t, uint16_t>, Connection> connections_;  // by the ports at both ends
  std::atomic<bool> silent_[2] = {false, false};
  std::atomic<uint64_t> carried_ = 0;
  std::atomic<uint64_t> lost_ = 0;
  std::atomic<uint64_t> doubled_ = 0;
  std::atomic<uint64_t> overtaken_ = 0;
  std::atomic<uint64_t> ruled_out_ = 0;
  std::thread thread_;
};

}  // namespace ferry::testing
