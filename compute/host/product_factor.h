// SPDX-License-Identifier: Apache-2.0
// One factor of a product as [batches, rows, depth], where the product sums over the depth; and its
// elements converted to the type that whoever multiplies takes. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compute/host/view.h"
#include "compute/host/whole_ops.h"
#include "compute/numerics/block.h"

namespace ferry::compute {

class ProductFactor {
 public:
  // `side`: 0 for the left factor, 1 for the right one, of a dot_general or block_scaled_dot.
  ProductFactor(const WholeOp& op, size_t side);

  uint64_t batches() const { return batches_; }
  uint64_t rows() const { return rows_; }
  uint64_t depth() const { return depth_; }
  uint64_t elements() const { return batches_ * rows_ * depth_; }
  // The type of the elements in memory; in a block format, without the scales.
  DType type() const { return type_; }
  bool has_scales() const { return scales_.has_value(); }
  // Whether all its values fit bf16; with scales, all but values that are too large or too small.
  bool FitsBF16() const;
  // The op's operands that make up the factor.
  const std::vector<size_t>& operands() const { return operands_; }

  // How the factor lies in memory as [batches, rows, depth]. Not set if strides cannot say that, or
  // if neither the stride of the rows nor that of the depth is 1.
  const std::optional<View>& in_memory() const { return in_memory_; }
  bool is_dense() const { return dense_; }  // row-major in memory already

  // Which elements one part has filled.
  struct Filled {
    uint64_t first = 0;
    uint64_t count = 0;
    bool exact = true;  // with scales: nothing was lost
  };
  // Writes the elements as type `to`: in the order of memory, or row-major as [batches, rows,
  // depth] if `dense`. Part `part` of `parts` writes its share; `spare` is its own and SpareBytes()
  // long.
  Filled Fill(const std::vector<const std::byte*>& in, DType to, bool dense, std::byte* out,
              std::byte* spare, size_t part, size_t parts) const;
  uint64_t SpareBytes(DType to) const;

 private:
  struct Scales {
    size_t operand = 0;
    TensorType type;
    BlockFormat format;
  };

  // Whether some rows begin in the middle of a byte.
  bool HasHalfBytes() const { return type_ == DType::kF4E2M1FN && depth_ % 2 != 0; }
  Filled FillBlocks(const std::vector<const std::byte*>& in, DType to, std::byte* out,
                    std::byte* spare, uint64_t first, uint64_t rows) const;

  std::vector<size_t> operands_;
  DType type_ = DType::kF32;
  uint64_t batches_ = 1;
  uint64_t rows_ = 1;
  uint64_t depth_ = 1;
  View view_;  // dimensions in the order batches, rows, depth
  std::optional<View> in_memory_;
  bool dense_ = false;
  std::optional<Scales> scales_;
};

}  // namespace ferry::compute
