// SPDX-License-Identifier: Apache-2.0
#include "transfer/half_state.h"

#include <array>
#include <type_traits>

#include "base/check.h"

namespace ferry {
namespace {

using S = HalfState;
using Step = HalfState::Step;

template <typename State, size_t number = 0>
constexpr size_t NumberOf() {
  if constexpr (std::is_same_v<State, std::variant_alternative_t<number, S::Any>>) {
    return number;
  } else {
    return NumberOf<State, number + 1>();
  }
}

template <typename... States>
constexpr uint16_t From() {
  return static_cast<uint16_t>(((1u << NumberOf<States>()) | ...));
}

constexpr std::array kNames = {"waiting",       "offered",     "asking",    "matched",
                               "awaits firing", "handed over", "in groups", "launched",
                               "firing",        "armed",       "leaving"};
static_assert(kNames.size() == std::variant_size_v<S::Any>);

// A send begins most of them at a word of the destination, which may come in any state that its
// offer is out in: the word before may not be carried out yet.
constexpr std::array<S::Rule, 11> kRules = {{
    {Step::kOffer, "Offer", From<S::Waiting>(), NumberOf<S::Offered>()},
    {Step::kAsk, "Ask", From<S::Waiting>(), NumberOf<S::Asking>()},
    {Step::kMatch, "Match", From<S::Waiting, S::Offered, S::Armed>(), NumberOf<S::Matched>()},
    {Step::kTryAgain, "TryAgain", From<S::HandedOver, S::InGroups, S::Launched, S::Armed>(),
     NumberOf<S::Matched>()},
    {Step::kAwaitFiring, "AwaitFiring", From<S::Matched, S::Firing>(), NumberOf<S::AwaitsFiring>()},
    {Step::kHandOver, "HandOver", From<S::Offered, S::Matched>(), NumberOf<S::HandedOver>()},
    {Step::kEnterGroup, "EnterGroup", From<S::Offered, S::Matched, S::HandedOver, S::InGroups>(),
     NumberOf<S::InGroups>()},
    {Step::kLaunch, "Launch",
     From<S::Offered, S::Matched, S::HandedOver, S::InGroups, S::Launched>(),
     NumberOf<S::Launched>()},
    {Step::kFire, "Fire", From<S::AwaitsFiring, S::Armed>(), NumberOf<S::Firing>()},
    {Step::kArm, "Arm", From<S::Offered, S::Matched, S::AwaitsFiring, S::Armed>(),
     NumberOf<S::Armed>()},
    {Step::kLeave, "Leave",
     From<S::AwaitsFiring, S::InGroups, S::Launched, S::Firing, S::Armed, S::Leaving>(),
     NumberOf<S::Leaving>()},
}};

// What is launched and not prepared goes on, so its end is not asked for. (That its deadline has
// passed is said by the same message, but only for the destination to abort the launch.)
constexpr uint16_t kMayWithdraw =
    From<S::Offered, S::Matched, S::AwaitsFiring, S::HandedOver, S::Firing, S::Armed>();

}  // namespace

const char* HalfState::Name(size_t number) { return kNames[number]; }

absl::Span<const HalfState::Rule> HalfState::Rules() { return kRules; }

bool HalfState::May(Step step) const {
  return (kRules[static_cast<size_t>(step)].from & (1u << state_.index())) != 0;
}

void HalfState::CheckStep(Step step) const {
  static_assert(kFirstMatched == NumberOf<Matched>());
  static_assert(kFirstLaunched == NumberOf<InGroups>());
  FERRY_CHECK(May(step));
}

bool HalfState::MayWithdraw() const {
  return !withdrawn_ && (kMayWithdraw & (1u << state_.index())) != 0;
}

void HalfState::Withdraw() {
  FERRY_CHECK(MayWithdraw());
  withdrawn_ = true;
}

void HalfState::Begin(Step step) {
  switch (step) {
    case Step::kLaunch:
      return Launch();
    case Step::kFire:
      return Fire();
    case Step::kArm:
      return Arm();
    default:
      FERRY_CHECK(!"no launch");
  }
}

void HalfState::Leave(absl::Status outcome) {
  CheckStep(Step::kLeave);
  const Firing* const firing = As<Firing>();
  const Leaving* const leaving = As<Leaving>();
  const bool arrived =
      (firing != nullptr && firing->arrived) || (leaving != nullptr && leaving->arrived);
  state_ = Leaving{std::move(outcome), arrived};
}

absl::Status* HalfState::late_wish() {
  if (InGroups* const state = As<InGroups>()) return &state->late_wish;
  if (Launched* const state = As<Launched>()) return &state->late_wish;
  return nullptr;
}

absl::Status* HalfState::for_source() {
  if (Firing* const state = As<Firing>()) return &state->for_source;
  if (Armed* const state = As<Armed>()) return &state->for_source;
  return nullptr;
}

}  // namespace ferry
