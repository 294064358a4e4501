// SPDX-License-Identifier: Apache-2.0
// A CUDA stream for code that queues more than copies (NCCL by its handle, and kernels). It
// comes with staging memory, with copies of pieces by the gather kernel, and with marks and
// reports, which tell how much of what was queued is over. Marks can be waited for; a report is
// seen without a call of the driver, also after the GPU was lost. Holds the context.
//
// Made and destroyed where blocking is allowed; the destructor waits for what is queued. Owner:
// who made it. Home: in between, the lane or the compute thread that it was handed to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "device/copier.h"
#include "device/memory.h"

namespace ferry {

struct CudaApi;
class CudaDevice;
class CudaKernel;

class CudaStream {
 public:
  static constexpr size_t kPieces = size_t{16} << 10;  // of one Copy, at most

  struct Options {
    uint64_t staging_bytes = 0;  // not 0
    bool kernel = true;          // if false or not to be had, pieces are copied one by one
    uint64_t table_bytes = 0;    // of GPU memory, for MakeTable
    // Whether what is queued here gives way to what other streams of the GPU queue. Marks and
    // reports of such a stream are made by a second stream, which follows it.
    bool background = false;
    size_t marks = 8;  // most marks that are made and not yet reached
    // For Report: a page of host memory, 4,096 bytes, aligned to 4,096, which outlives the
    // stream. Null: there are no reports.
    std::byte* report_page = nullptr;
  };
  // Copies to or from staging that are queued again and again, described in GPU memory. The table
  // names places in staging. Each use gives the distance from these to the places that it uses.
  struct Table {
    uint64_t offset = 0;
    uint32_t tasks = 0;
    bool gathers = false;  // copies to staging; else from it
  };
  struct TableAt {
    Table table;
    uint64_t distance = 0;
  };
  static constexpr size_t kTables = 16;  // of one Copy, at most
  static absl::StatusOr<std::unique_ptr<CudaStream>> Make(CudaDevice& device, Options options);
  ~CudaStream();

  // Makes the GPU's context current: for a thread that calls a vendor library next.
  void MakeCurrent() const;
  void* handle() const;  // CUstream
  std::byte* staging() const { return memory_->data(); }
  uint64_t staging_bytes() const { return memory_->bytes() - table_bytes_; }

  // Whether one more mark can be made.
  bool room() const { return marked_ - reached_ < marks_; }
  // These queue; each ends with a mark, so there must be room(). `pieces` are at most kPieces, of
  // at most staging_bytes() in all.
  absl::Status Copy(absl::Span<const CopyPiece> pieces);
  absl::Status Mark();
  // Makes a table of at most as many pieces as one Copy takes, and at least one; ends with a mark
  // too. `gathers`: the pieces' destinations are in staging, else their sources. No table if there
  // is no kernel, or no room for the table.
  absl::StatusOr<std::optional<Table>> MakeTable(absl::Span<const CopyPiece> pieces, bool gathers);
  // Only when nothing that was queued needs the table any more.
  void FreeTable(const Table& table);
  // These queue, without a mark.
  absl::Status Copy(absl::Span<const TableAt> tables);
  absl::Status Zero(std::byte* begin, size_t bytes);
  absl::Status CopyBytes(std::byte* to, const std::byte* from, uint64_t bytes);
  absl::Status Store(std::byte* word, uint32_t value);
  // Has the GPU store `value` in the first 8 bytes of the report page when all that was queued
  // before is over, and its writes are to be seen. What is queued next does not wait for that. An
  // error: this GPU's streams do not store.
  absl::Status Report(uint64_t value);
  // Where kernels find the report page, which they may write after those 8 bytes.
  uint64_t report_address() const;
  // Launches a kernel that was loaded into this context. `arguments`: where each parameter's value
  // is; they are read before Launch returns. For compute capability 9.0 or later. The kernel may
  // begin while the one ahead of it in the stream runs (CUDA: programmatic dependent launch), so
  // that its blocks wait on the GPU: it must touch no memory before it has waited for that one
  // (griddepcontrol.wait), as all kernels do that Ferry writes (compute/cuda/kernels/ferry.cuh).
  // `beside_copies`: fewer of its blocks run at a time. Where they saturate the GPU's memory, a
  // copy from another GPU takes 1.3 times as long while they run; with fewer of them it takes as
  // long as alone, and the kernel 1.1 times as long (docs/measured-facts.md).
  absl::Status Launch(const CudaKernel& kernel, uint64_t blocks, uint32_t threads,
                      absl::Span<void* const> arguments, bool beside_copies = false);
  // marked(): how many marks were made. Reached(): asks how many of them are reached.
  uint64_t marked() const { return marked_; }
  absl::StatusOr<uint64_t> Reached();
  // Blocks until mark `number` is reached, counted from 1. Reached() is at least that then.
  absl::Status AwaitMark(uint64_t number);
  // Blocks until all that is queued is over. Of a background stream the last marks may be reached,
  // and the last report stored, a little later.
  absl::Status Await();
  // Asks the driver whether anything that was queued has failed; does not wait.
  absl::Status Look();
  // Free memory of the GPU in bytes, whoever has taken the rest; 0 if it is not known.
  uint64_t FreeBytes() const;

 private:
  friend class CudaKernel;
  struct Parts;
  const CudaApi& api() const;
  explicit CudaStream(CudaDevice& device);
  uint64_t AddressOf(const Table& table) const;

  CudaDevice& device_;
  std::unique_ptr<DeviceMemory> memory_;  // staging, then tables; holds the context
  uint64_t table_bytes_ = 0;
  size_t marks_ = 0;                   // of Options
  std::map<uint64_t, uint64_t> free_;  // free ranges of the tables' memory: length by offset
  std::unique_ptr<Parts> parts_;
  uint64_t marked_ = 0;
  uint64_t reached_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
