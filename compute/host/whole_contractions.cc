// SPDX-License-Identifier: Apache-2.0
// Products as sums over rows that were made dense and wide enough first.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "compute/host/view.h"
#include "compute/host/whole_ops.h"
#include "compute/numerics/block.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint64_t kProductsAtOnce = uint64_t{1} << 22;

// One side of a product: [batches, rows, depth].
struct Side {
  uint64_t batches = 1;
  uint64_t rows = 1;
  uint64_t depth = 1;
  View view;
};

Side SideOf(const TensorType& type, absl::Span<const int64_t> batch, int64_t contract) {
  const View linear = LinearView(type.dims);
  Side side;
  const auto add = [&](int64_t dimension, uint64_t& part) {
    const auto d = static_cast<size_t>(dimension);
    side.view.dims.push_back(linear.dims[d]);
    side.view.strides.push_back(linear.strides[d]);
    part *= static_cast<uint64_t>(linear.dims[d]);
  };
  for (const int64_t d : batch) add(d, side.batches);
  for (int64_t d = 0; d < static_cast<int64_t>(type.dims.size()); ++d) {
    if (d != contract && std::count(batch.begin(), batch.end(), d) == 0) add(d, side.rows);
  }
  add(contract, side.depth);
  return side;
}

// In which products are made: their sums' type says, as numerics.md does.
DType WorkTypeOf(const WholeOp& op) {
  if (!InfoOf(op.out_types[0].dtype).floating) return DType::kI64;
  const DType sum = op.node.attributes.Has(A::kAccumulate)
                        ? static_cast<DType>(op.node.attributes.Int(A::kAccumulate))
                        : op.out_types[0].dtype;
  return sum == DType::kF64 ? DType::kF64 : DType::kF32;
}

// All elements of a view, one after the other, as `to`.
void Widen(DType from, const std::byte* in, const View& view, DType to, std::byte* out) {
  constexpr uint64_t kTile = 512;
  std::array<std::byte, kTile * 8> tile;
  std::array<std::byte, kTile> packed;
  const uint64_t elements = ElementsOf(view);
  for (uint64_t done = 0; done < elements; done += kTile) {
    const uint64_t count = std::min(kTile, elements - done);
    Gather(from, in, view, done, count, tile.data());
    const bool half = from == DType::kF4E2M1FN;
    if (half) Pack(tile.data(), count, packed.data());
    Convert(from, half ? packed.data() : tile.data(), to, out + done * BytesOf(to, 1), count);
  }
}

template <typename T>
T SumOfProducts(const std::byte* a, const std::byte* b, uint64_t count) {
  constexpr uint64_t kLanes = 32;
  const auto at = [](const std::byte* base, uint64_t index) {
    T value;
    std::memcpy(&value, base + index * sizeof(T), sizeof(T));
    return value;
  };
  std::array<T, kLanes> lanes = {};
  uint64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (uint64_t i = 0; i < kLanes; ++i) lanes[i] += at(a, k + i) * at(b, k + i);
  }
  for (uint64_t i = 0; k < count; ++k, ++i) lanes[i] += at(a, k) * at(b, k);
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum;
}

// Rows of `a` by rows of `b`, in each batch. Sums become `type` by way of `sum_type` if they are
// integers, and times `global`, which is exact for sums in f32, if they are not.
template <typename T>
void Multiply(const Side& lhs, const std::byte* a, const Side& rhs, const std::byte* b,
              double global, DType sum_type, DType type, std::byte* out, RunControl& control) {
  uint64_t done = 0;
  const size_t size = BytesOf(type, 1);
  const uint64_t row = lhs.depth * sizeof(T);
  for (uint64_t i = 0; i < lhs.batches * lhs.rows; ++i) {
    const std::byte* columns = b + i / lhs.rows * rhs.rows * row;
    for (uint64_t j = 0; j < rhs.rows; ++j, out += size) {
      if ((done += lhs.depth) >= kProductsAtOnce) {
        if (control.Stops()) return;
        done = 0;
      }
      const T sum = SumOfProducts<T>(a + i * row, columns + j * row, lhs.depth);
      if constexpr (std::is_floating_point_v<T>) {
        const double scaled = static_cast<double>(sum) * global;
        Convert(DType::kF64, reinterpret_cast<const std::byte*>(&scaled), type, out, 1);
      } else {
        std::array<std::byte, 8> narrow;
        Convert(DType::kI64, reinterpret_cast<const std::byte*>(&sum), sum_type, narrow.data(), 1);
        Convert(sum_type, narrow.data(), type, out, 1);
      }
    }
  }
}

uint64_t BlockOf(const WholeOp& op, const TensorType& data, const TensorType& scales) {
  if (op.node.attributes.Has(A::kBlock)) {
    return static_cast<uint64_t>(op.node.attributes.Int(A::kBlock));
  }
  return scales.dims.back() == 0 ? 1 : static_cast<uint64_t>(data.dims.back() / scales.dims.back());
}

