// SPDX-License-Identifier: Apache-2.0
// What generated kernels are made of.
#pragma once

#include "blocks.cuh"
#include "memory.cuh"
#include "philox.cuh"

// Called first by each kernel: its first thread stores `run`, the number of the run, in `begun`, a
// word of the host's memory, so that the host knows which run has begun. Null: nothing is stored.
// The store is not waited for.
//
// The launch may come before the kernel ahead of it in the stream is over
// (CudaStream::Launch): what that kernel wrote is there, and what it reads may be written, once
// Begin is over. In turn the next kernel may come once all blocks of this one have begun.
FERRY_DEVICE void Begin(u64* begun, u64 run) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
#endif
#ifdef __CUDA_ARCH__
  // If the compiler sees the places of threads here, wide kernels spill more registers.
  asm volatile(
      "{ .reg .pred told, first; .reg .u32 place, block;"
      "  mov.u32 place, %%tid.x; mov.u32 block, %%ctaid.x; or.b32 place, place, block;"
      "  setp.ne.u64 told, %0, 0; setp.eq.and.u32 first, place, 0, told;"
      "  @first st.volatile.global.u64 [%0], %1; }" ::"l"(begun),
      "l"(run));
#else
  if (begun != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *begun = run;
#endif
}
