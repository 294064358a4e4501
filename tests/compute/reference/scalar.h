// SPDX-License-Identifier: Apache-2.0
// One element of every op that makes its result of those at its place, from the definitions, in
// long double or the type's own arithmetic; conversions by the oracle that searches. Pure
// functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/program/op.h"
#include "tests/compute/numerics/oracle.h"
#include "tests/compute/reference/tensor.h"

namespace ferry::compute::testing {

// f32 and f64: a NaN's sign and payload are nobody's business.
bool HasManyNans(DType type);
bool IsNan(DType type, uint64_t code);
// Exact (but of f8e8m0fnu and the like NaN for NaN).
long double ValueOf(DType type, uint64_t code);
// What would follow the largest finite value of a floating type.
double BeyondOf(DType type);
// Between `value` and its neighbours in a type of 16 bits or more.
double UlpOf(DType type, double value);

// `value` rounded to a floating type.
uint64_t Rounded(DType type, long double value, ConvertMode mode = {});
uint64_t ConvertedCode(DType from, uint64_t code, DType to, ConvertMode mode = {});

// Ops of one type that all executors do alike.
uint64_t Arithmetic(Op op, DType type, const std::vector<uint64_t>& codes);
bool Holds(Direction direction, bool total_order, DType type, uint64_t a, uint64_t b);

// Functions of which only nearness is promised: docs/numerics.md.
bool IsFunction(Op op);
Element FunctionOf(Op op, DType type, const std::vector<uint64_t>& codes);

}  // namespace ferry::compute::testing
