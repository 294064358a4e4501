// SPDX-License-Identifier: Apache-2.0
// What generated kernels are made of.
#pragma once

#include "blocks.cuh"
#include "memory.cuh"
#include "philox.cuh"

// Called first by each kernel: tells in a word of the host's memory which run's kernel has begun.
// Null: nobody is told. The store is not waited for.
FERRY_DEVICE void Begin(u64* begun, u64 run) {
  u64* const word = blockIdx.x == 0 && threadIdx.x == 0 ? begun : nullptr;
#ifdef __CUDA_ARCH__
  // Without a branch, for which some kernels would need more registers.
  asm volatile(
      "{ .reg .pred told; setp.ne.u64 told, %0, 0; @told st.volatile.global.u64 [%0], %1; }" ::"l"(
          word),
      "l"(run));
#else
  if (word != nullptr) *word = run;
#endif
}
