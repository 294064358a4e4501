// SPDX-License-Identifier: Apache-2.0
// CommBook keeps a CommRecord of this daemon's rank of each clique's communicator: orders its
// opening, knows how far that is, and begins and ends its closing. What becomes of the groups on a
// communicator that ends is the business of Cliques.
//
// Nobody waits on a lane for an opening: groups are cut once the leader's rank is open, which its
// warm-up with the follower's rank makes certain of both.
//
// An example. Devices 0 (node-a, so node-a leads) and 2 (node-b), attempt 3: GroupLeader says that
// the communicator is due, Open orders node-a's rank; its lane makes a unique id (OnId), OpenComm
// takes that to node-b, whose OnOpenComm orders the other rank; both warm up; OnOpened at either
// end says that theirs is open, and node-a's leader cuts the first group.
//
// Pure: time is an argument. Home: control (owned by Cliques).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/clique_context.h"
#include "transfer/clique/comm_record.h"
#include "transfer/clique/group_leader.h"

namespace ferry {

class CommBook {
 public:
  CommBook(const CliqueContext& context, GroupLeader& leader)
      : context_(context), leader_(leader) {}

  // Null if the clique has had no pair since its link came up.
  CommRecord* Find(const Clique& clique);
  const CommRecord* Find(const Clique& clique) const;
  CommRecord& Of(const Clique& clique) {
    home_.Check();
    return comms_[clique];
  }  // made if there is none
  const absl::btree_map<Clique, CommRecord>& all() const { return comms_; }

  // --- Opening.

  // At the leader: orders our rank of this attempt to be opened.
  void Open(const Clique& clique, uint32_t attempt);
  // At the leader: our lane has made the attempt's id, which the follower needs.
  void OnId(const Clique& clique, uint32_t attempt, std::string unique_id);
  // False for a message that makes no sense.
  bool OnOpenComm(PeerId peer, OpenComm message);
  bool OnWarmComm(PeerId peer, const WarmComm& message);
  void OnOpened(const Clique& clique, uint32_t attempt);
  // Has the communicator opened, though nothing waits for it. INVALID_ARGUMENT/DEVICE_UNKNOWN: the
  // clique is not one of a device of ours and a peer's. FAILED_PRECONDITION/ROUTE_UNAVAILABLE.
  absl::Status Warm(const Clique& clique);
  // A transfer would have been `missed` faster on an open communicator. When such times add up to
  // CommRecord::worth_opening, the communicator is opened.
  void Miss(const Clique& clique, absl::Duration missed);
  // An attempt that we lead and that did not open in time; each once.
  std::optional<std::pair<Clique, uint32_t>> TakeLate();
  // When TakeLate will have something: Unix nanoseconds, Deadlines::kNever if nothing opens.
  int64_t NextTimer() const;
  // ROUTE_UNAVAILABLE: why this attempt could not be opened.
  static absl::Status NotOpened(const Clique& clique, uint32_t attempt, absl::string_view why);

  // --- Ending.

  void StopTimer(const Clique& clique, CommRecord& comm);
  // The attempt shall be closed when no group is on it. False if it is not in use here, or is
  // closing already.
  bool BeginClose(const Clique& clique, uint32_t attempt);
  static bool IsClosing(const CommRecord& comm, uint32_t attempt);
  // False if the attempt was not closing.
  static bool EndClose(CommRecord& comm, uint32_t attempt);
  // Orders what is left of the attempt to be ended here: closed if `status` is OK, else aborted.
  void End(const Clique& clique, uint32_t attempt, const absl::Status& status);
  // The link to the peer is lost: the communicators of cliques with its devices end with `lost`.
  void Forget(PeerId peer, const absl::Status& lost);

 private:
  const CliqueContext& context_;
  GroupLeader& leader_;
  absl::btree_map<Clique, CommRecord> comms_;
  absl::btree_set<std::pair<int64_t, Clique>> timers_;  // of those that we lead and that open
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
