// SPDX-License-Identifier: Apache-2.0
#include "compute/host/whole_ops.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "compute/host/delta.h"
#include "compute/host/kernels.h"
#include "compute/host/view.h"
#include "compute/numerics/convert.h"
#include "compute/numerics/scale_layout.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint64_t kSumsAtOnce = uint64_t{1} << 20;

// The integer at `index`, between 0 and `most`.
int64_t ClampedAt(DType type, const std::byte* base, uint64_t index, int64_t most) {
  uint64_t bits = 0;
  const DType wide = InfoOf(type).is_signed ? DType::kI64 : DType::kU64;
  Convert(type, base + index * BytesOf(type, 1), wide, reinterpret_cast<std::byte*>(&bits), 1);
  if (InfoOf(type).is_signed && static_cast<int64_t>(bits) < 0) return 0;
  return bits > static_cast<uint64_t>(most) ? most : static_cast<int64_t>(bits);
}

void RunMove(const WholeOp& op, const std::vector<const std::byte*>& in, std::byte* out) {
  const TensorType& from = op.in_types[0];
  const TensorType& to = op.out_types[0];
  const auto ints = [&](A attribute) { return op.node.attributes.Ints(attribute); };
  View source = LinearView(from.dims);
  View target = LinearView(to.dims);
  if (from.dtype == DType::kF4E2M1FN && *BytesOf(to) > 0) {
    std::memset(out, 0, *BytesOf(to));  // a half byte too many
  }
  switch (op.node.op) {
    case Op::kDynamicSlice:
      for (size_t d = 0; d < from.dims.size(); ++d) {
        source.offset += source.strides[d] * ClampedAt(op.in_types[d + 1].dtype, in[d + 1], 0,
                                                       from.dims[d] - ints(A::kSizes)[d]);
      }
      source.dims = to.dims;
      return CopyElements(from.dtype, in[0], source, out, target);
    case Op::kPad: {
      View nothing = target;
      std::fill(nothing.strides.begin(), nothing.strides.end(), 0);
      CopyElements(from.dtype, in[1], nothing, out, target);
      for (size_t d = 0; d < from.dims.size(); ++d) {
        if (!ints(A::kLow).empty()) target.offset += ints(A::kLow)[d] * target.strides[d];
        if (!ints(A::kInterior).empty()) target.strides[d] *= ints(A::kInterior)[d] + 1;
      }
      target.dims = from.dims;
      return CopyElements(from.dtype, in[0], source, out, target);
    }
    case Op::kConcatenate: {
      const auto dimension = static_cast<size_t>(op.node.attributes.Int(A::kDimension));
      for (size_t i = 0; i < in.size(); ++i) {
        target.dims = op.in_types[i].dims;
        CopyElements(from.dtype, in[i], LinearView(target.dims), out, target);
        target.offset += target.dims[dimension] * target.strides[dimension];
      }
      return;
    }
    default: {  // kGatherRows
      const auto indices = static_cast<int64_t>(*ElementsOf(op.in_types[1]));
      View row = {0, {from.dims.begin() + 1, from.dims.end()}, {}};
      row.strides = LinearView(row.dims).strides;
      View placed = row;
      const auto length = static_cast<int64_t>(ElementsOf(row));
      for (int64_t i = 0; i < indices; ++i) {
        row.offset = length * ClampedAt(op.in_types[1].dtype, in[1], static_cast<uint64_t>(i),
                                        from.dims[0] - 1);
        placed.offset = length * i;
        CopyElements(from.dtype, in[0], row, out, placed);
      }
    }
  }
}

// An operand as (before, along a dimension, after), both of what is not along it as one.
struct Lines {
  uint64_t outer = 1;
  uint64_t length = 1;
  uint64_t inner = 1;
};

Lines LinesOf(const WholeOp& op) {
  const auto dimension = static_cast<size_t>(op.node.attributes.Int(A::kDimension));
  Lines lines;
  const std::vector<int64_t>& dims = op.in_types[0].dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    uint64_t& part = d < dimension ? lines.outer : d > dimension ? lines.inner : lines.length;
    part *= static_cast<uint64_t>(dims[d]);
  }
  return lines;
}

