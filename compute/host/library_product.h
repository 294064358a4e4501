// SPDX-License-Identifier: Apache-2.0
// A product of matrices by oneDNN: f32 by f32, bf16 by bf16 to f32 or bf16, and 8-bit integers to
// i32, where this CPU has it, in one order of sums for so many parts. The rows of the left side are
// divided among the parts, each done by one thread: its own threads are not used. Where it
// `drops_small`, factors that are, or whose products are, below the least normal number are not for
// it (docs/numerics.md). Immutable; any thread runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "compute/dtype.h"
#include "compute/host/run_control.h"
#include "compute/host/view.h"
#include "compute/host/workers.h"

namespace ferry::compute {

// [batches, rows, depth] of both sides, of which strides or those of rows are 1. Nothing is 0.
struct LibraryFactors {
  DType left_type = DType::kF32;
  DType right_type = DType::kF32;
  View left;
  View right;
};

class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;

  // Nothing if the library has none for the types on this CPU (of integers: none that is exact), or
  // where it may not make code. `packed`: the right side is in the library's own order. Each of
  // `parts` is done in so many launches, rows after rows.
  static std::unique_ptr<LibraryProduct> Make(const LibraryFactors& factors, DType result,
                                              bool packed, size_t parts, uint64_t launches = 1);

  // May numbers below the least normal one be taken for 0? bf16's are, by the CPU's instructions;
  // whether f32's are is tried once a process.
  virtual bool drops_small() const = 0;
  virtual uint64_t scratch_bytes() const = 0;  // of all parts
  // Of the right side, if it is packed; 0: it would be as it is, and is not.
  virtual uint64_t packed_bytes() const = 0;
  virtual void Pack(const std::byte* right, std::byte* packed) const = 0;
  // `right` as Pack leaves it, if it is packed. `over`, of any thread: rows `first` to `end` of
  // each batch are there. Left half done if the run stops.
  virtual void Run(const std::byte* left, const std::byte* right, std::byte* out,
                   std::byte* scratch, Workers* workers, RunControl& control,
                   absl::FunctionRef<void(uint64_t first, uint64_t end)> over) const = 0;
};

// Whether the library can make code in this process, as a hardened one cannot (systemd's
// MemoryDenyWriteExecute), in words; empty if it can. All products are our own then.
const std::string& LibraryProblem();

}  // namespace ferry::compute
