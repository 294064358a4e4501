// SPDX-License-Identifier: Apache-2.0
// What is written: messages of what the ends say to each other, and of the bytes of sends.
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transfer/tcp/tcp_state.h"

namespace ferry {
namespace {

// Of a message; the first one is its head.
constexpr size_t kMostPieces = IOV_MAX;

}  // namespace

void TcpTransport::Impl::Enqueue(Op& send) {
  DeviceLink& link = *send.link;
  send.turn.emplace(send);
  link.queues[send.small()].Add(*send.turn);
  staging != nullptr ? Want(link) : MarkDue(link, send.small());
}

void TcpTransport::Impl::Say(DeviceLink& link, TcpKind kind, const TcpEntry& entry) {
  link.said.emplace_back(kind, entry);
  MarkDue(link, /*small=*/true);
}

bool TcpTransport::Impl::HasMore(const Connection& connection) const {
  const DeviceLink& link = connection.link;
  const bool small = connection.index == 0;
  return !connection.out.idle() || (small && !link.said.empty()) ||
         (staging != nullptr ? !link.ready[small].empty() : !link.queues[small].empty());
}

bool TcpTransport::Impl::Write(Connection& connection) {
  Outgoing& out = connection.out;
  size_t written = 0;
  while (written < kTcpMessageBytes && (!out.idle() || NextMessage(connection))) {
    msghdr message = {};
    message.msg_iov = &out.pieces[out.next_piece];
    message.msg_iovlen = out.pieces.size() - out.next_piece;
    ssize_t taken = sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno == EAGAIN) {
      connection.writable = false;
      break;
    }
    if (taken < 0) {
      FailSet(connection.link, strerror(errno));
      return true;
    }
    written += static_cast<size_t>(taken);
    while (!out.idle()) {
      iovec& piece = out.pieces[out.next_piece];
      const size_t of_piece = std::min(static_cast<size_t>(taken), piece.iov_len);
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + of_piece;
      piece.iov_len -= of_piece;
      taken -= static_cast<ssize_t>(of_piece);
      if (piece.iov_len > 0) break;
      ++out.next_piece;
    }
    if (out.idle()) Written(out);
  }
  return written > 0;
}

bool TcpTransport::Impl::NextMessage(Connection& connection) {
  Outgoing& out = connection.out;
  DeviceLink& link = connection.link;
  const bool small = connection.index == 0;
  out.entries.clear();
  out.kept.clear();
  out.pieces.assign(1, iovec{});  // the head's
  TcpKind kind = TcpKind::kBytes;
  if (small && !link.said.empty()) {
    kind = TakeSaid(link, out);
  } else if (staging != nullptr) {
    TakeChunks(link.ready[small], out);
  } else {
    TakeSends(link.queues[small], out);
  }
  if (out.entries.empty()) {
    out.pieces.clear();
    out.next_piece = 0;
    return false;
  }
  const TcpHeader header{static_cast<uint32_t>(kind), static_cast<uint32_t>(out.entries.size())};
  const size_t entries = out.entries.size() * sizeof(TcpEntry);
  out.head.resize(sizeof(header) + entries);
  memcpy(out.head.data(), &header, sizeof(header));
  memcpy(out.head.data() + sizeof(header), out.entries.data(), entries);
  out.pieces.front() = {out.head.data(), out.head.size()};
  out.next_piece = 0;
  return true;
}

TcpKind TcpTransport::Impl::TakeSaid(DeviceLink& link, Outgoing& out) {
  const TcpKind kind = link.said.front().first;
  while (!link.said.empty() && link.said.front().first == kind &&
         out.entries.size() < kTcpMostEntries) {
    out.entries.push_back(link.said.front().second);
    link.said.pop_front();
  }
  return kind;
}

void TcpTransport::Impl::TakeSends(FairQueue& queue, Outgoing& out) {
  size_t room = kTcpMessageBytes;
  while (room > 0 && !queue.empty() && out.entries.size() < kTcpMostEntries &&
         out.pieces.size() < kMostPieces) {
    Op& send = static_cast<Turn*>(queue.Next())->op;
    const size_t first = out.pieces.size();
    const size_t most = std::min<uint64_t>(room, send.bytes() - send.cut);
    const size_t taken = send.memory.Append(send.cut, most, kMostPieces, out.pieces);
    out.entries.push_back({send.op.tag, send.cut, taken});
    out.op_bytes.push_back({&send, taken, first, out.pieces.size(), nullptr});
    send.cut += taken;
    room -= taken;
    queue.Serve(taken);
  }
}

void TcpTransport::Impl::TakeChunks(std::deque<std::unique_ptr<Chunk>>& ready, Outgoing& out) {
  size_t room = kTcpMessageBytes;
  while (!ready.empty() && ready.front()->message.size <= room &&
         out.entries.size() < kTcpMostEntries && out.pieces.size() < kMostPieces) {
    std::unique_ptr<Chunk> chunk = std::move(ready.front());
    ready.pop_front();
    const HostStaging::Message& message = chunk->message;
    const size_t piece = out.pieces.size();
    out.pieces.push_back({message.memory, message.size});
    out.entries.push_back({chunk->op->op.tag, chunk->at, message.size});
    room -= message.size;
    out.op_bytes.push_back({chunk->op, message.size, piece, piece + 1, std::move(chunk)});
  }
}

void TcpTransport::Impl::Written(Outgoing& out) {
  for (Outgoing::OpBytes& part : std::exchange(out.op_bytes, {})) {
    GiveBack(std::move(part.chunk));
    if (part.op == nullptr) continue;
    Op& send = *part.op;
    send.over += part.bytes;
    // Of what is prepared the other end says that it has arrived.
    if (send.over == send.bytes() && send.bundle == nullptr) End(send, absl::OkStatus());
  }
}

void TcpTransport::Impl::LetGo(Outgoing& out, Op& send) {
  for (Outgoing::OpBytes& part : out.op_bytes) {
    if (part.op != &send) continue;
    part.op = nullptr;
    if (part.chunk != nullptr) continue;  // the memory is the chunk's
    const size_t first = std::max(part.first_piece, out.next_piece);
    size_t size = 0;
    for (size_t i = first; i < part.end_piece; ++i) size += out.pieces[i].iov_len;
    if (size == 0) continue;
    std::byte* copy = out.kept.emplace_back(new std::byte[size]).get();
    for (size_t i = first; i < part.end_piece; ++i) {
      iovec& piece = out.pieces[i];
      memcpy(copy, piece.iov_base, piece.iov_len);
      piece.iov_base = std::exchange(copy, copy + piece.iov_len);
    }
  }
}

}  // namespace ferry
