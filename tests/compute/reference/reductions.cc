// SPDX-License-Identifier: Apache-2.0
// Reductions, in the order of docs/numerics.md.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/compute/reference/ops.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

using A = Attribute;
using Codes = std::vector<uint64_t>;

DType AccumulatorOf(const OpInput& op) {
  if (op.node.attributes.Has(A::kAccumulate)) return static_cast<DType>(op.Int(A::kAccumulate));
  const DType type = op.in[0]->type.dtype;
  return type == DType::kF16 || type == DType::kBF16 ? DType::kF32 : type;
}

Op CombinerOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return Op::kAdd;
    case Reduction::kProduct:
      return Op::kMultiply;
    case Reduction::kMax:
      return Op::kMaximum;
    case Reduction::kMin:
      return Op::kMinimum;
    case Reduction::kAny:
      return Op::kOr;
    case Reduction::kAll:
      return Op::kAnd;
  }
  return Op::kAdd;
}

uint64_t OfNothing(Reduction reduction, DType type) {
  const bool floating = InfoOf(type).floating;
  const uint64_t mask = ~uint64_t{0} >> (64 - InfoOf(type).bits);
  const bool is_signed = InfoOf(type).is_signed;
  switch (reduction) {
    case Reduction::kProduct:
      return ConvertedCode(DType::kI64, 1, type);
    case Reduction::kMax:
      return floating ? Rounded(type, -HUGE_VALL) : is_signed ? (mask >> 1) + 1 : 0;
    case Reduction::kMin:
      return floating ? Rounded(type, HUGE_VALL) : is_signed ? mask >> 1 : mask;
    case Reduction::kAll:
      return 1;
    default:
      return 0;
  }
}

// Of at least one.
uint64_t Combine(Op op, DType type, const Codes& codes) {
  constexpr size_t kChunk = 4096;
  constexpr size_t kLanes = 128;
  if (codes.size() > kChunk) {
    Codes chunks;
    for (size_t i = 0; i < codes.size(); i += kChunk) {
      const size_t end = std::min(i + kChunk, codes.size());
      chunks.push_back(Combine(
          op, type,
          {codes.begin() + static_cast<int64_t>(i), codes.begin() + static_cast<int64_t>(end)}));
    }
    return Combine(op, type, chunks);
  }
  Codes lanes(codes.begin(), codes.begin() + static_cast<int64_t>(std::min(codes.size(), kLanes)));
  for (size_t i = kLanes; i < codes.size(); ++i) {
    lanes[i % kLanes] = Arithmetic(op, type, {lanes[i % kLanes], codes[i]});
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half && i + half < lanes.size(); ++i) {
      lanes[i] = Arithmetic(op, type, {lanes[i], lanes[i + half]});
    }
  }
  return lanes[0];
}

// A sum whose order is open: near to the float64 one, in proportion to the magnitudes.
Element AnyOrder(DType from, DType accumulator, DType to, const Codes& codes, uint64_t ordered) {
  double sum = 0;
  double magnitude = 0;
  for (const uint64_t code : codes) {
    const auto value = static_cast<double>(ValueOf(from, code));
    sum += value;
    if (std::isfinite(value)) magnitude += std::fabs(value);
  }
  if (magnitude * 2 >= BeyondOf(accumulator)) return {ordered, kAnything};
  if (!std::isfinite(sum)) return {ordered};
  const double unit = UlpOf(accumulator, 1);
  return {ordered, 128 * unit * magnitude + UlpOf(to, sum), sum};
}

}  // namespace

