// SPDX-License-Identifier: Apache-2.0
// One direction of a GPU's bytes on their way through host memory, for the routes that cannot move
// the memory of GPUs by themselves (`tcp`, `ucx`): pinned slots, which the network sends from or
// receives into, and the copies between them and the GPU. A slot has room for the largest message;
// small messages share one, and are copied in one step together, which the copier may leave to a
// kernel.
//
// Home: the lane. A message has memory from Take to GiveBack, and is touched here from Copy until
// it is told over. Copies begin in the order of Copy; nothing here waits.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "device/copier.h"
#include "device/lane.h"
#include "transfer/transport.h"

namespace ferry {

class HostStaging : public Poller {
 public:
  static constexpr size_t kSlot = size_t{4} << 20;  // bytes
  enum class Direction { kOut, kIn };               // from the GPU, or to it

  // Its owner keeps it where it is.
  struct Message {
    std::byte* memory = nullptr;
    size_t size = 0;  // not 0
    // The GPU's memory: `size` bytes from `offset` in the first segment on.
    const Segment* segment = nullptr;
    size_t offset = 0;
    void* owner = nullptr;
    // Called from Poll once it is over.
    void (*over)(Message&) = nullptr;

    size_t cut = 0;       // bytes that are in a step, or were
    size_t steps = 0;     // under way, with bytes of it
    absl::Status status;  // once it is over
  };

  // `memory` has at least one slot.
  HostStaging(Lane& lane, Direction direction, std::unique_ptr<Copier> copier,
              absl::Span<std::byte> memory);
  // Waits until all copies are over, and tells them. The lane does not poll it any more.
  void Finish();

  // Memory for a message of at most a slot; null if there is none now.
  bool CanTake(size_t bytes) const { return SlotFor(bytes) < slots_.size(); }
  std::byte* Take(size_t bytes);
  void GiveBack(std::byte* memory);
  size_t bytes() const { return memory_.size(); }

  void Copy(Message& message);

  bool Poll() override;
  bool Busy() const override { return !steps_.empty() || !waiting_.empty(); }

 private:
  struct Slot {
    size_t used = 0;
    size_t holders = 0;
  };
  using Step = std::vector<Message*>;

  size_t SlotFor(size_t bytes) const;  // slots_.size() if there is none
  void StartStep();
  void CutPieces(Message& message, size_t& room);
  void EndStep(const absl::Status& status);

  Lane& lane_;
  const Direction direction_;
  const std::unique_ptr<Copier> copier_;
  const absl::Span<std::byte> memory_;
  std::vector<Slot> slots_;
  size_t open_ = 0;                // the slot that messages are put into, as long as they fit
  std::deque<Message*> waiting_;   // not cut to their end
  std::deque<Step> steps_;         // under way
  std::vector<CopyPiece> pieces_;  // kept for its memory
};

// Both directions of one GPU, for all routes that stage: whoever has taken memory gives it back,
// and whoever got none asks again when the lane next polls it. Made and destroyed by any thread but
// the lane's; all else is the lane's.
class GpuStaging {
 public:
  struct Parts {
    std::unique_ptr<Copier> out;   // from the GPU to `memory`
    std::unique_ptr<Copier> in;    // and back
    absl::Span<std::byte> memory;  // pinned, half of it for each direction; outlives this
    std::function<void()> enter;   // makes the GPU's context current
  };
  GpuStaging(Lane& lane, Parts parts);
  // Nobody has memory of it any more.
  ~GpuStaging();

  HostStaging& out() { return *out_; }
  HostStaging& in() { return *in_; }
  // A step of each.
  void Poll() {
    out_->Poll();
    in_->Poll();
  }
  void Enter() const { enter_(); }
  absl::Span<std::byte> memory() const { return memory_; }

 private:
  Lane& lane_;
  const absl::Span<std::byte> memory_;
  const std::function<void()> enter_;
  std::unique_ptr<HostStaging> out_;
  std::unique_ptr<HostStaging> in_;
};

}  // namespace ferry
