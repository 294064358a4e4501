// SPDX-License-Identifier: Apache-2.0
// The few buffers that all of a file passes through at one end, one after the other: an arena of
// slots that are used in turn. Single-threaded.
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
  // One is read or written while another moves; two more, so that neither waits for the other.
  static constexpr size_t kSlots = 4;
  // Of `limit` transfers that the session may have in flight, those that may be of chunks: beside
  // them there are both promises, and one more.
  static constexpr uint64_t InFlight(uint64_t limit) { return limit > 3 ? limit - 3 : 1; }

  // On `device`, for chunks of `plan`: kSlots, or fewer if the file or the session's quota is
  // small.
  static absl::StatusOr<FileRing> Create(ferry_session* session, uint64_t device,
                                         const FilePlan& plan);
  size_t slots() const { return slots_; }

  // Of chunk `number`, counted from 0, a part that it has in host memory: `done` bytes of the chunk
  // come before it.
  using Use = absl::FunctionRef<absl::Status(uint64_t done, std::byte* data, size_t bytes)>;
  // Has `fill` write the first `bytes` of the chunk's slot, part by part.
  absl::Status Fill(uint64_t number, uint64_t bytes, Use fill) const;
  // Has `drain` read them.
  absl::Status Drain(uint64_t number, uint64_t bytes, Use drain) const;
  // What follows a chunk of a stream.
  absl::Status SetTrailer(uint64_t number, const FileChunk& chunk, uint64_t bytes) const;
  absl::StatusOr<uint64_t> Trailer(uint64_t number, const FileChunk& chunk) const;

  // Posts the chunk's pieces at its slot.
  absl::StatusOr<BatchPtr> Post(ferry_session* session, const PostTarget& target, uint64_t number,
                                const FileChunk& chunk) const;

 private:
  uint64_t Begin(uint64_t number) const { return number % slots_ * slot_bytes_; }
  bool OnHost() const { return staging_.empty(); }

  ArenaPtr arena_;
  uint64_t slot_bytes_ = 0;  // whole pages
  size_t slots_ = 0;
  mutable std::vector<std::byte> staging_;  // between a file and a GPU; empty on the host
};

}  // namespace ferry::tools
