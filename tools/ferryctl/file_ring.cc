// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_ring.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ferry/ferry_cuda.h"
#include "tools/ferryctl/failure.h"

namespace ferry::tools {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kStagingBytes = uint64_t{8} << 20;

uint64_t Pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

absl::StatusOr<FileRing> FileRing::Create(ferry_session* session, uint64_t device,
                                          const FilePlan& plan) {
  FileRing ring;
  ring.slot_bytes_ = std::max(Pages(LongestChunk(plan)), kPage);
  ring.slots_ = kSlots;
  const uint64_t in_flight = ferry_session_limits(session).transfers_in_flight;
  if (in_flight != 0) ring.slots_ = std::clamp<uint64_t>(InFlight(in_flight), 1, ring.slots_);
  if (plan.preamble.kind != FileKind::kStream) {
    const uint64_t chunks = plan.preamble.file_bytes / ring.slot_bytes_ + 1;
    ring.slots_ = std::min<uint64_t>(ring.slots_, chunks);
  }
  // A limit of 0 would mean that the daemon names none. If the quota is too small for one slot, the
  // daemon will say so.
  const uint64_t quota = ferry_session_limits(session).bytes;
  if (quota != 0) {
    ring.slots_ = std::clamp<uint64_t>(quota / ring.slot_bytes_, 1, ring.slots_);
  }
  ASSIGN_OR_RETURN(ring.arena_, CreateArena(session, device, ring.slot_bytes_ * ring.slots_));
  if (ferry_arena_cuda_device(ring.arena_.get()) >= 0) {
    ring.staging_.resize(std::min(ring.slot_bytes_, kStagingBytes));
  }
  return ring;
}

absl::Status FileRing::Fill(uint64_t number, uint64_t bytes, Use fill) const {
  if (OnHost()) return fill(0, DataOf(arena_) + Begin(number), bytes);
  for (uint64_t done = 0; done < bytes; done += staging_.size()) {
    const uint64_t now = std::min<uint64_t>(staging_.size(), bytes - done);
    RETURN_IF_ERROR(fill(done, staging_.data(), now));
    RETURN_IF_ERROR(
        FromFerry(ferry_arena_write(arena_.get(), Begin(number) + done, staging_.data(), now)));
  }
  return absl::OkStatus();
}

absl::Status FileRing::Drain(uint64_t number, uint64_t bytes, Use drain) const {
  if (OnHost()) return drain(0, DataOf(arena_) + Begin(number), bytes);
  for (uint64_t done = 0; done < bytes; done += staging_.size()) {
    const uint64_t now = std::min<uint64_t>(staging_.size(), bytes - done);
    RETURN_IF_ERROR(
        FromFerry(ferry_arena_read(arena_.get(), Begin(number) + done, staging_.data(), now)));
    RETURN_IF_ERROR(drain(done, staging_.data(), now));
  }
  return absl::OkStatus();
}

absl::Status FileRing::SetTrailer(uint64_t number, const FileChunk& chunk, uint64_t bytes) const {
  const std::string trailer = EncodeTrailer(bytes);
  return FromFerry(
      ferry_arena_write(arena_.get(), Begin(number) + chunk.bytes, trailer.data(), trailer.size()));
}

absl::StatusOr<uint64_t> FileRing::Trailer(uint64_t number, const FileChunk& chunk) const {
  std::string trailer(kTrailerBytes, '\0');
  RETURN_IF_ERROR(FromFerry(
      ferry_arena_read(arena_.get(), Begin(number) + chunk.bytes, trailer.data(), trailer.size())));
  return DecodeTrailer(trailer, chunk.bytes);
}

absl::StatusOr<BatchPtr> FileRing::Post(ferry_session* session, const PostTarget& target,
                                        uint64_t number, const FileChunk& chunk) const {
  std::vector<RangeTransfer> transfers = chunk.transfers;
  for (RangeTransfer& transfer : transfers) transfer.offset += Begin(number);
  return tools::Post(session, target, arena_.get(), transfers);
}

}  // namespace ferry::tools
