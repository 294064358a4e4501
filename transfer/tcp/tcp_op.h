// SPDX-License-Identifier: Apache-2.0
// What the classes of transfer/tcp know of one launched op, and of its bytes that are on their way
// through host memory. Plain data. Home: the lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "transfer/fair_queue.h"
#include "transfer/staging/host_staging.h"
#include "transfer/tcp/segment_map.h"
#include "transfer/tcp/tcp_transport.h"
#include "transfer/transport.h"
#include "transfer/types.h"

namespace ferry {

struct TcpBundle;
struct TcpDeviceLink;
struct TcpOp;

// A send that waits in one of its link's queues.
struct TcpTurn : FairQueue::Item {
  explicit TcpTurn(TcpOp& op);
  TcpOp& op;
};

// An op from its launch until it is answered. An op that has ended is on no link, although its
// bytes may still be copied from or to the GPU.
struct TcpOp {
  explicit TcpOp(TransportOp launched)
      : op(std::move(launched)), memory(absl::MakeConstSpan(op.segments)) {}
  TransportOp op;
  SegmentMap memory;  // op.segments as one row of bytes
  TcpDeviceLink* link = nullptr;
  absl::Status status;  // how the op ended; set with `ended`
  bool ended = false;   // the op is answered when nothing copies its bytes any more
  size_t copying = 0;   // chunks that are being copied from or to the GPU
  // Sends: bytes that are in messages or chunks; receives: bytes that are claimed.
  uint64_t cut = 0;
  uint64_t over = 0;            // bytes that were written or have arrived
  std::optional<TcpTurn> turn;  // sends that are not cut to their end

  // Prepared ops, of which TcpFirings says what becomes.
  TcpBundle* bundle = nullptr;
  uint64_t firing = 0;  // the firing that `cut` and `over` count bytes of
  // Receives, not 0: the other end has announced itself; sends: the firing that the other end
  // wants.
  uint64_t wanted = 0;
  uint64_t fired = 0;  // the last firing that was over

  bool receive() const { return op.role == LaunchRole::kReceive; }
  uint64_t bytes() const { return memory.bytes(); }
  bool small() const { return bytes() <= TcpTransport::kSmallBytes; }
};

inline TcpTurn::TcpTurn(TcpOp& op)
    : Item(SessionOf(op.op.transfer).value(), op.op.priority, op.bytes()), op(op) {}

// Bytes of one op on their way through host memory. A send's chunk lives from its queue until it is
// written; a receive's from the beginning of its entry until it is copied.
struct TcpChunk {
  TcpOp* op = nullptr;            // null once the op has ended
  TcpDeviceLink* link = nullptr;  // null once the link's peer is gone
  bool receives = false;
  uint64_t at = 0;        // where in the op's bytes the chunk begins
  void* owner = nullptr;  // who is told when the chunk is copied: see TcpStaging::Copy
  HostStaging::Message message;
};

}  // namespace ferry
