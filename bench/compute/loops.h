// SPDX-License-Identifier: Apache-2.0
// What programs are compared with: the same computations as loops that the compiler vectorizes, for
// the widest vectors of the CPU. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::bench {

// bf16(max(min((x * 1.5 + 0.25) * y - x, 8), -8) * 0.5 + y)
void FusedChain(const float* x, const float* y, uint16_t* out, size_t count);
// bf16(tanh(x * 1.5 + 0.25) * y), with the C library's tanh.
void FusedTanh(const float* x, const float* y, uint16_t* out, size_t count);

// Each of the following does one op on all elements.
void Scale(const float* x, float factor, float* out, size_t count);
void Shift(const float* x, float term, float* out, size_t count);
void Multiply(const float* x, const float* y, float* out, size_t count);
void Subtract(const float* x, const float* y, float* out, size_t count);
void Add(const float* x, const float* y, float* out, size_t count);
void AtMost(const float* x, float bound, float* out, size_t count);
void AtLeast(const float* x, float bound, float* out, size_t count);
void Tanh(const float* x, float* out, size_t count);
void ToBF16(const float* x, uint16_t* out, size_t count);

}  // namespace ferry::bench
