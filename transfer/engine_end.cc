// SPDX-License-Identifier: Apache-2.0
// What ends a transfer early: cancel, a client's death, a deadline. Before the launch they end it,
// on both sides if it is matched; afterwards only a deadline does, by aborting a launch that can be
// aborted.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

// How long a receive waits for the answer to its Seek.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(100);

}  // namespace

absl::Status TransferEngine::Impl::ForOther(const Posted& half, const absl::Status& why) const {
  return context.Ours(half) ? Annotate(why, context.PlaceOf(half.spec.side, half.spec.key)) : why;
}

void TransferEngine::Impl::LeaveTombstone(Side side, PeerId peer, const MatchKey& key,
                                          const absl::Status& why) {
  // Who receives is started again more often than it is missed: it is waited for.
  if (side == Side::kReceive && HasReason(why, Reason::kPeerClientGone)) return;
  for (const Reason own :
       {Reason::kCancelled, Reason::kPoisoned, Reason::kPeerClientGone, Reason::kWaitingForPeer}) {
    if (HasReason(why, own)) return tombstones.Put(peer, {key, side, why, clock});
  }
}

bool TransferEngine::Impl::EndIfDeserted(Posted& half) {
  if (!half.in_matcher || half.is_ending()) return false;
  absl::Status why = members.WhyInVain(half);
  if (why.ok()) return false;
  CancelHalf(half, std::move(why));
  return true;
}

void TransferEngine::Impl::SweepDeserted(size_t most) {
  if (members.TakeSweep(halves.swept() != nullptr)) halves.BeginSweep();
  while (most > 0 && halves.swept() != nullptr) {
    most -= std::min<size_t>(most, halves.swept()->count());
    EndIfDeserted(halves.PassSwept());
  }
}

bool TransferEngine::Impl::TellOfTombstone(Posted& half, const HashedKey& key) {
  const bool send = half.spec.side == Side::kSend;
  const auto tombstone = tombstones.Take(clock, half.spec.side, key);
  if (!tombstone) return false;
  absl::Status why = Annotate(EndOf(*tombstone),
                              context.PlaceOf(send ? Side::kReceive : Side::kSend, half.spec.key));
  const Peer& peer = peers[half.peer.value()];
  if (context.Ours(half) || !peer.up || !peer.features.seeks) {
    End(half, std::move(why));
    return true;
  }
  to_tell.emplace(half.id, std::move(why));
  Send(half.peer, Seek{half.id, half.spec.key});
  return false;
}

absl::Status TransferEngine::Impl::EndOf(const Tombstones::Tombstone& tombstone) const {
  const absl::Duration ago = absl::Trunc(clock - tombstone.ended, absl::Milliseconds(1));
  const bool send = tombstone.side == Side::kSend;
  const std::string how_long =
      ago > absl::ZeroDuration() ? absl::StrCat(DurationText(ago), " ") : "";
  return WithText(
      tombstone.why,
      absl::StrCat(tombstone.why.message(), "; that ", send ? "send" : "receive", " ended ",
                   how_long, "before this ", send ? "receive" : "send", " was posted"));
}

void TransferEngine::Impl::CancelHalf(Posted& half, absl::Status why) {
  if (half.is_ending()) return;
  if (half.count() > 1 && !half.state.matched()) {
    return SplitUp(half, TransferId(), std::move(why));
  }
  const bool send = half.spec.side == Side::kSend;
  if (half.state.launched() && half.spec.prepared && (!send || context.Ours(half))) {
    if (!send) return Disarm(half, why, ForOther(half, why));
    return Disarm(*halves.Find(half.partner), ForOther(half, why), why);
  }
  if (half.state.launched() && !half.spec.prepared) {
    Posted* receive = !send ? &half : context.Ours(half) ? halves.Find(half.partner) : nullptr;
    if (receive != nullptr) WishedTooLate(*receive, std::move(why));
    return;
  }
  FlightRecorder::Get().Record("cancel", half.id, half.peer.value(),
                               static_cast<uint64_t>(why.code()));
  if (!half.state.matched() && (!send || context.Ours(half))) {
    LeaveMatcher(half);
    LeaveTombstone(half.spec.side, half.peer, half.spec.key, why);
    return End(half, std::move(why));
  }
  EndBeforeLaunch(half, std::move(why));
}

