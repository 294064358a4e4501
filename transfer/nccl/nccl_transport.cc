// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/nccl_transport.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/status.h"
#include "transfer/clique/group_cutter.h"
#include "transfer/nccl/group_plan.h"

namespace ferry {
namespace {

// How often NCCL is asked for errors of a group that runs.
constexpr absl::Duration kAskEvery = absl::Milliseconds(1);
// A kernel alone on its stream takes so long only where the GPU hangs. As group_deadline.
constexpr absl::Duration kAheadOverdue = absl::Seconds(10);
// Of each operation in staging.
constexpr uint64_t kAlignment = 512;
static_assert(GroupCutter::Options{}.direct_bytes >= kPackBelow);

}  // namespace

NcclTransport::~NcclTransport() {
  lane_.RunAndWait([this] {
    if (polled_) lane_.RemovePoller(this);
    stream_.reset();  // waits for what is queued
    groups_.clear();  // nobody is there to be told
  });
}

std::unique_ptr<CudaStream> NcclTransport::TakeStream() {
  home_.Check();
  plans_.clear();  // of its memory
  ahead_.staged = false;
  return std::move(stream_);
}

void NcclTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  home_.Check();
  if (ahead_.under_way_for != nullptr) {
    held_.push_back({transfer, attempt, why});
    return;
  }
  DropPlan(bundles_.Abort(transfer, attempt, why));
}

void NcclTransport::DropPlan(uint64_t bundle) {
  const auto plan = plans_.find(bundle);
  if (plan == plans_.end()) return;
  for (const auto& table : {plan->second->gather, plan->second->scatter}) {
    if (table) stream_->FreeTable(*table);
  }
  plans_.erase(plan);
}

void NcclTransport::Launch(std::vector<TransportOp> ops) {
  home_.Check();
  std::vector<BundleHalf> halves;
  halves.reserve(ops.size());
  for (TransportOp& op : ops) {
    FERRY_CHECK(op.prepared.has_value() && op.role != LaunchRole::kCopy);
    const PreparedEnds& ends = *op.prepared;
    const uint64_t bytes = op.layout.bytes();
    halves.push_back({op.transfer, op.attempt, ends.bundle, ends.place, ends.own,
                      GroupPart{op.role == LaunchRole::kSend, bytes,
                                LayoutCursor(std::move(op.layout)), std::move(op.extents)}});
  }
  bundles_.Arm(std::move(halves));
}

void NcclTransport::LaunchGroup(GroupOp op) {
  home_.Check();
  FERRY_CHECK(lane_.IsCurrent());
  if (!std::exchange(polled_, true)) lane_.AddPoller(this);
  groups_.emplace_back().op = std::move(op);
}

void NcclTransport::GatherAhead(GroupOp op) {
  home_.Check();
  FERRY_CHECK(lane_.IsCurrent());
  // Alone on the stream it is over soon, whatever becomes of the group.
  if (stream_ == nullptr || !groups_.empty() || ahead_.under_way_for != nullptr) return;
  if (!QueueAhead(op)) return;
  if (!std::exchange(polled_, true)) lane_.AddPoller(this);
  ahead_ = {.group = op.group,
            .firings = std::move(op.firings),
            .staged = true,
            .under_way_for = op.communicator,
            .overdue = lane_.Now() + kAheadOverdue};
}

bool NcclTransport::QueueAhead(const GroupOp& op) {
  Group group;
  for (const GroupOp::Firing& firing : op.firings) {
    const auto known = plans_.find(firing.bundle);
    if (known == plans_.end() || !known->second->ready ||
        firing.bytes != bundles_.BytesOf(firing.bundle)) {
      return false;
    }
    group.works.emplace_back().firing = known->second.get();
  }
  if (std::none_of(group.works.begin(), group.works.end(),
                   [](const Work& work) { return work.firing->gather.has_value(); })) {
    return false;
  }
  stream_->MakeCurrent();
  return PlaceWorks(group).ok() && Stage(group, /*gathers=*/true).ok();
}

