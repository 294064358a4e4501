// SPDX-License-Identifier: Apache-2.0
// Defines for a host's compiler what generated kernels need that only GPUs have. A thread of a GPU
// is a fiber, which host_kernels.cc runs. Included before a kernel's source, and nowhere else.
#pragma once

#include <math.h>

#define __device__
#define __global__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)

extern "C" {
// Filled in by the program that loads this library.
struct HostGpu {
  unsigned thread;
  unsigned block;
  // Called by all threads of the warp: returns the value that thread `lane` has passed.
  unsigned long long (*shuffle)(unsigned long long value, int lane);
  void (*sync_warp)();
  void (*sync_block)();
};
HostGpu host_gpu;
}

struct HostIndex {
  unsigned x;
};
#define threadIdx (HostIndex{host_gpu.thread})
#define blockIdx (HostIndex{host_gpu.block})

inline int HostLane() { return static_cast<int>(host_gpu.thread % 32); }

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return static_cast<T>(host_gpu.shuffle(static_cast<unsigned long long>(value), lane));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return __shfl_sync(mask, value, HostLane() ^ bits);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int delta) {
  const int lane = HostLane() + delta;
  return __shfl_sync(mask, value, lane < 32 ? lane : HostLane());
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline void __syncwarp() { host_gpu.sync_warp(); }
inline void __syncthreads() { host_gpu.sync_block(); }
inline void atomicAnd(unsigned* word, unsigned bits) { *word &= bits; }
inline void atomicOr(unsigned* word, unsigned bits) { *word |= bits; }
