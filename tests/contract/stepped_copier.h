// SPDX-License-Identifier: Apache-2.0
// A copier that copies nothing, and notes which bytes each step would have. Home: its lane.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "device/copier.h"

namespace ferry {

class SteppedCopier : public Copier {
 public:
  struct Step {
    const std::byte* source = nullptr;  // of its first piece
    size_t bytes = 0;
  };
  // Steps of at most `step_bytes`, one at a time. None is over while `held`, which may be null.
  SteppedCopier(size_t step_bytes, std::vector<Step>& steps,
                const std::atomic<bool>* held = nullptr)
      : limits_{step_bytes, 1024, 1}, steps_(steps), held_(held) {}
  const Limits& limits() const override { return limits_; }
  void Start(absl::Span<const CopyPiece> pieces) override {
    Step& step = steps_.emplace_back();
    if (!pieces.empty()) step.source = pieces[0].source;
    for (const CopyPiece& piece : pieces) step.bytes += piece.size;
    ++under_way_;
  }
  std::optional<absl::Status> TakeOver() override {
    if (under_way_ == 0 || (held_ != nullptr && *held_)) return std::nullopt;
    --under_way_;
    return absl::OkStatus();
  }

 private:
  const Limits limits_;
  std::vector<Step>& steps_;
  const std::atomic<bool>* const held_;
  int under_way_ = 0;
};

}  // namespace ferry
