// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/half_tables.h"

#include <utility>

#include "absl/time/time.h"

namespace ferry {

void HalfTables::SetTimer(Posted& half) {
  home_.Check();
  const int64_t nanos = absl::ToUnixNanos(half.spec.deadline);
  if (nanos == Deadlines::kNever) return;
  half.timed = true;
  deadlines_.Add({nanos, context_.devices.self, half.id});
}

void HalfTables::SetTimer(Offered& offered) {
  home_.Check();
  if (offered.deadline_nanos == Deadlines::kNever) return;
  offered.timed = true;
  deadlines_.Add({offered.deadline_nanos, offered.peer, offered.offer.transfer});
}

void HalfTables::StopTimer(Posted& half) {
  home_.Check();
  if (!half.timed) return;
  half.timed = false;
  deadlines_.Remove({absl::ToUnixNanos(half.spec.deadline), context_.devices.self, half.id});
}

void HalfTables::StopTimer(Offered& offered) {
  home_.Check();
  if (!offered.timed) return;
  offered.timed = false;
  deadlines_.Remove({offered.deadline_nanos, offered.peer, offered.offer.transfer});
}

void HalfTables::LeaveMatcher(Posted& half) {
  home_.Check();
  if (!half.in_matcher) return;
  matcher_.Remove(half.spec.key, {half.spec.side, context_.devices.self, half.id});
  OnMatcherLeft(half);
}

void HalfTables::OnMatcherLeft(Posted& half) {
  home_.Check();
  half.in_matcher = false;
  if (!to_tell_.empty()) to_tell_.erase(half.id);
  long_waits_.OnMatcherLeft(half);
}

void HalfTables::StopWatching(Posted& half) {
  home_.Check();
  if (!half.watched) return;
  half.watched = false;
  context_.out.unwatch.push_back(half.id);
}

void HalfTables::ForgetWaiting(Offered& offered) {
  home_.Check();
  offers_.WaitNoMore(context_.now, offered);
  long_waits_.OnMatcherLeft(offered);
}

void HalfTables::Erase(Offered& offered) {
  home_.Check();
  if (offered.in_matcher) {
    matcher_.Remove(offered.offer.key, {Side::kSend, offered.peer, offered.offer.transfer});
    ForgetWaiting(offered);
  }
  StopTimer(offered);
  offers_.Erase(context_.now, offered);
}

void HalfTables::WatchDefined(Posted& half) {
  home_.Check();
  const TransferSpec& spec = half.spec;
  half.watched = true;
  if (spec.defined_value == 0) return;
  context_.out.watches.push_back({half.id,
                                  spec.side == Side::kSend ? spec.key.source : spec.key.destination,
                                  spec.defined_timeline, spec.defined_value});
}

void HalfTables::WatchFiring(Posted& half) {
  home_.Check();
  const TransferSpec& spec = half.spec;
  half.watched = true;
  context_.out.watches.push_back({half.id,
                                  spec.side == Side::kSend ? spec.key.source : spec.key.destination,
                                  spec.over_timeline, half.firings.over + 1, true});
}

std::optional<absl::Status> HalfTables::TakeToTell(TransferId receive) {
  home_.Check();
  auto told = to_tell_.extract(receive);
  if (told.empty()) return std::nullopt;
  return std::move(told.mapped());
}

}  // namespace ferry
