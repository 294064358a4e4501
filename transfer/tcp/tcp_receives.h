// SPDX-License-Identifier: Apache-2.0
// TcpReceives reads open connections and puts bytes where receives have their memory. Nothing that
// a peer says is believed but that these are bytes of its own transfers: they go where we have
// said, and no further. A receive ends (PROTOCOL_ERROR) that is sent bytes which it did not ask
// for; bytes of a tag that no receive has, nor will have, are dropped.
//
// Home: the lane. Owner: TcpTransport. Owns no op and no connection.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/home.h"
#include "device/lane.h"
#include "transfer/staging/host_staging.h"
#include "transfer/tcp/due_connections.h"
#include "transfer/tcp/tcp_device_link.h"
#include "transfer/tcp/tcp_firings.h"
#include "transfer/tcp/tcp_incoming.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/tcp/tcp_ops.h"
#include "transfer/tcp/tcp_sets.h"
#include "transfer/tcp/tcp_staging.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

class TcpReceives {
 public:
  TcpReceives(Lane& lane, TcpOps& ops, TcpStaging& staging, TcpSets& sets, DueConnections& due,
              TcpFirings& firings)
      : lane_(lane), ops_(ops), staging_(staging), sets_(sets), due_(due), firings_(firings) {}

  // Reads until nothing more is there, but about one message at most; false if nothing was read.
  bool Read(TcpConnection& connection);
  // Why a receive must not be sent these bytes; "" if it may.
  static absl::string_view Objection(const TcpOp& receive, const TcpEntry& entry);

 private:
  using Part = TcpIncoming::Part;

  // One call of the kernel; returns how many bytes came.
  size_t ReadSome(TcpConnection& connection);
  // Goes on with the bytes that were read ahead, until more must come or something else must
  // happen.
  void Parse(TcpConnection& connection);
  // Handles an entry that has no bytes; false if it cannot be understood yet.
  bool Hear(TcpConnection& connection, const TcpEntry& entry);
  // Whether it is known where the part's bytes go. If not, the connection waits, if it may.
  bool Settle(TcpConnection& connection, Part& part, bool may_wait);
  // No receive has the part's tag, nor will have: its bytes are dropped.
  static bool Drop(Part& part) { return part.known = part.dropped = true; }
  // Appends the memory for `size` bytes of the part from `done` on, in about `most` pieces. Returns
  // how many bytes were appended.
  size_t AddPieces(TcpDeviceLink& link, Part& part, uint64_t done, size_t size, size_t most);
  // `bytes` more bytes of the present parts have come.
  void Advance(TcpConnection& connection, size_t bytes);
  void EndPart(TcpDeviceLink& link, Part& part);
  void OnCopied(HostStaging::Message& message);
  void OnArrived(TcpOp& receive, uint64_t bytes);
  // Lets the lane's queued tasks run once, in case the op is among them. True: the connection waits
  // for that. False: it has waited, and the op is unknown.
  bool MayBeOnItsWay(TcpConnection& connection);

  Lane& lane_;
  TcpOps& ops_;
  TcpStaging& staging_;
  TcpSets& sets_;
  DueConnections& due_;
  TcpFirings& firings_;
  std::vector<iovec> pieces_;                // kept for its memory
  std::array<std::byte, 64 << 10> nowhere_;  // takes bytes that nobody wants
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
