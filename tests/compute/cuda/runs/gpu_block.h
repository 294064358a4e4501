// SPDX-License-Identifier: Apache-2.0
// Runs kernels that a host's compiler has made with host_gpu.h in front of them. A block's threads
// are fibers, which switch to another where they wait for others. Nothing but the C++ library is
// needed: the fake driver has it too. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ferry::compute::testing {

// As in host_gpu.h: what a library of kernels has under the name `host_gpu`.
struct HostGpu {
  unsigned thread;
  unsigned block;
  unsigned long long (*shuffle)(unsigned long long value, int lane);
  void (*sync_warp)();
  void (*sync_block)();
};

// Whether threads of this kernel wait for each other, by its source.
bool ThreadsWait(const std::string& source);

// Gives the library what it calls, once, before the first kernel.
void Connect(HostGpu& gpu);

// Runs all blocks of a kernel, one after the other. `thread` is what one thread does. `waits`: as
// ThreadsWait says.
void RunBlocks(HostGpu& gpu, uint64_t blocks, uint32_t threads, bool waits,
               const std::function<void()>& thread);

}  // namespace ferry::compute::testing
