// SPDX-License-Identifier: Apache-2.0
// What a device, a route, a peer or a session has sent and received since it began. A value.
#pragma once

#include <cstdint>

#include "transfer/types.h"

namespace ferry {

struct Moved {
  uint64_t sent_bytes = 0, received_bytes = 0;
  uint64_t sent = 0, received = 0;  // transfers that went well, and firings of prepared transfers
  uint64_t failed = 0;              // transfers that did not go well

  // Adds `count` transfers of `bytes` bytes each.
  void Count(Side side, uint64_t bytes, uint64_t count = 1) {
    (side == Side::kSend ? sent : received) += count;
    (side == Side::kSend ? sent_bytes : received_bytes) += bytes * count;
  }
  Moved& operator+=(const Moved& other) {
    sent_bytes += other.sent_bytes;
    received_bytes += other.received_bytes;
    sent += other.sent;
    received += other.received;
    failed += other.failed;
    return *this;
  }
};

}  // namespace ferry
