// SPDX-License-Identifier: Apache-2.0
// Communicators: when a clique's is opened, what becomes of one that cannot be had, fails or is not
// wanted any more. The leader decides all of it and numbers the attempts; the follower tells it
// what it sees. Nobody waits on a lane for an opening: groups are cut once the leader's rank is
// open, which its warm-up with the follower's makes certain of both.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

absl::Status NotOpened(const Clique& clique, uint32_t attempt, absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
               absl::StrCat("opening attempt ", attempt, " of the communicator of ",
                            Describe(clique), ": ", why));
}

}  // namespace

// --- Opening.

void TransferEngine::Impl::OpenAttempt(const Clique& clique, uint32_t attempt) {
  Rank& rank = ranks[clique];
  rank.open = true;
  rank.ready = false;
  rank.attempt = attempt;
  rank.timer = absl::ToUnixNanos(clock + options.open_deadline);
  open_timers.emplace(rank.timer, clique);
  FlightRecorder::Get().Record("comm.open", clique.low.value(), clique.high.value(), attempt);
  out.groups.emplace_back(CommunicatorOpen{clique, attempt, OwnerOf(clique.high), clique.low, {}});
}

void TransferEngine::Impl::OnCommunicatorId(const Clique& clique, uint32_t attempt,
                                            std::string unique_id) {
  const auto rank = ranks.find(clique);
  if (rank == ranks.end() || rank->second.timer == kNever || rank->second.attempt != attempt) {
    return;
  }
  Send(OwnerOf(clique.high), OpenComm{clique, attempt, std::move(unique_id)});
}

bool TransferEngine::Impl::OnOpenComm(PeerId peer, OpenComm message) {
  if (!Leads(peer, message.clique, devices.self) || !routes.MakesGroups(peer, message.clique) ||
      message.unique_id.empty()) {
    return false;
  }
  Rank& rank = ranks[message.clique];
  if (rank.open || message.attempt <= rank.ended) return false;
  rank.open = true;
  rank.ready = false;
  rank.failing = absl::OkStatus();
  rank.attempt = message.attempt;
  FlightRecorder::Get().Record("comm.open", message.clique.low.value(), message.clique.high.value(),
                               message.attempt);
  out.groups.emplace_back(CommunicatorOpen{message.clique, message.attempt, peer,
                                           message.clique.high, std::move(message.unique_id)});
  return true;
}

void TransferEngine::Impl::OnCommunicatorOpened(const Clique& clique, uint32_t attempt) {
  const auto rank = ranks.find(clique);
  if (rank == ranks.end() || !rank->second.open || rank->second.attempt != attempt) return;
  rank->second.ready = true;
  rank->second.worth_opening = Rank::kWorthOpening;
  StopOpenTimer(clique, rank->second);
  leader.OnOpened(clique, attempt);  // ours or nobody's
}

void TransferEngine::Impl::OnCommunicatorFailed(const Clique& clique, uint32_t attempt,
                                                const absl::Status& status) {
  const auto rank = ranks.find(clique);
  if (rank == ranks.end()) return;
  const bool in_use = rank->second.open && rank->second.attempt == attempt;
  if (!in_use && !IsClosing(rank->second, attempt)) return;
  FailAttempt(clique, attempt, 0,
              HasReason(status, Reason::kRouteUnavailable)
                  ? NotOpened(clique, attempt, status.message())
                  : status);
}

void TransferEngine::Impl::OnOpenTimers() {
  const int64_t nanos = absl::ToUnixNanos(clock);
  while (!open_timers.empty() && open_timers.begin()->first <= nanos) {
    const Clique clique = open_timers.begin()->second;
    const uint32_t attempt = ranks.at(clique).attempt;
    FailAttempt(clique, attempt, 0,
                NotOpened(clique, attempt,
                          absl::StrCat("not open within ", DurationText(options.open_deadline))));
  }
}

void TransferEngine::Impl::StopOpenTimer(const Clique& clique, Rank& rank) {
  if (rank.timer == kNever) return;
  open_timers.erase({rank.timer, clique});
  rank.timer = kNever;
}

absl::Status TransferEngine::Impl::WarmCommunicator(const Clique& clique) {
  const auto low = devices.owner.find(clique.low);
  const auto high = devices.owner.find(clique.high);
  const bool known = low != devices.owner.end() && high != devices.owner.end();
  if (!known || (low->second == devices.self) == (high->second == devices.self)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
                 absl::StrCat("warm ", Describe(clique),
                              ": one device must be ours, the other one a peer's"));
  }
  if (!routes.InOrder(Route::kNccl) || !routes.Available(Route::kNccl, clique.low, clique.high)) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                 absl::StrCat("warm ", Describe(clique), ": route nccl: ",
                              routes.WhyNot(Route::kNccl, clique.low, clique.high)));
  }
  if (low->second == devices.self) {
    leader.Warm(clique);
  } else {
    Send(low->second, WarmComm{clique});
  }
  return absl::OkStatus();
}

