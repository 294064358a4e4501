// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_sends.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "base/status.h"

namespace ferry {

void TcpSends::Enqueue(TcpOp& send) {
  home_.Check();
  TcpDeviceLink& link = *send.link;
  send.turn.emplace(send);
  link.queues[send.small()].Add(*send.turn);
  staging_.on() ? staging_.Want(link) : due_.Mark(link, send.small());
}

void TcpSends::Say(TcpDeviceLink& link, TcpKind kind, const TcpEntry& entry) {
  home_.Check();
  link.said.emplace_back(kind, entry);
  due_.Mark(link, /*small=*/true);
}

bool TcpSends::Stage() {
  home_.Check();
  bool any = false;
  // Those that want more afterwards have their turn the next time.
  for (size_t left = staging_.wanting(); left > 0; --left) any |= Stage(staging_.TakeWanting());
  return any;
}

bool TcpSends::Stage(TcpDeviceLink& link) {
  bool any = false;
  for (const bool small : {true, false}) {
    FairQueue& queue = link.queues[small];
    while (!queue.empty()) {
      TcpOp& send = static_cast<TcpTurn*>(queue.Next())->op;
      const size_t size = std::min<uint64_t>(kTcpMessageBytes, send.bytes() - send.cut);
      std::unique_ptr<TcpChunk> chunk = staging_.Take(link, send, send.cut, size);
      if (chunk == nullptr) {
        staging_.Want(link);
        break;
      }
      send.cut += size;
      queue.Serve(size);
      chunk->owner = this;
      staging_.Copy(std::move(chunk), [](HostStaging::Message& message) {
        static_cast<TcpSends*>(static_cast<TcpChunk*>(message.owner)->owner)->OnCopied(message);
      });
      any = true;
    }
  }
  return any;
}

void TcpSends::OnCopied(HostStaging::Message& message) {
  std::unique_ptr<TcpChunk> chunk = staging_.Copied(message);
  TcpOp& send = *chunk->op;
  const absl::Status status = Annotate(message.status, "staging a transfer by tcp");
  if (!send.ended && status.ok()) {
    send.link->ready[send.small()].push_back(std::move(chunk));
    return due_.Mark(*send.link, send.small());
  }
  staging_.GiveBack(std::move(chunk));
  send.ended ? ops_.AnswerIfQuiet(send) : ops_.End(send, status);
}

bool TcpSends::HasMore(const TcpConnection& connection) const {
  const TcpDeviceLink& link = connection.link;
  const bool small = connection.index == 0;
  return !connection.out.idle() || (small && !link.said.empty()) ||
         (staging_.on() ? !link.ready[small].empty() : !link.queues[small].empty());
}

bool TcpSends::Write(TcpConnection& connection) {
  home_.Check();
  TcpOutgoing& out = connection.out;
  size_t written = 0;
  while (written < kTcpMessageBytes && (!out.idle() || NextMessage(connection))) {
    const absl::Span<iovec> pieces = out.unwritten();
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t taken = sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno == EAGAIN) {
      connection.writable = false;
      break;
    }
    if (taken < 0) {
      sets_.Fail(connection.link, strerror(errno));
      return true;
    }
    written += static_cast<size_t>(taken);
    out.Wrote(static_cast<size_t>(taken));
    if (out.idle()) OnWritten(out);
  }
  return written > 0;
}

bool TcpSends::NextMessage(TcpConnection& connection) {
  TcpOutgoing& out = connection.out;
  TcpDeviceLink& link = connection.link;
  const bool small = connection.index == 0;
  if (small && out.TakeSaid(link.said)) return true;
  return staging_.on() ? out.TakeChunks(link.ready[small]) : out.TakeSends(link.queues[small]);
}

void TcpSends::OnWritten(TcpOutgoing& out) {
  for (TcpOutgoing::OpBytes& part : out.TakeOpBytes()) {
    staging_.GiveBack(std::move(part.chunk));
    if (part.op == nullptr) continue;
    TcpOp& send = *part.op;
    send.over += part.bytes;
    // Of what is prepared the other end says that it has arrived.
    if (send.over == send.bytes() && send.bundle == nullptr) ops_.End(send, absl::OkStatus());
  }
}

}  // namespace ferry
