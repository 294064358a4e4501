// SPDX-License-Identifier: Apache-2.0
// The stream of a peer link as the daemon's core sees it: frames of plain data, in order.
// daemon/rpc/peer_rpc implements it over gRPC. Home: control; callbacks arrive there too.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "daemon/protocol.h"
#include "transfer/peer_message.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

// What a daemon says of one of its devices.
struct PeerDeviceInfo {
  GlobalDeviceId id;
  std::vector<UcxAddressBlob> ucx_addresses;
  bool gpu = false;
  // How UCX reaches the device's memory, for people; "" for a host device.
  std::string ucx_way = {};
  std::string uuid = {};  // 16 bytes for a GPU; "" for a host device
  std::string name = {};  // the device's name, for people
  int max_ctas = 0;       // the most CTAs of the GPU's communicators; 0: any number
};

// Who a daemon says that it is. Nothing of it counts until the daemon has proven it.
struct PeerIntroduction {
  ProtocolVersions protocol = kPeerProtocol;
  std::string node;
  Incarnation incarnation;
  std::string boot_id;
  uint32_t uid = 0;
  std::string peer_socket;
  std::string nonce;  // random bytes, new for each link
  // Set by a caller that by the two names should be dialled: it dials because the other daemon's
  // dials do not arrive.
  bool in_reverse = false;
  // Set by a caller that does not need the link itself: it comes in case somebody here waits for
  // it.
  bool visiting = false;
};

// What a daemon says of itself once its introduction is proven.
struct PeerHello : PeerIntroduction {
  std::vector<PeerDeviceInfo> devices;
  std::string ucx_version;
  std::string daemon_version;
  std::string nccl_version;
  std::string network_namespace;  // "" if it cannot be read there
  bool tcp = false;               // it takes data connections of route `tcp` at its port
  // Not on the wire: the address at which our stream has reached the daemon; "" if the daemon has
  // dialled us.
  std::string reached_at = {};
};

// One frame of a link: events, or what comes before them (introduction, proof, hello).
struct PeerFrame : PeerEvents {
  std::optional<PeerHello> hello = {};
  std::optional<PeerIntroduction> introduction = {};
  std::string proof = {};
  // After the hello: devices whose UCX addresses have changed. Only `id` and `ucx_addresses` count.
  std::vector<PeerDeviceInfo> moved = {};
  bool goodbye = false;  // the daemon that says it stops
  // The last frame of the daemon that dialled: why there can be no link. Not said once the link is
  // up.
  std::optional<absl::Status> refusal = {};

  bool empty() const {
    return !hello.has_value() && !introduction.has_value() && proof.empty() && moved.empty() &&
           !goodbye && !refusal.has_value() && events() == 0;
  }
};

// Owned by the link; destroying it closes the stream.
class PeerStream {
 public:
  // No callback comes after the destructor.
  virtual ~PeerStream() = default;
  // Frames that still wait to be written are merged. An empty frame is a sign of life.
  virtual void Send(PeerFrame frame) = 0;
  // How many messages wait to be written.
  virtual size_t waiting() const = 0;
  // The daemon at the other end has proven who it is.
  virtual void OnProven() {}
  // Ends the stream and tells the peer `why`. on_closed is not called.
  virtual void Close(const absl::Status& why) = 0;
};

struct PeerStreamCallbacks {
  std::function<void(PeerFrame)> on_frame;
  // Called once, unless Close or the destructor came first.
  std::function<void(absl::Status)> on_closed;
};

// Opens streams to other daemons.
class PeerDialer {
 public:
  virtual ~PeerDialer() = default;
  virtual std::unique_ptr<PeerStream> Dial(const std::string& address,
                                           PeerStreamCallbacks callbacks) = 0;
  // Asks the daemon at `address` to dial `node`; `done` arrives on control.
  virtual void Knock(const std::string& address, const std::string& node,
                     std::function<void(absl::Status)> done) = 0;
  // Ends what is still under way and waits until nothing of it is left. Afterwards Dial and Knock
  // must not be called. Must not be called on control.
  virtual void Stop() {}
};

}  // namespace ferry
