// SPDX-License-Identifier: Apache-2.0
// TransferDriver's groups: what joins the engine to the communicators.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
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
    engine_.OnGroupDone(control_.Now(), group, status);
  };
  hooks.evict = [this](const Clique& clique) { engine_.EvictCommunicator(control_.Now(), clique); };
  hooks.incarnation = [this](GlobalDeviceId device) {
    return hooks_.incarnation(map_.owner.at(device));
  };
  return hooks;
}

std::vector<GroupPart> TransferDriver::PartsOf(const GroupLaunch& launch) {
  std::vector<GroupPart> parts;
  parts.reserve(launch.chunks.size());
  for (const GroupChunk& chunk : launch.chunks) {
    GroupPart part{chunk.side == Side::kSend, chunk.bytes, LayoutCursor(chunk.layout), {}};
    part.cursor.Seek(chunk.offset);
    for (const Range& extent : chunk.layout.extents()) {
      const Arena* const arena = sessions_.FindArena(extent.arena);
      FERRY_CHECK(arena != nullptr);  // pinned since posting
      part.extents.push_back(arena->mapping->data() + extent.offset);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

absl::Status TransferDriver::WarmComm(const Clique& clique) {
  return engine_.WarmCommunicator(control_.Now(), clique);
}

absl::Status TransferDriver::EvictComm(const Clique& clique) {
  if (!comms_.AttemptOf(clique)) {
    return Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
                 absl::StrCat("evict: ", Describe(clique), " has no communicator here"));
  }
  engine_.EvictCommunicator(control_.Now(), clique);
  return absl::OkStatus();
}

absl::Status TransferDriver::AbortComm(const Clique& clique) {
  const std::optional<uint32_t> attempt = comms_.AttemptOf(clique);
  if (!attempt) {
    return Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
                 absl::StrCat("abort: ", Describe(clique), " has no communicator here"));
  }
  engine_.OnCommunicatorFailed(control_.Now(), clique, *attempt,
                               Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                                     "an operator wants it (ferryctl comms abort)"));
  return absl::OkStatus();
}

}  // namespace ferry
