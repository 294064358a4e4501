// SPDX-License-Identifier: Apache-2.0
// Products of matrices, and block formats.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/compute/reference/ops.h"
#include "tests/compute/reference/products.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

using A = Attribute;
using Place = std::vector<int64_t>;

// A product's side as rows that have the contracted dimension to themselves: of each batch one
// after the other, as the result has them.
struct Side {
  uint64_t batches = 1;
  uint64_t rows = 1;
  uint64_t depth = 0;
  std::vector<Element> elements;
};

Side SideOf(const Tensor& tensor, const std::vector<int64_t>& batch, int64_t contract) {
  const std::vector<int64_t>& dims = tensor.type.dims;
  std::vector<int64_t> order = batch;
  Side side;
  for (const int64_t d : batch) side.batches *= static_cast<uint64_t>(dims[static_cast<size_t>(d)]);
  for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
    if (d == contract || std::count(batch.begin(), batch.end(), d) > 0) continue;
    order.push_back(d);
    side.rows *= static_cast<uint64_t>(dims[static_cast<size_t>(d)]);
  }
  order.push_back(contract);
  side.depth = static_cast<uint64_t>(dims[static_cast<size_t>(contract)]);
  std::vector<int64_t> ordered;
  for (const int64_t d : order) ordered.push_back(dims[static_cast<size_t>(d)]);
  for (uint64_t i = 0; i < tensor.elements.size(); ++i) {
    const Place place = PlaceOf(ordered, i);
    Place from(dims.size());
    for (size_t d = 0; d < order.size(); ++d) from[static_cast<size_t>(order[d])] = place[d];
    side.elements.push_back(tensor.elements[IndexOf(dims, from)]);
  }
  return side;
}

bool IsUnknown(const std::vector<Element>& elements, uint64_t begin, uint64_t count) {
  const auto first = elements.begin() + static_cast<int64_t>(begin);
  return std::any_of(first, first + static_cast<int64_t>(count),
                     [](const Element& element) { return element.error != 0; });
}

// What sums of `depth` terms give that are made in f32, or in f64 if `wide`.
Element SumOf(const ReferenceValue& sum, uint64_t depth, Accumulation accumulation, DType type,
              bool wide) {
  Element element;
  element.code = Rounded(type, sum.value);
  if (sum.magnitude * 2 >= BeyondOf(wide ? DType::kF64 : DType::kF32)) {
    element.error = kAnything;
  } else if (std::isfinite(sum.value)) {
    element.value = sum.value;
    const double vanished = static_cast<double>(depth) * (wide ? 0x1p-1074 : 0x1p-149);
    element.error = AllowedError(accumulation, sum, type, wide) + vanished;
  }
  return element;
}

// One row of a side, decoded: as f64 if the sums are `wide`, else first rounded to f32, which only
// changes f64.
Operand RowOf(DType type, const std::vector<Element>& elements, uint64_t begin, uint64_t depth,
              bool wide) {
  Operand row{1, depth, {}, {}, 1};
  for (uint64_t k = 0; k < depth; ++k) {
    uint64_t code = elements[begin + k].code;
    DType decoded = type;
    if (type == DType::kF64 && !wide) {
      code = Rounded(DType::kF32, ValueOf(type, code));
      decoded = DType::kF32;
    }
    row.values.push_back(static_cast<double>(ValueOf(decoded, code)));
  }
  return row;
}

bool FitsFloat(const Operand& row) {
  for (uint64_t k = 0; k < row.depth; ++k) {
    const double scale = row.scales.empty() ? 1 : row.scales[k / row.block];
    const double value = row.values[k] * scale;
    if (std::isfinite(row.values[k]) && std::isfinite(scale) && std::fabs(value) >= 0x1p127) {
      return false;
    }
  }
  return true;
}

// The integer, extended by its sign if it has one.
uint64_t WholeOf(DType type, uint64_t code) { return ConvertedCode(type, code, DType::kI64); }

uint64_t BlockOf(const OpInput& op, const TensorType& data, const TensorType& scales) {
  if (op.node.attributes.Has(A::kBlock)) return static_cast<uint64_t>(op.Int(A::kBlock));
  return scales.dims.back() == 0 ? 1 : static_cast<uint64_t>(data.dims.back() / scales.dims.back());
}

// Which scale an element of `data` has.
uint64_t ScaleIndexOf(const Tensor& data, const Tensor& scales, uint64_t block, uint64_t index) {
  Place place = PlaceOf(data.type.dims, index);
  place.back() /= static_cast<int64_t>(block);
  return IndexOf(scales.type.dims, place);
}

}  // namespace