bool NcclTransport::FinishAhead() {
  if (ahead_.under_way_for == nullptr) return false;
  // Not where it is queued, so that what cannot be marked at once is marked later, not forgotten.
  if (ahead_.mark == 0 && stream_->room() && stream_->Mark().ok()) ahead_.mark = stream_->marked();
  const absl::StatusOr<uint64_t> reached = stream_->Reached();
  if (ahead_.mark == 0 || !reached.ok() || *reached < ahead_.mark) {
    if (lane_.Now() < ahead_.overdue) return false;
    ahead_.overdue = absl::InfiniteFuture();
    hooks_.failed(ahead_.under_way_for,
                  Error(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting,
                        absl::StrCat("what group ", ahead_.group, " sends: not gathered within ",
                                     DurationText(kAheadOverdue))));
    return false;
  }
  const Communicator* const communicator = std::exchange(ahead_.under_way_for, nullptr);
  for (const HeldAbort& abort : std::exchange(held_, {})) {
    Abort(abort.transfer, abort.attempt, abort.why);
  }
  if (ahead_.ended) hooks_.let_go(communicator);
  return true;
}

void NcclTransport::Ended(const Communicator* communicator, const absl::Status& why) {
  home_.Check();
  for (Group& group : groups_) {
    if (group.op.communicator != communicator) continue;
    group.why = why;
    if (group.phase != Group::kQueued) group.phase = Group::kEnded;
  }
  if (ahead_.under_way_for == communicator) {
    ahead_.ended = true;
  } else {
    hooks_.let_go(communicator);
  }
}

bool NcclTransport::Poll() {
  if (stream_ != nullptr) stream_->MakeCurrent();
  bool progress = FinishAhead();
  // In order; what has failed holds up nobody, since nothing more of it will be queued.
  for (Group& group : groups_) {
    if (group.phase == Group::kQueued || group.phase == Group::kFailed) continue;
    if (!Queue(group) && group.phase != Group::kFailed) break;
    progress = true;
  }
  std::vector<std::pair<uint64_t, absl::Status>> over;
  const absl::Time now = lane_.Now();
  for (auto group = groups_.begin(); group != groups_.end();) {
    if (!IsOver(*group, now)) {
      ++group;
      continue;
    }
    for (const GroupOp::Firing& firing : group->op.firings) {
      if (group->why.ok()) bundles_.OnMoved(firing.bundle, firing.bytes);
    }
    over.emplace_back(group->op.group, std::move(group->why));
    group = groups_.erase(group);
  }
  if (over.empty()) return progress;
  hooks_.over(std::move(over));
  return true;
}

bool NcclTransport::IsOver(Group& group, absl::Time now) {
  if (group.phase == Group::kEnded && stream_ == nullptr) return true;  // it never had one
  if (group.phase != Group::kQueued) return false;
  const absl::StatusOr<uint64_t> reached = stream_->Reached();
  if (!reached.ok()) {
    if (group.why.ok()) Fail(group, reached.status());
    return false;
  }
  const bool there = *reached >= group.mark;
  if (!group.why.ok()) return there;
  // What has ended may have come to its mark by that, of which Ended will tell.
  if (group.op.communicator->state() == Communicator::State::kEnded) return false;
  if (!there && now < asked_ + kAskEvery) return false;
  asked_ = now;
  if (absl::Status error = group.op.communicator->AsyncError(); !error.ok()) {
    Fail(group, error);
    return false;
  }
  return there;
}

bool NcclTransport::Queue(Group& group) {
  while (group.phase < Group::kQueued) {
    if (group.phase > Group::kWaiting && !stream_->room()) {
      const absl::StatusOr<uint64_t> reached = stream_->Reached();
      if (!reached.ok() || !stream_->room()) return false;
    }
    absl::Status status;
    switch (group.phase) {
      case Group::kWaiting:
        if (group.op.communicator->state() != Communicator::State::kOpen) {
          // It is told of as failed, or will be: the order of groups is kept for what can run.
          if (group.op.communicator->state() == Communicator::State::kEnded) {
            group.phase = Group::kFailed;
          }
          return false;
        }
        if (stream_ == nullptr) return false;  // it is on its way to us
        status = PlanGroup(group);
        group.phase = Group::kGather;
        break;
      case Group::kGather:
      case Group::kScatter: {
        const bool gathers = group.phase == Group::kGather;
        if (gathers && group.gathered) {
          group.phase = Group::kLaunch;
          break;
        }
        const absl::StatusOr<bool> over = Stage(group, gathers);
        status = over.status();
        if (over.ok() && *over) group.phase = gathers ? Group::kLaunch : Group::kMark;
        break;
      }
      case Group::kLaunch:
        status = LaunchOperations(group);
        group.phase = Group::kScatter;
        break;
      case Group::kMark:
        status = stream_->Mark();
        group.mark = stream_->marked();
        group.phase = Group::kQueued;
        break;
      default:
        return true;
    }
    if (!status.ok()) {
      Fail(group, status);
      return false;
    }
  }
  if (group.phase == Group::kEnded && stream_ != nullptr) {
    group.phase = Group::kMark;
    return Queue(group);
  }
  return true;
}

