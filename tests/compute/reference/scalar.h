// SPDX-License-Identifier: Apache-2.0
// Ops whose result at a place depends only on the operands there, one element at a time: from their
// definitions, in long double or in the type's own arithmetic. Conversions by the searching oracle.
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/program/op.h"
#include "tests/compute/numerics/oracle.h"
#include "tests/compute/reference/tensor.h"

namespace ferry::compute::testing {

// True for f32 and f64, where sign and payload of a NaN are not promised.
bool HasManyNans(DType type);
bool IsNan(DType type, uint64_t code);
// The exact value; NaN where f8e8m0fnu and such types have NaN.
long double ValueOf(DType type, uint64_t code);
// The value that would follow the largest finite value of a floating type.
double BeyondOf(DType type);
// The distance from `value` to its neighbours, in a type of 16 bits or more.
double UlpOf(DType type, double value);

// `value` rounded to a floating type.
uint64_t Rounded(DType type, long double value, ConvertMode mode = {});
uint64_t ConvertedCode(DType from, uint64_t code, DType to, ConvertMode mode = {});

// Ops of one type whose result is the same in all executors.
uint64_t Arithmetic(Op op, DType type, const std::vector<uint64_t>& codes);
bool Holds(Direction direction, bool total_order, DType type, uint64_t a, uint64_t b);

// Functions whose result is promised only approximately: docs/numerics.md.
bool IsFunction(Op op);
Element FunctionOf(Op op, DType type, const std::vector<uint64_t>& codes);

}  // namespace ferry::compute::testing
