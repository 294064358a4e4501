// SPDX-License-Identifier: Apache-2.0
// Loops of products, for the best instructions that the CPU has. Our own sums of floats are
// made in one order whatever the CPU: lane i of 32 is the products i, i + 32, i + 64 and so on, one
// after the other; then the lanes are added, the first one first. Those of integers are exact
// modulo 2^bits of the sum. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

// Of factors, and of their sums: kI16 has sums of 32 bits, others of their own. Signs do not
// matter, but for kI16.
enum class RowType : uint8_t { kF32, kF64, kI16, kI32, kI64 };

constexpr size_t FactorBytesOf(RowType type) {
  return type == RowType::kI16 ? 2 : type == RowType::kF64 || type == RowType::kI64 ? 8 : 4;
}
constexpr size_t SumBytesOf(RowType type) {
  return type == RowType::kF64 || type == RowType::kI64 ? 8 : 4;
}

// `sums[j]` becomes that of `row` by row j of `others`, each of `depth` values that follow each
// other. Nothing need be aligned but the sums.
using RowKernel = void (*)(const std::byte* row, const std::byte* others, size_t count,
                           size_t depth, std::byte* sums);
RowKernel RowKernelOf(RowType type);

// The smallest exponent, as f32 has it, of `count` f32 (or bf16) that are not 0; 255: all are 0.
// Subnormal ones have 0.
int SmallestExponentOfF32(const std::byte* values, size_t count);
int SmallestExponentOfBF16(const std::byte* values, size_t count);
// Whether bf16 has them all, but for NaN.
bool AllFitBF16(const float* values, size_t count);

}  // namespace ferry::compute
