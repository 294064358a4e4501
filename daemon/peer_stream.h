// SPDX-License-Identifier: Apache-2.0
// A peer link's stream as the daemon's core sees it: frames of plain data in order. Implemented
// over gRPC by daemon/rpc/peer_rpc. Home: control, where the callbacks arrive too.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "transfer/peer_message.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

struct PeerDeviceInfo {
  GlobalDeviceId id;
  std::vector<UcxAddressBlob> ucx_addresses;
  bool gpu = false;
  std::string ucx_way = {};  // how its memory gets to UCX, for people; "" of a host device
  std::string uuid = {};     // a GPU's
  std::string name = {};     // its owner's, for people; "" of daemons that do not say
  int max_ctas = 0;          // of a GPU's communicators; 0: any number, or it is not said
};

// Daemons of protocol 1 do not prove who they are.
inline constexpr uint32_t kPeerProtocol = 2;

// Optional features, as bits of the hello.
inline constexpr uint64_t kPeerFeaturePrepared = 1;
inline constexpr uint64_t kPeerFeatureSocketFrames = 2;
inline constexpr uint64_t kPeerFeatureManyDescriptors = 4;
// Groups as this daemon makes them: an attempt is closed at the follower first, several firings are
// in one group, and all that is packed of a direction is one operation.
inline constexpr uint64_t kPeerFeatureGroups = 8;
// Takes data connections of route `tcp` at its port.
inline constexpr uint64_t kPeerFeatureTcp = 16;
// Answers a Seek.
inline constexpr uint64_t kPeerFeatureSeek = 32;
// Takes a Draining.
inline constexpr uint64_t kPeerFeatureDraining = 64;
// Takes a MembersTold.
inline constexpr uint64_t kPeerFeatureMembers = 128;
// Takes offers of convoys.
inline constexpr uint64_t kPeerFeatureConvoys = 512;

// Who a daemon says that it is. Nothing of it counts until it is proven.
struct PeerIntroduction {
  uint32_t protocol_min = kPeerProtocol;
  uint32_t protocol_max = kPeerProtocol;
  std::string node;
  Incarnation incarnation;
  std::string boot_id;
  uint32_t uid = 0;
  std::string peer_socket;
  std::string nonce;  // random, of this link
  // A caller's: by the names the other daemon dials, but its dials do not arrive here.
  bool in_reverse = false;
  // A caller's: nobody there waits for the link; it comes in case that somebody here does.
  bool visiting = false;
};

// What a daemon whose introduction is proven says of itself besides.
struct PeerHello : PeerIntroduction {
  uint64_t features = kPeerFeaturePrepared | kPeerFeatureSocketFrames |
                      kPeerFeatureManyDescriptors | kPeerFeatureGroups | kPeerFeatureSeek |
                      kPeerFeatureDraining | kPeerFeatureMembers | kPeerFeatureConvoys;
  std::vector<PeerDeviceInfo> devices;
  std::string ucx_version;
  std::string daemon_version;
  std::string nccl_version;
  std::string network_namespace;  // ReadNetworkNamespace; "" of daemons that do not say
  // Not said: the address at which our stream has reached the daemon; "" if it has reached us.
  std::string reached_at = {};
};

struct PeerFrame : PeerEvents {
  std::optional<PeerHello> hello = {};
  std::optional<PeerIntroduction> introduction = {};
  std::string proof = {};
  // After the hello: devices whose UCX addresses are others now; only id and addresses count.
  std::vector<PeerDeviceInfo> moved = {};
  bool goodbye = false;  // who says it stops
  // The dialler's last: why there can be no link. Not said after it is up.
  std::optional<absl::Status> refusal = {};

  bool empty() const {
    return !hello.has_value() && !introduction.has_value() && proof.empty() && moved.empty() &&
           !goodbye && !refusal.has_value() && events() == 0;
  }
};

class PeerStream {
 public:
  // Closes the stream; no callback comes any more.
  virtual ~PeerStream() = default;
  // Frames that wait for the wire are merged. An empty frame is a sign of life.
  virtual void Send(PeerFrame frame) = 0;
  // Messages that wait for the wire.
  virtual size_t waiting() const = 0;
  // Who is at its other end has proven who it is.
  virtual void OnProven() {}
  // Ends the stream towards the peer with `why`; on_closed does not come.
  virtual void Close(const absl::Status& why) = 0;
};

struct PeerStreamCallbacks {
  std::function<void(PeerFrame)> on_frame;
  std::function<void(absl::Status)> on_closed;  // once, unless Close or the destructor came first
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
  // Ends what is still under way and waits until nothing of it is left. Nobody dials or knocks any
  // more. Not from control.
  virtual void Stop() {}
};

}  // namespace ferry
