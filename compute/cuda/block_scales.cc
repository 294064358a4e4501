// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/block_scales.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "compute/plan/kernel_loop.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint64_t kMxBlock = 32;
constexpr uint64_t kNvBlock = 16;
constexpr int64_t kTileColumns = 4;
constexpr int64_t kDepths = 32;  // a multiple: rows of factors at multiples of 16 bytes

}  // namespace

bool TakesBlocks(const Program& program, const Node& product) {
  if (product.op != Op::kBlockScaledDot || product.operands.size() < 4) return false;
  const auto type = [&](size_t i) -> const TensorType& {
    return program.types[product.operands[i]];
  };
  if (type(0).dims.size() != 2 || type(0).dims[1] % kDepths != 0) return false;
  const auto fits = [&](size_t index) {
    const TensorType& data = type(index);
    const TensorType& scales = type(index + 2);
    const uint64_t block = BlockOf(product, data, scales);
    const bool nv =
        data.dtype == DType::kF4E2M1FN && scales.dtype == DType::kF8E4M3FN && block == kNvBlock;
    const bool mx =
        data.dtype != DType::kF4E2M1FN && scales.dtype == DType::kF8E8M0FNU && block == kMxBlock;
    return nv || mx;
  };
  const bool both_e5m2 = type(0).dtype == DType::kF8E5M2 && type(1).dtype == DType::kF8E5M2;
  return fits(0) && fits(1) && type(2).dtype == type(3).dtype && !both_e5m2;
}

TensorType NeededScales(const Program& program, const Node& product, size_t index) {
  const TensorType& data = program.types[product.operands[index]];
  const TensorType& scales = program.types[product.operands[index + 2]];
  const auto block = static_cast<int64_t>(BlockOf(product, data, scales));
  return {scales.dtype, {data.dims[0], data.dims[1] / block}};
}

bool AreTiles(const TensorType& unswizzled, const TensorType& needed) {
  return needed.dims[1] % kTileColumns == 0 && unswizzled.dims[1] == needed.dims[1];
}

void AddSwizzle(ValueId scales, const TensorType& needed, Part& part) {
  Program& program = part.program();
  if (program.types[scales] != needed) {
    Node slice;
    slice.op = Op::kSlice;
    slice.operands = {scales};
    slice.attributes.Set(A::kStart, std::vector<int64_t>{0, 0});
    slice.attributes.Set(A::kLimit, needed.dims);
    scales = program.Result(program.Append(std::move(slice), {needed}));
  }
  Node swizzle;
  swizzle.op = Op::kSwizzleScales;
  swizzle.operands = {scales};
  const ValueId swizzled = program.Result(program.Append(std::move(swizzle)));
  Node store;
  store.op = Op::kStore;
  store.operands = {swizzled};
  store.buffers = {part.AddBuffer(*BytesOf(program.types[swizzled]))};
  program.Append(std::move(store), {});
}

}  // namespace ferry::compute