void TransferEngine::Impl::MissCommunicator(const Clique& clique, absl::Duration missed) {
  Rank& rank = ranks[clique];
  rank.missed += missed;
  if (rank.missed < rank.worth_opening) return;
  rank.missed = absl::ZeroDuration();
  rank.worth_opening *= 2;  // until it is open
  if (absl::Status refused = WarmCommunicator(clique); !refused.ok()) {
    FlightRecorder::Get().Record("comm.missed", clique.low.value(), clique.high.value(), 0,
                                 refused.message());
  }
}

bool TransferEngine::Impl::OnWarmComm(PeerId peer, const WarmComm& message) {
  if (!Leads(devices.self, message.clique, peer) || !routes.MakesGroups(peer, message.clique))
    return false;
  leader.Warm(message.clique);
  return true;
}

// --- Endings.

void TransferEngine::Impl::FailAttempt(const Clique& clique, uint32_t attempt, uint64_t number,
                                       const absl::Status& status) {
  FlightRecorder::Get().Record("comm.failed", clique.low.value(), clique.high.value(), attempt,
                               status.message());
  Rank& rank = ranks[clique];
  if (OwnerOf(clique.low) == devices.self) {
    // One that is closing has ended already, but the follower may still be busy on it.
    if (leader.EndAttempt(clique, attempt) || IsClosing(rank, attempt)) {
      Send(OwnerOf(clique.high), AttemptOver{clique, attempt, number, status});
    }
  } else if (rank.open && rank.attempt == attempt) {
    rank.failing = status;
    return Send(OwnerOf(clique.low), GroupFailed{clique, attempt, number, status});
  }
  AbortAttempt(clique, attempt, number, status);
}

bool TransferEngine::Impl::OnGroupFailed(PeerId peer, GroupFailed message) {
  if (message.status.ok() || !Leads(devices.self, message.clique, peer)) return false;
  const auto group = FindLed(peer, message.clique, message.number, GroupRecord::Stage::kLaunched);
  if (group != groups.end() && group->second.attempt == message.attempt && !group->second.late &&
      HasReason(message.status, Reason::kExecuting)) {
    group->second.late_there = true;  // perhaps it is behind another one here
    return true;
  }
  if (!leader.EndAttempt(message.clique, message.attempt))
    return false;  // we have ended it already
  Send(peer, AttemptOver{message.clique, message.attempt, message.number, message.status});
  AbortAttempt(message.clique, message.attempt, message.number, message.status);
  return true;
}

bool TransferEngine::Impl::OnAttemptOver(PeerId peer, const AttemptOver& message) {
  if (Leads(devices.self, message.clique, peer)) {  // the follower's answer
    const auto rank = ranks.find(message.clique);
    if (!message.status.ok() || rank == ranks.end() || !EndClose(rank->second, message.attempt)) {
      return false;  // also if we have aborted it meanwhile
    }
    out.groups.emplace_back(CommunicatorEnd{message.clique, message.attempt, absl::OkStatus()});
    return true;
  }
  if (!Leads(peer, message.clique, devices.self)) return false;
  Rank& rank = ranks[message.clique];
  if (message.attempt <= rank.ended) {
    if (message.status.ok() || !IsClosing(rank, message.attempt)) return false;
  }
  rank.ended = std::max(rank.ended, message.attempt);
  if (!message.status.ok()) {
    AbortAttempt(message.clique, message.attempt, message.number, message.status);
  } else if (BeginClose(message.clique, message.attempt)) {
    if (rank.failing.ok()) {
      CloseQuiet(message.clique);
    } else {  // which the leader did not know yet, and does not hear any more
      AbortAttempt(message.clique, message.attempt, 0, absl::Status(rank.failing));
    }
  } else {  // it is not here, or being aborted
    Send(peer, AttemptOver{message.clique, message.attempt, 0, absl::OkStatus()});
  }
  return true;
}

bool TransferEngine::Impl::BeginClose(const Clique& clique, uint32_t attempt) {
  Rank& rank = ranks[clique];
  if (!rank.open || rank.attempt != attempt) return false;
  rank.open = false;
  rank.closing.push_back(attempt);
  out.groups.emplace_back(CommunicatorClosing{clique, attempt});
  return true;
}

bool TransferEngine::Impl::IsClosing(const Rank& rank, uint32_t attempt) {
  return std::find(rank.closing.begin(), rank.closing.end(), attempt) != rank.closing.end();
}

