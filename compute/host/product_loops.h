// SPDX-License-Identifier: Apache-2.0
// Inner loops of products, for the best instructions that the CPU has. Our own sums of floats are
// made in one order, whatever the CPU: lane i of 32 adds the products i, i + 32, i + 64 and so on,
// one after the other; then the lanes are added, beginning with lane 0. After 4,096 terms the lanes
// are added up and begin anew, and such sums are added up in twice the precision, rounded at the
// end: a sum of more terms is as near. Sums of integers are exact modulo 2^bits of the sum. Pure
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

// Type of factors and of their sums. The sums of kI16 have 32 bits; the other types sum in
// themselves. Signedness does not matter, but for kI16.
enum class RowType : uint8_t { kF32, kF64, kI16, kI32, kI64 };

constexpr size_t FactorBytesOf(RowType type) {
  return type == RowType::kI16 ? 2 : type == RowType::kF64 || type == RowType::kI64 ? 8 : 4;
}
constexpr size_t SumBytesOf(RowType type) {
  return type == RowType::kF64 || type == RowType::kI64 ? 8 : 4;
}

// `sums[j]` becomes the sum of the products of `row` with row j of `others`; each row has `depth`
// consecutive values. Only `sums` need be aligned.
using RowKernel = void (*)(const std::byte* row, const std::byte* others, size_t count,
                           size_t depth, std::byte* sums);
RowKernel RowKernelOf(RowType type);

// The smallest exponent, as f32 has it, of those of `count` values that are not 0; 255: all are 0.
// A subnormal value has exponent 0.
int SmallestExponentOfF32(const std::byte* values, size_t count);
int SmallestExponentOfBF16(const std::byte* values, size_t count);
// Whether bf16 can hold all the values exactly, but for NaN.
bool AllFitBF16(const float* values, size_t count);

}  // namespace ferry::compute
