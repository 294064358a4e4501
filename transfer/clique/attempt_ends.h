// SPDX-License-Identifier: Apache-2.0
// AttemptEnds ends attempts of communicators, and with them the groups that are on them: because a
// group has failed or hangs, because the communicator has failed or does not open in time, or
// because it is to be closed. The leader of a clique decides when an attempt ends; its follower
// says what it sees, and waits for the leader's word.
//
// An attempt ends in one of two ways. Aborted: its launched groups end with the reason when their
// lanes answer, and the groups without a launch go back at once (Hooks::drop_group). Closed: the
// leader closes it only when it is idle, and the follower when no group there is on it any more.
//
// An example. Device 0 is node-a's, device 2 node-b's, so node-a leads. Group 6 of attempt 1 fails
// at node-b: Fail says GroupFailed{1, 6} to node-a and ends nothing yet. node-a's OnGroupFailed
// says AttemptOver{1, 6} and aborts attempt 1: its lane is told to end the communicator, group 6
// ends with node-b's status, and the groups beside it with COMM_ABORTED. node-b does the same when
// it hears AttemptOver. What waits goes on attempt 2.
//
// A group that is late at the follower is said to be so at each further deadline: the leader waits
// while its own half runs, and forgets the group if that ends well.
//
// Refused are messages of a peer that is not the other end of the clique, or not in the role that
// the message is of, and words on an attempt that is not in use and not closing.
//
// It owns nothing: GroupLeader has the attempts that we lead, CommBook our rank of each, GroupBook
// the groups. Cliques calls it for a group that fails and for what has run out; TransferEngine
// calls it for messages, lanes, operators and time.
//
// Pure: time is an argument. Home: control. Owner: Cliques.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/clique/clique_context.h"
#include "transfer/clique/comm_book.h"
#include "transfer/clique/group.h"
#include "transfer/clique/group_book.h"
#include "transfer/clique/group_leader.h"
#include "transfer/clique/group_record.h"
#include "transfer/peer_message.h"

namespace ferry {

class AttemptEnds {
 public:
  struct Hooks {
    // A group without a launch is over for this reason: it leaves the book, and its loads are told.
    std::function<void(uint64_t group, const absl::Status& why)> drop_group;
    // The clique's communicator cannot be had. What waits for it shall not wait for the next
    // attempt.
    std::function<void(const Clique& clique, const absl::Status& why)> unavailable;
  };
  AttemptEnds(const CliqueContext& context, GroupLeader& leader, CommBook& comms, GroupBook& groups,
              Hooks hooks)
      : context_(context),
        leader_(leader),
        comms_(comms),
        groups_(groups),
        hooks_(std::move(hooks)) {}
  AttemptEnds(const AttemptEnds&) = delete;
  AttemptEnds& operator=(const AttemptEnds&) = delete;

  // Ends the attempt of one group or opening that takes too long. False: none does.
  bool OnTime();

  // --- An attempt has failed.

  // A group failed here, or with number 0 the communicator: its attempt shall end at both ends.
  void Fail(const Clique& clique, uint32_t attempt, uint64_t number, const absl::Status& status);
  // The communicator could not be opened, or has failed since. An attempt that is neither in use
  // nor closing is ignored.
  void OnCommunicatorFailed(const Clique& clique, uint32_t attempt, const absl::Status& status);

  // --- An attempt is to be closed.

  // Has the clique's communicator closed if it is idle. `busy`: a communicator in use is closed
  // too, when its groups are over.
  void EvictCommunicator(const Clique& clique, bool busy);
  // At the leader: nothing is on the attempt, which has run out.
  void CloseIdle(const Clique& clique, uint32_t attempt);
  // At a follower: closes those communicators of the clique that are to be closed and that no group
  // uses.
  void CloseQuiet(const Clique& clique);

  // --- From peers. Each is false for a message that makes no sense.

  bool OnGroupFailed(PeerId peer, const GroupFailed& message);
  bool OnAttemptOver(PeerId peer, const AttemptOver& message);
  bool OnEvict(PeerId peer, const Evict& message);

 private:
  void OnLate(GroupRecord& group);
  // What an attempt's end does here, whoever has ended it.
  void Abort(const Clique& clique, uint32_t attempt, uint64_t number, const absl::Status& status);

  const CliqueContext& context_;
  GroupLeader& leader_;
  CommBook& comms_;
  GroupBook& groups_;
  const Hooks hooks_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