void TransferEngine::Impl::WishedTooLate(Posted& receive, absl::Status why) {
  absl::Status& wish = *receive.state.late_wish();
  if (wish.ok()) wish = std::move(why);
}

void TransferEngine::Impl::EndBeforeLaunch(Posted& half, absl::Status why) {
  absl::Status for_other = ForOther(half, why);
  if (half.spec.side == Side::kReceive) return EndPair(half, std::move(why), std::move(for_other));
  if (context.Ours(half))
    return EndPair(*halves.Find(half.partner), std::move(for_other), std::move(why));
  if (half.state.Is<HalfState::Waiting>()) return End(half, std::move(why));
  StopWatching(half);
  half.withdrawn = true;
  half.why = why;
  Send(half.peer, Withdraw{half.id, std::move(why)});
}

void TransferEngine::Impl::EndSession(SessionId session, absl::string_view why) {
  members.LeaveAll(session);
  if (halves.EndLater(session, why)) EndSome(options.ends_at_once);
}

void TransferEngine::Impl::EndSome(size_t most) {
  for (Posted* half = halves.ToEnd(); half != nullptr && most > 0; half = halves.ToEnd()) {
    most -= std::min<size_t>(most, half->count());
    halves.PassToEnd();
    const bool send = half->spec.side == Side::kSend;
    const bool poisoned = send && !half->spec.defined;
    CancelHalf(*half, Error(absl::StatusCode::kAborted,
                            poisoned ? Reason::kPoisoned : Reason::kPeerClientGone,
                            absl::StrCat(NameOf(*half), ": the ", send ? "sending" : "receiving",
                                         poisoned ? " client died before it defined the data: "
                                                  : " client is gone: ",
                                         halves.why_to_end())));
  }
}

void TransferEngine::Impl::OnTime(absl::Time now) {
  EndSome(options.ends_at_once);
  long_waits.NoticeOld(options.ends_at_once);
  OnLooks(options.ends_at_once);
  tombstones.Expire(now, options.ends_at_once);
  SweepDeserted(options.ends_at_once);
  const int64_t nanos = absl::ToUnixNanos(now);
  for (size_t left = options.ends_at_once; left > 0; --left) {
    const std::optional<Due> due = deadlines.TakeDue(nanos);
    if (!due) return;
    Posted* half = due->peer == devices.self ? halves.Find(due->transfer) : nullptr;
    if (half != nullptr) {
      left -= std::min<size_t>(left - 1, half->count() - 1);
      half->timed = false;
      OnDeadline(*half);
      continue;
    }
    Offered* offered = offers.Find(due->peer, due->transfer);
    FERRY_CHECK(offered != nullptr);
    offered->timed = false;
    Send(due->peer, Done{due->transfer,
                         Error(absl::StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer,
                               absl::StrCat("offer of ", Describe(offered->offer.key),
                                            ": the receive was not posted in time")),
                         Route::kUnspecified});
    Erase(*offered);
  }
}

void TransferEngine::Impl::OnDeadline(Posted& half) {
  if (half.state.Is<HalfState::Leaving>()) return;
  half.late = true;
  const bool send = half.spec.side == Side::kSend;
  FlightRecorder::Get().Record("deadline", half.id, half.peer.value(), half.state.number());
  if (half.state.launched()) {
    absl::Status executing = ExecutingStatus(half);
    if (half.state.Is<HalfState::InGroups>()) {
      if (!send) return DropRest(half, std::move(executing));
      if (half.why.ok()) half.why = executing;
      Send(half.peer, Withdraw{half.id, std::move(executing)});
    } else if (half.role != LaunchRole::kCopy && half.outstanding) {
      Abort(half, std::move(executing));
    } else if (!send) {
      WishedTooLate(half, std::move(executing));
    } else if (!context.Ours(half)) {  // our half is done; the destination's hangs
      if (half.why.ok()) half.why = executing;
      Send(half.peer, Withdraw{half.id, std::move(executing)});
    }
    return;
  }
  if (half.is_ending()) return;
  if (half.count() > 1 && !half.state.matched()) {
    half.why = DeadlineStatus(half);  // should it be matched before it is apart
    return SplitUp(half);             // its members are due at once
  }
  absl::Status status = DeadlineStatus(half);
  const bool alone = !half.state.matched() && HasReason(status, Reason::kWaitingForPeer);
  if (alone && (!send || context.Ours(half))) return EndAlone(half, std::move(status));
  EndBeforeLaunch(half, std::move(status));
}

