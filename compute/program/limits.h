// SPDX-License-Identifier: Apache-2.0
// How large a program may be. Constants only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

inline constexpr int kMaxRank = 8;
inline constexpr size_t kMaxOps = 4096;
inline constexpr size_t kMaxOperands = 256;  // operands, results and `after` of one op, each
inline constexpr size_t kMaxBuffers = 256;
inline constexpr size_t kMaxNesting = 4;  // repeats within repeats
inline constexpr int64_t kMaxTrips = 1 << 20;
inline constexpr int64_t kMaxInlineBytes = 1024;  // of a constant that is no splat
inline constexpr int64_t kMaxKeyBytes = 64;
inline constexpr int64_t kMaxPeerBytes = 64;  // of the name of the other end of a transfer
inline constexpr size_t kMaxNameBytes = 128;  // of buffers and labels
inline constexpr size_t kMaxTextBytes = size_t{4} << 20;
inline constexpr size_t kMaxProblems = 64;  // that are listed

// What one run may cost at most; the daemon may be told less. Traffic: bytes read, written, sent
// and received. Steps: ops, counted as often as they run.
inline constexpr uint64_t kMaxFlops = uint64_t{1} << 60;
inline constexpr uint64_t kMaxTraffic = uint64_t{1} << 56;
inline constexpr uint64_t kMaxSteps = uint64_t{1} << 24;

}  // namespace ferry::compute
