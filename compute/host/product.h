// SPDX-License-Identifier: Apache-2.0
// A product of matrices made ready: dot_general or block_scaled_dot. The table in docs/programs.md,
// "Products on the CPU", says who multiplies. oneDNN does, if its sums are within the tolerance and
// the factors become f32 or bf16 (both exactly) or are 8-bit integers. Else, and for factors so
// small that oneDNN would take them for 0, our own loops do. Immutable; any thread runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compute/host/library_product.h"
#include "compute/host/product_factor.h"
#include "compute/host/product_loops.h"
#include "compute/host/run_control.h"
#include "compute/host/whole_ops.h"
#include "compute/host/workers.h"

namespace ferry::compute {

class Product {
 public:
  // `constant`, by operand: it is the same in all runs that are given the same `from_constants`.
  // The library does each of `parts` in `launches` launches.
  Product(WholeOp op, const std::vector<bool>& constant, size_t parts, uint64_t launches = 1);

  uint64_t scratch_bytes() const { return scratch_bytes_; }
  // Bytes of what constant factors are turned into, for later runs; 0: nothing is kept.
  uint64_t from_constants_bytes() const { return from_constants_bytes_; }
  // Who multiplies: "oneDNN f32", "our own f64".
  std::string Text() const;

  // `scratch` and `from_constants` are scratch_bytes() and from_constants_bytes() long and aligned
  // to 64. If `is_filled` is false, `from_constants` is filled first. If the run stops all but
  // `from_constants` is left half done.
  void Run(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
           std::byte* from_constants, bool is_filled, Workers* workers, RunControl& control) const;

 private:
  // A factor as the library takes it.
  struct Side {
    explicit Side(ProductFactor made) : factor(std::move(made)) {}
    ProductFactor factor;
    bool keeps = false;       // `from_constants` has what it is turned into, and its Found
    bool in_place = false;    // the library takes it as it is in memory
    bool dense = false;       // it is turned into row-major order
    bool packed = false;      // it is turned into the library's own order
    uint64_t made_bytes = 0;  // bytes of what it is turned into; 0 if in place
  };
  // What was found out about a factor.
  struct Found {
    int32_t smallest = 0;  // smallest exponent of a value that is not 0, as f32 has it; 255: there
                           // is none that matters
    int32_t exact = 0;     // 1: the conversion lost nothing
  };

  void FindLibrary(uint64_t launches);
  void PlanMemory();
  bool RunByLibrary(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
                    std::byte* from_constants, bool is_filled, Workers* workers,
                    RunControl& control) const;
  // Whether the library may multiply factors of which this was found.
  bool MayBeByLibrary(const Found& left, const Found& right) const;
  // Whether the factor is looked at while it is multiplied, by the same threads, because it is in
  // place. If something in it is small, which is rare, the product is computed anew.
  bool IsLookedAtLater(const Side& side) const {
    return drops_small_ && side.in_place && !side.keeps;
  }
  // Makes the factor for the library: in `made`, if it is not in place.
  Found MakeSide(const Side& side, const std::vector<const std::byte*>& in, std::byte* made,
                 std::byte* spare, Workers* workers) const;
  void RunByRows(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
                 Workers* workers, RunControl& control) const;
  // Turns sums of type `from` into results, from element `first` of the results on.
  void Finish(const std::byte* sums, DType from, uint64_t first, uint64_t count, double global,
              std::byte* out) const;
  void RunParts(Workers* workers, absl::FunctionRef<void(size_t)> part) const;
  double GlobalOf(const std::vector<const std::byte*>& in) const;

  const WholeOp op_;
  const size_t parts_;
  Side left_, right_;
  DType type_;      // type of the result
  DType sum_type_;  // type of the sums that the op asks for
  RowType row_type_ = RowType::kF32;
  DType row_factor_ = DType::kF32;

  std::unique_ptr<LibraryProduct> library_;
  DType library_factor_ = DType::kF32;  // integers: each side has its own type
  DType library_sum_ = DType::kF32;
  bool direct_ = false;       // the library's sums are the results
  bool drops_small_ = false;  // the library may take numbers below the least normal one for 0

  uint64_t panel_ = 0;        // rows of the right side that are done at a time
  uint64_t spare_bytes_ = 0;  // for each part
  uint64_t scratch_bytes_ = 0;
  uint64_t from_constants_bytes_ = 0;
};

}  // namespace ferry::compute
