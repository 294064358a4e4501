// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/early_ends.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {
namespace {

// How long a receive waits for the answer to its Seek.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(100);

}  // namespace

bool EarlyEnds::EndIfDeserted(Posted& half) {
  home_.Check();
  if (!half.in_matcher || half.state.is_ending()) return false;
  absl::Status why = members_.WhyInVain(half);
  if (why.ok()) return false;
  CancelHalf(half, std::move(why));
  return true;
}

void EarlyEnds::SweepDeserted(size_t most) {
  if (members_.TakeSweep(books_.halves.swept() != nullptr)) books_.halves.BeginSweep();
  while (most > 0 && books_.halves.swept() != nullptr) {
    most -= std::min<size_t>(most, books_.halves.swept()->count());
    EndIfDeserted(books_.halves.PassSwept());
  }
}

bool EarlyEnds::TellOfTombstone(Posted& half, const HashedKey& key) {
  home_.Check();
  const bool send = half.spec.side == Side::kSend;
  const auto tombstone = books_.tombstones.Take(context_.now, half.spec.side, key);
  if (!tombstone) return false;
  absl::Status why = Annotate(EndOf(*tombstone),
                              context_.PlaceOf(send ? Side::kReceive : Side::kSend, half.spec.key));
  const Peer& peer = context_.PeerOf(half.peer);
  if (context_.Ours(half) || !peer.up) {
    ends_.End(half, std::move(why));
    return true;
  }
  books_.tables.TellLater(half.id, std::move(why));
  context_.Send(half.peer, Seek{half.id, half.spec.key});
  return false;
}

absl::Status EarlyEnds::EndOf(const Tombstones::Tombstone& tombstone) const {
  home_.Check();
  const absl::Duration ago = absl::Trunc(context_.now - tombstone.ended, absl::Milliseconds(1));
  const bool send = tombstone.side == Side::kSend;
  const std::string how_long =
      ago > absl::ZeroDuration() ? absl::StrCat(DurationText(ago), " ") : "";
  return WithText(
      tombstone.why,
      absl::StrCat(tombstone.why.message(), "; that ", send ? "send" : "receive", " ended ",
                   how_long, "before this ", send ? "receive" : "send", " was posted"));
}

void EarlyEnds::CancelHalf(Posted& half, absl::Status why) {
  home_.Check();
  if (half.state.is_ending()) return;
  if (half.count() > 1 && !half.state.matched()) {
    return convoys_.SplitUp(half, TransferId(), std::move(why));
  }
  const bool send = half.spec.side == Side::kSend;
  if (half.state.launched() && half.spec.prepared && (!send || context_.Ours(half))) {
    if (!send) return launches_.Disarm(half, why, ends_.ForOther(half, why));
    return launches_.Disarm(*books_.halves.Find(half.partner), ends_.ForOther(half, why), why);
  }
  if (half.state.launched() && !half.spec.prepared) {
    Posted* receive = !send                 ? &half
                      : context_.Ours(half) ? books_.halves.Find(half.partner)
                                            : nullptr;
    if (receive != nullptr) destination_.WishedTooLate(*receive, std::move(why));
    return;
  }
  FlightRecorder::Get().Record("cancel", half.id, half.peer.value(),
                               static_cast<uint64_t>(why.code()));
  if (WaitsHere(half)) {
    LeaveTombstone(half, why);
    return ends_.End(half, std::move(why));
  }
  EndBeforeLaunch(half, std::move(why));
}

bool EarlyEnds::WaitsHere(const Posted& half) const {
  return !half.state.matched() && (half.spec.side == Side::kReceive || context_.Ours(half));
}

void EarlyEnds::LeaveTombstone(Posted& half, const absl::Status& why) {
  books_.tables.LeaveMatcher(half);
  books_.tombstones.Leave(context_.now, half.peer, half.spec.side, half.spec.key, why);
}

void EarlyEnds::EndBeforeLaunch(Posted& half, absl::Status why) {
  absl::Status for_other = ends_.ForOther(half, why);
  if (half.spec.side == Side::kReceive)
    return ends_.EndPair(half, std::move(why), std::move(for_other));
  if (context_.Ours(half))
    return ends_.EndPair(*books_.halves.Find(half.partner), std::move(for_other), std::move(why));
  if (half.state.Is<HalfState::Waiting>()) return ends_.End(half, std::move(why));
  books_.tables.StopWatching(half);
  half.state.Withdraw();
  source_.SendWithdraw(half, std::move(why));
}

