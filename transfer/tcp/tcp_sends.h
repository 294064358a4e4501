// SPDX-License-Identifier: Apache-2.0
// TcpSends writes to open connections what waits for them: the bytes of sends, by turns
// (FairQueue), and what the ends say to each other. Bytes of a GPU are staged first. A send that is
// not prepared ends when its last byte is written.
//
// What waits is kept by the link, so that it outlives the set of connections that was being opened.
//
// Home: the lane. Owner: TcpTransport; TcpFirings calls. Owns nothing.
#pragma once

#include <memory>

#include "base/home.h"
#include "transfer/staging/host_staging.h"
#include "transfer/tcp/due_connections.h"
#include "transfer/tcp/tcp_device_link.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/tcp/tcp_ops.h"
#include "transfer/tcp/tcp_outgoing.h"
#include "transfer/tcp/tcp_sets.h"
#include "transfer/tcp/tcp_staging.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

class TcpSends {
 public:
  TcpSends(TcpOps& ops, TcpStaging& staging, TcpSets& sets, DueConnections& due)
      : ops_(ops), staging_(staging), sets_(sets), due_(due) {}

  // The send, which has bytes, waits for its turn.
  void Enqueue(TcpOp& send);
  // Says it on connection 0, with the next message.
  void Say(TcpDeviceLink& link, TcpKind kind, const TcpEntry& entry);
  // Copies bytes of sends that wait for staging memory, as far as there is some; false if there is
  // none.
  bool Stage();

  // Whether the connection has something to write.
  bool HasMore(const TcpConnection& connection) const;
  // Writes until the connection takes no more, but about one message at most; false if nothing was
  // written.
  bool Write(TcpConnection& connection);

 private:
  bool Stage(TcpDeviceLink& link);
  void OnCopied(HostStaging::Message& message);
  // Makes the next message; false if there is nothing for one.
  bool NextMessage(TcpConnection& connection);
  // The message is written.
  void OnWritten(TcpOutgoing& out);

  TcpOps& ops_;
  TcpStaging& staging_;
  TcpSets& sets_;
  DueConnections& due_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
