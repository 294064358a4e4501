// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_receives.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "base/status.h"

namespace ferry {
namespace {

// Of one call; the last one is for what comes behind the message.
constexpr size_t kMostPiecesRead = IOV_MAX - 1;

}  // namespace

bool TcpReceives::Read(TcpConnection& connection) {
  home_.Check();
  size_t read = 0;
  while (connection.readable && !connection.waiting && read < kTcpMessageBytes) {
    Parse(connection);  // first: what waited may go on
    if (connection.state != TcpConnection::State::kOpen || connection.waiting) return true;
    const size_t got = ReadSome(connection);
    if (connection.state != TcpConnection::State::kOpen) return true;
    read += got;
    Parse(connection);
    if (connection.state != TcpConnection::State::kOpen) return true;
  }
  return read > 0;
}

size_t TcpReceives::ReadSome(TcpConnection& connection) {
  TcpIncoming& in = connection.in;
  pieces_.clear();
  size_t wanted = 0;
  bool whole = true;
  uint64_t done = in.done();
  const absl::Span<Part> parts = in.left();
  for (Part& part : parts) {
    const size_t left = part.entry.bytes - done;
    // The first one was settled by Parse.
    whole = (&part == parts.data() || part.known) && pieces_.size() < kMostPiecesRead;
    if (!whole) break;
    const size_t added = AddPieces(connection.link, part, done, left, kMostPiecesRead);
    wanted += added;
    if (added < left) {
      whole = false;
      break;
    }
    done = 0;
  }
  size_t behind = 0;
  if (whole) {
    pieces_.push_back(in.Behind());
    behind = pieces_.back().iov_len;
  }
  msghdr message = {};
  message.msg_iov = pieces_.data();
  message.msg_iovlen = pieces_.size();
  const ssize_t got = recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (errno == EAGAIN) connection.readable = false;
    return 0;
  }
  if (got <= 0) {
    sets_.Fail(connection.link, got == 0 ? "the peer closed one" : strerror(errno));
    return 0;
  }
  const auto bytes = static_cast<size_t>(got);
  if (bytes < wanted + behind && !connection.ended) connection.readable = false;
  if (bytes > wanted) in.ReadBehind(bytes - wanted);
  if (wanted > 0) Advance(connection, std::min(bytes, wanted));
  return bytes;
}

void TcpReceives::Parse(TcpConnection& connection) {
  TcpIncoming& in = connection.in;
  while (connection.state == TcpConnection::State::kOpen && !connection.waiting) {
    if (!in.in_message()) {
      absl::string_view wrong;
      if (in.Begin(wrong)) continue;
      if (!wrong.empty()) sets_.Fail(connection.link, wrong);
      return;
    }
    const absl::Span<Part> parts = in.left();
    Part& part = parts.front();
    if (in.kind() != TcpKind::kBytes) {
      if (!Hear(connection, part.entry)) return;
      in.Heard();
      continue;
    }
    if (!Settle(connection, part, /*may_wait=*/true)) return;
    // Those behind it as well, so that their bytes are read at once.
    for (Part& behind : parts.subspan(1)) {
      if (!Settle(connection, behind, /*may_wait=*/false)) break;
    }
    const size_t here = std::min<uint64_t>(in.ahead().size(), part.entry.bytes - in.done());
    if (here == 0 && part.entry.bytes > 0) return;
    pieces_.clear();
    const size_t taken = AddPieces(connection.link, part, in.done(), here, kMostPiecesRead);
    for (const iovec& piece : pieces_) {
      memcpy(piece.iov_base, in.ahead().data(), piece.iov_len);
      in.Skip(piece.iov_len);
    }
    Advance(connection, taken);
  }
}

bool TcpReceives::Hear(TcpConnection& connection, const TcpEntry& entry) {
  const bool to_receive = connection.in.kind() == TcpKind::kArmed;
  const auto found = connection.link.tags[to_receive].find(entry.tag);
  if (found == connection.link.tags[to_receive].end()) {
    // A send that is not here is over: nothing is said to it before it has announced itself.
    return !to_receive || !MayBeOnItsWay(connection);
  }
  connection.tried = false;
  TcpOp& op = *found->second;
  if (op.bundle == nullptr) return true;
  switch (connection.in.kind()) {
    case TcpKind::kArmed:
      firings_.OnArmed(op);
      break;
    case TcpKind::kWanted:
      firings_.OnWanted(op, entry.at);
      break;
    case TcpKind::kArrived:
      firings_.OnArrived(op, entry.at);
      break;
    case TcpKind::kBytes:
      break;
  }
  return true;
}

