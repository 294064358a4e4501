// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/comm_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/deadlines.h"

namespace ferry {

CommRecord* CommBook::Find(const Clique& clique) {
  home_.Check();
  const auto entry = comms_.find(clique);
  return entry == comms_.end() ? nullptr : &entry->second;
}

const CommRecord* CommBook::Find(const Clique& clique) const {
  home_.Check();
  return const_cast<CommBook*>(this)->Find(clique);
}

absl::Status CommBook::NotOpened(const Clique& clique, uint32_t attempt, absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
               absl::StrCat("opening attempt ", attempt, " of the communicator of ",
                            Describe(clique), ": ", why));
}

// --- Opening.

void CommBook::Open(const Clique& clique, uint32_t attempt) {
  home_.Check();
  CommRecord& comm = comms_[clique];
  comm.ordered = true;
  comm.open = false;
  comm.attempt = attempt;
  comm.timer = absl::ToUnixNanos(context_.now + context_.options.open_deadline);
  timers_.emplace(comm.timer, clique);
  FlightRecorder::Get().Record("comm.open", clique.low.value(), clique.high.value(), attempt);
  context_.out.groups.emplace_back(
      CommunicatorOpen{clique, attempt, context_.OwnerOf(clique.high), clique.low, {}});
}

void CommBook::OnId(const Clique& clique, uint32_t attempt, std::string unique_id) {
  home_.Check();
  const CommRecord* const comm = Find(clique);
  if (comm == nullptr || comm->timer == Deadlines::kNever || comm->attempt != attempt) return;
  context_.Send(context_.OwnerOf(clique.high), OpenComm{clique, attempt, std::move(unique_id)});
}

bool CommBook::OnOpenComm(PeerId peer, OpenComm message) {
  home_.Check();
  if (!context_.LedBy(peer, message.clique) || message.unique_id.empty()) return false;
  CommRecord& comm = comms_[message.clique];
  if (comm.ordered || message.attempt <= comm.ended) return false;
  comm.ordered = true;
  comm.open = false;
  comm.failing = absl::OkStatus();
  comm.attempt = message.attempt;
  FlightRecorder::Get().Record("comm.open", message.clique.low.value(), message.clique.high.value(),
                               message.attempt);
  context_.out.groups.emplace_back(CommunicatorOpen{
      message.clique, message.attempt, peer, message.clique.high, std::move(message.unique_id)});
  return true;
}

bool CommBook::OnWarmComm(PeerId peer, const WarmComm& message) {
  home_.Check();
  if (!context_.LedByUs(peer, message.clique)) return false;
  leader_.Warm(message.clique);
  return true;
}

void CommBook::OnOpened(const Clique& clique, uint32_t attempt) {
  home_.Check();
  CommRecord* const comm = Find(clique);
  if (comm == nullptr || !comm->ordered || comm->attempt != attempt) return;
  comm->open = true;
  comm->worth_opening = CommRecord::kWorthOpening;
  StopTimer(clique, *comm);
  leader_.OnOpened(clique, attempt);  // ours or nobody's
}

absl::Status CommBook::Warm(const Clique& clique) {
  home_.Check();
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

void CommBook::Miss(const Clique& clique, absl::Duration missed) {
  home_.Check();
  CommRecord& comm = comms_[clique];
  comm.missed += missed;
  if (comm.missed < comm.worth_opening) return;
  comm.missed = absl::ZeroDuration();
  comm.worth_opening *= 2;
  if (absl::Status refused = Warm(clique); !refused.ok()) {
    FlightRecorder::Get().Record("comm.missed", clique.low.value(), clique.high.value(), 0,
                                 refused.message());
  }
}

std::optional<std::pair<Clique, uint32_t>> CommBook::TakeLate() {
  home_.Check();
  if (timers_.empty() || timers_.begin()->first > absl::ToUnixNanos(context_.now)) {
    return std::nullopt;
  }
  const Clique clique = timers_.begin()->second;
  CommRecord& comm = comms_.at(clique);
  StopTimer(clique, comm);
  return std::make_pair(clique, comm.attempt);
}

int64_t CommBook::NextTimer() const {
  home_.Check();
  return timers_.empty() ? Deadlines::kNever : timers_.begin()->first;
}

// --- Ending.

void CommBook::StopTimer(const Clique& clique, CommRecord& comm) {
  home_.Check();
  if (comm.timer == Deadlines::kNever) return;
  timers_.erase({comm.timer, clique});
  comm.timer = Deadlines::kNever;
}

bool CommBook::BeginClose(const Clique& clique, uint32_t attempt) {
  home_.Check();
  CommRecord& comm = comms_[clique];
  if (!comm.ordered || comm.attempt != attempt) return false;
  comm.ordered = false;
  comm.closing.push_back(attempt);
  context_.out.groups.emplace_back(CommunicatorClosing{clique, attempt});
  return true;
}

bool CommBook::IsClosing(const CommRecord& comm, uint32_t attempt) {
  return std::find(comm.closing.begin(), comm.closing.end(), attempt) != comm.closing.end();
}

bool CommBook::EndClose(CommRecord& comm, uint32_t attempt) {
  const auto found = std::find(comm.closing.begin(), comm.closing.end(), attempt);
  if (found == comm.closing.end()) return false;
  comm.closing.erase(found);
  return true;
}

void CommBook::End(const Clique& clique, uint32_t attempt, const absl::Status& status) {
  home_.Check();
  context_.out.groups.emplace_back(CommunicatorEnd{clique, attempt, status});
}

void CommBook::Forget(PeerId peer, const absl::Status& lost) {
  home_.Check();
  for (auto entry = comms_.begin(); entry != comms_.end();) {
    auto& [clique, comm] = *entry;
    if (context_.OwnerOf(clique.low) != peer && context_.OwnerOf(clique.high) != peer) {
      ++entry;
      continue;
    }
    if (comm.ordered) End(clique, comm.attempt, lost);
    for (const uint32_t attempt : comm.closing) End(clique, attempt, lost);
    StopTimer(clique, comm);
    entry = comms_.erase(entry);
  }
}

}  // namespace ferry
