// SPDX-License-Identifier: Apache-2.0
// What is known of the communicators of this daemon's GPUs: how they stand, what they cost, who
// used them last, and which of them should go. A communicator is of a clique and of the lives of
// its two daemons; each opening is an attempt, and one attempt may be going while the next one
// comes. Only books: opening and ending are CommTable's. Pure; home: control.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "transfer/group.h"

namespace ferry {

enum class CommState : uint8_t {
  kWaiting,  // for room
  kOpening,
  kOpen,
  kClosing,  // or is to be, when its groups are over at both ends
  kAborting,
  kFailed,  // gone; stays for people until its clique's next attempt
};
struct CommRow {
  Clique clique;
  Incarnation low, high;  // of the daemons
  uint32_t attempt = 0;
  GlobalDeviceId device;  // ours
  CommState state = CommState::kOpening;
  absl::Time since;      // of the attempt
  absl::Time last_used;  // or opened
  absl::Duration open_took;
  uint64_t bytes = 0;   // of the GPU's memory that it is thought to take: see OnOpened
  uint64_t groups = 0;  // launched on it
  uint64_t moved = 0;   // bytes of these
  size_t running = 0;   // of these
  std::string error;
};

class CommCache {
 public:
  struct Counts {
    uint64_t opened = 0, failed = 0, aborted = 0, closed = 0;
    uint64_t groups = 0, moved = 0;
  };
  using Id = uint64_t;

  // How long a busy one has been open, at least, when it goes for one that waits: opening one takes
  // a tenth of that.
  static constexpr absl::Duration kTurn = absl::Milliseconds(500);
  // How long others let one open alone, at most, so that what it takes can be told from theirs.
  static constexpr absl::Duration kAlone = absl::Seconds(1);

  // `bytes_per_device`: what the communicators of one GPU may have together, and a first one
  // whatever it takes; the next one's bytes are thought to be those of the last one that was
  // measured alone, and until one was they open one after the other. Who wants more waits:
  // idle ones go, but if nobody waits not the one used last, and after their turn busy ones too.
  // `idle`: so long unused they go anyway; infinite: never.
  CommCache(uint64_t bytes_per_device, absl::Duration idle)
      : bytes_per_device_(bytes_per_device), idle_(idle) {}

  // From the next look on.
  void SetBounds(uint64_t bytes_per_device, absl::Duration idle) {
    bytes_per_device_ = bytes_per_device;
    idle_ = idle;
  }

  // It waits until it is named by TakeToOpen.
  Id Open(absl::Time now, const CommRow& row);
  // What waits and has room, first come, first served on each GPU: it is being opened.
  std::vector<Id> TakeToOpen(absl::Time now);
  // `went`: bytes of the GPU's free memory that went meanwhile. Where others of the GPU came or
  // went as well that is no measure of this one, and the last sure one stands for it; so it does
  // where clients must have taken or freed memory, since nothing went, or more than four times what
  // the last sure one took or less than a quarter. What two say in a row is believed all the same:
  // the last sure one may have been wrong. Returns the bytes it is thought to take.
  uint64_t OnOpened(absl::Time now, Id id, uint64_t went, absl::Duration took);
  void OnLaunch(absl::Time now, Id id, uint64_t bytes);
  void OnOver(absl::Time now, Id id);
  // No further group goes on it, and it will be ended.
  void OnClosing(Id id);
  // It is being ended; `error` is why it is aborted, "" if it is closed.
  void OnEnding(Id id, std::string error);
  void OnGone(Id id);

  // Cliques whose communicator should be closed, least recently used first, and whether it should
  // if it is busy as well; each is named again only after a while, since its leader may find it in
  // use.
  std::vector<std::pair<Clique, bool>> TakeToEvict(absl::Time now);
  // When TakeToOpen or TakeToEvict may have something because of time alone; after the last look,
  // which is TakeToOpen and then TakeToEvict.
  absl::Time NextLook() const;

  // Some GPU had more than it may when TakeToEvict looked last.
  bool beyond() const { return beyond_; }

  CommState StateOf(Id id) const { return entries_.at(id).state; }
  std::vector<CommRow> List() const;
  uint64_t BytesOf(GlobalDeviceId device) const;
  const Counts& counts() const { return counts_; }

 private:
  struct Entry : CommRow {
    absl::Time begun;        // to open
    bool disturbed = false;  // meanwhile, by others of its GPU
    absl::Time opened;
    absl::Time asked = absl::InfinitePast();  // to be evicted
  };
  static bool ComesOrGoes(const Entry& entry);
  // It comes or goes: those that are being opened on its GPU, and it, cannot be measured.
  void Disturb(Id id);
  // Nobody may open beside it, until then.
  absl::Time AloneUntil(const Entry& entry) const;
  // When to look for what is due at `due`. If that is past, the last look saw it already: it waits
  // for something else than time, and to look again at once would keep control busy.
  absl::Time LookFor(absl::Time due) const;
  // Whether `went` is what the entry took: see OnOpened.
  bool Believe(const Entry& entry, uint64_t went);
  // What each GPU's have, or will.
  absl::btree_map<GlobalDeviceId, uint64_t> Used() const;
  uint64_t bytes_per_device_;
  absl::Duration idle_;
  absl::btree_map<Id, Entry> entries_;
  Id next_ = 1;
  bool beyond_ = false;
  uint64_t expected_ = 0;  // bytes of the next one
  bool sure_ = false;      // one that nobody disturbed took as many
  uint64_t odd_ = 0;       // what went with the last one, if that was unlike expected_
  absl::Time looked_ = absl::InfinitePast();
  Counts counts_;
};

const char* CommStateName(CommState state);

}  // namespace ferry
