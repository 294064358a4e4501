// SPDX-License-Identifier: Apache-2.0
// A product of matrices by oneDNN: f32 by f32; bf16 by bf16 to f32 or bf16; and 8-bit integers to
// i32, if this CPU has instructions for them. For a given number of parts it has one order of sums.
// The rows of the left side are divided among the parts; one thread does a part, and oneDNN's own
// threads are not used. The sums of floats of more than kTermsOfLibrary terms are made in pieces,
// so that they are as near as shorter ones. Where DropsSmall() it must not be given factors that
// are below the least normal number, or whose products are (docs/numerics.md). Immutable; any
// thread runs it.
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

// The most terms that the library adds up in one sum of floats. Measured with equal terms, which is
// the worst: 1,024 lose 0.8 of 2^-17 of their magnitudes where it has AVX-512, 2,048 twice that
// (LibrarySumTest.PiecesAreShortEnough).
inline constexpr int64_t kTermsOfLibrary = 1024;

// Both sides as [batches, rows, depth]. In each the stride of the depth or of the rows is 1. No
// dimension is 0.
struct LibraryFactors {
  DType left_type = DType::kF32;
  DType right_type = DType::kF32;
  View left;
  View right;
};

class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;

  // Null if the library has no product for these types on this CPU (for integers: none that is
  // exact), if it may not make code, or if the result is bf16 of more than kTermsOfLibrary terms.
  // `packed`: the right side is in the library's own order. Each of `parts` is done in `launches`
  // launches, by rows.
  static std::unique_ptr<LibraryProduct> Make(const LibraryFactors& factors, DType result,
                                              bool packed, size_t parts, uint64_t launches = 1);

  // Whether, of factors of such a type, numbers below the least normal one may be taken for 0. The
  // CPU's instructions do so with bf16; whether they do with f32 is tried once a process.
  static bool DropsSmall(DType factors);

  virtual uint64_t scratch_bytes() const = 0;  // for all parts together
  // Bytes of the packed right side; 0: the library's order is that of memory, so packing does
  // nothing.
  virtual uint64_t packed_bytes() const = 0;
  virtual void Pack(const std::byte* right, std::byte* packed) const = 0;
  // `right` is as Pack() leaves it if it is packed. `over` is called by any thread when rows
  // `first` to `end` of each batch are done. If the run stops the product is left half done.
  virtual void Run(const std::byte* left, const std::byte* right, std::byte* out,
                   std::byte* scratch, Workers* workers, RunControl& control,
                   absl::FunctionRef<void(uint64_t first, uint64_t end)> over) const = 0;
};

// Why the library cannot make code in this process; empty if it can. A hardened process cannot
// (systemd's MemoryDenyWriteExecute); all products are our own then.
const std::string& LibraryProblem();

}  // namespace ferry::compute
