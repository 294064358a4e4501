// SPDX-License-Identifier: Apache-2.0
// The buffers through which all of a file passes at one end: an arena of slots that are used in
// turn. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/ferryctl/client.h"
#include "tools/ferryctl/file_protocol.h"

namespace ferry::tools {

class FileRing {
 public:
  // One slot is read or written while another moves. Two more keep the two from waiting for each
  // other.
  static constexpr size_t kSlots = 4;
  // How many transfers of chunks may be in flight if the session may have `limit`: beside them
  // there are both promises and one more.
  static constexpr uint64_t InFlight(uint64_t limit) { return limit > 3 ? limit - 3 : 1; }

  // Makes the arena on `device`, for chunks of `plan`: of kSlots slots, or fewer if the file or the
  // session's quota is small.
  static absl::StatusOr<FileRing> Create(ferry_session* session, uint64_t device,
                                         const FilePlan& plan);
  size_t slots() const { return slots_; }

  // Called with a part of a chunk, in host memory; `done` bytes of the chunk come before it.
  using Use = absl::FunctionRef<absl::Status(uint64_t done, std::byte* data, size_t bytes)>;
  // Has `fill` write the first `bytes` of the slot of chunk `number` (counted from 0), part by
  // part.
  absl::Status Fill(uint64_t number, uint64_t bytes, Use fill) const;
  // Has `drain` read them, part by part.
  absl::Status Drain(uint64_t number, uint64_t bytes, Use drain) const;
  // The trailer behind a stream's chunk.
  absl::Status SetTrailer(uint64_t number, const FileChunk& chunk, uint64_t bytes) const;
  absl::StatusOr<uint64_t> Trailer(uint64_t number, const FileChunk& chunk) const;

  // Posts the chunk's transfers at its slot.
  absl::StatusOr<BatchPtr> Post(ferry_session* session, const PostTarget& target, uint64_t number,
                                const FileChunk& chunk) const;

 private:
  uint64_t Begin(uint64_t number) const { return number % slots_ * slot_bytes_; }
  bool OnHost() const { return staging_.empty(); }

  ArenaPtr arena_;
  uint64_t slot_bytes_ = 0;  // whole pages
  size_t slots_ = 0;
  mutable std::vector<std::byte> staging_;  // between a file and a GPU; empty for a host device
};

}  // namespace ferry::tools