void EarlyEnds::EndSession(SessionId session, absl::string_view why) {
  home_.Check();
  members_.LeaveAll(session);
  if (books_.halves.EndLater(session, why)) EndSome(books_.options.ends_at_once);
}

void EarlyEnds::EndSome(size_t most) {
  for (Posted* half = books_.halves.ToEnd(); half != nullptr && most > 0;
       half = books_.halves.ToEnd()) {
    most -= std::min<size_t>(most, half->count());
    books_.halves.PassToEnd();
    const bool send = half->spec.side == Side::kSend;
    const bool poisoned = send && !half->spec.defined;
    CancelHalf(*half, Error(absl::StatusCode::kAborted,
                            poisoned ? Reason::kPoisoned : Reason::kPeerClientGone,
                            absl::StrCat(NameOf(*half), ": the ", send ? "sending" : "receiving",
                                         poisoned ? " client died before it defined the data: "
                                                  : " client is gone: ",
                                         books_.halves.why_to_end())));
  }
}

void EarlyEnds::OnTime(absl::Time now) {
  home_.Check();
  const size_t most = books_.options.ends_at_once;
  EndSome(most);
  books_.long_waits.NoticeOld(most);
  OnLooks(most);
  books_.tombstones.Expire(now, most);
  SweepDeserted(most);
  const int64_t nanos = absl::ToUnixNanos(now);
  for (size_t left = most; left > 0; --left) {
    const std::optional<Due> due = books_.tables.TakeDue(nanos);
    if (!due) return;
    Posted* half = due->peer == context_.devices.self ? books_.halves.Find(due->transfer) : nullptr;
    if (half != nullptr) {
      left -= std::min<size_t>(left - 1, half->count() - 1);
      half->timed = false;
      OnDeadline(*half);
      continue;
    }
    Offered* offered = books_.offers.Find(due->peer, due->transfer);
    FERRY_CHECK(offered != nullptr);
    offered->timed = false;
    OnDeadline(*offered);
  }
}

absl::Time EarlyEnds::NextTime() const {
  home_.Check();
  if (books_.halves.ends_sessions()) return absl::InfinitePast();
  const int64_t nanos = std::min(books_.tables.first_due(), books_.long_waits.next_look());
  return std::min({nanos == Deadlines::kNever ? absl::InfiniteFuture() : absl::FromUnixNanos(nanos),
                   books_.long_waits.NextNotice(), books_.tombstones.NextExpiry(), NextSweep()});
}

absl::Time EarlyEnds::NextSweep() const {
  return books_.halves.swept() != nullptr ? absl::InfinitePast() : members_.NextSweep();
}

void EarlyEnds::OnDeadline(Offered& offered) {
  context_.Send(offered.peer,
                Done{offered.offer.transfer,
                     Error(absl::StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer,
                           absl::StrCat("offer of ", Describe(offered.offer.key),
                                        ": the receive was not posted in time")),
                     Route::kUnspecified});
  books_.tables.Erase(offered);
}

void EarlyEnds::OnDeadline(Posted& half) {
  if (half.state.Is<HalfState::Leaving>()) return;
  half.late = true;
  FlightRecorder::Get().Record("deadline", half.id, half.peer.value(), half.state.number());
  if (half.state.launched()) return OnDeadlineInLaunch(half);
  if (half.state.is_ending()) return;
  if (half.count() > 1 && !half.state.matched()) {
    half.why = DeadlineStatus(half);  // should it be matched before it is apart
    return convoys_.SplitUp(half);    // its members are due at once
  }
  absl::Status status = DeadlineStatus(half);
  if (WaitsHere(half) && HasReason(status, Reason::kWaitingForPeer)) {
    return EndAlone(half, std::move(status));
  }
  EndBeforeLaunch(half, std::move(status));
}

