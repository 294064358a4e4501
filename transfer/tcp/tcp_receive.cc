// SPDX-License-Identifier: Apache-2.0
// What is read. Nothing a peer says is believed but that these are bytes of its own transfers: they
// go where we have said, and no further.
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/tcp/tcp_state.h"

namespace ferry {
namespace {

// Of one call; the last one is for what comes behind the message.
constexpr size_t kMostPieces = IOV_MAX - 1;
// So much is read behind a message: the next one's head, and not much of its bytes, which would
// have to be copied.
constexpr size_t kBehind = 4096;

}  // namespace

bool TcpTransport::Impl::Read(Connection& connection) {
  size_t read = 0;
  while (connection.readable && !connection.waiting && read < kTcpMessageBytes) {
    Parse(connection);  // first: what waited may go on
    if (connection.state != Connection::State::kOpen || connection.waiting) return true;
    const size_t got = ReadSome(connection);
    if (connection.state != Connection::State::kOpen) return true;
    read += got;
    Parse(connection);
    if (connection.state != Connection::State::kOpen) return true;
  }
  return read > 0;
}

size_t TcpTransport::Impl::ReadSome(Connection& connection) {
  Incoming& in = connection.in;
  pieces.clear();
  size_t wanted = 0;
  bool whole = true;
  for (size_t i = in.next; i < in.parts.size(); ++i) {
    Incoming::Part& part = in.parts[i];
    const uint64_t done = i == in.next ? in.done : 0;
    const size_t left = part.entry.bytes - done;
    // The first one was settled by Parse.
    whole = (i == in.next || part.known) && pieces.size() < kMostPieces;
    if (!whole) break;
    const size_t added = AddPieces(connection.link, part, done, left, kMostPieces);
    wanted += added;
    if (added < left) {
      whole = false;
      break;
    }
  }
  size_t behind = 0;
  if (whole) {
    // What is there is the beginning of a head.
    memmove(in.ahead.data(), in.ahead.data() + in.begin, in.end - in.begin);
    in.end -= std::exchange(in.begin, 0);
    behind = in.in_message() ? kBehind : in.ahead.size() - in.end;
    pieces.push_back({in.ahead.data() + in.end, behind});
  }
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t got = recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (errno == EAGAIN) connection.readable = false;
    return 0;
  }
  if (got <= 0) {
    FailSet(connection.link, got == 0 ? "the peer closed one" : strerror(errno));
    return 0;
  }
  const auto bytes = static_cast<size_t>(got);
  if (bytes < wanted + behind && !connection.ended) connection.readable = false;
  if (bytes > wanted) in.end += bytes - wanted;
  if (wanted > 0) Advance(connection, std::min(bytes, wanted));
  return bytes;
}

void TcpTransport::Impl::Parse(Connection& connection) {
  Incoming& in = connection.in;
  while (connection.state == Connection::State::kOpen && !connection.waiting) {
    if (!in.in_message()) {
      if (!BeginMessage(connection)) return;
      continue;
    }
    Incoming::Part& part = in.parts[in.next];
    if (in.kind != TcpKind::kBytes) {
      if (!Hear(connection, part.entry)) return;
      if (++in.next == in.parts.size()) in.parts.clear(), in.next = 0;
      continue;
    }
    if (!Settle(connection, part, /*may_wait=*/true)) return;
    // Those behind it as well, so that their bytes are read at once.
    for (size_t i = in.next + 1; i < in.parts.size(); ++i) {
      if (!Settle(connection, in.parts[i], /*may_wait=*/false)) break;
    }
    const size_t here = std::min<uint64_t>(in.end - in.begin, part.entry.bytes - in.done);
    if (here == 0 && part.entry.bytes > 0) return;
    pieces.clear();
    const size_t taken = AddPieces(connection.link, part, in.done, here, kMostPieces);
    for (const iovec& piece : pieces) {
      memcpy(piece.iov_base, in.ahead.data() + in.begin, piece.iov_len);
      in.begin += piece.iov_len;
    }
    Advance(connection, taken);
  }
}

bool TcpTransport::Impl::BeginMessage(Connection& connection) {
  Incoming& in = connection.in;
  TcpHeader header;
  if (in.end - in.begin < sizeof(header)) return false;
  memcpy(&header, in.ahead.data() + in.begin, sizeof(header));
  if (header.kind < static_cast<uint32_t>(TcpKind::kBytes) ||
      header.kind > static_cast<uint32_t>(TcpKind::kArrived) || header.entries == 0 ||
      header.entries > kTcpMostEntries) {
    FailSet(connection.link, "the peer sent no message");
    return false;
  }
  const size_t entries = header.entries * sizeof(TcpEntry);
  static_assert(sizeof(TcpHeader) + kTcpMostEntries * sizeof(TcpEntry) <= sizeof(Incoming::ahead));
  if (in.end - in.begin < sizeof(header) + entries) return false;
  in.begin += sizeof(header);
  in.kind = static_cast<TcpKind>(header.kind);
  in.parts.clear();
  in.next = in.done = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < header.entries; ++i, in.begin += sizeof(TcpEntry)) {
    TcpEntry& entry = in.parts.emplace_back().entry;
    memcpy(&entry, in.ahead.data() + in.begin, sizeof(entry));
    sum += std::min<uint64_t>(entry.bytes, kTcpMessageBytes + 1);
  }
  if (in.kind == TcpKind::kBytes && sum > kTcpMessageBytes) {
    FailSet(connection.link, "the peer sent a message that is too long");
    return false;
  }
  return true;
}

