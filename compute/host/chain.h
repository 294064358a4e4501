// SPDX-License-Identifier: Apache-2.0
// Ops on f32 and bf16, each of which needs what the one before it made: many at a time in the CPU's
// registers, for the best instructions that it has. What is bf16 is held as the f32 of its value.
// The bits are those of the ops one by one. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

// What is done to the values at hand.
enum class ChainCode : uint8_t {
  kLoad,
  kAdd,
  kSubtract,
  kSubtractFrom,  // the operand minus what is at hand
  kMultiply,
  kDivide,
  kDivideFrom,
  kMaximum,
  kMinimum,
  kMaximumSure,  // the operand is neither NaN nor zero
  kMinimumSure,
  kStore,
  // Without operand:
  kNegate,
  kAbs,
  kSqrt,
  kRound,  // to bf16
};

// How the operand is in memory.
enum class ChainForm : uint8_t { kF32, kBF16, kSameF32, kSameBF16 };  // same: one for all

struct ChainStep {
  ChainCode code = ChainCode::kLoad;
  ChainForm form = ChainForm::kF32;
  std::byte* operand = nullptr;
};

// The first step is a load, the last one a store.
using ChainKernel = void (*)(const ChainStep* steps, size_t size, size_t count);
ChainKernel ChainKernelOfCpu();

}  // namespace ferry::compute