void EarlyEnds::OnDeadlineInLaunch(Posted& half) {
  absl::Status executing = ExecutingStatus(half);
  if (half.at_lane && half.at_lane->role != LaunchRole::kCopy) {
    launches_.Abort(half, std::move(executing));
  } else if (half.spec.side == Side::kSend) {  // in groups; or the destination's launch hangs
    if (!context_.Ours(half)) source_.SendWithdraw(half, std::move(executing));
  } else if (half.state.Is<HalfState::InGroups>()) {
    destination_.DropRest(half, std::move(executing));
  } else {
    destination_.WishedTooLate(half, std::move(executing));
  }
}

void EarlyEnds::EndAlone(Posted& half, absl::Status why) {
  LeaveTombstone(half, why);
  books_.long_waits.Remember(half.spec.side, half.spec.key);
  const bool send = half.spec.side == Side::kSend;
  std::optional<NearTexts> ours =
      books_.long_waits.Look(send ? Side::kReceive : Side::kSend, half.spec.key);
  if (!ours || context_.Ours(half)) {
    return ends_.End(half, books_.long_waits.WithNear(half, why, std::move(ours), std::nullopt));
  }
  books_.tables.StopWatching(half);
  half.state.Ask(*std::move(ours), std::move(why));
  books_.long_waits.SetLook(half, context_.now + kAnswerTime);
  context_.Send(half.peer, Seek{half.id, half.spec.key});
}

void EarlyEnds::EndAsked(Posted& receive, std::optional<NearTexts> theirs) {
  home_.Check();
  HalfState::Asking& asking = *receive.state.As<HalfState::Asking>();
  ends_.End(receive, books_.long_waits.WithNear(receive, asking.why, std::move(asking.here),
                                                std::move(theirs)));
}

bool EarlyEnds::OnSought(PeerId peer, Sought sought) {
  home_.Check();
  Posted* const half = books_.halves.Find(sought.transfer);
  if (half == nullptr || half->spec.side != Side::kReceive || half->peer != peer) return false;
  if (std::optional<absl::Status> told = books_.tables.TakeToTell(half->id)) {
    ends_.End(*half, *std::move(told));
    return true;
  }
  if (!half->state.Is<HalfState::Asking>()) return false;
  EndAsked(*half, std::move(sought.near));
  return true;
}

void EarlyEnds::OnLooks(size_t most) {
  for (; most > 0; --most) {
    Posted* const half = books_.long_waits.TakeLook();
    if (half == nullptr) return;
    if (half->state.Is<HalfState::Asking>()) {  // the answer has not come
      EndAsked(*half, std::nullopt);
    } else if (books_.long_waits.HasWaitedLong(*half)) {
      context_.out.long_waits.push_back(half->id);
    }
  }
}

absl::Status EarlyEnds::DeadlineStatus(const Posted& half) const {
  const bool send = half.spec.side == Side::kSend;
  const Peer& peer = context_.PeerOf(half.peer);
  if (!context_.Ours(half) && !peer.up) {
    return Error(
        absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
        absl::StrCat(NameOf(half), ": no link to ", context_.NodeName(half.peer), WithinText(half),
                     ": ", absl::string_view(peer.last_error.message())));
  }
  const Side other = send ? Side::kReceive : Side::kSend;
  std::string cause;
  if (!half.state.matched()) {
    cause =
        absl::StrCat(context_.PlaceOf(other, half.spec.key), " was not posted", WithinText(half));
    if (!half.spec.defined) absl::StrAppend(&cause, ", and its own data was not defined");
  } else if (half.waits_for_group()) {
    cause = absl::StrCat("no group took it", WithinText(half));
  } else if (!half.spec.defined) {
    cause = absl::StrCat("data was not defined", WithinText(half));
  } else {
    cause = absl::StrCat("the data of ", context_.PlaceOf(other, half.spec.key), " was not defined",
                         WithinText(half));
  }
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer,
               absl::StrCat(NameOf(half), ": ", cause));
}

void EarlyEnds::EndBatches() {
  home_.Check();
  while (const std::optional<HalfEnds::EndedBatch> batch = ends_.TakeEndedBatch()) {
    for (uint32_t i = 0; i < batch->size; ++i) {
      Posted* half = books_.halves.Find(TransferId(batch->first.value() + i));
      if (half != nullptr) CancelHalf(*half, batch->why);
    }
  }
}

}  // namespace ferry