bool TcpTransport::Impl::Hear(Connection& connection, const TcpEntry& entry) {
  const bool to_receive = connection.in.kind == TcpKind::kArmed;
  const auto found = connection.link.tags[to_receive].find(entry.tag);
  if (found == connection.link.tags[to_receive].end()) {
    // A send that is not here is over: nothing is said to it before it has announced itself.
    return !to_receive || !MayBeOnItsWay(connection);
  }
  connection.tried = false;
  Op& op = *found->second;
  if (op.bundle == nullptr) return true;
  switch (connection.in.kind) {
    case TcpKind::kArmed:
      OnArmed(op);
      break;
    case TcpKind::kWanted:
      OnWanted(op, entry.at);
      break;
    case TcpKind::kArrived:
      OnSaidArrived(op, entry.at);
      break;
    case TcpKind::kBytes:
      break;
  }
  return true;
}

absl::string_view TcpTransport::Impl::Objection(const Op& receive, const TcpEntry& entry) {
  const uint64_t bytes = receive.bytes();
  if (entry.at > bytes || entry.bytes > bytes - entry.at) return "bytes beyond its end came";
  if (entry.bytes > bytes - receive.cut) return "bytes came twice";
  if (entry.bytes == 0 && bytes > 0) return "an entry without bytes came";
  if (receive.bundle != nullptr && receive.firing != receive.fired + 1) {
    return "bytes of a firing that nobody wants came";
  }
  return "";
}

bool TcpTransport::Impl::Settle(Connection& connection, Incoming::Part& part, bool may_wait) {
  if (part.known) return true;
  const auto found = connection.link.tags[1].find(part.entry.tag);
  if (found == connection.link.tags[1].end()) {
    return may_wait && !MayBeOnItsWay(connection) && Drop(part);
  }
  connection.tried = false;
  Op& receive = *found->second;
  const absl::string_view objection = Objection(receive, part.entry);
  if (!objection.empty()) {
    Drop(part);
    End(receive,
        OpError(absl::StatusCode::kInternal, Reason::kProtocolError, receive.op, objection));
    return true;
  }
  if (staging != nullptr && part.entry.bytes > 0) {
    if (!staging->in().CanTake(part.entry.bytes)) {
      if (may_wait && !std::exchange(connection.waiting, true)) starved.push_back(&connection);
      return false;
    }
    part.chunk = MakeChunk(connection.link, receive, part.entry.at, part.entry.bytes);
    part.chunk->message.memory = staging->in().Take(part.entry.bytes);
  }
  receive.cut += part.entry.bytes;
  return part.known = true;
}

size_t TcpTransport::Impl::AddPieces(DeviceLink& link, Incoming::Part& part, uint64_t done,
                                     size_t size, size_t most) {
  if (!part.dropped && part.chunk != nullptr) {
    pieces.push_back({part.chunk->message.memory + done, size});
    return size;
  }
  if (const auto found = link.tags[1].find(part.entry.tag);
      !part.dropped && found != link.tags[1].end()) {
    return found->second->memory.Append(part.entry.at + done, size, most, pieces);
  }
  part.dropped = true;
  size_t left = size;
  while (left > 0 && pieces.size() < most) {
    const size_t here = std::min(left, nowhere.size());
    pieces.push_back({nowhere.data(), here});
    left -= here;
  }
  return size - left;
}

void TcpTransport::Impl::Advance(Connection& connection, size_t bytes) {
  Incoming& in = connection.in;
  do {
    Incoming::Part& part = in.parts[in.next];
    const size_t here = std::min<uint64_t>(bytes, part.entry.bytes - in.done);
    in.done += here;
    bytes -= here;
    if (in.done < part.entry.bytes) return;
    in.done = 0;
    ++in.next;
    EndPart(connection.link, part);
  } while (bytes > 0);
  if (!in.in_message()) in.parts.clear(), in.next = 0;
}

void TcpTransport::Impl::EndPart(DeviceLink& link, Incoming::Part& part) {
  if (part.chunk != nullptr) {
    return part.chunk->op == nullptr ? GiveBack(std::move(part.chunk))
                                     : Copy(std::move(part.chunk));
  }
  if (part.dropped) return;
  const auto found = link.tags[1].find(part.entry.tag);
  if (found != link.tags[1].end()) OnArrived(*found->second, part.entry.bytes);
}

void TcpTransport::Impl::OnArrived(Op& receive, uint64_t bytes) {
  // Entries that have bytes are counted where they are claimed; one without any ends the firing of
  // a transfer without bytes, once: the batch counts firings of all its transfers, of other peers
  // too.
  if (receive.bundle != nullptr && receive.fired == receive.firing) {
    return End(receive, OpError(absl::StatusCode::kInternal, Reason::kProtocolError, receive.op,
                                "a firing came twice"));
  }
  receive.over += bytes;
  if (receive.over < receive.bytes()) return;
  receive.bundle != nullptr ? FiringOver(receive) : End(receive, absl::OkStatus());
}

bool TcpTransport::Impl::MayBeOnItsWay(Connection& connection) {
  if (std::exchange(connection.tried, !connection.tried)) return false;
  connection.waiting = true;
  const DeviceLink& link = connection.link;
  lane.Post([this, key = link.key, serial = link.serial, index = connection.index] {
    DeviceLink* const link = Find(key.first, key.second);
    if (link == nullptr || link->serial != serial || link->state != DeviceLink::State::kOpen)
      return;
    Connection& connection = *link->connections[index];
    connection.waiting = false;
    connection.readable = true;  // there is something to look at, whatever the socket has
    MarkDue(connection);
  });
  return true;
}

}  // namespace ferry
