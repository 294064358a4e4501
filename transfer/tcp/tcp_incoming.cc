// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_incoming.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

// So much is read behind a message: the next one's head, and not much of its bytes, which would
// have to be copied.
constexpr size_t kBehind = 4096;

}  // namespace

void TcpIncoming::Skip(size_t bytes) {
  home_.Check();
  begin_ += bytes;
}

iovec TcpIncoming::Behind() {
  home_.Check();
  // What is there is the beginning of a head.
  memmove(ahead_.data(), ahead_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  return {ahead_.data() + end_, in_message() ? kBehind : ahead_.size() - end_};
}

void TcpIncoming::ReadBehind(size_t bytes) {
  home_.Check();
  end_ += bytes;
}

bool TcpIncoming::Begin(absl::string_view& wrong) {
  home_.Check();
  TcpHeader header;
  if (end_ - begin_ < sizeof(header)) return false;
  memcpy(&header, ahead_.data() + begin_, sizeof(header));
  if (header.kind < static_cast<uint32_t>(TcpKind::kBytes) ||
      header.kind > static_cast<uint32_t>(TcpKind::kArrived) || header.entries == 0 ||
      header.entries > kTcpMostEntries) {
    wrong = "the peer sent no message";
    return false;
  }
  const size_t entries = header.entries * sizeof(TcpEntry);
  static_assert(sizeof(TcpHeader) + kTcpMostEntries * sizeof(TcpEntry) <= sizeof(ahead_));
  if (end_ - begin_ < sizeof(header) + entries) return false;
  begin_ += sizeof(header);
  kind_ = static_cast<TcpKind>(header.kind);
  parts_.clear();
  next_ = done_ = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < header.entries; ++i, begin_ += sizeof(TcpEntry)) {
    TcpEntry& entry = parts_.emplace_back().entry;
    memcpy(&entry, ahead_.data() + begin_, sizeof(entry));
    sum += std::min<uint64_t>(entry.bytes, kTcpMessageBytes + 1);
  }
  if (kind_ == TcpKind::kBytes && sum > kTcpMessageBytes) {
    wrong = "the peer sent a message that is too long";
    return false;
  }
  return true;
}

TcpIncoming::Part* TcpIncoming::Come(size_t& bytes) {
  home_.Check();
  Part& part = parts_[next_];
  const size_t here = std::min<uint64_t>(bytes, part.entry.bytes - done_);
  done_ += here;
  bytes -= here;
  if (done_ < part.entry.bytes) return nullptr;
  done_ = 0;
  ++next_;
  return &part;
}

void TcpIncoming::Heard() {
  home_.Check();
  ++next_;
  EndIfOver();
}

void TcpIncoming::EndIfOver() {
  home_.Check();
  if (in_message()) return;
  parts_.clear();
  next_ = 0;
}

void TcpIncoming::LetGo(const TcpOp& op) {
  home_.Check();
  for (Part& part : parts_) {
    if (part.chunk != nullptr && part.chunk->op == &op) part.chunk->op = nullptr;
  }
}

std::vector<std::unique_ptr<TcpChunk>> TcpIncoming::TakeChunks() {
  home_.Check();
  std::vector<std::unique_ptr<TcpChunk>> chunks;
  for (Part& part : parts_) {
    if (part.chunk != nullptr) chunks.push_back(std::move(part.chunk));
  }
  return chunks;
}

}  // namespace ferry
