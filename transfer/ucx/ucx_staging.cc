// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_staging.h"

#include <algorithm>
#include <memory>

#include "base/check.h"

namespace ferry {

bool UcxStaging::CanTake(const UcxOp& op) const {
  home_.Check();
  return Of(op).CanTake(op.messages[op.posted].size);
}

void UcxStaging::Stage(UcxMessage& message) {
  home_.Check();
  UcxOp& op = *message.op;
  const auto& segments = op.op.segments;
  const auto skip = [&] {
    while (op.offset == segments[op.segment].size) {
      ++op.segment;
      op.offset = 0;
    }
  };
  skip();
  message.staged = std::make_unique<HostStaging::Message>();
  message.staged->memory = Of(op).Take(message.size);
  FERRY_CHECK(message.staged->memory != nullptr);  // was asked before
  message.staged->size = message.size;
  message.staged->segment = &segments[op.segment];
  message.staged->offset = op.offset;
  message.staged->owner = &message;
  for (size_t left = message.size; left > 0;) {
    skip();
    const size_t here = std::min(left, segments[op.segment].size - op.offset);
    left -= here;
    op.offset += here;
  }
}

void UcxStaging::Unstage(UcxMessage& message) {
  home_.Check();
  if (message.staged == nullptr) return;
  Of(*message.op).GiveBack(message.staged->memory);
  message.staged.reset();
}

void UcxStaging::Copy(UcxMessage& message, void (*over)(HostStaging::Message&)) {
  home_.Check();
  ++message.op->copying;
  ++message.op->channel->copying;
  message.staged->over = over;
  Of(*message.op).Copy(*message.staged);
}

UcxMessage& UcxStaging::Copied(HostStaging::Message& copied) {
  home_.Check();
  UcxMessage& message = *static_cast<UcxMessage*>(copied.owner);
  --message.op->copying;
  --message.op->channel->copying;
  return message;
}

}  // namespace ferry