bool TransferEngine::Impl::EndClose(Rank& rank, uint32_t attempt) {
  const auto found = std::find(rank.closing.begin(), rank.closing.end(), attempt);
  if (found == rank.closing.end()) return false;
  rank.closing.erase(found);
  return true;
}

void TransferEngine::Impl::CloseQuiet(const Clique& clique) {
  const auto entry = ranks.find(clique);
  if (entry == ranks.end() || OwnerOf(clique.low) == devices.self) return;
  const auto closing = entry->second.closing;
  for (const uint32_t attempt : closing) {
    const bool busy = std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
      return group.second.clique == clique && group.second.attempt == attempt;
    });
    if (busy) continue;
    EndClose(entry->second, attempt);
    out.groups.emplace_back(CommunicatorEnd{clique, attempt, absl::OkStatus()});
    Send(OwnerOf(clique.low), AttemptOver{clique, attempt, 0, absl::OkStatus()});
  }
}

void TransferEngine::Impl::AbortAttempt(const Clique& clique, uint32_t attempt, uint64_t number,
                                        const absl::Status& status) {
  // Nothing has moved if the communicator could not be had: all may take another route.
  const absl::Status lost =
      HasReason(status, Reason::kRouteUnavailable)
          ? status
          : Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                  absl::StrCat("the communicator of ", Describe(clique),
                               " was aborted: ", absl::string_view(status.message())));
  Rank& rank = ranks[clique];
  if (rank.attempt == attempt) StopOpenTimer(clique, rank);  // not that of one that came after it
  const bool closing = EndClose(rank, attempt);
  if (closing && OwnerOf(clique.low) != devices.self) {  // the leader waits for that
    Send(OwnerOf(clique.low), AttemptOver{clique, attempt, 0, absl::OkStatus()});
  }
  bool abort = closing || (rank.open && rank.attempt == attempt);
  std::vector<uint64_t> unlaunched;
  for (auto& [id, group] : groups) {
    if (group.clique != clique || group.attempt != attempt) continue;
    if (group.stage != GroupRecord::Stage::kLaunched) {
      unlaunched.push_back(id);
    } else if (group.why.ok()) {
      group.why = group.number == number ? status : lost;
      StopGroupTimer(id, group);
      abort = true;
    }
  }
  if (abort) {
    rank.open = rank.open && rank.attempt != attempt;
    out.groups.emplace_back(CommunicatorEnd{clique, attempt, status});
  }
  for (uint64_t id : unlaunched) {
    const GroupRecord group = EraseGroup(id);
    const absl::Status& why = group.number == number ? status : lost;
    for (const GroupRecord::Part& part : group.parts) Unpin(part, 0, why);
    Settle(group.parts);
  }
  if (number > 0 || !HasReason(status, Reason::kRouteUnavailable)) return;
  // It could not be had, so what we receive shall not wait for the next attempt. The other end does
  // the same for what it receives.
  if (OwnerOf(clique.low) == devices.self) leader.BackOff(clock, clique);
  for (Posted* half : Sorted([&](const Posted& half) {
         return half.handed && half.spec.side == Side::kReceive &&
                CliqueOf(half.spec.key) == clique;
       })) {
    DropRest(*half, status);
  }
  FailBundlesOf(clique, status);
}

void TransferEngine::Impl::EvictCommunicator(const Clique& clique, bool wanted_busy) {
  auto entry = ranks.find(clique);
  if (entry == ranks.end() || !entry->second.open) return;
  const uint32_t attempt = entry->second.attempt;
  const PeerId follower = OwnerOf(clique.high);
  if (follower != devices.self) {
    OnEvict(follower, Evict{clique, attempt, wanted_busy});
    return;
  }
  const bool busy =
      !wanted_busy && std::any_of(groups.begin(), groups.end(),
                                  [&](const auto& group) { return group.second.clique == clique; });
  if (!busy) Send(OwnerOf(clique.low), Evict{clique, attempt, wanted_busy});
}

bool TransferEngine::Impl::OnEvict(PeerId peer, const Evict& message) {
  if (!Leads(devices.self, message.clique, peer)) return false;
  if (leader.IdleAttempt(message.clique) == message.attempt) {
    CloseIdle(message.clique, message.attempt);
  } else if (message.busy) {
    leader.Drain(message.clique, message.attempt);
  }
  return true;
}

void TransferEngine::Impl::CloseIdle(const Clique& clique, uint32_t attempt) {
  leader.EndAttempt(clique, attempt);
  Send(OwnerOf(clique.high), AttemptOver{clique, attempt, 0, absl::OkStatus()});
  BeginClose(clique, attempt);
}

}  // namespace ferry
