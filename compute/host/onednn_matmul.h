// SPDX-License-Identifier: Apache-2.0
// A product of matrices in one call of oneDNN a part, whatever its depth. Only library_product.cc
// makes these, after it has tried what the library's code does on this CPU. Immutable; any thread
// runs it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compute/dtype.h"
#include "compute/host/library_product.h"
#include "compute/host/run_control.h"
#include "compute/host/workers.h"

namespace ferry::compute {

class OnednnMatmul : public LibraryProduct {
 public:
  struct Options {
    DType result = DType::kF32;
    bool packed = false;  // the right side is in the library's own order
    bool adds = false;    // the product is added to what `out` has
    // Not null: `packed`, in the order in which this product of equal sizes has its right side.
    const OnednnMatmul* packed_as = nullptr;
    size_t parts = 1;
    uint64_t launches = 1;  // of a part
  };

  // Throws dnnl::error if the library may not make code. Not ok(): it has no such product here.
  OnednnMatmul(const LibraryFactors& factors, const Options& options);
  bool ok() const { return !parts_.empty(); }
  // The same as a pointer: null if it is not ok(), or threw.
  static std::unique_ptr<OnednnMatmul> Make(const LibraryFactors& factors, const Options& options);

  // What the library calls the code that multiplies the parts.
  const std::set<std::string>& implementations() const { return implementations_; }
  uint64_t scratch_bytes() const override { return scratch_ * std::min(at_once_, parts_.size()); }
  uint64_t packed_bytes() const override { return packed_bytes_; }
  void Pack(const std::byte* right, std::byte* packed) const override;
  void Run(const std::byte* left, const std::byte* right, std::byte* out, std::byte* scratch,
           Workers* workers, RunControl& control,
           absl::FunctionRef<void(uint64_t first, uint64_t end)> over) const override;

 private:
  using Desc = dnnl::memory::desc;
  struct Part {
    dnnl::matmul matmul;
    Desc left, out, scratch;
    uint64_t first = 0;  // row
    uint64_t rows = 0;
    uint64_t left_offset = 0;  // in elements
    uint64_t out_offset = 0;
  };

  // Row `first` to `first + rows` of the left side, as a product of its own. False: there is none.
  bool AddPart(const LibraryFactors& factors, const Options& options, int64_t first, int64_t rows);
  // How a right side is packed. False: not by the library alone.
  bool PlanPacking();

  const uint64_t left_bytes_;  // of an element
  const uint64_t out_bytes_;
  const size_t at_once_;  // parts that have scratch
  dnnl::engine engine_;
  Desc plain_, right_;  // the right side, as it is and as the product has it
  dnnl::reorder reorder_;
  uint64_t packed_bytes_ = 0;
  std::vector<Part> parts_;  // none: there is no such product
  std::set<std::string> implementations_;
  uint64_t scratch_ = 0;  // of a part
};

}  // namespace ferry::compute
