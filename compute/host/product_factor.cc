// SPDX-License-Identifier: Apache-2.0
#include "compute/host/product_factor.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "compute/host/block_loops.h"
#include "compute/host/kernels.h"
#include "compute/host/product_loops.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint64_t kTile = 512;

// Many elements that follow each other.
void ConvertAll(DType from, const std::byte* in, DType to, std::byte* out, uint64_t count) {
  const TileKernel kernel = ConvertKernelOf(from, to);
  if (kernel != nullptr) return kernel(in, nullptr, nullptr, out, count);
  Convert(from, in, to, out, count);
}

// Where part `part` of `count` begins; even, as two elements may share a byte.
uint64_t BeginOf(uint64_t count, size_t part, size_t parts) {
  return part == parts ? count : count * part / parts / 2 * 2;
}

uint64_t BlockOf(const WholeOp& op, const TensorType& data, const TensorType& scales) {
  if (op.node.attributes.Has(A::kBlock)) {
    return static_cast<uint64_t>(op.node.attributes.Int(A::kBlock));
  }
  return scales.dims.back() == 0 ? 1 : static_cast<uint64_t>(data.dims.back() / scales.dims.back());
}

}  // namespace

ProductFactor::ProductFactor(const WholeOp& op, size_t side) : operands_({side}) {
  const TensorType& tensor = op.in_types[side];
  const size_t rank = tensor.dims.size();
  type_ = tensor.dtype;
  std::vector<int64_t> batch;
  auto contract = static_cast<int64_t>(rank) - 1;
  if (op.node.op == Op::kDotGeneral) {
    const auto list = op.node.attributes.Ints(side == 0 ? A::kLhsBatch : A::kRhsBatch);
    batch.assign(list.begin(), list.end());
    contract = op.node.attributes.Ints(side == 0 ? A::kLhsContract : A::kRhsContract)[0];
  } else {
    if (rank == 3) batch = {0};
    if (op.in_types.size() > 2 + side) {
      const TensorType& scales = op.in_types[2 + side];
      operands_.push_back(2 + side);
      scales_ = {2 + side, scales, {type_, scales.dtype, BlockOf(op, tensor, scales)}};
    }
  }
  std::vector<size_t> order;
  const auto add = [&](int64_t dimension, uint64_t& length) {
    order.push_back(static_cast<size_t>(dimension));
    length *= static_cast<uint64_t>(tensor.dims[order.back()]);
  };
  for (const int64_t d : batch) add(d, batches_);
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    if (d != contract && std::count(batch.begin(), batch.end(), d) == 0) add(d, rows_);
  }
  add(contract, depth_);
  dense_ = std::is_sorted(order.begin(), order.end());
  const View linear = LinearView(tensor.dims);
  for (const size_t d : order) {
    view_.dims.push_back(linear.dims[d]);
    view_.strides.push_back(linear.strides[d]);
  }
  View matrices = view_;
  if (!Reshape(matrices, {static_cast<int64_t>(batches_), static_cast<int64_t>(rows_),
                          static_cast<int64_t>(depth_)})) {
    return;
  }
  for (size_t d = 0; d < 3; ++d) {
    if (matrices.dims[d] == 1) matrices.strides[d] = d == 2 ? 1 : matrices.dims[2];
  }
  if (matrices.strides[1] == 1 || matrices.strides[2] == 1) in_memory_ = std::move(matrices);
}

bool ProductFactor::FitsBF16() const {
  return type_ == DType::kBF16 || (InfoOf(type_).floating && InfoOf(type_).bits <= 8);
}

uint64_t ProductFactor::SpareBytes(DType to) const {
  const bool spare = scales_ && (to != DType::kF32 || HasHalfBytes());
  return spare ? 2 * depth_ * sizeof(float) : 0;
}

ProductFactor::Filled ProductFactor::FillBlocks(const std::vector<const std::byte*>& in, DType to,
                                                std::byte* out, std::byte* spare, uint64_t first,
                                                uint64_t rows) const {
  Filled filled{first * depth_, rows * depth_};
  // Scales may have more rows in each batch than there are.
  const auto columns = static_cast<uint64_t>(scales_->type.dims.back());
  const size_t rank = scales_->type.dims.size();
  const auto there = static_cast<uint64_t>(scales_->type.dims[rank - 2]);
  for (uint64_t row = first; row < first + rows;) {
    const std::byte* elements = in[operands_[0]] + BytesOf(type_, row * depth_);
    uint64_t count = std::min(rows_ - row % rows_, first + rows - row);
    if (to != DType::kF32) count = 1;
    if (HasHalfBytes() && row % 2 != 0) {  // it begins with the second half of a byte
      std::byte* const apart = spare + depth_ * sizeof(float);
      std::byte* const together = apart + depth_ + 1;
      Unpack(elements - 1, depth_ + 1, apart);
      Pack(apart + 1, depth_, together);
      elements = together;
      count = 1;
    }
    std::byte* const at = out + row * depth_ * BytesOf(to, 1);
    std::byte* const floats = to == DType::kF32 ? at : spare;
    DequantizeBlocksFast(scales_->format, elements,
                         in[scales_->operand] + (row / rows_ * there + row % rows_) * columns,
                         columns, count, depth_, DType::kF32, floats, 1);
    if (to != DType::kF32) {
      filled.exact = filled.exact && AllFitBF16(reinterpret_cast<const float*>(floats), depth_);
      ConvertAll(DType::kF32, floats, to, at, depth_);
    }
    row += count;
  }
  return filled;
}

ProductFactor::Filled ProductFactor::Fill(const std::vector<const std::byte*>& in, DType to,
                                          bool dense, std::byte* out, std::byte* spare, size_t part,
                                          size_t parts) const {
  if (elements() == 0) return {};
  if (scales_) {
    const uint64_t begin = BeginOf(batches_ * rows_, part, parts);
    return FillBlocks(in, to, out, spare, begin,
                      BeginOf(batches_ * rows_, part + 1, parts) - begin);
  }
  const std::byte* from = in[operands_[0]];
  uint64_t begin = BeginOf(elements(), part, parts);
  const uint64_t end = BeginOf(elements(), part + 1, parts);
  const size_t each = BytesOf(to, 1);
  const Filled filled{begin, end - begin};
  if (dense_ || !dense) {
    ConvertAll(type_, from + BytesOf(type_, begin), to, out + begin * each, end - begin);
    return filled;
  }
  std::array<std::byte, kTile * 8> tile;
  std::array<std::byte, kTile> packed;
  for (; begin < end; begin += kTile) {
    const uint64_t count = std::min(kTile, end - begin);
    Gather(type_, from, view_, begin, count, tile.data());
    const bool half = type_ == DType::kF4E2M1FN;
    if (half) Pack(tile.data(), count, packed.data());
    ConvertAll(type_, half ? packed.data() : tile.data(), to, out + begin * each, count);
  }
  return filled;
}

}  // namespace ferry::compute
