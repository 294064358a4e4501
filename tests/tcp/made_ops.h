// SPDX-License-Identifier: Apache-2.0
// Ops as a lane launches them, over memory of the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/prepared_batch.h"
#include "transfer/transport.h"

namespace ferry {

// Transfer `number`, with the number as its tag, of attempt 1, and of one segment if it has bytes.
inline TransportOp MadeOp(LaunchRole role, uint64_t number, std::byte* memory, size_t bytes) {
  TransportOp op;
  op.transfer = TransferId(number);
  op.attempt = 1;
  op.role = role;
  op.peer = PeerId(1);
  op.remote_device = GlobalDeviceId(1);
  op.tag = number;
  if (bytes > 0) op.segments.push_back({memory, bytes});
  return op;
}

inline TransportOp MadePrepared(LaunchRole role, uint64_t number, std::byte* memory, size_t bytes,
                                PreparedBatch& batch) {
  TransportOp op = MadeOp(role, number, memory, bytes);
  op.prepared = PreparedEnds{&batch, nullptr, nullptr, 0};
  return op;
}

}  // namespace ferry
