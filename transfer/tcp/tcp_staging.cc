// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_staging.h"

#include <tuple>
#include <utility>

#include "base/check.h"

namespace ferry {
namespace {

// Of one link, so that one peer does not take the memory of all.
constexpr size_t kStagedOfLink = size_t{16} << 20;

}  // namespace

std::unique_ptr<TcpChunk> TcpStaging::Take(TcpDeviceLink& link, TcpOp& op, uint64_t at,
                                           size_t size) {
  home_.Check();
  const bool receives = op.receive();
  HostStaging& direction = receives ? staging_->in() : staging_->out();
  if ((!receives && link.staged >= kStagedOfLink) || !direction.CanTake(size)) return nullptr;
  auto chunk = std::make_unique<TcpChunk>();
  chunk->op = &op;
  chunk->link = &link;
  chunk->receives = receives;
  chunk->at = at;
  HostStaging::Message& message = chunk->message;
  message.size = size;
  std::tie(message.segment, message.offset) = op.memory.Find(at);
  message.owner = chunk.get();
  message.memory = direction.Take(size);
  if (!receives) link.staged += size;
  return chunk;
}

void TcpStaging::Copy(std::unique_ptr<TcpChunk> chunk, void (*over)(HostStaging::Message&)) {
  home_.Check();
  ++chunk->op->copying;
  HostStaging::Message& message = chunk->message;
  message.over = over;
  HostStaging& direction = chunk->receives ? staging_->in() : staging_->out();
  FERRY_CHECK(copying_.try_emplace(&message, std::move(chunk)).second);
  direction.Copy(message);
}

std::unique_ptr<TcpChunk> TcpStaging::Copied(HostStaging::Message& message) {
  home_.Check();
  std::unique_ptr<TcpChunk> chunk = std::move(copying_.extract(&message).mapped());
  --chunk->op->copying;
  return chunk;
}

void TcpStaging::GiveBack(std::unique_ptr<TcpChunk> chunk) {
  home_.Check();
  if (chunk == nullptr) return;
  if (chunk->receives) return staging_->in().GiveBack(chunk->message.memory);
  staging_->out().GiveBack(chunk->message.memory);
  if (chunk->link != nullptr) chunk->link->staged -= chunk->message.size;
}

void TcpStaging::Finish() {
  home_.Check();
  while (!copying_.empty()) staging_->Poll();
}

void TcpStaging::Want(TcpDeviceLink& link) {
  home_.Check();
  if (!std::exchange(link.wanting, true)) wanting_.push_back(&link);
}

TcpDeviceLink& TcpStaging::TakeWanting() {
  home_.Check();
  TcpDeviceLink& link = *wanting_.front();
  wanting_.pop_front();
  link.wanting = false;
  return link;
}

void TcpStaging::Forget(TcpDeviceLink& link) {
  home_.Check();
  std::erase(wanting_, &link);
  for (auto& [message, chunk] : copying_) {
    if (chunk->link == &link) chunk->link = nullptr;
  }
}

}  // namespace ferry
