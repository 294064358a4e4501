// SPDX-License-Identifier: Apache-2.0
// Copies by a GPU. A step is one call for all its pieces, and an event behind them. The copy engine
// carries it out, or the gather kernel where that is faster (MoverChoice). Several steps are under
// way at once, so that the engine never waits for the lane; a small step waits only for those under
// way. Home: the lane.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/home.h"
#include "device/copier.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_engine.h"
#include "device/cuda/cuda_gather.h"
#include "device/cuda/step_size.h"

namespace ferry {

class CudaCopier : public Copier {
 public:
  // `engine`: index of the device's CudaEngine. `sms_busy`: see CudaDevice::MakeCopier.
  CudaCopier(CudaDevice& device, size_t engine, std::function<void(absl::Time)> sms_busy)
      : device_(device), engine_(engine), sms_busy_(std::move(sms_busy)) {}
  const Limits& limits() const override { return limits_; }
  void Start(absl::Span<const CopyPiece> pieces) override;
  std::optional<absl::Status> TakeOver() override;

 private:
  struct Step {
    absl::Status refused;  // error of the call that began it
    bool tells = false;    // the kernel moves it, and its time tells how busy the SMs are
    bool empty = false;    // has no pieces: the GPU, whose context nothing may hold, is not asked
    size_t bytes = 0;
  };
  bool ByEngine(absl::Span<const CopyPiece> pieces) const;
  absl::Status StartPieces(absl::Span<const CopyPiece> pieces, Step& step, absl::Time now);

  CudaDevice& device_;
  const size_t engine_;
  // Whether it counts as copying: CudaDevice::copying.
  const bool counts_ = engine_ == static_cast<size_t>(CopyUse::kTransfers) ||
                       engine_ == static_cast<size_t>(CopyUse::kPrepared);
  const std::function<void(absl::Time)> sms_busy_;
  uint64_t begun_ = 0;
  uint64_t over_ = 0;
  std::vector<Step> steps_;  // by step number, modulo their count
  MoverChoice choice_;
  StepSize size_;
  Limits limits_ = {size_.bytes(), CudaEngine::kPieces, CudaEngine::kSteps};
  std::vector<unsigned long long> to_, from_;
  std::vector<size_t> sizes_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
