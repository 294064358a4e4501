// SPDX-License-Identifier: Apache-2.0
// The books of the communicators of this daemon's GPUs: their states, what they cost, when each was
// last used, and which should go. A communicator belongs to a clique and to the lives of its two
// daemons. Each opening of it is an attempt; one attempt may be closing while the next opens.
// CommTable opens and ends communicators. Pure. Home: control.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/clique/group.h"

namespace ferry {

enum class CommState : uint8_t {
  kWaiting,  // waits for room
  kOpening,
  kOpen,
  kClosing,  // closing, or to be closed when its groups are over at both ends
  kAborting,
  kFailed,  // gone; listed for people until its clique's next attempt
};
struct CommRow {
  Clique clique;
  Incarnation low, high;  // the lives of the two daemons
  uint32_t attempt = 0;
  GlobalDeviceId device;  // the device of the clique that is this daemon's
  CommState state = CommState::kOpening;
  absl::Time since;      // when the attempt began
  absl::Time last_used;  // or opened
  absl::Duration open_took;
  uint64_t bytes = 0;   // GPU memory that it is assumed to take: see OnOpened
  uint64_t groups = 0;  // groups launched on it
  uint64_t moved = 0;   // bytes that these groups move
  size_t running = 0;   // groups that are not over
  std::string error;
};

class CommCache {
 public:
  struct Counts {
    uint64_t opened = 0, failed = 0, aborted = 0, closed = 0;
    uint64_t groups = 0, moved = 0;
  };
  using Id = uint64_t;

  // How long a busy communicator has been open, at least, when it is closed for one that waits.
  // Opening one takes about a tenth of that.
  static constexpr absl::Duration kTurn = absl::Milliseconds(500);
  // How long others let one communicator open alone, at most, so that its memory can be told from
  // theirs.
  static constexpr absl::Duration kAlone = absl::Seconds(1);

  // `bytes_per_device`: memory budget of all communicators of one GPU; its first one is always
  // allowed. The next is assumed to cost what the last undisturbed opening cost. Until there is
  // one, openings are serialised, for at most kAlone each. A communicator that finds no room waits.
  // Idle ones are closed for it, and busy ones after their turn. If none waits, the one that was
  // used last stays. `idle`: an unused communicator is closed after this time; infinite: never.
  CommCache(uint64_t bytes_per_device, absl::Duration idle)
      : bytes_per_device_(bytes_per_device), idle_(idle) {}

  // Both hold from the next look on.
  void SetBounds(uint64_t bytes_per_device, absl::Duration idle) {
    home_.Check();
    bytes_per_device_ = bytes_per_device;
    idle_ = idle;
  }

  // A new attempt. It waits until TakeToOpen() names it.
  Id Open(absl::Time now, const CommRow& row);
  // The attempts that wait and have room, first come, first served on each GPU. They count as
  // opening from now on.
  std::vector<Id> TakeToOpen(absl::Time now);
  // An attempt is open. `went`: bytes of GPU memory that went while it opened. They are ignored,
  // and the last reliable value stands, if they are 0, if another communicator of the GPU came or
  // went at the same time, or if they differ from that value by more than 4x: then clients took or
  // freed memory. Two such odd values in a row that are alike are accepted: the reliable value may
  // have been wrong. Until there is a reliable value, any that is not 0 stands. Returns the bytes
  // that the communicator is assumed to take.
  uint64_t OnOpened(absl::Time now, Id id, uint64_t went, absl::Duration took);
  void OnLaunch(absl::Time now, Id id, uint64_t bytes);
  void OnOver(absl::Time now, Id id);
  // No further group goes on the communicator, and it will be ended.
  void OnClosing(Id id);
  // The communicator is being ended: aborted because of `error`, or closed if that is "".
  void OnEnding(Id id, std::string error);
  void OnGone(Id id);

  // Cliques whose communicator should be closed, the least recently used first; true: even if it is
  // busy. A clique is named again only after a while, since its leader may find the communicator in
  // use.
  std::vector<std::pair<Clique, bool>> TakeToEvict(absl::Time now);
  // When TakeToOpen() or TakeToEvict() may have something to do because time has passed. Counts
  // from the last look, which is TakeToOpen() and then TakeToEvict().
  absl::Time NextLook() const;

  // Whether some GPU was over its budget when TakeToEvict() looked last.
  bool beyond() const { return beyond_; }

  CommState StateOf(Id id) const { return entries_.at(id).state; }
  std::vector<CommRow> List() const;
  uint64_t BytesOf(GlobalDeviceId device) const;
  const Counts& counts() const { return counts_; }

 private:
  struct Entry : CommRow {
    absl::Time begun;        // when the opening began
    bool disturbed = false;  // others of its GPU came or went while it opened
    absl::Time opened;
    absl::Time asked = absl::InfinitePast();  // when it was last named by TakeToEvict()
  };
  static bool ComesOrGoes(const Entry& entry);
  // The entry comes or goes: neither it nor those that open on its GPU at the same time can be
  // measured.
  void Disturb(Id id);
  // No other communicator of the GPU may begin to open before this.
  absl::Time AloneUntil(const Entry& entry) const;
  // When to look for what is due at `due`. If that is past, the last look has seen it, and it waits
  // for something other than time: to look again at once would keep control busy.
  absl::Time LookFor(absl::Time due) const;
  // Whether to believe that the entry took `went` bytes: see OnOpened.
  bool Believe(const Entry& entry, uint64_t went);
  // By GPU: the bytes of its communicators, including those that open.
  absl::btree_map<GlobalDeviceId, uint64_t> Used() const;
  uint64_t bytes_per_device_;
  absl::Duration idle_;
  absl::btree_map<Id, Entry> entries_;
  Id next_ = 1;
  bool beyond_ = false;
  uint64_t expected_ = 0;  // bytes that the next communicator is assumed to take
  bool sure_ = false;      // `expected_` was measured by an undisturbed opening
  uint64_t odd_ = 0;       // bytes of the last opening if they were unlike `expected_`; else 0
  absl::Time looked_ = absl::InfinitePast();
  Counts counts_;
  [[no_unique_address]] HomeChecker home_;
};

const char* CommStateName(CommState state);

}  // namespace ferry
