// SPDX-License-Identifier: Apache-2.0
// HalfState is the state that a posted half is in, with the fields that have a meaning in that
// state only. Each way from a state to another one is a method here, which checks that it may be
// taken. The picture of the states is in docs/architecture.md, "States of a half";
// tests/transfer/half_state_test.cc holds the picture and the rules below together.
//
// A HalfState knows no messages, lanes and tables: TransferEngine says and orders what goes with a
// transition. What a peer may cause is asked first, by May: a peer's message that makes no sense is
// ignored, and never ends the daemon.
//
// One thing stands beside the state: whether a send to a peer has asked the destination to end it
// (Withdraw). The destination's words may cross that request, so a send that has asked may still be
// matched, launched and fired, by the same rules.
//
// Pure. Home: its owner's, which is the half's record (Posted, transfer/posted.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "transfer/peer_message.h"

namespace ferry {

class HalfState {
 public:
  // The transitions. What each one is stands with its method.
  enum class Step : uint8_t {
    kOffer,
    kAsk,
    kMatch,
    kTryAgain,
    kAwaitFiring,
    kHandOver,
    kEnterGroup,
    kLaunch,
    kFire,
    kArm,
    kLeave,
  };

  // --- Before the partner is known.

  // The half waits for its partner. A send to a peer has not been offered: there is no link.
  struct Waiting {};
  // A send to a peer: the offer is out.
  struct Offered {};
  // A receive from a peer, past its deadline: the source's daemon was asked what waits there in its
  // place (Seek). The receive ends when the answer comes, or after a time without it.
  struct Asking {
    NearTexts here;    // what waits at this daemon instead
    absl::Status why;  // how the receive ends; the answer is added to its text
  };

  // --- The partner is known, and nothing is under way.

  // The data of an end is not defined, or the destination chooses the route.
  struct Matched {};
  // Prepared, on a route that is fired by Go: the pair waits for the words of both ends.
  struct AwaitsFiring {};
  // Route nccl, not prepared: the leader of the clique has the half, and no group carries it yet.
  struct HandedOver {};

  // --- The bytes move, or may move at any time.

  // Route nccl, not prepared: groups have carried a part of the half, or carry one.
  struct InGroups {
    // A receive's: why an end wanted it to end when it was too late. The receive ends with it if
    // nothing was moved.
    absl::Status late_wish;
  };
  // Any other route, not prepared: the launch was ordered.
  struct Launched {
    absl::Status late_wish;  // as in InGroups
  };
  // Prepared, on a route that is fired by Go: one firing was launched.
  struct Firing {
    // A receive's that is disarmed: what the source is told.
    absl::Status for_source;
    // A send's: the destination has called the firing over, and our lane has not yet.
    bool arrived = false;
  };
  // Prepared, on any other route: the lanes fire by the words of the ends, until it is aborted.
  struct Armed {
    absl::Status for_source;  // as in Firing
  };

  // It is decided how the half ends, and a launch or a group still uses its memory.
  struct Leaving {
    absl::Status outcome;
    bool arrived = false;  // as in Firing: that firing is counted before the end
  };

  using Any = std::variant<Waiting, Offered, Asking, Matched, AwaitsFiring, HandedOver, InGroups,
                           Launched, Firing, Armed, Leaving>;

  // --- The transitions. Each fails a check if it is not among the rules.

  void Offer() { Take<Offered>(Step::kOffer); }
  void Ask(NearTexts here, absl::Status why) {
    Take<Asking>(Step::kAsk) = {std::move(here), std::move(why)};
  }
  void Match() { Take<Matched>(Step::kMatch); }
  // A receive, of which nothing was moved: another route is tried.
  void TryAgain() { Take<Matched>(Step::kTryAgain); }
  void AwaitFiring() { Take<AwaitsFiring>(Step::kAwaitFiring); }
  void HandOver() { Take<HandedOver>(Step::kHandOver); }
  // A group has a chunk of the half. The first one takes the half there; further ones change
  // nothing.
  void EnterGroup() {
    if (!Is<InGroups>()) Take<InGroups>(Step::kEnterGroup);
  }
  void Launch() { Take<Launched>(Step::kLaunch); }
  void Fire() { Take<Firing>(Step::kFire); }
  void Arm() { Take<Armed>(Step::kArm); }
  // Launches, fires or arms.
  void Begin(Step step);
  // Also of a half that leaves already: the last outcome counts.
  void Leave(absl::Status outcome);

  // --- Beside the state.

  // A send to a peer asks the destination to end it before it is launched, or, if it is prepared,
  // at any time: by Withdraw, of a convoy by Split with a status. Once, and for good: the answer is
  // Done, or Apart, which replaces the convoy. Fails a check unless MayWithdraw.
  void Withdraw();
  bool MayWithdraw() const;
  bool withdrawn() const { return withdrawn_; }

  // --- Questions.

  template <typename State>
  bool Is() const {
    return std::holds_alternative<State>(state_);
  }
  // Null in any other state.
  template <typename State>
  State* As() {
    return std::get_if<State>(&state_);
  }
  template <typename State>
  const State* As() const {
    return std::get_if<State>(&state_);
  }
  bool matched() const { return state_.index() >= kFirstMatched; }
  // In groups, launched, firing or armed. What leaves is not: ask for Leaving.
  bool launched() const { return state_.index() >= kFirstLaunched && state_.index() < kLeaving; }
  // Null unless it is in groups or launched.
  absl::Status* late_wish();
  // Null unless it fires or is armed.
  absl::Status* for_source();
  // The half has asked a peer how it ends, or how it ends is decided: no cancel, client's death or
  // deadline asks for its end again. It may still be launched, if it is withdrawn.
  bool is_ending() const { return withdrawn_ || Is<Asking>() || Is<Leaving>(); }
  // Of the state as it is, in the order of Any: for the flight recorder.
  size_t number() const { return state_.index(); }
  const char* name() const { return Name(state_.index()); }
  static const char* Name(size_t number);

  // --- The rules.

  struct Rule {
    Step step;
    const char* name;  // the method's
    uint16_t from;     // a bit for the number of each state that the step may begin in
    size_t to;         // the number of the state that it leads to
  };
  // By Step.
  static absl::Span<const Rule> Rules();
  bool May(Step step) const;

 private:
  static constexpr size_t kFirstMatched = 3;
  static constexpr size_t kFirstLaunched = 6;
  static constexpr size_t kLeaving = std::variant_size_v<Any> - 1;

  void CheckStep(Step step) const;
  template <typename State>
  State& Take(Step step) {
    CheckStep(step);
    return state_.emplace<State>();
  }

  Any state_;
  bool withdrawn_ = false;  // never before the send is offered; then until the half is over
};

}  // namespace ferry
