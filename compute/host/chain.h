// SPDX-License-Identifier: Apache-2.0
// Chains: elementwise ops on f32 and bf16, each of which uses the result of the one before. Many
// elements at a time stay in the CPU's registers, with the best instructions that it has. A bf16 is
// held as the f32 of the same value. The bits are those of the ops one by one. Pure functions; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

// What a step does to the present values.
enum class ChainCode : uint8_t {
  kLoad,
  kAdd,
  kSubtract,
  kSubtractFrom,  // the operand minus the present values
  kMultiply,
  kDivide,
  kDivideFrom,
  kMaximum,
  kMinimum,
  kMaximumSure,  // the operand is known to be neither NaN nor zero
  kMinimumSure,
  kStore,
  // Steps without an operand:
  kNegate,
  kAbs,
  kSqrt,
  kRound,  // to bf16
};

// How the operand lies in memory. kSame: one value for all elements.
enum class ChainForm : uint8_t { kF32, kBF16, kSameF32, kSameBF16 };

struct ChainStep {
  ChainCode code = ChainCode::kLoad;
  ChainForm form = ChainForm::kF32;
  std::byte* operand = nullptr;
};

// Runs the steps on `count` elements. The first step is a load, the last one a store.
using ChainKernel = void (*)(const ChainStep* steps, size_t size, size_t count);
ChainKernel ChainKernelOfCpu();

}  // namespace ferry::compute
