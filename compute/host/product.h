// SPDX-License-Identifier: Apache-2.0
// A product of matrices made ready: dot_general or block_scaled_dot. Who multiplies what is the
// table of docs/programs.md, "Products on the CPU": oneDNN where its sums are within the tolerance,
// of factors that become f32 or bf16 (both exact) or are 8-bit integers; else, and for factors so
// small that it would take them for 0, our own sums. Immutable; any thread runs it.
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
  // `constant`, by operand: it is the same in all runs that are given the same `kept`. Each of
  // `parts` is done in so many launches, if the library does it.
  Product(WholeOp op, const std::vector<bool>& constant, size_t parts, uint64_t launches = 1);

  uint64_t scratch_bytes() const { return scratch_bytes_; }
  // What constant factors become, for the next run; 0 if none is or does.
  uint64_t kept_bytes() const { return kept_bytes_; }
  // Who multiplies: "oneDNN f32", "our own f64".
  std::string Text() const;

  // `scratch` and `kept` have so many bytes and are aligned to 64. If not `is_kept`, `kept` is
  // filled first. Left half done, but for `kept`, if the run stops.
  void Run(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
           std::byte* kept, bool is_kept, Workers* workers, RunControl& control) const;

 private:
  // A factor as the library is given it.
  struct Side {
    explicit Side(ProductFactor made) : factor(std::move(made)) {}
    ProductFactor factor;
    bool keeps = false;       // what it becomes, and what was found out about it
    bool in_place = false;    // it is what is in memory
    bool dense = false;       // it is made row-major
    bool packed = false;      // in the library's own order
    uint64_t made_bytes = 0;  // of what it becomes; 0 if it is in place
  };
  // What was found out about a side.
  struct Found {
    int32_t smallest = 0;  // exponent of a value but 0, as f32 has it; 255: there is none, or
                           // none that matters
    int32_t exact = 0;     // nothing was lost
  };

  void FindLibrary(uint64_t launches);
  void PlanMemory();
  bool RunByLibrary(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
                    std::byte* kept, bool is_kept, Workers* workers, RunControl& control) const;
  // Whether the library may multiply such factors.
  bool MayBeByLibrary(const Found& left, const Found& right) const;
  // A factor that is in place is looked at while it is multiplied, by the same threads: where there
  // is something small, which is rare, the product is made anew.
  bool IsLookedAtLater(const Side& side) const {
    return drops_small_ && side.in_place && !side.keeps;
  }
  // The factor for the library, in `made` if it is not in place.
  Found MakeSide(const Side& side, const std::vector<const std::byte*>& in, std::byte* made,
                 std::byte* spare, Workers* workers) const;
  void RunByRows(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
                 Workers* workers, RunControl& control) const;
  // Sums of the type `from` to results, from the element `first` of them on.
  void Finish(const std::byte* sums, DType from, uint64_t first, uint64_t count, double global,
              std::byte* out) const;
  void RunParts(Workers* workers, absl::FunctionRef<void(size_t)> part) const;
  double GlobalOf(const std::vector<const std::byte*>& in) const;

  const WholeOp op_;
  const size_t parts_;
  Side left_, right_;
  DType type_;      // of the result
  DType sum_type_;  // as the op says it
  RowType row_type_ = RowType::kF32;
  DType row_factor_ = DType::kF32;

  std::unique_ptr<LibraryProduct> library_;
  DType library_factor_ = DType::kF32;  // of integers each side has its own
  DType library_sum_ = DType::kF32;
  bool direct_ = false;       // the library's sums are the results
  bool drops_small_ = false;  // the library may take for 0 what is below the least normal number

  uint64_t panel_ = 0;        // rows of the right side at a time
  uint64_t spare_bytes_ = 0;  // of each part
  uint64_t scratch_bytes_ = 0;
  uint64_t kept_bytes_ = 0;
};

}  // namespace ferry::compute
