// SPDX-License-Identifier: Apache-2.0
// The closed list of reasons that a Status may carry to a client (google.rpc.ErrorInfo.reason,
// domain kErrorDomain). Programs branch on reasons; texts may change. docs/errors.md explains each
// one.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace ferry {

inline constexpr char kErrorDomain[] = "ferry.example.org";

#define FERRY_REASONS(X)                     \
  X(kFieldInvalid, "FIELD_INVALID")          \
  X(kArenaNotFound, "ARENA_NOT_FOUND")       \
  X(kTransferNotFound, "TRANSFER_NOT_FOUND") \
  X(kSessionInvalid, "SESSION_INVALID")      \
  X(kSessionInUse, "SESSION_IN_USE")         \
  X(kNotAllowed, "NOT_ALLOWED")              \
  X(kQuotaBytes, "QUOTA_BYTES")              \
  X(kQuotaArenas, "QUOTA_ARENAS")            \
  X(kQueueFull, "QUEUE_FULL")                \
  X(kTooManySessions, "TOO_MANY_SESSIONS")   \
  X(kDraining, "DRAINING")                   \
  X(kPeerUnreachable, "PEER_UNREACHABLE")    \
  X(kNotReady, "NOT_READY")                  \
  X(kCommAborted, "COMM_ABORTED")            \
  X(kWaitingForPeer, "WAITING_FOR_PEER")     \
  X(kExecuting, "EXECUTING")                 \
  X(kDeviceMemory, "DEVICE_MEMORY")          \
  X(kRequestIdReused, "REQUEST_ID_REUSED")   \
  X(kTransferMismatch, "TRANSFER_MISMATCH")  \
  X(kProtocolVersion, "PROTOCOL_VERSION")    \
  X(kProtocolError, "PROTOCOL_ERROR")        \
  X(kSlowConsumer, "SLOW_CONSUMER")          \
  X(kInternal, "INTERNAL")                   \
  X(kDaemonLost, "DAEMON_LOST")              \
  X(kPeerClientGone, "PEER_CLIENT_GONE")     \
  X(kKeyInUse, "KEY_IN_USE")                 \
  X(kPoisoned, "POISONED")                   \
  X(kCancelled, "CANCELLED")                 \
  X(kDeviceUnknown, "DEVICE_UNKNOWN")        \
  X(kRangeInvalid, "RANGE_INVALID")          \
  X(kRangeOverlap, "RANGE_OVERLAP")          \
  X(kMemfdUnsealed, "MEMFD_UNSEALED")        \
  X(kIdStale, "ID_STALE")                    \
  X(kBatchTooLarge, "BATCH_TOO_LARGE")       \
  X(kWouldDeadlock, "WOULD_DEADLOCK")        \
  X(kRouteUnavailable, "ROUTE_UNAVAILABLE")  \
  X(kForked, "FORKED")                       \
  X(kConfigInvalid, "CONFIG_INVALID")

enum class Reason {
#define FERRY_REASON_ENUM(name, text) name,
  FERRY_REASONS(FERRY_REASON_ENUM)
#undef FERRY_REASON_ENUM
};

absl::string_view ReasonName(Reason reason);
std::optional<Reason> ReasonFromName(absl::string_view name);

}  // namespace ferry