uint64_t RowsOf(const TensorType& type) {
  uint64_t rows = 1;
  for (size_t d = 0; d + 1 < type.dims.size(); ++d) rows *= static_cast<uint64_t>(type.dims[d]);
  return rows;
}

// A block format to f32. Scales lose the rows that are there for padding first, in `rows`.
void ToFloats(const WholeOp& op, const TensorType& data, const std::byte* elements,
              const TensorType& scales, const std::byte* scale_bytes, float global, std::byte* out,
              std::byte* rows) {
  View kept = LinearView(scales.dims);
  for (size_t d = 0; d + 1 < kept.dims.size(); ++d) kept.dims[d] = data.dims[d];
  CopyElements(scales.dtype, scale_bytes, kept, rows, LinearView(kept.dims));
  DequantizeBlocks({data.dtype, scales.dtype, BlockOf(op, data, scales)}, elements, rows,
                   static_cast<uint64_t>(scales.dims.back()), RowsOf(data),
                   static_cast<uint64_t>(data.dims.back()), reinterpret_cast<float*>(out), global);
}

uint64_t Aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
uint64_t FloatBytes(const TensorType& type) { return Aligned(*ElementsOf(type) * sizeof(float)); }

}  // namespace

uint64_t ContractionScratchBytes(const WholeOp& op) {
  switch (op.node.op) {
    case Op::kDotGeneral: {
      const uint64_t each = BytesOf(WorkTypeOf(op), 1);
      return Aligned(*ElementsOf(op.in_types[0]) * each) +
             Aligned(*ElementsOf(op.in_types[1]) * each);
    }
    case Op::kBlockScaledDot: {
      const uint64_t right = op.in_types.size() > 3 ? *BytesOf(op.in_types[3]) : 0;
      return FloatBytes(op.in_types[0]) + FloatBytes(op.in_types[1]) +
             std::max(*BytesOf(op.in_types[2]), right);
    }
    default:
      return 0;
  }
}

void RunDot(const WholeOp& op, const std::vector<const std::byte*>& in, std::byte* out,
            std::byte* scratch, RunControl& control) {
  const auto ints = [&](A attribute) { return op.node.attributes.Ints(attribute); };
  const Side lhs = SideOf(op.in_types[0], ints(A::kLhsBatch), ints(A::kLhsContract)[0]);
  const Side rhs = SideOf(op.in_types[1], ints(A::kRhsBatch), ints(A::kRhsContract)[0]);
  const DType work = WorkTypeOf(op);
  const DType type = op.out_types[0].dtype;
  std::byte* right = scratch + Aligned(*ElementsOf(op.in_types[0]) * BytesOf(work, 1));
  Widen(op.in_types[0].dtype, in[0], lhs.view, work, scratch);
  Widen(op.in_types[1].dtype, in[1], rhs.view, work, right);
  if (work == DType::kI64) {
    // Modulo what `accumulate` holds. Unsigned, so that nothing overflows.
    const DType sum = op.node.attributes.Has(A::kAccumulate)
                          ? static_cast<DType>(op.node.attributes.Int(A::kAccumulate))
                          : type;
    Multiply<uint64_t>(lhs, scratch, rhs, right, 1, sum, type, out, control);
  } else if (work == DType::kF64) {
    Multiply<double>(lhs, scratch, rhs, right, 1, work, type, out, control);
  } else {
    Multiply<float>(lhs, scratch, rhs, right, 1, work, type, out, control);
  }
}

void RunBlockScaledDot(const WholeOp& op, const std::vector<const std::byte*>& in, std::byte* out,
                       std::byte* scratch, RunControl& control) {
  const size_t rank = op.in_types[0].dims.size();
  const std::vector<int64_t> batch(rank - 2, 0);
  const auto last = static_cast<int64_t>(rank - 1);
  const Side lhs = SideOf(op.in_types[0], batch, last);
  const Side rhs = SideOf(op.in_types[1], batch, last);
  std::byte* right = scratch + FloatBytes(op.in_types[0]);
  std::byte* rows = right + FloatBytes(op.in_types[1]);
  ToFloats(op, op.in_types[0], in[0], op.in_types[2], in[2], 1, scratch, rows);
  if (in.size() > 3) {
    ToFloats(op, op.in_types[1], in[1], op.in_types[3], in[3], 1, right, rows);
  } else {
    Convert(op.in_types[1].dtype, in[1], DType::kF32, right, *ElementsOf(op.in_types[1]));
  }
  double global = 1;
  if (in.size() > 4) {
    Convert(op.in_types[4].dtype, in[4], DType::kF64, reinterpret_cast<std::byte*>(&global), 1);
  }
  Multiply<float>(lhs, scratch, rhs, right, global, DType::kF32, op.out_types[0].dtype, out,
                  control);
}

}  // namespace ferry::compute