Tensor EvaluateDot(const OpInput& op) {
  const Side lhs = SideOf(*op.in[0], op.Ints(A::kLhsBatch), op.Ints(A::kLhsContract)[0]);
  const Side rhs = SideOf(*op.in[1], op.Ints(A::kRhsBatch), op.Ints(A::kRhsContract)[0]);
  const DType left = op.in[0]->type.dtype;
  const DType right = op.in[1]->type.dtype;
  Tensor out{op.results[0], {}};
  const DType type = out.type.dtype;
  const DType accumulator =
      op.node.attributes.Has(A::kAccumulate) ? static_cast<DType>(op.Int(A::kAccumulate)) : type;
  for (uint64_t i = 0; i < *ElementsOf(out.type); ++i) {
    const uint64_t j = i % rhs.rows;
    const uint64_t batch = i / rhs.rows / lhs.rows;
    const uint64_t l = (i / rhs.rows) * lhs.depth;
    const uint64_t r = (batch * rhs.rows + j) * rhs.depth;
    Element element;
    if (IsUnknown(lhs.elements, l, lhs.depth) || IsUnknown(rhs.elements, r, rhs.depth)) {
      element.error = kAnything;
    } else if (!InfoOf(type).floating) {
      uint64_t sum = 0;
      for (uint64_t k = 0; k < lhs.depth; ++k) {
        sum += WholeOf(left, lhs.elements[l + k].code) * WholeOf(right, rhs.elements[r + k].code);
      }
      element.code = ConvertedCode(accumulator, ConvertedCode(DType::kI64, sum, accumulator), type);
    } else {
      const bool wide = accumulator == DType::kF64;
      const Operand a = RowOf(left, lhs.elements, l, lhs.depth, wide);
      const Operand b = RowOf(right, rhs.elements, r, rhs.depth, wide);
      element = SumOf(ReferenceDot(a, b)[0], lhs.depth, op.numerics.accumulation, type, wide);
      if (!wide && !(FitsFloat(a) && FitsFloat(b))) element.error = kAnything;
    }
    out.elements.push_back(element);
  }
  return out;
}

Tensor EvaluateBlockScaledDot(const OpInput& op) {
  const Tensor& lhs = *op.in[0];
  const Tensor& rhs = *op.in[1];
  Tensor out{op.results[0], {}};
  const DType type = out.type.dtype;
  const auto depth = static_cast<uint64_t>(lhs.type.dims.back());
  const auto m = static_cast<uint64_t>(lhs.type.dims[lhs.type.dims.size() - 2]);
  const auto n = static_cast<uint64_t>(rhs.type.dims[rhs.type.dims.size() - 2]);
  const auto row_of = [&](const Tensor& data, const Tensor* scales, uint64_t begin, bool& known) {
    Operand row = RowOf(data.type.dtype, data.elements, begin, depth, false);
    known = known && !IsUnknown(data.elements, begin, depth);
    if (scales == nullptr) return row;
    const uint64_t block = BlockOf(op, data.type, scales->type);
    row.block = block;
    for (uint64_t k = 0; k < depth; k += block) {
      const Element& scale = scales->elements[ScaleIndexOf(data, *scales, block, begin + k)];
      known = known && scale.error == 0;
      row.scales.push_back(static_cast<double>(ValueOf(scales->type.dtype, scale.code)));
    }
    return row;
  };
  for (uint64_t i = 0; i < *ElementsOf(out.type); ++i) {
    const uint64_t l = i / n * depth;
    const uint64_t r = (i / n / m * n + i % n) * depth;
    bool known = true;
    const Operand a = row_of(lhs, op.in[2], l, known);
    const Operand b = row_of(rhs, op.in.size() > 3 ? op.in[3] : nullptr, r, known);
    double global = 1;
    if (op.in.size() > 4) {
      known = known && op.in[4]->elements[0].error == 0;
      const auto given = ValueOf(op.in[4]->type.dtype, op.in[4]->elements[0].code);
      global = static_cast<double>(ValueOf(DType::kF32, Rounded(DType::kF32, given)));
    }
    const ReferenceValue plain = ReferenceDot(a, b)[0];
    const Element unscaled = SumOf(plain, depth, op.numerics.accumulation, DType::kF32, false);
    // The sums are made in f32 whatever the result is.
    Element element = SumOf({plain.value * global, plain.magnitude * std::fabs(global)}, depth,
                            op.numerics.accumulation, type, false);
    if (element.error != 0)
      element.error += std::fabs(global) * static_cast<double>(depth) * 0x1p-149;
    // An infinity times what may be 0 is either.
    if (!known || !FitsFloat(a) || !FitsFloat(b) || std::isinf(unscaled.error) ||
        (!std::isfinite(global) && unscaled.error != 0 &&
         std::fabs(unscaled.value) <= unscaled.error)) {
      element.error = kAnything;
    }
    out.elements.push_back(element);
  }
  return out;
}

