// SPDX-License-Identifier: Apache-2.0
// A copier moves bytes between memories that this process has mapped, by the CPU (device/host) or
// by a GPU's copy engines (device/cuda). It is given steps, which end in the order in which they
// began.
//
// Home: the lane of the device. Each copier belongs to one user on that lane. Nothing here waits,
// except that the CPU copies inside the calls.
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
  // Kernels of the copying GPU cannot touch one of the ends: host memory that the driver refused to
  // register, or memory that another GPU's context has open.
  bool by_engine = false;
  // The way of the bytes is not only through memory of GPUs that NVLink joins. So the time that a
  // kernel takes for the piece says little of how busy the SMs are (MoverChoice).
  bool slow_road = false;
};

// Adds a piece; merges it into the last one if it continues that at both ends.
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
    size_t bytes = 0;   // of one step, at most
    size_t pieces = 0;  // of one step, at most
    size_t steps = 1;   // under way at once, at most
    // The bytes move inside TakeOver, a part in each call: call it again at once.
    bool by_asking = false;
  };
  virtual ~Copier() = default;
  virtual const Limits& limits() const = 0;
  // Begins a step. The pieces' memory must stay mapped until the step is over; `pieces` is not
  // kept.
  virtual void Start(absl::Span<const CopyPiece> pieces) = 0;
  // How the oldest step ended that was not reported yet; nothing while that is under way, or if
  // there is none. After a failure the destination has any bytes, but is not written to any more.
  virtual std::optional<absl::Status> TakeOver() = 0;
};

}  // namespace ferry