Tensor EvaluateReduce(const OpInput& op) {
  const Tensor& in = *op.in[0];
  const DType type = in.type.dtype;
  const DType accumulator = AccumulatorOf(op);
  const auto reduction = static_cast<Reduction>(op.Int(A::kReduction));
  const std::vector<int64_t> reduced = op.Ints(A::kDimensions);
  Tensor out{op.results[0], std::vector<Element>(*ElementsOf(op.results[0]))};
  std::vector<Codes> groups(out.elements.size());
  std::vector<bool> unknown(out.elements.size());
  for (uint64_t i = 0; i < in.elements.size(); ++i) {
    const std::vector<int64_t> place = PlaceOf(in.type.dims, i);
    std::vector<int64_t> to;
    for (size_t d = 0; d < place.size(); ++d) {
      if (std::count(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) == 0) {
        to.push_back(place[d]);
      }
    }
    const uint64_t at = IndexOf(out.type.dims, to);
    groups[at].push_back(in.elements[i].code);
    if (in.elements[i].error != 0) unknown[at] = true;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (unknown[i]) {
      out.elements[i].error = kAnything;
      continue;
    }
    Codes codes;
    for (const uint64_t code : groups[i]) codes.push_back(ConvertedCode(type, code, accumulator));
    const uint64_t result = codes.empty() ? OfNothing(reduction, accumulator)
                                          : Combine(CombinerOf(reduction), accumulator, codes);
    out.elements[i].code = ConvertedCode(accumulator, result, type);
    if (op.numerics.allow_reassociation && reduction == Reduction::kSum && InfoOf(type).floating) {
      out.elements[i] = AnyOrder(type, accumulator, type, groups[i], out.elements[i].code);
    }
  }
  return out;
}

Tensor EvaluateArgmax(const OpInput& op) {
  const Tensor& in = *op.in[0];
  const auto dimension = static_cast<size_t>(op.Int(A::kDimension));
  Tensor out{op.results[0], {}};
  for (uint64_t i = 0; i < *ElementsOf(out.type); ++i) {
    std::vector<int64_t> place = PlaceOf(out.type.dims, i);
    place.insert(place.begin() + static_cast<int64_t>(dimension), 0);
    Element best = {0};
    uint64_t best_code = 0;
    for (int64_t at = 0; at < in.type.dims[dimension]; ++at) {
      place[dimension] = at;
      const Element& element = in.elements[IndexOf(in.type.dims, place)];
      if (element.error != 0) best.error = kAnything;
      const bool larger =
          IsNan(in.type.dtype, element.code)
              ? !IsNan(in.type.dtype, best_code)
              : Holds(Direction::kGt, false, in.type.dtype, element.code, best_code);
      if (at == 0 || larger) {
        best.code = static_cast<uint64_t>(at);
        best_code = element.code;
      }
    }
    out.elements.push_back(best);
  }
  return out;
}

Tensor EvaluateCumulativeSum(const OpInput& op) {
  const Tensor& in = *op.in[0];
  const DType type = in.type.dtype;
  const DType accumulator = AccumulatorOf(op);
  const auto dimension = static_cast<size_t>(op.Int(A::kDimension));
  Tensor out{op.results[0], std::vector<Element>(in.elements.size())};
  for (uint64_t i = 0; i < in.elements.size(); ++i) {
    std::vector<int64_t> place = PlaceOf(in.type.dims, i);
    const int64_t last = place[dimension];
    Codes codes;
    Element& element = out.elements[i];
    for (place[dimension] = 0; place[dimension] <= last; ++place[dimension]) {
      const Element& term = in.elements[IndexOf(in.type.dims, place)];
      if (term.error != 0) element.error = kAnything;
      codes.push_back(term.code);
    }
    uint64_t sum = ConvertedCode(type, codes[0], accumulator);
    for (size_t j = 1; j < codes.size(); ++j) {
      sum = Arithmetic(Op::kAdd, accumulator, {sum, ConvertedCode(type, codes[j], accumulator)});
    }
    element.code = ConvertedCode(accumulator, sum, type);
    if (element.error == 0 && op.numerics.allow_reassociation && InfoOf(type).floating) {
      element = AnyOrder(type, accumulator, type, codes, element.code);
    }
  }
  return out;
}

}  // namespace ferry::compute::testing
