// SPDX-License-Identifier: Apache-2.0
// Copies by a GPU: a step is one call for its pieces and an event behind them. The copy engine
// takes it, or, where that would be over sooner, the gather kernel (MoverChoice). Several steps are
// under way, so that the engine never waits for us; small ones wait for what is under way at most.
// Home: the lane.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "device/copier.h"
#include "device/cuda/cuda_engine.h"
#include "device/cuda/cuda_gather.h"
#include "device/cuda/step_size.h"

namespace ferry {

class CudaDevice;

class CudaCopier : public Copier {
 public:
  // `engine`: which of the device's. `sms_busy`: as CudaDevice::MakeCopier's.
  CudaCopier(CudaDevice& device, size_t engine, std::function<void(absl::Time)> sms_busy)
      : device_(device), engine_(engine), sms_busy_(std::move(sms_busy)) {}
  const Limits& limits() const override { return limits_; }
  void Start(absl::Span<const CopyPiece> pieces) override;
  std::optional<absl::Status> TakeOver() override;

 private:
  struct Step {
    absl::Status refused;  // what a call said when it was begun
    bool timed = false;    // the kernel's, with the stream to itself: it tells of the SMs
    bool empty = false;    // no pieces: the GPU, whose context nothing may hold, is not asked
    size_t bytes = 0;
    absl::Time begun;
  };
  bool ByEngine(absl::Span<const CopyPiece> pieces) const;
  absl::Status StartPieces(absl::Span<const CopyPiece> pieces, Step& step);

  CudaDevice& device_;
  const size_t engine_;
  const std::function<void(absl::Time)> sms_busy_;
  uint64_t begun_ = 0;
  uint64_t over_ = 0;
  std::vector<Step> steps_;  // by number, modulo
  MoverChoice choice_;
  StepSize size_;
  Limits limits_ = {size_.bytes(), CudaEngine::kPieces, CudaEngine::kSteps};
  std::vector<unsigned long long> to_, from_;
  std::vector<size_t> sizes_;
};

}  // namespace ferry
