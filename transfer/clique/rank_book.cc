// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/rank_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/deadlines.h"

namespace ferry {

Rank* RankBook::Find(const Clique& clique) {
  const auto entry = ranks_.find(clique);
  return entry == ranks_.end() ? nullptr : &entry->second;
}

const Rank* RankBook::Find(const Clique& clique) const {
  return const_cast<RankBook*>(this)->Find(clique);
}

absl::Status RankBook::NotOpened(const Clique& clique, uint32_t attempt, absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
               absl::StrCat("opening attempt ", attempt, " of the communicator of ",
                            Describe(clique), ": ", why));
}

// --- Opening.

void RankBook::Open(const Clique& clique, uint32_t attempt) {
  Rank& rank = ranks_[clique];
  rank.open = true;
  rank.ready = false;
  rank.attempt = attempt;
  rank.timer = absl::ToUnixNanos(context_.now + context_.options.open_deadline);
  timers_.emplace(rank.timer, clique);
  FlightRecorder::Get().Record("comm.open", clique.low.value(), clique.high.value(), attempt);
  context_.out.groups.emplace_back(
      CommunicatorOpen{clique, attempt, context_.OwnerOf(clique.high), clique.low, {}});
}

void RankBook::OnId(const Clique& clique, uint32_t attempt, std::string unique_id) {
  const Rank* const rank = Find(clique);
  if (rank == nullptr || rank->timer == Deadlines::kNever || rank->attempt != attempt) return;
  context_.Send(context_.OwnerOf(clique.high), OpenComm{clique, attempt, std::move(unique_id)});
}

bool RankBook::OnOpenComm(PeerId peer, OpenComm message) {
  if (!context_.LedBy(peer, message.clique) || message.unique_id.empty()) return false;
  Rank& rank = ranks_[message.clique];
  if (rank.open || message.attempt <= rank.ended) return false;
  rank.open = true;
  rank.ready = false;
  rank.failing = absl::OkStatus();
  rank.attempt = message.attempt;
  FlightRecorder::Get().Record("comm.open", message.clique.low.value(), message.clique.high.value(),
                               message.attempt);
  context_.out.groups.emplace_back(CommunicatorOpen{
      message.clique, message.attempt, peer, message.clique.high, std::move(message.unique_id)});
  return true;
}

bool RankBook::OnWarmComm(PeerId peer, const WarmComm& message) {
  if (!context_.LedByUs(peer, message.clique)) return false;
  leader_.Warm(message.clique);
  return true;
}

void RankBook::OnOpened(const Clique& clique, uint32_t attempt) {
  Rank* const rank = Find(clique);
  if (rank == nullptr || !rank->open || rank->attempt != attempt) return;
  rank->ready = true;
  rank->worth_opening = Rank::kWorthOpening;
  StopTimer(clique, *rank);
  leader_.OnOpened(clique, attempt);  // ours or nobody's
}

absl::Status RankBook::Warm(const Clique& clique) {
  const auto low = context_.owners.Find(clique.low);
  const auto high = context_.owners.Find(clique.high);
  const PeerId self = context_.devices.self;
  if (!low || !high || (*low == self) == (*high == self)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown,
                 absl::StrCat("warm ", Describe(clique),
                              ": one device must be ours, the other one a peer's"));
  }
  const RouteChoice& routes = context_.routes;
  if (!routes.InOrder(Route::kNccl) || !routes.Available(Route::kNccl, clique.low, clique.high)) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                 absl::StrCat("warm ", Describe(clique), ": route nccl: ",
                              routes.WhyNot(Route::kNccl, clique.low, clique.high)));
  }
  if (*low == self) {
    leader_.Warm(clique);
  } else {
    context_.Send(*low, WarmComm{clique});
  }
  return absl::OkStatus();
}

void RankBook::Miss(const Clique& clique, absl::Duration missed) {
  Rank& rank = ranks_[clique];
  rank.missed += missed;
  if (rank.missed < rank.worth_opening) return;
  rank.missed = absl::ZeroDuration();
  rank.worth_opening *= 2;
  if (absl::Status refused = Warm(clique); !refused.ok()) {
    FlightRecorder::Get().Record("comm.missed", clique.low.value(), clique.high.value(), 0,
                                 refused.message());
  }
}

std::optional<std::pair<Clique, uint32_t>> RankBook::TakeLate() {
  if (timers_.empty() || timers_.begin()->first > absl::ToUnixNanos(context_.now)) {
    return std::nullopt;
  }
  const Clique clique = timers_.begin()->second;
  Rank& rank = ranks_.at(clique);
  StopTimer(clique, rank);
  return std::make_pair(clique, rank.attempt);
}

int64_t RankBook::NextTimer() const {
  return timers_.empty() ? Deadlines::kNever : timers_.begin()->first;
}

// --- Ending.

void RankBook::StopTimer(const Clique& clique, Rank& rank) {
  if (rank.timer == Deadlines::kNever) return;
  timers_.erase({rank.timer, clique});
  rank.timer = Deadlines::kNever;
}

bool RankBook::BeginClose(const Clique& clique, uint32_t attempt) {
  Rank& rank = ranks_[clique];
  if (!rank.open || rank.attempt != attempt) return false;
  rank.open = false;
  rank.closing.push_back(attempt);
  context_.out.groups.emplace_back(CommunicatorClosing{clique, attempt});
  return true;
}

bool RankBook::IsClosing(const Rank& rank, uint32_t attempt) {
  return std::find(rank.closing.begin(), rank.closing.end(), attempt) != rank.closing.end();
}

bool RankBook::EndClose(Rank& rank, uint32_t attempt) {
  const auto found = std::find(rank.closing.begin(), rank.closing.end(), attempt);
  if (found == rank.closing.end()) return false;
  rank.closing.erase(found);
  return true;
}

void RankBook::End(const Clique& clique, uint32_t attempt, const absl::Status& status) {
  context_.out.groups.emplace_back(CommunicatorEnd{clique, attempt, status});
}

void RankBook::Forget(PeerId peer, const absl::Status& lost) {
  for (auto entry = ranks_.begin(); entry != ranks_.end();) {
    auto& [clique, rank] = *entry;
    if (context_.OwnerOf(clique.low) != peer && context_.OwnerOf(clique.high) != peer) {
      ++entry;
      continue;
    }
    if (rank.open) End(clique, rank.attempt, lost);
    for (const uint32_t attempt : rank.closing) End(clique, attempt, lost);
    StopTimer(clique, rank);
    entry = ranks_.erase(entry);
  }
}

}  // namespace ferry
