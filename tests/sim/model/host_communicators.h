// SPDX-License-Identifier: Apache-2.0
// Communicators and lanes for groups, for tests: as strict as NCCL is silent. Each lane runs its
// launches one by one, in order; the n-th launch of one rank of a communicator runs only with the
// n-th of the other, must be the same list, and otherwise waits until it is aborted. What NCCL
// would answer with a hang or garbage, this reports: other lists, launches on an ended attempt, and
// lanes that wait for each other in a ring.
//
// Plain data without time: the simulation says when things happen.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transfer/group.h"

namespace ferry {

class HostCommunicators {
 public:
  struct Key {
    Clique clique;
    uint64_t leader_life = 0;  // of the leader's daemon
    uint32_t attempt = 0;
    auto operator<=>(const Key&) const = default;
  };
  // What both ranks must say alike.
  struct Op {
    bool to_low = false;
    uint64_t pair = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    bool operator==(const Op&) const = default;
  };
  struct Call {
    Key key;
    bool low = false;  // the rank
    int node = 0;
    uint64_t group = 0;  // of that node's engine
    std::vector<Op> ops;
    size_t position = 0;  // among the rank's launches
    bool started = false;
    bool hangs = false;
    bool arrived = false;
    bool aborted = false;
    GlobalDeviceId device() const { return low ? key.clique.low : key.clique.high; }
  };
  using CallId = uint64_t;

  // A rank is being opened.
  void Open(const Key& key, bool low, int node, std::string* error);
  // It does not hang. True if the other one does not either, so that both will be open.
  bool Meet(const Key& key, bool low);
  // False if it has ended meanwhile.
  bool OnOpened(const Key& key, bool low);
  // Puts a launch into its lane. `error` is set if NCCL would not have liked it.
  CallId Launch(Call call, std::string* error);
  // Null once it is answered.
  Call* Find(CallId id);
  // The first of the lane, if it was not started yet and its rank is open.
  std::optional<CallId> ToStart(GlobalDeviceId device);
  // The call runs now. Both calls, if they have met; else none.
  std::vector<CallId> Arrive(CallId id);
  // Takes an answered call out of its lane.
  void Answer(CallId id);
  // Nothing more is launched on a rank, which will be ended.
  void Closing(const Key& key, bool low, std::string* error);
  // A rank's attempt is over. The calls that are to be aborted.
  std::vector<CallId> End(const Key& key, bool low, bool abort, std::string* error);
  // All of a daemon is gone.
  void Crash(int node);

  // Whether the first of this lane waits, over other lanes, for itself.
  bool LockedUp(GlobalDeviceId device) const;
  size_t QueueOf(GlobalDeviceId device) const;
  bool empty() const { return calls_.empty(); }
  // The communicators that are open at a node.
  std::vector<Clique> OpenAt(int node) const;

 private:
  struct Rank {
    int node = 0;
    bool meets = false;
    bool open = false;
    bool closing = false;
    bool ended = false;
    bool aborted = false;
    std::vector<CallId> calls;             // by position
    std::vector<std::vector<Op>> history;  // what was said
  };
  const Call* PartnerOf(const Call& call) const;

  std::map<CallId, Call> calls_;
  std::map<GlobalDeviceId, std::deque<CallId>> lanes_;
  std::map<std::pair<Key, bool>, Rank> ranks_;
  CallId next_ = 1;
};

}  // namespace ferry
