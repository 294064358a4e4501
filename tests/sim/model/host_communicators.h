// SPDX-License-Identifier: Apache-2.0
// Communicators, and the lanes on which their groups run, for tests. They are as strict as NCCL is
// silent. Each lane runs its launches one by one, in order. The n-th launch of one rank of a
// communicator runs only together with the n-th launch of the other rank. Both must have the same
// list of ops; else they wait until they are aborted. Where NCCL would hang or return garbage, an
// error is reported: different lists, launches on an attempt that has ended, lanes that wait for
// each other in a ring.
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

#include "transfer/clique/group.h"

namespace ferry {

class HostCommunicators {
 public:
  struct Key {
    Clique clique;
    uint64_t leader_life = 0;  // incarnation of the leader's daemon
    uint32_t attempt = 0;
    auto operator<=>(const Key&) const = default;
  };
  // One operation of a group. Both ranks must have the same.
  struct Op {
    bool to_low = false;
    uint64_t pair = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    bool operator==(const Op&) const = default;
  };
  // One launch of a group by one rank.
  struct Call {
    Key key;
    bool low = false;  // this rank is the lower device's
    int node = 0;
    uint64_t group = 0;  // number of the group in that node's engine
    std::vector<Op> ops;
    size_t position = 0;  // its index among the rank's launches
    bool started = false;
    bool hangs = false;
    bool arrived = false;
    bool aborted = false;
    GlobalDeviceId device() const { return low ? key.clique.low : key.clique.high; }
  };
  using CallId = uint64_t;

  // A rank begins to open.
  void Open(const Key& key, bool low, int node, std::string* error);
  // The rank's opening does not hang. True if the other rank's does not either: then both will
  // open.
  bool Meet(const Key& key, bool low);
  // The rank is open. False if it was ended meanwhile.
  bool OnOpened(const Key& key, bool low);
  // Puts a launch into its lane. Sets `error` if NCCL would not have allowed it.
  CallId Launch(Call call, std::string* error);
  // Null once the call is answered.
  Call* Find(CallId id);
  // The first call of the lane, if it was not started and its rank is open.
  std::optional<CallId> ToStart(GlobalDeviceId device);
  // The call runs now. Returns both calls if the two ranks have met; else none.
  std::vector<CallId> Arrive(CallId id);
  // Takes an answered call out of its lane.
  void Answer(CallId id);
  // Nothing more may be launched on the rank, which will be ended.
  void Closing(const Key& key, bool low, std::string* error);
  // The rank's attempt ends. Returns the calls that must be aborted.
  std::vector<CallId> End(const Key& key, bool low, bool abort, std::string* error);
  // The node's daemon crashes, with all its ranks and calls.
  void Crash(int node);

  // Whether the first call of this lane waits, by way of other lanes, for itself.
  bool LockedUp(GlobalDeviceId device) const;
  size_t QueueOf(GlobalDeviceId device) const;
  bool empty() const { return calls_.empty(); }
  // The cliques whose communicator is open at a node.
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
    std::vector<std::vector<Op>> history;  // the ops of all its launches
  };
  const Call* PartnerOf(const Call& call) const;

  std::map<CallId, Call> calls_;
  std::map<GlobalDeviceId, std::deque<CallId>> lanes_;
  std::map<std::pair<Key, bool>, Rank> ranks_;
  CallId next_ = 1;
};

}  // namespace ferry
