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
#include <map>
#include <memory>
#include <optional>

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
    uint64_t table_bytes = 0;    // of the GPU's memory, for MakeTable
  };
  // Copies between staging and elsewhere that are queued again and again, described in the GPU's
  // memory: by places in staging, whose distance from where they are in the end is said each time.
  struct Table {
    uint64_t offset = 0;
    uint32_t tasks = 0;
    bool gathers = false;  // to staging
  };
  struct TableAt {
    Table table;
    uint64_t distance = 0;
  };
  static constexpr size_t kTables = 16;  // of one Copy
  static absl::StatusOr<std::unique_ptr<CudaStream>> Make(CudaDevice& device, Options options);
  ~CudaStream();

  // For a thread that calls a vendor library next.
  void MakeCurrent() const;
  void* handle() const;  // CUstream
  std::byte* staging() const { return memory_->data(); }
  uint64_t staging_bytes() const { return memory_->bytes() - table_bytes_; }

  // Whether one more mark can be made.
  bool room() const { return marked_ - reached_ < kMarks; }
  // Queue; each ends with a mark, so there must be room. Pieces are at most kPieces and have at
  // most staging_bytes.
  absl::Status Copy(absl::Span<const CopyPiece> pieces);
  absl::Status Mark();
  // For as many pieces as one Copy, and not none; ends with a mark too. `gathers`: their
  // destinations are in staging, else their sources. None if there is no kernel, or no place left.
  absl::StatusOr<std::optional<Table>> MakeTable(absl::Span<const CopyPiece> pieces, bool gathers);
  // When nothing that was queued needs it any more.
  void FreeTable(const Table& table);
  // Queue, without a mark.
  absl::Status Copy(absl::Span<const TableAt> tables);
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
  uint64_t AddressOf(const Table& table) const;

  CudaDevice& device_;
  std::unique_ptr<DeviceMemory> memory_;  // staging, and behind it tables; holds the context
  uint64_t table_bytes_ = 0;
  std::map<uint64_t, uint64_t> free_;  // of the tables' memory: how long, by offset
  std::unique_ptr<Parts> parts_;
  uint64_t marked_ = 0;
  uint64_t reached_ = 0;
};

}  // namespace ferry