std::vector<Tensor> EvaluateQuantize(const OpInput& op) {
  const Tensor& in = *op.in[0];
  Tensor data{op.results[0], std::vector<Element>(in.elements.size())};
  Tensor scales{op.results[1], std::vector<Element>(*ElementsOf(op.results[1]))};
  const DType element_type = data.type.dtype;
  const DType scale_type = scales.type.dtype;
  const bool mx = scale_type == DType::kF8E8M0FNU;
  const uint64_t block = BlockOf(op, data.type, scales.type);
  const auto rounding = static_cast<ScaleRounding>(op.Int(A::kRounding));
  const ConvertMode mode = {Overflow::kSaturate, rounding};
  const auto to_float = [](DType type, uint64_t code) {
    return static_cast<float>(ValueOf(type, code));
  };
  const bool scaled = op.in.size() > 1;
  const bool known = !scaled || op.in[1]->elements[0].error == 0;
  const float global = scaled ? to_float(DType::kF32, op.in[1]->elements[0].code) : 1;

  std::vector<float> values;
  std::vector<long double> largest(scales.elements.size(), 0);
  for (uint64_t i = 0; i < in.elements.size(); ++i) {
    const float value = to_float(in.type.dtype, in.elements[i].code);
    values.push_back(value);
    const uint64_t at = ScaleIndexOf(data, scales, block, i);
    const long double magnitude = std::fabs(static_cast<long double>(value / global));
    if (!(magnitude <= largest[at])) {  // or NaN, which stays
      if (!std::isnan(largest[at])) largest[at] = magnitude;
    }
    if (in.elements[i].error != 0 || !known) scales.elements[at].error = kAnything;
  }
  const long double max = element_type == DType::kF8E4M3FN ? 448
                          : element_type == DType::kF8E5M2 ? 57344
                                                           : 6;
  const long double power = element_type == DType::kF8E4M3FN ? 256
                            : element_type == DType::kF8E5M2 ? 32768
                                                             : 4;
  for (size_t i = 0; i < largest.size(); ++i) {
    scales.elements[i].code =
        mx ? Rounded(scale_type, largest[i] / (rounding == ScaleRounding::kCeil ? max : power),
                     mode)
           : Rounded(scale_type, static_cast<float>(largest[i]) / 6.0f, mode);
  }
  for (uint64_t i = 0; i < in.elements.size(); ++i) {
    const Element& scale = scales.elements[ScaleIndexOf(data, scales, block, i)];
    const float by = to_float(scale_type, scale.code);
    const bool none = std::isnan(by) || by == 0;
    const float zero = std::isnan(values[i]) ? 0.0f : std::copysign(0.0f, values[i]);
    data.elements[i].code = Rounded(element_type, none ? zero : values[i] / global / by, mode);
    if (scale.error != 0) data.elements[i].error = kAnything;
  }
  return {data, scales};
}

Tensor EvaluateDequantize(const OpInput& op) {
  const Tensor& data = *op.in[0];
  const Tensor& scales = *op.in[1];
  const uint64_t block = BlockOf(op, data.type, scales.type);
  Tensor out{op.results[0], {}};
  for (uint64_t i = 0; i < data.elements.size(); ++i) {
    const Element& scale = scales.elements[ScaleIndexOf(data, scales, block, i)];
    double error = data.elements[i].error + scale.error;
    float value = static_cast<float>(ValueOf(data.type.dtype, data.elements[i].code)) *
                  static_cast<float>(ValueOf(scales.type.dtype, scale.code));
    if (op.in.size() > 2) {
      const Element& global = op.in[2]->elements[0];
      value *= static_cast<float>(ValueOf(DType::kF32, global.code));
      error += global.error;
    }
    out.elements.push_back({Rounded(out.type.dtype, value), error == 0 ? 0 : kAnything});
  }
  return out;
}

Tensor EvaluateSwizzle(const OpInput& op) {
  const bool back = op.node.op == Op::kUnswizzleScales;
  const std::vector<int64_t>& plain = back ? op.results[0].dims : op.in[0]->type.dims;
  const int64_t columns = (plain[1] + 3) / 4 * 4;
  Tensor out{op.results[0], std::vector<Element>(*ElementsOf(op.results[0]))};
  for (int64_t r = 0; r < plain[0]; ++r) {
    for (int64_t c = 0; c < plain[1]; ++c) {
      const int64_t tiled =
          ((r / 128) * (columns / 4) + c / 4) * 512 + (r % 32) * 16 + (r % 128) / 32 * 4 + c % 4;
      const auto at = static_cast<size_t>(r * plain[1] + c);
      const auto tile_at = static_cast<size_t>(tiled);
      out.elements[back ? at : tile_at] = op.in[0]->elements[back ? tile_at : at];
    }
  }
  return out;
}

}  // namespace ferry::compute::testing
