// SPDX-License-Identifier: Apache-2.0
// One factor of a product as [batches, rows, depth], of which the depth is summed over; and its
// elements as another type, for whoever multiplies. Immutable; any thread.
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
  // The left one, 0, or the right one, 1, of a dot_general or block_scaled_dot.
  ProductFactor(const WholeOp& op, size_t side);

  uint64_t batches() const { return batches_; }
  uint64_t rows() const { return rows_; }
  uint64_t depth() const { return depth_; }
  uint64_t elements() const { return batches_ * rows_ * depth_; }
  // Of what is in memory; of a block format of its elements.
  DType type() const { return type_; }
  bool has_scales() const { return scales_.has_value(); }
  // Whether all of its values are bf16's; if it has scales, those that are not too large or small.
  bool FitsBF16() const;
  // The operands of the op that it consists of.
  const std::vector<size_t>& operands() const { return operands_; }

  // Its order in memory as [batches, rows, depth], if strides say it and those of rows or of the
  // depth are 1.
  const std::optional<View>& in_memory() const { return in_memory_; }
  bool is_dense() const { return dense_; }  // row-major in memory already

  // What a part has filled, in elements.
  struct Filled {
    uint64_t first = 0;
    uint64_t count = 0;
    bool exact = true;  // if it has scales: nothing was lost
  };
  // Its elements as `to`: in the order of memory, or [batches, rows, depth] row-major if `dense`.
  // Each of `parts` does a part of them, with SpareBytes() of its own.
  Filled Fill(const std::vector<const std::byte*>& in, DType to, bool dense, std::byte* out,
              std::byte* spare, size_t part, size_t parts) const;
  uint64_t SpareBytes(DType to) const;

 private:
  struct Scales {
    size_t operand = 0;
    TensorType type;
    BlockFormat format;
  };

  // Whether some of its rows begin in the middle of a byte.
  bool HasHalfBytes() const { return type_ == DType::kF4E2M1FN && depth_ % 2 != 0; }
  Filled FillBlocks(const std::vector<const std::byte*>& in, DType to, std::byte* out,
                    std::byte* spare, uint64_t first, uint64_t rows) const;

  std::vector<size_t> operands_;
  DType type_ = DType::kF32;
  uint64_t batches_ = 1;
  uint64_t rows_ = 1;
  uint64_t depth_ = 1;
  View view_;  // in the order of batches, rows, depth
  std::optional<View> in_memory_;
  bool dense_ = false;
  std::optional<Scales> scales_;
};

}  // namespace ferry::compute
