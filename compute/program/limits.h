// SPDX-License-Identifier: Apache-2.0
// Bounds on the size of a program. Constants only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

inline constexpr int kMaxRank = 8;
inline constexpr size_t kMaxOps = 4096;
// Of one op: bound on operands, on results and on `after`.
inline constexpr size_t kMaxOperands = 256;
inline constexpr size_t kMaxBuffers = 256;
inline constexpr size_t kMaxNesting = 4;  // repeats within repeats
inline constexpr int64_t kMaxTrips = 1 << 20;
inline constexpr int64_t kMaxInlineBytes = 1024;  // of a constant that is not a splat
inline constexpr int64_t kMaxKeyBytes = 64;
inline constexpr int64_t kMaxPeerBytes = 64;  // of the name of a transfer's other end
inline constexpr int64_t kMaxParts = 64;      // of a transfer
inline constexpr size_t kMaxNameBytes = 128;  // of buffer names and labels
inline constexpr size_t kMaxTextBytes = size_t{4} << 20;
inline constexpr size_t kMaxProblems = 64;  // that are listed

// The most that one run may cost; the daemon may be configured to allow less. Traffic: bytes read,
// written, sent and received. Steps: ops, counted as often as they run.
inline constexpr uint64_t kMaxFlops = uint64_t{1} << 60;
inline constexpr uint64_t kMaxTraffic = uint64_t{1} << 56;
inline constexpr uint64_t kMaxSteps = uint64_t{1} << 24;

}  // namespace ferry::compute
