// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/group_plan.h"

#include <optional>

namespace ferry {

std::vector<PlannedOperation> PlanGroup(absl::Span<const PlannedChunk> chunks) {
  std::vector<PlannedOperation> plan;
  std::optional<size_t> packed[2];  // which operation takes more, by direction
  for (size_t i = 0; i < chunks.size(); ++i) {
    const PlannedChunk& chunk = chunks[i];
    if (chunk.bytes == 0) continue;
    if (chunk.bytes >= kPackBelow) {
      plan.push_back({chunk.send, chunk.bytes, {{i, 0}}});
      continue;
    }
    std::optional<size_t>& open = packed[chunk.send];
    if (!open || plan[*open].bytes + chunk.bytes + kPackAlignment > kMostPacked) {
      open = plan.size();
      plan.push_back({chunk.send, 0, {}});
    }
    PlannedOperation& operation = plan[*open];
    const uint64_t offset =
        (operation.bytes + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
    operation.parts.push_back({i, offset});
    operation.bytes = offset + chunk.bytes;
  }
  return plan;
}

}  // namespace ferry
