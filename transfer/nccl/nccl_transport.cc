// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/nccl_transport.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/nccl/group_plan.h"

namespace ferry {
namespace {

// How often NCCL is asked for errors of a group that runs.
constexpr absl::Duration kAskEvery = absl::Milliseconds(1);
// Of each operation in staging.
constexpr uint64_t kAlignment = 512;

}  // namespace

NcclTransport::~NcclTransport() {
  lane_.RunAndWait([this] {
    if (polled_) lane_.RemovePoller(this);
    stream_.reset();  // waits for what is queued
    groups_.clear();  // nobody is there to be told
  });
}

std::unique_ptr<CudaStream> NcclTransport::TakeStream() {
  plans_.clear();  // of its memory
  return std::move(stream_);
}

void NcclTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
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

void NcclTransport::Launch(GroupOp op) {
  FERRY_CHECK(lane_.IsCurrent());
  if (!std::exchange(polled_, true)) lane_.AddPoller(this);
  groups_.emplace_back().op = std::move(op);
}

void NcclTransport::Ended(const Communicator* communicator, const absl::Status& why) {
  for (Group& group : groups_) {
    if (group.op.communicator != communicator) continue;
    group.why = why;
    if (group.phase != Group::kQueued) group.phase = Group::kEnded;
  }
}

bool NcclTransport::Poll() {
  bool progress = false;
  if (stream_ != nullptr) stream_->MakeCurrent();
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
    const GroupOp::Firing& firing = group->op.firing;
    if (group->why.ok() && firing.bundle != 0) bundles_.OnMoved(firing.bundle, firing.bytes);
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
        status = group.op.firing.bundle != 0 ? PlanFiring(group) : Plan(group);
        group.phase = Group::kGather;
        break;
      case Group::kGather:
        if (group.plan != nullptr) {
          const auto over = CopyByTable(group, group.gather, group.plan->gather);
          status = over.status();
          if (over.ok() && *over) group.phase = Group::kLaunch;
        } else if (group.next < group.gather.size()) {
          status = Copy(group, group.gather);
        } else {
          group.phase = Group::kLaunch;
          group.next = 0;
        }
        break;
      case Group::kLaunch: {
        const auto& operations = group.plan != nullptr ? group.plan->operations : group.operations;
        if (!operations.empty()) status = group.op.communicator->Launch(*stream_, operations);
        group.phase = Group::kScatter;
        break;
      }
      case Group::kScatter:
        if (group.plan != nullptr) {
          const auto over = CopyByTable(group, group.scatter, group.plan->scatter);
          status = over.status();
          if (!over.ok() || !*over) break;
          group.plan->ready = true;
          group.phase = Group::kMark;
        } else if (group.next < group.scatter.size()) {
          status = Copy(group, group.scatter);
        } else {
          group.phase = Group::kMark;
        }
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

absl::Status NcclTransport::PlanFiring(Group& group) {
  const GroupOp::Firing& firing = group.op.firing;
  const bool whole = firing.bytes == bundles_.BytesOf(firing.bundle);
  if (const auto known = plans_.find(firing.bundle); whole && known != plans_.end()) {
    group.plan = known->second.get();
    // One that was interrupted has to be made anew.
    if (group.plan->ready) return Clear(group.plan->cleared);
    DropPlan(firing.bundle);
    group.plan = nullptr;
  }
  group.op.parts = bundles_.PartsOf(firing.bundle, firing.offset, firing.bytes);
  RETURN_IF_ERROR(Plan(group));
  if (!whole) return absl::OkStatus();
  group.plan = plans_.emplace(firing.bundle, std::make_unique<FiringPlan>()).first->second.get();
  group.plan->operations = std::move(group.operations);
  group.plan->cleared = group.cleared;
  return absl::OkStatus();
}

absl::Status NcclTransport::Plan(Group& group) {
  std::vector<PlannedChunk> chunks;
  chunks.reserve(group.op.parts.size());
  for (const GroupPart& part : group.op.parts) chunks.push_back({part.send, part.bytes});
  std::byte* const staging = stream_->staging();
  uint64_t used = 0;
  for (const bool send : {false, true}) {
    for (const PlannedOperation& operation : PlanGroup(chunks)) {
      if (operation.send != send) continue;
      GroupPart& first = group.op.parts[operation.parts[0].chunk];
      if (operation.parts.size() == 1 && first.cursor.left() >= first.bytes) {
        group.operations.push_back(
            {send, first.extents[first.cursor.extent()] + first.cursor.offset(), operation.bytes});
        continue;
      }
      const uint64_t room = (operation.bytes + kAlignment - 1) / kAlignment * kAlignment;
      if (room > stream_->staging_bytes() - used) {
        return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                     absl::StrCat("group ", group.op.group, " needs more staging than there is"));
      }
      group.operations.push_back({send, staging + used, operation.bytes});
      for (const PlannedOperation::Part& part : operation.parts) {
        (send ? group.gather : group.scatter).push_back({part.chunk, staging + used + part.offset});
      }
      used += room;
    }
    if (!send) group.cleared = used;
  }
  return Clear(group.cleared);
}

// What is scattered after an abort must not be what somebody else has moved before.
absl::Status NcclTransport::Clear(uint64_t bytes) {
  return bytes == 0 ? absl::OkStatus() : stream_->Zero(stream_->staging(), bytes);
}

absl::StatusOr<bool> NcclTransport::CopyByTable(Group& group,
                                                const std::vector<Group::Staged>& staged,
                                                std::optional<CudaStream::Table>& table) {
  if (table) {
    RETURN_IF_ERROR(stream_->Copy(*table));
    return true;
  }
  if (staged.empty()) return true;
  pieces_.clear();
  for (const Group::Staged& place : staged) {
    GroupPart part = group.op.parts[place.part];
    std::byte* at = place.at;
    while (part.bytes > 0 && pieces_.size() <= CudaStream::kPieces) {
      TakePiece(part, at);
    }
  }
  if (pieces_.size() <= CudaStream::kPieces) {
    ASSIGN_OR_RETURN(table, stream_->MakeTable(pieces_));
  }
  if (!table) {  // too many, or no place: as any other group
    group.operations = std::move(group.plan->operations);
    group.plan = nullptr;
    plans_.erase(group.op.firing.bundle);
  }
  return false;
}

void NcclTransport::TakePiece(GroupPart& part, std::byte*& at) {
  const uint64_t length = std::min(part.bytes, part.cursor.left());
  std::byte* const own = part.extents[part.cursor.extent()] + part.cursor.offset();
  pieces_.push_back(part.send ? CopyPiece{at, own, length} : CopyPiece{own, at, length});
  part.cursor.Advance(length);
  part.bytes -= length;
  at += length;
}

absl::Status NcclTransport::Copy(Group& group, std::vector<Group::Staged>& staged) {
  pieces_.clear();
  while (group.next < staged.size()) {
    Group::Staged& place = staged[group.next];
    GroupPart& part = group.op.parts[place.part];
    while (part.bytes > 0) {
      if (pieces_.size() == CudaStream::kPieces) return stream_->Copy(pieces_);
      TakePiece(part, place.at);
    }
    ++group.next;
  }
  return stream_->Copy(pieces_);
}

void NcclTransport::Fail(Group& group, const absl::Status& why) {
  group.phase = Group::kFailed;
  hooks_.failed(group.op.communicator, why);
}

}  // namespace ferry
