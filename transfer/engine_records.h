// SPDX-License-Identifier: Apache-2.0
// What TransferEngine keeps of each transfer: plain records, private to
// engine*.cc. Who owns them and what holds between them: transfer/engine_state.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/clique/load.h"
#include "transfer/deadlines.h"
#include "transfer/engine.h"
#include "transfer/half_state.h"
#include "transfer/offer_book.h"
#include "transfer/placed_list.h"

namespace ferry {

// What a half that is a convoy has besides.
struct Convoy {
  std::vector<TransferSpec> members;
  bool noticed = false;  // NoticeOld has passed the convoy
  bool split = false;    // of a send to a peer: Split was sent
  // The members that are cancelled once the convoy is apart, or matched and all of them are
  // cancelled, and why; no id: all of them.
  std::vector<std::pair<TransferId, absl::Status>> cancels;
};

// A half posted here, or a convoy of halves: then `id` is that of the first half, and `spec` is
// what MakeConvoy made of all.
struct Posted {
  ListPlace<Posted> place;             // among all
  ListPlace<Posted> place_of_session;  // among its session's
  TransferId id;
  absl::Time posted;
  TransferSpec spec;
  PeerId peer;         // who owns the other end; ourselves for a pair within this daemon
  TransferId partner;  // the other half, once matched: the source's id, or our own receive's
  // A receive's, once matched with a peer's send; null again if that was lost with its link.
  Offered* offered = nullptr;
  // A send that the peer copies stays offered or matched.
  HalfState state;
  uint32_t attempt = 0;
  Route route = Route::kUnspecified;
  LaunchRole role = LaunchRole::kCopy;
  uint8_t tried = 0;  // routes launched, a bit each
  bool in_matcher = false;
  bool searchable = false;  // is in the near misses
  bool timed = false;       // has an entry in the deadlines
  bool watched = false;
  bool outstanding = false;  // a launch of ours was not answered yet
  bool aborted = false;      // and is being aborted
  bool withdrawn = false;    // a send: Withdraw is out, and the destination's Done has not come
  bool late = false;         // its deadline has passed
  // Why a launch was aborted, or a send withdrawn.
  absl::Status why;
  std::unique_ptr<Go> next_go;  // came while the launch before was not answered
  // Prepared: the batch it was posted in, and a send's slot of the link page (0: none).
  TransferId batch;
  uint32_t batch_size = 0;
  uint32_t slot = 0;
  // On a route that is fired by Go: firings that are over, and whether our word allows the next
  // one.
  uint64_t firings = 0;
  bool wanted = false;
  // Route nccl, not prepared: what groups carry of the half, once it was handed over to them.
  std::unique_ptr<Load> load;
  RouteEstimate* estimate = nullptr;       // a receive's, which waits to be told how it went
  int64_t look_nanos = Deadlines::kNever;  // when it is looked at: see engine_near.cc
  uint64_t bundle = 0;                     // prepared, on nccl: which it is in
  std::unique_ptr<Convoy> convoy;

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

// The source's half of a pair as the destination sees it, wherever it was posted.
struct SourceHalf {
  const Layout* layout;
  uint64_t bytes;
  DataType data_type;
  const Shape* shape;
  Route route;
  int32_t priority;
  bool ready;
  bool prepared;
  uint32_t slot;
};

// Of memory: what needs no staging.
inline bool InOnePiece(const Layout& layout) {
  return layout.blocks() == nullptr && layout.extents().size() == 1;
}

}  // namespace ferry