void RunCumulativeSum(const WholeOp& op, const std::byte* in, std::byte* out, RunControl& control) {
  const DType type = op.in_types[0].dtype;
  const size_t size = BytesOf(type, 1);
  const Lines lines = LinesOf(op);
  DType accumulator = type == DType::kF16 || type == DType::kBF16 ? DType::kF32 : type;
  if (op.node.attributes.Has(A::kAccumulate)) {
    accumulator = static_cast<DType>(op.node.attributes.Int(A::kAccumulate));
  }
  const TileKernel add = KernelOf(Op::kAdd, accumulator);
  uint64_t done = 0;
  for (uint64_t i = 0; i < lines.outer; ++i) {
    for (uint64_t j = 0; j < lines.inner; ++j) {
      std::array<std::byte, 8> sum;
      for (uint64_t k = 0; k < lines.length; ++k) {
        if (++done % kSumsAtOnce == 0 && control.Stops()) return;
        const uint64_t at = ((i * lines.length + k) * lines.inner + j) * size;
        std::array<std::byte, 8> term;
        Convert(type, in + at, accumulator, term.data(), 1);
        if (k == 0) {
          sum = term;
        } else {
          add(sum.data(), term.data(), nullptr, sum.data(), 1);
        }
        Convert(accumulator, sum.data(), type, out + at, 1);
      }
    }
  }
}

}  // namespace

bool IsWholeOp(Op op) {
  switch (op) {
    case Op::kDynamicSlice:
    case Op::kPad:
    case Op::kConcatenate:
    case Op::kGatherRows:
    case Op::kCumulativeSum:
    case Op::kDotGeneral:
    case Op::kBlockScaledDot:
    case Op::kSwizzleScales:
    case Op::kUnswizzleScales:
    case Op::kChecksum:
    case Op::kDeltaEncode:
    case Op::kDeltaApply:
      return true;
    default:
      return false;
  }
}

void RunWholeOp(const WholeOp& op, const std::vector<const std::byte*>& in,
                const std::vector<std::byte*>& out, Workers* workers, RunControl& control) {
  const ByteWork work{workers, control};
  switch (op.node.op) {
    case Op::kChecksum:
      return RunChecksum(in[0], *BytesOf(op.in_types[0]), work, out[0]);
    case Op::kDeltaEncode: {
      const auto wanted = [&](size_t i) { return op.wanted[i] ? out[i] : nullptr; };
      return RunDeltaEncode(DeltaSizesOf(*BytesOf(op.in_types[0]), op.out_types[1]), in[0], in[1],
                            work, {out[0], wanted(1), wanted(2), wanted(3)});
    }
    case Op::kDeltaApply: {
      const auto bytes = static_cast<uint64_t>(op.node.attributes.Int(A::kBytes));
      return RunDeltaApply(DeltaSizesOf(bytes, op.in_types[1]), in[0], in[1], in[2], work, out[0]);
    }
    case Op::kCumulativeSum:
      return RunCumulativeSum(op, in[0], out[0], control);
    case Op::kBitcastConvert:
      if (*ElementsOf(op.in_types[0]) > 0) std::memcpy(out[0], in[0], *BytesOf(op.in_types[0]));
      return;
    case Op::kSwizzleScales:
      return SwizzleScales(in[0], static_cast<uint64_t>(op.in_types[0].dims[0]),
                           static_cast<uint64_t>(op.in_types[0].dims[1]), out[0]);
    case Op::kUnswizzleScales:
      return UnswizzleScales(in[0], static_cast<uint64_t>(op.out_types[0].dims[0]),
                             static_cast<uint64_t>(op.out_types[0].dims[1]), out[0]);
    default:
      return RunMove(op, in, out[0]);
  }
}

}  // namespace ferry::compute