absl::string_view TcpReceives::Objection(const TcpOp& receive, const TcpEntry& entry) {
  const uint64_t bytes = receive.bytes();
  if (entry.at > bytes || entry.bytes > bytes - entry.at) return "bytes beyond its end came";
  if (entry.bytes > bytes - receive.cut) return "bytes came twice";
  if (entry.bytes == 0 && bytes > 0) return "an entry without bytes came";
  if (receive.bundle != nullptr && receive.firing != receive.fired + 1) {
    return "bytes of a firing that nobody wants came";
  }
  return "";
}

bool TcpReceives::Settle(TcpConnection& connection, Part& part, bool may_wait) {
  if (part.known) return true;
  const auto found = connection.link.tags[1].find(part.entry.tag);
  if (found == connection.link.tags[1].end()) {
    return may_wait && !MayBeOnItsWay(connection) && Drop(part);
  }
  connection.tried = false;
  TcpOp& receive = *found->second;
  const absl::string_view objection = Objection(receive, part.entry);
  if (!objection.empty()) {
    Drop(part);
    ops_.End(receive, TcpOps::OpError(absl::StatusCode::kInternal, Reason::kProtocolError,
                                      receive.op, objection));
    return true;
  }
  if (staging_.on() && part.entry.bytes > 0) {
    part.chunk = staging_.Take(connection.link, receive, part.entry.at, part.entry.bytes);
    if (part.chunk == nullptr) {
      if (may_wait) due_.Starve(connection);
      return false;
    }
  }
  receive.cut += part.entry.bytes;
  return part.known = true;
}

size_t TcpReceives::AddPieces(TcpDeviceLink& link, Part& part, uint64_t done, size_t size,
                              size_t most) {
  if (!part.dropped && part.chunk != nullptr) {
    pieces_.push_back({part.chunk->message.memory + done, size});
    return size;
  }
  if (const auto found = link.tags[1].find(part.entry.tag);
      !part.dropped && found != link.tags[1].end()) {
    return found->second->memory.Append(part.entry.at + done, size, most, pieces_);
  }
  part.dropped = true;
  size_t left = size;
  while (left > 0 && pieces_.size() < most) {
    const size_t here = std::min(left, nowhere_.size());
    pieces_.push_back({nowhere_.data(), here});
    left -= here;
  }
  return size - left;
}

void TcpReceives::Advance(TcpConnection& connection, size_t bytes) {
  TcpIncoming& in = connection.in;
  do {
    Part* const whole = in.Come(bytes);
    if (whole == nullptr) return;
    EndPart(connection.link, *whole);
  } while (bytes > 0);
  in.EndIfOver();
}

void TcpReceives::EndPart(TcpDeviceLink& link, Part& part) {
  if (part.chunk != nullptr) {
    if (part.chunk->op == nullptr) return staging_.GiveBack(std::move(part.chunk));
    part.chunk->owner = this;
    return staging_.Copy(std::move(part.chunk), [](HostStaging::Message& message) {
      static_cast<TcpReceives*>(static_cast<TcpChunk*>(message.owner)->owner)->OnCopied(message);
    });
  }
  if (part.dropped) return;
  const auto found = link.tags[1].find(part.entry.tag);
  if (found != link.tags[1].end()) OnArrived(*found->second, part.entry.bytes);
}

void TcpReceives::OnCopied(HostStaging::Message& message) {
  std::unique_ptr<TcpChunk> chunk = staging_.Copied(message);
  TcpOp& receive = *chunk->op;
  const absl::Status status = Annotate(message.status, "staging a transfer by tcp");
  const size_t bytes = message.size;
  staging_.GiveBack(std::move(chunk));
  if (receive.ended) return ops_.AnswerIfQuiet(receive);
  status.ok() ? OnArrived(receive, bytes) : ops_.End(receive, status);
}

void TcpReceives::OnArrived(TcpOp& receive, uint64_t bytes) {
  // Entries that have bytes are counted where they are claimed; one without any ends the firing of
  // a transfer without bytes, once: the batch counts firings of all its transfers, of other peers
  // too.
  if (receive.bundle != nullptr && receive.fired == receive.firing) {
    return ops_.End(receive, TcpOps::OpError(absl::StatusCode::kInternal, Reason::kProtocolError,
                                             receive.op, "a firing came twice"));
  }
  receive.over += bytes;
  if (receive.over < receive.bytes()) return;
  receive.bundle != nullptr ? firings_.Over(receive) : ops_.End(receive, absl::OkStatus());
}

bool TcpReceives::MayBeOnItsWay(TcpConnection& connection) {
  if (std::exchange(connection.tried, !connection.tried)) return false;
  connection.waiting = true;
  const TcpDeviceLink& link = connection.link;
  lane_.Post([this, key = link.key, serial = link.serial, index = connection.index] {
    TcpDeviceLink* const link = sets_.Find(key.first, key.second);
    if (link == nullptr || link->serial != serial || link->state != TcpDeviceLink::State::kOpen)
      return;
    due_.ReadOn(*link->connections[index]);
  });
  return true;
}

}  // namespace ferry
