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
constexpr int64_t kTileRows = 128;
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

std::vector<Program> ScaleCuts(const TensorType& needed, int64_t columns) {
  constexpr int64_t kTileBytes = 512;
  const int64_t rows = (needed.dims[0] + kTileRows - 1) / kTileRows;  // of tiles
  if (rows == 1) return {};
  const int64_t all = (needed.dims[1] + kTileColumns - 1) / kTileColumns * kTileBytes;
  const int64_t piece = columns / kTileColumns * kTileBytes;  // of a row of tiles
  std::vector<Program> cuts;
  const auto add = [&](int64_t begin, int64_t count, int64_t width) {
    Program program;
    for (const char* name : {"whole", "pieces"}) {
      Buffer buffer;
      buffer.name = name;
      buffer.bytes = static_cast<uint64_t>(rows * all);
      program.buffers.push_back(std::move(buffer));
    }
    program.buffers[1].access = Access::kWrite;
    Node input;
    input.op = Op::kInput;
    input.buffers = {0};
    input.attributes.Set(A::kOffset, begin);
    input.attributes.Set(A::kStrides, std::vector<int64_t>{width, all, 1});
    Node store;
    store.op = Op::kStore;
    store.operands = {
        program.Result(program.Append(std::move(input), {{needed.dtype, {count, rows, width}}}))};
    store.buffers = {1};
    store.attributes.Set(A::kOffset, begin * rows);
    program.Append(std::move(store), {});
    cuts.push_back(std::move(program));
  };
  const int64_t whole = all / piece;
  add(0, whole, piece);
  if (whole * piece < all) add(whole * piece, 1, all - whole * piece);
  return cuts;
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
