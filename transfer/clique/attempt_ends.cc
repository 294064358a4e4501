// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/attempt_ends.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {

// --- Groups and openings that take too long.

bool AttemptEnds::OnTime() {
  home_.Check();
  if (GroupRecord* const group = groups_.TakeLate()) {
    OnLate(*group);
    return true;
  }
  if (const auto late = comms_.TakeLate()) {
    const auto& [clique, attempt] = *late;
    Fail(clique, attempt, 0,
         CommBook::NotOpened(
             clique, attempt,
             absl::StrCat("not open within ", DurationText(context_.options.open_deadline))));
    return true;
  }
  return false;
}

void AttemptEnds::OnLate(GroupRecord& group) {
  const bool launched = group.launched();
  const bool first = launched && !std::exchange(group.late, true);
  if (first && group.leads && !group.late_there) {
    // At its follower it may be behind one that hangs with somebody else, which is no fault of its
    // own: the follower says when it is late there too. But not if it has ended there.
    groups_.SetTimer(group, context_.options.group_deadline);
    return;
  }
  const absl::Duration within =
      launched ? context_.options.group_deadline : context_.options.grant_deadline;
  const absl::Status status = Error(
      absl::StatusCode::kDeadlineExceeded, Reason::kExecuting,
      absl::StrCat("group ", group.number, " of ", Describe(group.clique),
                   launched ? ": not over within " : ": the other lane was not granted within ",
                   DurationText(within)));
  // The leader does nothing about it while its own half runs, and forgets the group when that half
  // has ended well: it ends the attempt only if it is told again.
  if (launched && !group.leads) groups_.SetTimer(group, context_.options.group_deadline);
  Fail(Clique(group.clique), group.attempt, group.number, status);
}

// --- Attempts that fail.

void AttemptEnds::OnCommunicatorFailed(const Clique& clique, uint32_t attempt,
                                       const absl::Status& status) {
  home_.Check();
  const CommRecord* const comm = comms_.Find(clique);
  if (comm == nullptr) return;
  const bool in_use = comm->ordered && comm->attempt == attempt;
  if (!in_use && !CommBook::IsClosing(*comm, attempt)) return;
  Fail(clique, attempt, 0,
       HasReason(status, Reason::kRouteUnavailable)
           ? CommBook::NotOpened(clique, attempt, status.message())
           : status);
}

void AttemptEnds::Fail(const Clique& clique, uint32_t attempt, uint64_t number,
                       const absl::Status& status) {
  home_.Check();
  FlightRecorder::Get().Record("comm.failed", clique.low.value(), clique.high.value(), attempt,
                               status.message());
  CommRecord& comm = comms_.Of(clique);
  if (context_.Ours(clique.low)) {
    // One that is closing has ended already, but the follower may still be busy on it.
    if (leader_.EndAttempt(clique, attempt) || CommBook::IsClosing(comm, attempt)) {
      context_.Send(context_.OwnerOf(clique.high), AttemptOver{clique, attempt, number, status});
    }
  } else if (comm.ordered && comm.attempt == attempt) {
    comm.failing = status;
    return context_.Send(context_.OwnerOf(clique.low),
                         GroupFailed{clique, attempt, number, status});
  }
  Abort(clique, attempt, number, status);
}

bool AttemptEnds::OnGroupFailed(PeerId peer, const GroupFailed& message) {
  home_.Check();
  if (message.status.ok() || !context_.Leads(context_.devices.self, message.clique, peer)) {
    return false;
  }
  GroupRecord* const group =
      groups_.FindLed(peer, message.clique, message.number, GroupRecord::State::kLaunched);
  if (group != nullptr && group->attempt == message.attempt && !group->late &&
      HasReason(message.status, Reason::kExecuting)) {
    group->late_there = true;  // perhaps it is behind another one here
    return true;
  }
  // False: we have ended it already.
  if (!leader_.EndAttempt(message.clique, message.attempt)) return false;
  context_.Send(peer, AttemptOver{message.clique, message.attempt, message.number, message.status});
  Abort(message.clique, message.attempt, message.number, message.status);
  return true;
}

