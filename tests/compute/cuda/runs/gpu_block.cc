// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/gpu_block.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace ferry::compute::testing {
namespace {

constexpr size_t kStackBytes = size_t{1} << 18;  // of a fiber; sanitizers make frames large

// The threads of one block. All that wait are asked in turn whether they still have to.
class Block {
 public:
  Block(HostGpu& gpu, const std::function<void()>& thread) : gpu_(gpu), thread_(thread) {}

  void Run(uint32_t threads) {
    running_ = this;
    const auto warps = (threads + 31) / 32;
    fibers_.assign(threads, {});
    values_.assign(threads, {});
    warp_steps_.assign(warps, 0);
    arrived_.assign(warps, 0);
    if (stacks_ == nullptr) {  // as many in each block; of most of it nothing is ever touched
      stacks_ = std::make_unique_for_overwrite<char[]>(threads * kStackBytes);
    }
    for (uint32_t i = 0; i < threads; ++i) {
      getcontext(&fibers_[i].context);
      fibers_[i].context.uc_stack.ss_sp = &stacks_[i * kStackBytes];
      fibers_[i].context.uc_stack.ss_size = kStackBytes;
      fibers_[i].context.uc_link = &back_;
      makecontext(&fibers_[i].context, &Block::Begin, 0);
    }
    for (uint32_t left = threads; left > 0;) {
      for (current_ = 0; current_ < threads; ++current_) {
        if (fibers_[current_].done) continue;
        gpu_.thread = current_;
        swapcontext(&back_, &fibers_[current_].context);
        if (fibers_[current_].done) --left;
      }
    }
  }

  static unsigned long long Shuffle(unsigned long long value, int lane) {
    Block& block = *running_;
    Fiber& me = block.fibers_[block.current_];
    const size_t slot = me.step++ % 2;
    block.values_[block.current_][slot] = value;
    block.WaitForWarp(me.step);
    return block.values_[block.current_ / 32 * 32 + static_cast<uint32_t>(lane)][slot];
  }
  static void SyncWarp() {
    Block& block = *running_;
    block.WaitForWarp(++block.fibers_[block.current_].step);
  }
  static void SyncBlock() {
    Block& block = *running_;
    const uint64_t mine = ++block.fibers_[block.current_].syncs;
    block.WaitUntil([&] {
      return std::all_of(block.fibers_.begin(), block.fibers_.end(),
                         [&](const Fiber& fiber) { return fiber.done || fiber.syncs >= mine; });
    });
  }

 private:
  struct Fiber {
    ucontext_t context;
    bool done = false;
    uint64_t step = 0;   // shuffles that it came to
    uint64_t syncs = 0;  // of the block
  };

  static void Begin() {
    Block& block = *running_;
    block.thread_();
    block.fibers_[block.current_].done = true;
  }
  template <typename Condition>
  void WaitUntil(Condition condition) {
    while (!condition()) {
      const uint32_t me = current_;
      swapcontext(&fibers_[me].context, &back_);
      current_ = me;
    }
  }
  void WaitForWarp(uint64_t step) {
    const uint32_t first = current_ / 32 * 32;
    const uint32_t end = std::min<uint32_t>(first + 32, static_cast<uint32_t>(fibers_.size()));
    WaitUntil([&] {
      return std::all_of(fibers_.begin() + first, fibers_.begin() + end,
                         [&](const Fiber& fiber) { return fiber.step >= step; });
    });
  }

  static Block* running_;
  HostGpu& gpu_;
  const std::function<void()>& thread_;
  std::vector<Fiber> fibers_;
  std::vector<std::array<unsigned long long, 2>> values_;
  std::vector<uint64_t> warp_steps_, arrived_;
  std::unique_ptr<char[]> stacks_;
  uint32_t current_ = 0;
  ucontext_t back_;
};
Block* Block::running_ = nullptr;

}  // namespace

bool ThreadsWait(const std::string& source) {
  const auto has = [&](const char* text) { return source.find(text) != std::string::npos; };
  return has("Lanes<") || has("Largest") || has("bytes.cuh") || has("__sync");
}

void Connect(HostGpu& gpu) {
  gpu.shuffle = &Block::Shuffle;
  gpu.sync_warp = &Block::SyncWarp;
  gpu.sync_block = &Block::SyncBlock;
}

void RunBlocks(HostGpu& gpu, uint64_t blocks, uint32_t threads, bool waits,
               const std::function<void()>& thread) {
  Block block(gpu, thread);
  for (uint64_t i = 0; i < blocks; ++i) {
    gpu.block = static_cast<unsigned>(i);
    if (waits) {
      block.Run(threads);
      continue;
    }
    for (gpu.thread = 0; gpu.thread < threads; ++gpu.thread) thread();
  }
}

}  // namespace ferry::compute::testing
