// SPDX-License-Identifier: Apache-2.0
// What TransferEngine shares with the classes that it is made of: MemberNews, DrainNews, LongWaits,
// EngineView, and its rules. All of it outlives these classes. Plain data. Home: control.
#pragma once

#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/device_map.h"
#include "transfer/device_owners.h"
#include "transfer/outbox.h"
#include "transfer/peer_state.h"
#include "transfer/posted.h"

namespace ferry {

struct EngineContext {
  const DeviceMap& devices;
  const DeviceOwners& owners;
  std::deque<Peer>& peers;  // by PeerId; they stay where they are
  const absl::Time& now;    // the time of the engine's call that is under way
  Outbox& out;

  // The daemon of a device that is known, or was when a transfer with it was posted.
  PeerId OwnerOf(GlobalDeviceId device) const { return owners[device]; }
  // Both halves are posted at this daemon.
  bool Ours(const Posted& half) const { return half.peer == devices.self; }
  Peer& PeerOf(PeerId peer) const { return peers[peer.value()]; }
  const std::string& NodeName(PeerId peer) const { return ferry::NodeName(devices, peer); }
  // "the receive of key 'k' at node-b (device 2)": where the half of `side` is, or would be.
  std::string PlaceOf(Side side, const MatchKey& key) const;
  // The daemon of the transfer's other device.
  PeerId OtherEndOf(const TransferSpec& spec) const {
    return OwnerOf(spec.side == Side::kSend ? spec.key.destination : spec.key.source);
  }
  // UNAVAILABLE/PEER_UNREACHABLE: the half ends because the link to its peer is lost, or because
  // its peer has left.
  absl::Status UnreachableStatus(const Posted& half, const absl::Status& why) const;
  absl::Status LeftStatus(const Posted& half) const;
  template <typename Message>
  void Send(PeerId peer, Message message) const {
    out.messages.emplace_back(peer, std::move(message));
  }
};

}  // namespace ferry
