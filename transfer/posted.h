// SPDX-License-Identifier: Apache-2.0
// Posted is what TransferEngine keeps of a half that was posted here, or of a convoy of halves. A
// plain record: who owns it, and which lists it is in, says transfer/half_book.h. Home: control.
#pragma once

#include <cstdint>
#include <memory>
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

// What a half that is a convoy has besides.
struct Convoy {
  std::vector<TransferSpec> members;
  bool noticed = false;  // NoticeOld has passed the convoy
  bool split = false;    // of a send to a peer: Split was sent
  // Cancels that wait, each with its member, or with no id if it is of all members. They are
  // carried out when the convoy is apart. If it is matched instead, they count when all members are
  // cancelled.
  std::vector<std::pair<TransferId, absl::Status>> cancels;
};

// A half posted here, or a convoy of halves: then `id` is that of the first half, and `spec` is
// what MakeConvoy made of all.
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
  Route route = Route::kUnspecified;  // the last one that the half was launched by
  uint8_t tried = 0;                  // the routes that the half was launched by, a bit each

  // The tables that the half is in, beside its HalfBook. Each flag is true exactly while the half
  // is there, so that ending the half leaves nothing behind.
  bool in_matcher = false;                 // TransferMatcher
  bool searchable = false;                 // NearMisses
  bool timed = false;                      // the deadlines
  bool watched = false;                    // its daemon watches the half's 'defined' word
  int64_t look_nanos = Deadlines::kNever;  // the looks: when somebody looks whether it waits long
  RouteEstimate* estimate = nullptr;       // of a receive: the estimate that is told how it went
  uint64_t bundle = 0;                     // prepared, on nccl: the bundle's number; 0: none

  bool late = false;  // its deadline has passed
  // Of a send: Withdraw (of a convoy: Split) is out, and the destination has not answered by Done.
  bool withdrawn = false;
  absl::Status why;  // why a launch was aborted, or a send withdrawn

  // The last launch at a lane of ours, if it was not by groups.
  uint32_t attempt = 0;
  LaunchRole role = LaunchRole::kCopy;
  bool outstanding = false;     // the lane has not answered it
  bool aborted = false;         // outstanding, and its abort was ordered
  std::unique_ptr<Go> next_go;  // of a send: what to launch when the lane has answered
  // Route nccl, not prepared: what groups carry of the half, once it was handed over to them.
  std::unique_ptr<Load> load;

  TransferId batch;         // the id of the first transfer of the batch that it was posted in
  uint32_t batch_size = 0;  // transfers
  // A prepared send's slot of the link page; 0: none.
  uint32_t slot = 0;
  // On a route that is fired by Go: firings that are over, and whether our word allows the next
  // one.
  uint64_t firings = 0;
  bool wanted = false;

  std::unique_ptr<Convoy> convoy;  // null of a single half

  uint32_t count() const { return spec.key.count; }
  bool handed() const { return load != nullptr && load->handed; }
  bool pinned() const { return load != nullptr && load->pinned(); }
  // It has asked a peer how it ends, or it is decided already.
  bool is_ending() const {
    return withdrawn || state.Is<HalfState::Asking>() || state.Is<HalfState::Leaving>();
  }
  bool armed_or_fires() const { return spec.prepared && state.matched(); }
  // By which step a launch by `by` begins, other than in groups.
  HalfState::Step launch_step(Route by) const {
    if (!spec.prepared) return HalfState::Step::kLaunch;
    return FiredByGo(by) ? HalfState::Step::kFire : HalfState::Step::kArm;
  }
  // A launch of ours, or a group with a chunk of it, is not over.
  bool under_way() const { return outstanding || pinned(); }
};

// "the send of key 'k' from device 0 to device 2".
std::string NameOf(const Posted& half);
// " within 2 s": the time that the half had when it was posted.
std::string WithinText(const Posted& half);
// DEADLINE_EXCEEDED/EXECUTING: the deadline of a half has passed that is launched.
absl::Status ExecutingStatus(const Posted& half);

}  // namespace ferry