bool AttemptEnds::OnAttemptOver(PeerId peer, const AttemptOver& message) {
  home_.Check();
  if (context_.Leads(context_.devices.self, message.clique, peer)) {  // the follower's answer
    CommRecord* const comm = comms_.Find(message.clique);
    if (!message.status.ok() || comm == nullptr || !CommBook::EndClose(*comm, message.attempt)) {
      return false;  // also if we have aborted it meanwhile
    }
    comms_.End(message.clique, message.attempt, absl::OkStatus());
    return true;
  }
  if (!context_.Leads(peer, message.clique, context_.devices.self)) return false;
  CommRecord& comm = comms_.Of(message.clique);
  if (message.attempt <= comm.ended) {
    if (message.status.ok() || !CommBook::IsClosing(comm, message.attempt)) return false;
  }
  comm.ended = std::max(comm.ended, message.attempt);
  if (!message.status.ok()) {
    Abort(message.clique, message.attempt, message.number, message.status);
  } else if (comms_.BeginClose(message.clique, message.attempt)) {
    if (comm.failing.ok()) {
      CloseQuiet(message.clique);
    } else {  // which the leader did not know yet, and does not hear any more
      Abort(message.clique, message.attempt, 0, absl::Status(comm.failing));
    }
  } else {  // it is not here, or being aborted
    context_.Send(peer, AttemptOver{message.clique, message.attempt, 0, absl::OkStatus()});
  }
  return true;
}

void AttemptEnds::Abort(const Clique& clique, uint32_t attempt, uint64_t number,
                        const absl::Status& status) {
  // Nothing has moved if the communicator could not be had: all may take another route.
  const absl::Status lost =
      HasReason(status, Reason::kRouteUnavailable)
          ? status
          : Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                  absl::StrCat("the communicator of ", Describe(clique),
                               " was aborted: ", absl::string_view(status.message())));
  CommRecord& comm = comms_.Of(clique);
  if (comm.attempt == attempt) comms_.StopTimer(clique, comm);  // not of one that came after it
  const bool closing = CommBook::EndClose(comm, attempt);
  if (closing && !context_.Ours(clique.low)) {  // the leader waits for that
    context_.Send(context_.OwnerOf(clique.low), AttemptOver{clique, attempt, 0, absl::OkStatus()});
  }
  bool abort = closing || (comm.ordered && comm.attempt == attempt);
  std::vector<std::pair<uint64_t, absl::Status>> unlaunched;
  const auto on_it = [&](const GroupRecord& group) {
    return group.clique == clique && group.attempt == attempt;
  };
  for (GroupRecord* const group : groups_.All(on_it)) {
    const absl::Status& why = group->number == number ? status : lost;
    if (!group->launched()) {
      unlaunched.emplace_back(group->id, why);
    } else if (group->why.ok()) {
      group->why = why;
      groups_.StopTimer(*group);
      abort = true;
    }
  }
  if (abort) {
    comm.ordered = comm.ordered && comm.attempt != attempt;
    comms_.End(clique, attempt, status);
  }
  for (const auto& [id, why] : unlaunched) hooks_.drop_group(id, why);
  if (number > 0 || !HasReason(status, Reason::kRouteUnavailable)) return;
  if (context_.Ours(clique.low)) leader_.BackOff(context_.now, clique);
  hooks_.unavailable(clique, status);
}

// --- Communicators that are closed.

void AttemptEnds::CloseQuiet(const Clique& clique) {
  home_.Check();
  CommRecord* const comm = comms_.Find(clique);
  if (comm == nullptr || context_.Ours(clique.low)) return;
  const auto closing = comm->closing;
  for (const uint32_t attempt : closing) {
    if (groups_.Any([&](const GroupRecord& group) {
          return group.clique == clique && group.attempt == attempt;
        })) {
      continue;
    }
    CommBook::EndClose(*comm, attempt);
    comms_.End(clique, attempt, absl::OkStatus());
    context_.Send(context_.OwnerOf(clique.low), AttemptOver{clique, attempt, 0, absl::OkStatus()});
  }
}

void AttemptEnds::EvictCommunicator(const Clique& clique, bool wanted_busy) {
  home_.Check();
  const CommRecord* const comm = comms_.Find(clique);
  if (comm == nullptr || !comm->ordered) return;
  const Evict message{clique, comm->attempt, wanted_busy};
  if (context_.Ours(clique.low)) {
    OnEvict(context_.OwnerOf(clique.high), message);
    return;
  }
  const bool busy =
      !wanted_busy && groups_.Any([&](const GroupRecord& group) { return group.clique == clique; });
  if (!busy) context_.Send(context_.OwnerOf(clique.low), message);
}

bool AttemptEnds::OnEvict(PeerId peer, const Evict& message) {
  home_.Check();
  if (!context_.Leads(context_.devices.self, message.clique, peer)) return false;
  if (leader_.IdleAttempt(message.clique) == message.attempt) {
    CloseIdle(message.clique, message.attempt);
  } else if (message.busy) {
    leader_.RunOut(message.clique, message.attempt);
  }
  return true;
}

void AttemptEnds::CloseIdle(const Clique& clique, uint32_t attempt) {
  home_.Check();
  leader_.EndAttempt(clique, attempt);
  context_.Send(context_.OwnerOf(clique.high), AttemptOver{clique, attempt, 0, absl::OkStatus()});
  comms_.BeginClose(clique, attempt);
}

}  // namespace ferry
