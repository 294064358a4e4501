// SPDX-License-Identifier: Apache-2.0
// Copies by a GPU's copy engine: a step is one call for its pieces and an event behind them.
// Several steps are under way, so that the engine never waits for us; small ones wait for what is
// under way at most. Home: the lane.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "device/copier.h"

namespace ferry {

class CudaDevice;

class CudaCopier : public Copier {
 public:
  // `engine`: which of the device's.
  CudaCopier(CudaDevice& device, size_t engine) : device_(device), engine_(engine) {}
  const Limits& limits() const override;
  void Start(absl::Span<const CopyPiece> pieces) override;
  std::optional<absl::Status> TakeOver() override;

 private:
  absl::Status StartPieces(absl::Span<const CopyPiece> pieces);

  CudaDevice& device_;
  const size_t engine_;
  uint64_t begun_ = 0;
  uint64_t over_ = 0;
  std::vector<absl::Status> refused_;  // by step: what a call said when it was begun
  std::vector<unsigned long long> to_, from_;
  std::vector<size_t> sizes_;
};

}  // namespace ferry
