// SPDX-License-Identifier: Apache-2.0
// Posted is what TransferEngine keeps of a half that was posted here, or of a convoy of halves. A
// plain record: who owns it, and which lists it is in, says transfer/half_book.h. Home: control.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/clique/load.h"
#include "transfer/deadlines.h"
#include "transfer/half_state.h"
#include "transfer/offer_book.h"
#include "transfer/outbox.h"
#include "transfer/placed_list.h"
#include "transfer/route_estimate.h"

namespace ferry {

// The extra fields of a half that is a convoy.
struct Convoy {
  std::vector<TransferSpec> members;
  bool noticed = false;  // NoticeOld has passed the convoy
  bool split = false;    // of a send to a peer: Split was sent
  // Cancels that wait, each with its member, or with no id if it is of all members. They are
  // carried out when the convoy is apart. If it is matched instead, they count when all members are
  // cancelled.
  std::vector<std::pair<TransferId, absl::Status>> cancels;
};

// The launch of a half at a lane of this daemon, until the lane has answered.
struct LaneLaunch {
  LaunchRole role = LaunchRole::kCopy;
  bool aborted = false;  // the abort was ordered; it is ordered once
};

// The firings of a prepared half on a route that is fired by Go. On other routes the lanes fire,
// and all stays as it is here.
struct GoFirings {
  uint64_t over = 0;  // firings that were counted to the client
  // True: this end's word has reached `over` + 1. Set in any state; read when the firing begins.
  bool wanted = false;
};

// A half posted here, or a convoy of halves: then `id` is that of the first half, and `spec` is
// what MakeConvoy made of all. Where the half is in its life says `state` alone.
struct Posted {
  ListPosition<Posted> position;             // among all halves
  ListPosition<Posted> position_in_session;  // among the halves of its session
  TransferId id;
  absl::Time posted;
  TransferSpec spec;
  PeerId peer;         // who owns the other end; ourselves for a pair within this daemon
  TransferId partner;  // once matched: the source's id, or our own receive's
  // A receive's, once matched with a peer's send; null again if the offer was lost with its link.
  Offered* offered = nullptr;
  HalfState state;
  // The last route that the half was launched by, or the one that its firings are to be launched
  // by; kUnspecified before.
  Route route = Route::kUnspecified;
  // Of a receive: the routes that the destination tries no more, a bit each (RouteBit). None is
  // taken out again.
  uint8_t tried = 0;
  // The number of the last launch at a lane that the half was to have; 0: none. Both ends give a
  // launch the same number. It only grows: an answer or a Go of an older launch is ignored.
  uint32_t attempt = 0;

  // The tables that the half is in, beside its HalfBook. Each field is set exactly while the half
  // is there, so that ending the half leaves nothing behind.
  bool in_matcher = false;                 // TransferMatcher
  bool searchable = false;                 // NearMisses
  bool timed = false;                      // the deadlines
  bool watched = false;                    // OnDefined is to come, by a watched word or a call
  int64_t look_nanos = Deadlines::kNever;  // the looks: when somebody looks whether it waits long
  // Of a receive that is launched, or handed over to groups: the estimate that waits to be told how
  // that went.
  RouteEstimate* estimate = nullptr;
  uint64_t bundle = 0;  // BundleBook: the number of a prepared half's bundle on nccl; 0: none
  uint32_t slot = 0;    // PreparedSlots: a prepared send's slot of the link page; 0: none

  // The deadline has passed, whatever the state was: EarlyEnds has begun to end the half by it.
  // From then on no lane launches the half. Invariant: `why` of a late send to a peer is not OK.
  bool late = false;
  // The first reason for which this daemon asked to end the half. When the peer's Done repeats that
  // reason, the client is told this status. Of a send to a peer: what the first Withdraw, Split or
  // abort has said; of a receive: why its present launch was aborted. OK: no end was asked for.
  absl::Status why;

  // Set exactly while a lane of ours has yet to answer the last launch of the half. A lane answers
  // late, so the state may be past that launch: what leaves waits for the answer, and a send may be
  // matched anew meanwhile.
  std::optional<LaneLaunch> at_lane;
  // Of a send: what to launch when the lane, or the last group, has answered. Null unless the send
  // is under way.
  std::unique_ptr<Go> next_go;
  // Route nccl, not prepared: what groups carry of the half, from when it was first handed over, or
  // named by a group of the leader, to its end.
  std::unique_ptr<Load> load;

  TransferId batch;         // the id of the first transfer of the batch that it was posted in
  uint32_t batch_size = 0;  // transfers
  GoFirings firings;

  std::unique_ptr<Convoy> convoy;  // null of a single half

  uint32_t count() const { return spec.key.count; }
  // The leader of the half's clique was given the half, and has bytes of it that are in no group
  // yet: while the half is handed over, and as long as groups have carried only a part of it.
  bool waits_for_group() const { return load != nullptr && load->handed; }
  bool pinned() const { return load != nullptr && load->pinned(); }
  bool aborted() const { return at_lane.has_value() && at_lane->aborted; }
  bool armed_or_fires() const { return spec.prepared && state.matched(); }
  // By which step a launch by `by` begins, other than in groups.
  HalfState::Step launch_step(Route by) const {
    if (!spec.prepared) return HalfState::Step::kLaunch;
    return FiredByGo(by) ? HalfState::Step::kFire : HalfState::Step::kArm;
  }
  // A launch of ours, or a group with a chunk of it, is not over.
  bool under_way() const { return at_lane.has_value() || pinned(); }
};

// "the send of key 'k' from device 0 to device 2".
std::string NameOf(const Posted& half);
// " within 2 s": the time that the half had when it was posted.
std::string WithinText(const Posted& half);
// DEADLINE_EXCEEDED/EXECUTING: the deadline of a half has passed that is launched.
absl::Status ExecutingStatus(const Posted& half);

}  // namespace ferry
