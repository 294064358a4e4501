// SPDX-License-Identifier: Apache-2.0
#include "compute/host/reduction.h"

#include <algorithm>
#include <cstring>

#include "compute/numerics/reduction_order.h"
#include "compute/plan/kernel_loop.h"

namespace ferry::compute {

Op CombinerOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return Op::kAdd;
    case Reduction::kProduct:
      return Op::kMultiply;
    case Reduction::kMax:
      return Op::kMaximum;
    case Reduction::kMin:
      return Op::kMinimum;
    case Reduction::kAny:
      return Op::kOr;
    case Reduction::kAll:
      return Op::kAnd;
  }
  return Op::kAdd;
}

size_t OrderedReduction::LevelsFor(uint64_t row) {
  size_t levels = 1;
  for (; row > kReductionChunk; row = (row + kReductionChunk - 1) / kReductionChunk) ++levels;
  return levels;
}

OrderedReduction::OrderedReduction(Reduction reduction, DType type, uint64_t width,
                                   std::byte* memory)
    : reduction_(reduction),
      type_(type),
      size_(BytesOf(type, 1) * width),
      width_(width),
      combine_(KernelOf(CombinerOf(reduction), type)),
      memory_(memory) {}

void OrderedReduction::AddAt(size_t level, const std::byte* elements, uint64_t count) {
  std::byte* lanes = LanesOf(level);
  uint64_t& have = counts_[level];
  while (count > 0) {
    if (have == kReductionChunk) {
      Close(level);
      AddAt(level + 1, lanes, 1);
    }
    const uint64_t lane = have % kReductionLanes;
    const uint64_t some = std::min(kReductionLanes - lane, count);
    std::byte* at = lanes + lane * size_;
    if (have < kReductionLanes) {
      std::memcpy(at, elements, some * size_);
    } else {
      combine_(at, elements, nullptr, at, some * width_);
    }
    have += some;
    elements += some * size_;
    count -= some;
  }
}

void OrderedReduction::Close(size_t level) {
  std::byte* lanes = LanesOf(level);
  const uint64_t used = std::min<uint64_t>(counts_[level], kReductionLanes);
  for (uint64_t half = kReductionLanes / 2; half > 0; half /= 2) {
    const uint64_t both = used > half ? std::min(half, used - half) : 0;
    combine_(lanes, lanes + half * size_, nullptr, lanes, both * width_);
  }
  counts_[level] = 0;
}

void OrderedReduction::Finish(std::byte* out) {
  const auto open_from = [&](size_t level) {
    return std::any_of(counts_.begin() + static_cast<std::ptrdiff_t>(level), counts_.end(),
                       [](uint64_t count) { return count > 0; });
  };
  if (!open_from(0)) {
    const uint64_t identity = IdentityOf(reduction_, type_);
    const size_t size = size_ / width_;
    for (uint64_t i = 0; i < width_; ++i) std::memcpy(out + i * size, &identity, size);
    return;
  }
  for (size_t level = 0;; ++level) {
    if (counts_[level] == 0) continue;
    Close(level);
    if (!open_from(level + 1)) {
      std::memcpy(out, LanesOf(level), size_);
      return;
    }
    AddAt(level + 1, LanesOf(level), 1);
  }
}

}  // namespace ferry::compute
