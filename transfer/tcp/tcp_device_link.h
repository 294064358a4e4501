// SPDX-License-Identifier: Apache-2.0
// The way of route `tcp` to one device of a peer: a set of connections, and what waits for it.
// Plain data, owned by TcpSets, which alone opens and closes sets. Home: the lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/ids.h"
#include "transfer/fair_queue.h"
#include "transfer/tcp/tcp_incoming.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/tcp/tcp_outgoing.h"
#include "transfer/tcp/tcp_transport.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

struct TcpConnection {
  TcpConnection(TcpDeviceLink& link, uint32_t index) : link(link), index(index) {}
  TcpDeviceLink& link;
  const uint32_t index;  // 0: the connection for small messages
  UniqueFd socket;
  enum class State { kAbsent, kConnecting, kProving, kOpen } state = State::kAbsent;
  bool readable = false;
  bool writable = false;
  bool ended = false;  // the peer sends nothing more
  bool due = false;    // DueConnections has it
  bool tried = false;  // an unknown tag was looked up before
  // Reads no more until tasks were run, or until there is memory to receive into.
  bool waiting = false;
  std::string answer;  // kProving: the expected bytes that have not come yet
  TcpOutgoing out;
  TcpIncoming in;
};

struct TcpDeviceLink {
  using Key = std::pair<PeerId, GlobalDeviceId>;
  Key key;
  uint64_t number = 0;  // TcpPeer::link
  std::string peer_name;
  std::string secret;
  std::string id;  // TcpLinkId() of `secret`
  TcpAddress address;

  // The set, which TcpSets changes.
  enum class State { kClosed, kOpening, kOpen } state = State::kClosed;
  uint64_t serial = 0;
  std::vector<std::unique_ptr<TcpConnection>> connections;
  absl::Time open_by = absl::InfiniteFuture();  // ops wait for the set to be open until then
  // When to dial again connections that the peer has not taken.
  absl::Time redial_at = absl::InfiniteFuture();
  absl::Time retry_at = absl::InfinitePast();  // until then ops are refused with `refused`
  absl::Status refused;

  // Ops that have not ended, by tag, which TcpOps changes: [0] sends, whose tags the peer chose;
  // [1] receives, whose tags this daemon chose.
  absl::flat_hash_map<uint64_t, TcpOp*> tags[2];

  // What TcpSends writes. Sends are [0] large and [1] small. For GPUs, `ready` has chunks that are
  // copied and can be written.
  FairQueue queues[2];
  std::deque<std::unique_ptr<TcpChunk>> ready[2];
  std::deque<std::pair<TcpKind, TcpEntry>> said;  // what connection 0 is to say

  // What TcpStaging counts.
  size_t staged = 0;     // bytes of sends that have staging memory
  bool wanting = false;  // sends wait for such memory

  bool dials() const { return address.size > 0; }
};

}  // namespace ferry