absl::Status NcclTransport::PlanGroup(Group& group) {
  if (group.op.firings.empty()) {
    Work& work = group.works.emplace_back();
    work.parts = std::move(group.op.parts);
    PlanParts(work);
  }
  for (const GroupOp::Firing& firing : group.op.firings) {
    PlanFiring(group.works.emplace_back(), firing);
  }
  // What is behind it on the stream may overwrite it.
  group.gathered = std::exchange(ahead_.staged, false) && ahead_.group == group.op.group &&
                   ahead_.firings == group.op.firings;
  ASSIGN_OR_RETURN(const uint64_t received, PlaceWorks(group));
  // What is scattered after an abort must not be what somebody else has moved before.
  return received == 0 ? absl::OkStatus() : stream_->Zero(stream_->staging(), received);
}

absl::StatusOr<uint64_t> NcclTransport::PlaceWorks(Group& group) const {
  uint64_t used = 0, received = 0;
  for (const bool receives : {true, false}) {  // a firing is of one direction
    for (Work& work : group.works) {
      const Plan& plan = work.plan();
      if ((plan.received > 0) != receives) continue;
      work.base = used;
      used += plan.staged;
      if (receives) received = work.base + plan.received;
    }
  }
  if (used > stream_->staging_bytes()) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                 absl::StrCat("group ", group.op.group, " needs ", used,
                              " bytes of staging, there are ", stream_->staging_bytes()));
  }
  return received;
}

void NcclTransport::PlanFiring(Work& work, const GroupOp::Firing& firing) {
  work.bundle = firing.bundle;
  const bool whole = firing.bytes == bundles_.BytesOf(firing.bundle);
  if (const auto known = plans_.find(firing.bundle); whole && known != plans_.end()) {
    work.firing = known->second.get();
    if (work.firing->ready) return;
    // One that was interrupted has to be made anew.
    DropPlan(firing.bundle);
    work.firing = nullptr;
  }
  work.parts = bundles_.PartsOf(firing.bundle, firing.offset, firing.bytes);
  PlanParts(work);
  if (!whole) return;
  work.firing = plans_.emplace(firing.bundle, std::make_unique<FiringPlan>()).first->second.get();
  static_cast<Plan&>(*work.firing) = std::move(work.own);
}