void TransferEngine::Impl::EndAlone(Posted& half, absl::Status why) {
  LeaveMatcher(half);
  long_waits.Remember(half.spec.side, half.spec.key);
  LeaveTombstone(half.spec.side, half.peer, half.spec.key, why);
  const bool send = half.spec.side == Side::kSend;
  std::optional<NearTexts> ours =
      long_waits.Look(send ? Side::kReceive : Side::kSend, half.spec.key);
  if (!ours || context.Ours(half) || !peers[half.peer.value()].features.seeks) {
    return End(half, long_waits.WithNear(half, why, std::move(ours), std::nullopt));
  }
  StopWatching(half);
  half.state.Ask(*std::move(ours), std::move(why));
  long_waits.SetLook(half, clock + kAnswerTime);
  Send(half.peer, Seek{half.id, half.spec.key});
}

void TransferEngine::Impl::EndAsked(Posted& receive, std::optional<NearTexts> theirs) {
  HalfState::Asking& asking = *receive.state.As<HalfState::Asking>();
  End(receive, long_waits.WithNear(receive, asking.why, std::move(asking.here), std::move(theirs)));
}

bool TransferEngine::Impl::OnSought(PeerId peer, Sought sought) {
  Posted* const half = halves.Find(sought.transfer);
  if (half == nullptr || half->spec.side != Side::kReceive || half->peer != peer) return false;
  if (auto told = to_tell.extract(half->id); !told.empty()) {
    End(*half, std::move(told.mapped()));
    return true;
  }
  if (!half->state.Is<HalfState::Asking>()) return false;
  EndAsked(*half, std::move(sought.near));
  return true;
}

void TransferEngine::Impl::OnLooks(size_t most) {
  for (; most > 0; --most) {
    Posted* const half = long_waits.TakeLook();
    if (half == nullptr) return;
    if (half->state.Is<HalfState::Asking>()) {  // the answer has not come
      EndAsked(*half, std::nullopt);
    } else if (long_waits.HasWaitedLong(*half)) {
      out.long_waits.push_back(half->id);
    }
  }
}

absl::Status TransferEngine::Impl::DeadlineStatus(const Posted& half) const {
  const bool send = half.spec.side == Side::kSend;
  const Peer& peer = peers[half.peer.value()];
  if (!context.Ours(half) && !peer.up) {
    return Error(
        absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
        absl::StrCat(NameOf(half), ": no link to ", context.NodeName(half.peer), WithinText(half),
                     ": ", absl::string_view(peer.last_error.message())));
  }
  const Side other = send ? Side::kReceive : Side::kSend;
  std::string cause;
  if (!half.state.matched()) {
    cause =
        absl::StrCat(context.PlaceOf(other, half.spec.key), " was not posted", WithinText(half));
    if (!half.spec.defined) absl::StrAppend(&cause, ", and its own data was not defined");
  } else if (half.handed()) {
    cause = absl::StrCat("no group took it", WithinText(half));
  } else if (!half.spec.defined) {
    cause = absl::StrCat("data was not defined", WithinText(half));
  } else {
    cause = absl::StrCat("the data of ", context.PlaceOf(other, half.spec.key), " was not defined",
                         WithinText(half));
  }
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer,
               absl::StrCat(NameOf(half), ": ", cause));
}

absl::Status TransferEngine::Impl::ExecutingStatus(const Posted& half) const {
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting,
               absl::StrCat(NameOf(half), ": launched by ", RouteName(half.route), ", but not over",
                            WithinText(half)));
}

absl::Status TransferEngine::Impl::UnreachableStatus(const Posted& half,
                                                     const absl::Status& why) const {
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat(NameOf(half), ": the link to ", context.NodeName(half.peer),
                            " was lost: ", absl::string_view(why.message())));
}

}  // namespace ferry
