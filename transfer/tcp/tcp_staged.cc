// SPDX-License-Identifier: Apache-2.0
// Bytes of GPUs: copied to host memory before they are written, and from there once they have come.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transfer/tcp/tcp_state.h"

namespace ferry {
namespace {

// Of one link, so that one peer does not take the memory of all.
constexpr size_t kStagedAtOnce = size_t{16} << 20;

}  // namespace

void TcpTransport::Impl::Want(DeviceLink& link) {
  if (!std::exchange(link.wanting, true)) wanting.push_back(&link);
}

std::unique_ptr<TcpTransport::Impl::Chunk> TcpTransport::Impl::MakeChunk(DeviceLink& link, Op& op,
                                                                         uint64_t at, size_t size) {
  auto chunk = std::make_unique<Chunk>();
  chunk->owner = this;
  chunk->op = &op;
  chunk->link = &link;
  chunk->receives = op.receive();
  chunk->at = at;
  HostStaging::Message& message = chunk->message;
  message.size = size;
  std::tie(message.segment, message.offset) = op.memory.Find(at);
  message.owner = chunk.get();
  message.over = [](HostStaging::Message& message) {
    static_cast<Chunk*>(message.owner)->owner->Copied(message);
  };
  return chunk;
}

bool TcpTransport::Impl::Stage(DeviceLink& link) {
  bool any = false;
  for (const bool small : {true, false}) {
    FairQueue& queue = link.queues[small];
    while (!queue.empty()) {
      Op& send = static_cast<Turn*>(queue.Next())->op;
      const size_t size = std::min<uint64_t>(kTcpMessageBytes, send.bytes() - send.cut);
      if (link.staged >= kStagedAtOnce || !staging->out().CanTake(size)) {
        Want(link);
        break;
      }
      std::unique_ptr<Chunk> chunk = MakeChunk(link, send, send.cut, size);
      chunk->message.memory = staging->out().Take(size);
      send.cut += size;
      link.staged += size;
      queue.Serve(size);
      Copy(std::move(chunk));
      any = true;
    }
  }
  return any;
}

void TcpTransport::Impl::Copy(std::unique_ptr<Chunk> chunk) {
  ++chunk->op->copying;
  HostStaging::Message& message = chunk->message;
  HostStaging& direction = chunk->receives ? staging->in() : staging->out();
  FERRY_CHECK(chunks.try_emplace(&message, std::move(chunk)).second);
  direction.Copy(message);
}

void TcpTransport::Impl::Copied(HostStaging::Message& message) {
  std::unique_ptr<Chunk> chunk = std::move(chunks.extract(&message).mapped());
  Op& op = *chunk->op;
  const absl::Status status = Annotate(message.status, "staging a transfer by tcp");
  const size_t bytes = message.size;
  --op.copying;
  if (!op.ended && status.ok() && !chunk->receives) {
    chunk->link->ready[op.small()].push_back(std::move(chunk));
    return MarkDue(*op.link, op.small());
  }
  GiveBack(std::move(chunk));
  if (op.ended) return AnswerIfQuiet(op);
  status.ok() ? OnArrived(op, bytes) : End(op, status);
}

void TcpTransport::Impl::GiveBack(std::unique_ptr<Chunk> chunk) {
  if (chunk == nullptr) return;
  if (chunk->receives) return staging->in().GiveBack(chunk->message.memory);
  staging->out().GiveBack(chunk->message.memory);
  if (chunk->link != nullptr) chunk->link->staged -= chunk->message.size;
}

}  // namespace ferry
