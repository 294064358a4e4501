// SPDX-License-Identifier: Apache-2.0
#include "transfer/staging/host_staging.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace ferry {
namespace {

// Messages in a block begin at multiples of this, which copies of any kind are at their best with.
constexpr size_t kAlign = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

HostStaging::HostStaging(Lane& lane, Direction direction, std::unique_ptr<Copier> copier,
                         absl::Span<std::byte> memory)
    : lane_(lane),
      direction_(direction),
      copier_(std::move(copier)),
      memory_(memory),
      blocks_(memory.size() / kBlock) {
  FERRY_CHECK(!blocks_.empty());
  lane_.AddPoller(this);
}

void HostStaging::Finish() {
  home_.Check();
  while (Busy()) Poll();
  lane_.RemovePoller(this);
}

size_t HostStaging::BlockFor(size_t bytes) const {
  if (blocks_[open_].used + Aligned(bytes) <= kBlock) return open_;
  const auto unused = std::find_if(blocks_.begin(), blocks_.end(),
                                   [](const StagingBlock& block) { return block.holders == 0; });
  return static_cast<size_t>(unused - blocks_.begin());
}

std::byte* HostStaging::Take(size_t bytes) {
  home_.Check();
  FERRY_CHECK(bytes <= kBlock);
  const size_t index = BlockFor(bytes);
  if (index == blocks_.size()) return nullptr;
  open_ = index;
  StagingBlock& block = blocks_[index];
  ++block.holders;
  return memory_.data() + index * kBlock + std::exchange(block.used, block.used + Aligned(bytes));
}

void HostStaging::GiveBack(std::byte* memory) {
  home_.Check();
  StagingBlock& block = blocks_[static_cast<size_t>(memory - memory_.data()) / kBlock];
  if (--block.holders == 0) block.used = 0;
}

void HostStaging::Copy(Message& message) {
  home_.Check();
  waiting_.push_back(&message);
}

bool HostStaging::Poll() {
  home_.Check();
  bool any = false;
  while (!waiting_.empty() && steps_.size() < copier_->limits().steps) {
    StartStep();
    any = true;
  }
  while (!steps_.empty()) {
    const std::optional<absl::Status> over = copier_->TakeOver();
    if (!over.has_value()) break;
    EndStep(*over);
    any = true;
  }
  return any;
}

void HostStaging::StartStep() {
  Step step;
  pieces_.clear();
  for (size_t room = kBlock;
       !waiting_.empty() && room > 0 && pieces_.size() < copier_->limits().pieces;) {
    Message& message = *waiting_.front();
    CutPieces(message, room);
    ++message.steps;
    step.push_back(&message);
    if (message.cut == message.size) waiting_.pop_front();
  }
  steps_.push_back(std::move(step));
  copier_->Start(pieces_);
}

void HostStaging::CutPieces(Message& message, size_t& room) {
  while (message.cut < message.size && room > 0 && pieces_.size() < copier_->limits().pieces) {
    while (message.offset == message.segment->size) {
      ++message.segment;
      message.offset = 0;
    }
    const size_t size =
        std::min({room, message.size - message.cut, message.segment->size - message.offset});
    std::byte* const staged = message.memory + message.cut;
    std::byte* const device = message.segment->local + message.offset;
    const bool out = direction_ == Direction::kOut;
    AddPiece(pieces_, {out ? staged : device, out ? device : staged, size, /*by_engine=*/false,
                       /*slow_road=*/true});
    message.cut += size;
    message.offset += size;
    room -= size;
  }
}

void HostStaging::EndStep(const absl::Status& status) {
  const Step step = std::move(steps_.front());
  steps_.pop_front();
  for (Message* message : step) {
    message->status.Update(status);
    // What is left of one that failed is not copied.
    if (!message->status.ok() && message->cut < message->size) {
      waiting_.pop_front();  // only the first can be cut in part
      message->cut = message->size;
    }
    if (--message->steps > 0 || message->cut < message->size) continue;
    message->over(*message);
  }
}

GpuStaging::GpuStaging(Lane& lane, Parts parts)
    : lane_(lane), memory_(parts.memory), enter_(std::move(parts.enter)) {
  lane_.RunAndWait([&] {
    const size_t half = memory_.size() / 2;
    out_ = std::make_unique<HostStaging>(lane_, HostStaging::Direction::kOut, std::move(parts.out),
                                         memory_.first(half));
    in_ = std::make_unique<HostStaging>(lane_, HostStaging::Direction::kIn, std::move(parts.in),
                                        memory_.last(half));
  });
}

GpuStaging::~GpuStaging() {
  lane_.RunAndWait([this] {
    out_->Finish();
    in_->Finish();
  });
}

}  // namespace ferry
