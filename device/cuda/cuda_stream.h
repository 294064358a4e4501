// SPDX-License-Identifier: Apache-2.0
// A stream of a GPU for somebody who queues more on it than copies: its handle is for vendor
// libraries. With it comes staging memory, copies of pieces by the gather kernel, and marks, which
// tell what of all that is over. Holds the context.
//
// Made and destroyed where blocking is allowed; the destructor waits for what is queued. In between
// it is one thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/copier.h"
#include "device/memory.h"

namespace ferry {

class CudaDevice;

class CudaStream {
 public:
  static constexpr size_t kMarks = 8;                  // that are not reached
  static constexpr size_t kPieces = size_t{16} << 10;  // of one Copy

  struct Options {
    uint64_t staging_bytes = 0;  // not 0
    bool kernel = true;          // else, or where it cannot be had, pieces are copied one by one
  };
  static absl::StatusOr<std::unique_ptr<CudaStream>> Make(CudaDevice& device, Options options);
  ~CudaStream();

  // For a thread that calls a vendor library next.
  void MakeCurrent() const;
  void* handle() const;  // CUstream
  std::byte* staging() const { return staging_->data(); }
  uint64_t staging_bytes() const { return staging_->bytes(); }

  // Whether one more mark can be made.
  bool room() const { return marked_ - reached_ < kMarks; }
  // Queue; each ends with a mark, so there must be room. Pieces are at most kPieces and have at
  // most staging_bytes.
  absl::Status Copy(absl::Span<const CopyPiece> pieces);
  absl::Status Mark();
  // Queues, without a mark.
  absl::Status Zero(std::byte* begin, size_t bytes);
  // How many marks were made, and how many of them are reached, as this call finds.
  uint64_t marked() const { return marked_; }
  absl::StatusOr<uint64_t> Reached();
  // Blocks until all that is queued is over.
  absl::Status Await();
  // Of the GPU, whoever has taken the rest; 0 if it is not known.
  uint64_t FreeBytes() const;

 private:
  struct Parts;
  explicit CudaStream(CudaDevice& device);

  CudaDevice& device_;
  std::unique_ptr<DeviceMemory> staging_;  // holds the context
  std::unique_ptr<Parts> parts_;
  uint64_t marked_ = 0;
  uint64_t reached_ = 0;
};

}  // namespace ferry
