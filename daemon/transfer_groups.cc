// SPDX-License-Identifier: Apache-2.0
// TransferDriver's groups: connects the engine with CommTable.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "daemon/transfer_driver.h"

namespace ferry {

CommTable::Hooks TransferDriver::CommHooks() {
  CommTable::Hooks hooks;
  hooks.made_id = [this](const Clique& clique, uint32_t attempt, std::string unique_id) {
    engine_.OnCommunicatorId(control_.Now(), clique, attempt, std::move(unique_id));
  };
  hooks.opened = [this](const Clique& clique, uint32_t attempt) {
    engine_.OnCommunicatorOpened(control_.Now(), clique, attempt);
  };
  hooks.failed = [this](const Clique& clique, uint32_t attempt, const absl::Status& why) {
    engine_.OnCommunicatorFailed(control_.Now(), clique, attempt, why);
  };
  hooks.group_over = [this](uint64_t group, const absl::Status& status) {
    FlightRecorder::Get().Record("group.over", group, static_cast<uint64_t>(status.code()), 0,
                                 status.ok() ? "" : ReasonName(ReasonOf(status)));
    engine_.OnGroupDone(control_.Now(), group, status, &settling_);
  };
  hooks.evict = [this](const Clique& clique, bool busy) {
    engine_.EvictCommunicator(control_.Now(), clique, busy);
  };
  hooks.incarnation = [this](GlobalDeviceId device) {
    const auto owner = engine_.devices().owner.find(device);
    // The node may have left since the opening was ordered; that will end the opening.
    return owner == engine_.devices().owner.end() ? Incarnation()
                                                  : hooks_.incarnation(owner->second);
  };
  hooks.max_ctas = hooks_.max_ctas;
  return hooks;
}

void TransferDriver::OnGroupsOver(std::vector<std::pair<uint64_t, absl::Status>> over) {
  comms_.OnGroupsOver(std::move(over));
  const std::vector<TransferId> settling = std::exchange(settling_, {});
  absl::Span<const TransferId> left = settling;
  while (!left.empty()) {
    engine_.Settle(control_.Now(), left.first(std::min(kPart, left.size())));
    left.remove_prefix(std::min(kPart, left.size()));
    if (!left.empty()) CarryPart();
  }
}

GroupPart TransferDriver::PartOf(bool send, const Layout& layout, uint64_t offset, uint64_t bytes) {
  GroupPart part{send, bytes, LayoutCursor(layout), {}};
  part.cursor.Seek(offset);
  for (const Range& extent : layout.extents()) {
    const Arena* const arena = sessions_.FindArena(extent.arena);
    FERRY_CHECK(arena != nullptr);  // pinned since posting
    part.extents.push_back(arena->mapping->data() + extent.offset);
  }
  return part;
}

std::vector<GroupPart> TransferDriver::PartsOf(const GroupLaunch& launch) {
  std::vector<GroupPart> parts;
  parts.reserve(launch.chunks.size());
  for (const GroupChunk& chunk : launch.chunks) {
    if (chunk.bundle != 0) continue;  // the lane has the halves of a bundle
    parts.push_back(PartOf(chunk.side == Side::kSend, chunk.layout, chunk.offset, chunk.bytes));
  }
  return parts;
}

void TransferDriver::LaunchGroup(const GroupLaunch& launch) {
  uint64_t bytes = 0;
  for (const GroupChunk& chunk : launch.chunks) bytes += chunk.bytes;
  FlightRecorder::Get().Record("group.run", launch.group, launch.device.value(), bytes,
                               absl::StrCat("GPUs ", launch.clique.low.value(), " and ",
                                            launch.clique.high.value(), ", group ", launch.number));
  comms_.Launch(launch, PartsOf(launch));
}

absl::Status TransferDriver::WarmComm(const Clique& clique) {
  return engine_.WarmCommunicator(control_.Now(), clique);
}

absl::StatusOr<uint32_t> TransferDriver::EvictComm(const Clique& clique) {
  ASSIGN_OR_RETURN(const uint32_t attempt, comms_.NewestOf(clique));
  engine_.EvictCommunicator(control_.Now(), clique);
  return attempt;
}

absl::StatusOr<uint32_t> TransferDriver::AbortComm(const Clique& clique, uint32_t attempt) {
  ASSIGN_OR_RETURN(attempt, comms_.Named(clique, attempt));
  engine_.OnCommunicatorFailed(control_.Now(), clique, attempt,
                               Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                                     "an operator wants it (ferryctl comms abort)"));
  return attempt;
}

}  // namespace ferry
