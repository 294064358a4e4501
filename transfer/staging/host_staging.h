// SPDX-License-Identifier: Apache-2.0
// Stages one direction of a GPU's bytes in host memory, for the routes that cannot move GPU memory
// by themselves (`tcp`, `ucx`). It has pinned blocks, which the network sends from or receives
// into, and copies between these and the GPU. A block has room for the largest message. Small
// messages share a block, and are copied together in one step, which the copier may leave to a
// kernel.
//
// Home: the lane. A message has memory from Take() to GiveBack(). This object touches that memory
// from Copy() until it calls the message's `over`. Copies begin in the order of Copy(). Nothing
// here waits, but Finish().
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "device/copier.h"
#include "device/lane.h"
#include "transfer/transport.h"

namespace ferry {

class HostStaging : public Poller {
 public:
  static constexpr size_t kBlock = size_t{4} << 20;  // bytes; the largest message
  enum class Direction { kOut, kIn };                // from the GPU, or to it

  // A message on its way. Its owner must not move it between Copy() and `over`.
  struct Message {
    std::byte* memory = nullptr;
    size_t size = 0;  // not 0
    // Where the message is in the GPU's memory: `size` bytes, which begin `offset` bytes into the
    // first segment and go on in the next ones.
    const Segment* segment = nullptr;
    size_t offset = 0;
    void* owner = nullptr;
    // Called from Poll() when the copy is over.
    void (*over)(Message&) = nullptr;

    size_t cut = 0;       // bytes that are or were in a step
    size_t steps = 0;     // steps under way that have bytes of it
    absl::Status status;  // how the copy went, once it is over
  };

  // `memory` has at least one block.
  HostStaging(Lane& lane, Direction direction, std::unique_ptr<Copier> copier,
              absl::Span<std::byte> memory);
  // Waits until all copies are over, and calls `over` for each. The lane must not poll it any more.
  void Finish();

  // Whether there is memory now for a message of `bytes`, at most a block. Take() returns it, or
  // null.
  bool CanTake(size_t bytes) const { return BlockFor(bytes) < blocks_.size(); }
  std::byte* Take(size_t bytes);
  void GiveBack(std::byte* memory);
  size_t bytes() const { return memory_.size(); }

  void Copy(Message& message);

  bool Poll() override;
  bool Busy() const override { return !steps_.empty() || !waiting_.empty(); }

 private:
  // Bytes of the block that are given out, and messages that have them.
  struct StagingBlock {
    size_t used = 0;
    size_t holders = 0;
  };
  using Step = std::vector<Message*>;  // the messages of a step

  size_t BlockFor(size_t bytes) const;  // blocks_.size() if none has room
  void StartStep();
  void CutPieces(Message& message, size_t& room);
  void EndStep(const absl::Status& status);

  Lane& lane_;
  const Direction direction_;
  const std::unique_ptr<Copier> copier_;
  const absl::Span<std::byte> memory_;
  std::vector<StagingBlock> blocks_;
  size_t open_ = 0;                // the block that messages are put into as long as they fit
  std::deque<Message*> waiting_;   // messages that are not cut to their end
  std::deque<Step> steps_;         // steps under way, the oldest first
  std::vector<CopyPiece> pieces_;  // kept for its memory
  [[no_unique_address]] HomeChecker home_;
};

// Both directions of one GPU, for all routes that stage. A route gives back the memory that it has
// taken. A route that got none asks again when the lane polls it next. Home: the lane, except that
// it is made and destroyed by another thread.
class GpuStaging {
 public:
  struct Parts {
    std::unique_ptr<Copier> out;   // from the GPU to `memory`
    std::unique_ptr<Copier> in;    // from `memory` to the GPU
    absl::Span<std::byte> memory;  // pinned, half for each direction; outlives this
    std::function<void()> enter;   // makes the GPU's context current
  };
  GpuStaging(Lane& lane, Parts parts);
  // All memory must have been given back.
  ~GpuStaging();

  HostStaging& out() { return *out_; }
  HostStaging& in() { return *in_; }
  // Polls both directions.
  void Poll() {
    home_.Check();
    out_->Poll();
    in_->Poll();
  }
  void Enter() const {
    home_.Check();
    enter_();
  }
  absl::Span<std::byte> memory() const { return memory_; }

 private:
  Lane& lane_;
  const absl::Span<std::byte> memory_;
  const std::function<void()> enter_;
  std::unique_ptr<HostStaging> out_;
  std::unique_ptr<HostStaging> in_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
