// SPDX-License-Identifier: Apache-2.0
// What moves bytes between memories that this process has mapped: the CPU (device/host) or a GPU's
// copy engines (device/cuda). It is given steps, which end in the order in which they began.
//
// Home: the lane of the device, and each belongs to one user on it. Nothing here waits, but the CPU
// copies inside the calls.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ferry {

struct CopyPiece {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  size_t size = 0;
  // Kernels of the GPU that copies it cannot touch it: host memory that the driver refused to
  // register, memory that another GPU's context has open.
  bool by_engine = false;
  // It goes elsewhere than through memory of GPUs that NVLink joins, so that how long a kernel
  // takes for it says little of how busy the SMs are (MoverChoice).
  bool slow_road = false;
};

// Adds a piece, as part of the one before where they follow each other at both ends.
template <typename Pieces>
void AddPiece(Pieces& pieces, const CopyPiece& piece) {
  if (!pieces.empty()) {
    CopyPiece& last = pieces.back();
    if (last.destination + last.size == piece.destination &&
        last.source + last.size == piece.source && last.by_engine == piece.by_engine &&
        last.slow_road == piece.slow_road) {
      last.size += piece.size;
      return;
    }
  }
  pieces.push_back(piece);
}

class Copier {
 public:
  struct Limits {
    size_t bytes = 0;   // of a step
    size_t pieces = 0;  // of a step
    size_t steps = 1;   // that are under way
    // Bytes move inside TakeOver, some a call: it wants to be asked again at once.
    bool by_asking = false;
  };
  virtual ~Copier() = default;
  virtual const Limits& limits() const = 0;
  // Begins a step. The pieces must stay mapped until it is over, and are not kept.
  virtual void Start(absl::Span<const CopyPiece> pieces) = 0;
  // How the oldest step that was not told yet ended; nothing while it is under way, or there is
  // none. After a failure its destination has any bytes, but is not written to any more.
  virtual std::optional<absl::Status> TakeOver() = 0;
};

}  // namespace ferry