void NcclTransport::PlanParts(Work& work) {
  std::vector<PlannedChunk> chunks;
  chunks.reserve(work.parts.size());
  for (const GroupPart& part : work.parts) chunks.push_back({part.send, part.bytes});
  const std::vector<PlannedOperation> planned = ferry::PlanGroup(chunks);
  Plan& plan = work.own;
  plan.packed = planned.size() == 1 && planned[0].parts.size() > 1;
  for (const bool send : {false, true}) {
    for (const PlannedOperation& operation : planned) {
      if (operation.send != send) continue;
      GroupPart& first = work.parts[operation.parts[0].chunk];
      if (operation.parts.size() == 1 && first.cursor.left() >= first.bytes) {
        std::byte* const memory = first.extents[first.cursor.extent()] + first.cursor.offset();
        plan.operations.push_back({send, memory, 0, operation.bytes});
        continue;
      }
      plan.operations.push_back({send, nullptr, plan.staged, operation.bytes});
      for (const PlannedOperation::Part& part : operation.parts) {
        (send ? work.gather : work.scatter).push_back({part.chunk, plan.staged + part.offset});
      }
      plan.staged += (operation.bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (!send) plan.received = plan.staged;
  }
}

absl::Status NcclTransport::LaunchOperations(Group& group) {
  operations_.clear();
  std::optional<size_t> packed[2];  // the last one of a direction, if the next may join it
  for (const Work& work : group.works) {
    const Plan& plan = work.plan();
    for (const Operation& operation : plan.operations) {
      std::byte* const memory = operation.memory != nullptr
                                    ? operation.memory
                                    : stream_->staging() + work.base + operation.offset;
      std::optional<size_t>& last = packed[operation.send];
      if (plan.packed && last) {  // one behind the other in staging, at both ends
        Communicator::Operation& before = operations_[*last];
        const auto joined = static_cast<uint64_t>(memory - before.memory) + operation.bytes;
        if (joined <= kMostPacked) {
          before.bytes = joined;
          continue;
        }
      }
      last = plan.packed ? std::optional<size_t>(operations_.size()) : std::nullopt;
      operations_.push_back({operation.send, memory, operation.bytes});
    }
  }
  if (operations_.empty()) return absl::OkStatus();
  return group.op.communicator->Launch(*stream_, operations_);
}

absl::StatusOr<bool> NcclTransport::Stage(Group& group, bool gathers) {
  std::vector<CudaStream::TableAt> tables;
  for (Work& work : group.works) {
    std::vector<Work::Staged>& staged = gathers ? work.gather : work.scatter;
    if (work.firing == nullptr) {
      if (work.next == staged.size()) continue;
      RETURN_IF_ERROR(CopyPieces(work, staged));
      return false;
    }
    const auto& table = gathers ? work.firing->gather : work.firing->scatter;
    if (table) {
      tables.push_back({*table, work.base});
    } else if (!staged.empty()) {
      RETURN_IF_ERROR(MakeTable(work, gathers));
      return false;
    }
  }
  if (!tables.empty()) RETURN_IF_ERROR(stream_->Copy(tables));
  for (Work& work : group.works) {
    work.next = 0;
    if (!gathers && work.firing != nullptr) work.firing->ready = true;
  }
  return true;
}

absl::Status NcclTransport::MakeTable(Work& work, bool gathers) {
  pieces_.clear();
  for (const Work::Staged& place : gathers ? work.gather : work.scatter) {
    GroupPart part = work.parts[place.part];
    uint64_t at = place.at;
    while (part.bytes > 0 && pieces_.size() <= CudaStream::kPieces) TakePiece(part, 0, at);
  }
  std::optional<CudaStream::Table> table;
  if (pieces_.size() <= CudaStream::kPieces) {
    ASSIGN_OR_RETURN(table, stream_->MakeTable(pieces_, gathers));
  }
  if (table) {
    (gathers ? work.firing->gather : work.firing->scatter) = table;
    return absl::OkStatus();
  }
  work.own = std::move(static_cast<Plan&>(*work.firing));
  work.firing = nullptr;
  DropPlan(work.bundle);
  return absl::OkStatus();
}

void NcclTransport::TakePiece(GroupPart& part, uint64_t base, uint64_t& at) {
  const uint64_t length = std::min(part.bytes, part.cursor.left());
  std::byte* const own = part.extents[part.cursor.extent()] + part.cursor.offset();
  std::byte* const staged = stream_->staging() + base + at;
  pieces_.push_back(part.send ? CopyPiece{staged, own, length} : CopyPiece{own, staged, length});
  part.cursor.Advance(length);
  part.bytes -= length;
  at += length;
}

absl::Status NcclTransport::CopyPieces(Work& work, std::vector<Work::Staged>& staged) {
  pieces_.clear();
  while (work.next < staged.size()) {
    Work::Staged& place = staged[work.next];
    GroupPart& part = work.parts[place.part];
    while (part.bytes > 0) {
      if (pieces_.size() == CudaStream::kPieces) return stream_->Copy(pieces_);
      TakePiece(part, work.base, place.at);
    }
    ++work.next;
  }
  return stream_->Copy(pieces_);
}

void NcclTransport::Fail(Group& group, const absl::Status& why) {
  group.phase = Group::kFailed;
  hooks_.failed(group.op.communicator, why);
}

}  // namespace ferry
