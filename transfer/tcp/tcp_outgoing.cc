// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_outgoing.h"

#include <limits.h>
#include <string.h>

#include <algorithm>

namespace ferry {
namespace {

// Of a message; the first one is its head.
constexpr size_t kMostPiecesWritten = IOV_MAX;

}  // namespace

void TcpOutgoing::Begin() {
  entries_.clear();
  kept_.clear();
  pieces_.assign(1, iovec{});  // the head's
}

bool TcpOutgoing::Finish(TcpKind kind) {
  next_piece_ = 0;
  if (entries_.empty()) {
    pieces_.clear();
    return false;
  }
  const TcpHeader header{static_cast<uint32_t>(kind), static_cast<uint32_t>(entries_.size())};
  const size_t entries = entries_.size() * sizeof(TcpEntry);
  head_.resize(sizeof(header) + entries);
  memcpy(head_.data(), &header, sizeof(header));
  memcpy(head_.data() + sizeof(header), entries_.data(), entries);
  pieces_.front() = {head_.data(), head_.size()};
  return true;
}

bool TcpOutgoing::TakeSaid(std::deque<std::pair<TcpKind, TcpEntry>>& said) {
  home_.Check();
  if (said.empty()) return false;
  Begin();
  const TcpKind kind = said.front().first;
  while (!said.empty() && said.front().first == kind && entries_.size() < kTcpMostEntries) {
    entries_.push_back(said.front().second);
    said.pop_front();
  }
  return Finish(kind);
}

bool TcpOutgoing::TakeSends(FairQueue& queue) {
  home_.Check();
  Begin();
  size_t room = kTcpMessageBytes;
  while (room > 0 && !queue.empty() && entries_.size() < kTcpMostEntries &&
         pieces_.size() < kMostPiecesWritten) {
    TcpOp& send = static_cast<TcpTurn*>(queue.Next())->op;
    const size_t first = pieces_.size();
    const size_t most = std::min<uint64_t>(room, send.bytes() - send.cut);
    const size_t taken = send.memory.Append(send.cut, most, kMostPiecesWritten, pieces_);
    entries_.push_back({send.op.tag, send.cut, taken});
    op_bytes_.push_back({&send, taken, first, pieces_.size(), nullptr});
    send.cut += taken;
    room -= taken;
    queue.Serve(taken);
  }
  return Finish(TcpKind::kBytes);
}

bool TcpOutgoing::TakeChunks(std::deque<std::unique_ptr<TcpChunk>>& ready) {
  home_.Check();
  Begin();
  size_t room = kTcpMessageBytes;
  while (!ready.empty() && ready.front()->message.size <= room &&
         entries_.size() < kTcpMostEntries && pieces_.size() < kMostPiecesWritten) {
    std::unique_ptr<TcpChunk> chunk = std::move(ready.front());
    ready.pop_front();
    const HostStaging::Message& message = chunk->message;
    const size_t piece = pieces_.size();
    pieces_.push_back({message.memory, message.size});
    entries_.push_back({chunk->op->op.tag, chunk->at, message.size});
    room -= message.size;
    op_bytes_.push_back({chunk->op, message.size, piece, piece + 1, std::move(chunk)});
  }
  return Finish(TcpKind::kBytes);
}

absl::Span<iovec> TcpOutgoing::unwritten() {
  home_.Check();
  return absl::MakeSpan(pieces_).subspan(next_piece_);
}

void TcpOutgoing::Wrote(size_t bytes) {
  home_.Check();
  while (!idle()) {
    iovec& piece = pieces_[next_piece_];
    const size_t of_piece = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + of_piece;
    piece.iov_len -= of_piece;
    bytes -= of_piece;
    if (piece.iov_len > 0) break;
    ++next_piece_;
  }
}

std::vector<TcpOutgoing::OpBytes> TcpOutgoing::TakeOpBytes() {
  home_.Check();
  return std::exchange(op_bytes_, {});
}

void TcpOutgoing::LetGo(const TcpOp& op) {
  home_.Check();
  for (OpBytes& part : op_bytes_) {
    if (part.op != &op) continue;
    part.op = nullptr;
    if (part.chunk != nullptr) continue;  // the memory is the chunk's
    const size_t first = std::max(part.first_piece, next_piece_);
    size_t size = 0;
    for (size_t i = first; i < part.end_piece; ++i) size += pieces_[i].iov_len;
    if (size == 0) continue;
    std::byte* copy = kept_.emplace_back(new std::byte[size]).get();
    for (size_t i = first; i < part.end_piece; ++i) {
      iovec& piece = pieces_[i];
      memcpy(copy, piece.iov_base, piece.iov_len);
      piece.iov_base = std::exchange(copy, copy + piece.iov_len);
    }
  }
}

}  // namespace ferry
