// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/peer_hello_codec.h"

#include <limits.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/peer/peer_proof.h"

namespace ferry {
namespace {

// Bounds of what a daemon says of itself.
constexpr size_t kMaxNodeName = 253;
constexpr size_t kMaxBootId = 64;
constexpr size_t kMaxSocketPath = 107;  // sizeof(sockaddr_un::sun_path) without its NUL
constexpr size_t kMaxHelloText = 256;
constexpr size_t kMaxUuid = 16;
constexpr size_t kMaxUcxAddress = 64 << 10;
constexpr int kMaxUcxAddresses = 8;

}  // namespace

absl::Status Broken(const char* what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
               absl::StrCat("peer link: ", what));
}

absl::StatusOr<PeerIntroduction> DecodeIntroduction(const peer::v1::PeerIntroduction& in) {
  if (in.node().size() > kMaxNodeName || in.boot_id().size() > kMaxBootId ||
      in.peer_socket().size() > kMaxSocketPath || in.nonce().size() != kPeerNonceBytes) {
    return Broken("an introduction out of bounds");
  }
  return PeerIntroduction{{in.protocol_min(), in.protocol_max()},
                          in.node(),
                          Incarnation(in.incarnation()),
                          in.boot_id(),
                          in.uid(),
                          in.peer_socket(),
                          in.nonce(),
                          in.in_reverse(),
                          in.visiting()};
}

absl::StatusOr<PeerDeviceInfo> DecodeDevice(const peer::v1::PeerDevice& device) {
  if (device.ucx_way().size() > kMaxHelloText || device.uuid().size() > kMaxUuid ||
      device.name().size() > kMaxHelloText || device.ucx_addresses_size() > kMaxUcxAddresses) {
    return Broken("a device out of bounds");
  }
  PeerDeviceInfo info{GlobalDeviceId(device.global_device_id()),
                      {},
                      device.kind() == v1::Device::KIND_GPU,
                      device.ucx_way(),
                      device.uuid(),
                      device.name(),
                      static_cast<int>(std::min<uint32_t>(device.nccl_max_ctas(), INT_MAX))};
  for (const peer::v1::UcxAddress& address : device.ucx_addresses()) {
    if (address.kind().size() > kMaxHelloText || address.address().size() > kMaxUcxAddress) {
      return Broken("a UCX address out of bounds");
    }
    UcxAddressBlob& blob = info.ucx_addresses.emplace_back();
    blob.kind = address.kind();
    blob.address = address.address();
    if (address.closings_size() > kMaxDevices) return Broken("a UCX address out of bounds");
    for (const auto& [device, closings] : address.closings()) {
      blob.closings.emplace(GlobalDeviceId(device), closings);
    }
  }
  return info;
}

absl::StatusOr<PeerHello> DecodeHello(const peer::v1::PeerHello& in) {
  if (in.devices_size() > kMaxDevices || in.ucx_version().size() > kMaxHelloText ||
      in.daemon_version().size() > kMaxHelloText || in.nccl_version().size() > kMaxHelloText ||
      in.network_namespace().size() > kMaxHelloText) {
    return Broken("a hello out of bounds");
  }
  PeerHello hello;
  for (const peer::v1::PeerDevice& device : in.devices()) {
    ASSIGN_OR_RETURN(PeerDeviceInfo info, DecodeDevice(device));
    hello.devices.push_back(std::move(info));
  }
  hello.ucx_version = in.ucx_version();
  hello.daemon_version = in.daemon_version();
  hello.nccl_version = in.nccl_version();
  hello.network_namespace = in.network_namespace();
  hello.tcp = in.tcp();
  return hello;
}

void EncodeDevice(const PeerDeviceInfo& device, peer::v1::PeerDevice* out) {
  out->set_global_device_id(device.id.value());
  out->set_kind(device.gpu ? v1::Device::KIND_GPU : v1::Device::KIND_HOST);
  out->set_ucx_way(device.ucx_way);
  out->set_uuid(device.uuid);
  out->set_name(device.name);
  out->set_nccl_max_ctas(static_cast<uint32_t>(device.max_ctas));
  for (const UcxAddressBlob& blob : device.ucx_addresses) {
    peer::v1::UcxAddress* address = out->add_ucx_addresses();
    address->set_kind(blob.kind);
    address->set_address(blob.address);
    for (const auto& [id, closings] : blob.closings) {
      (*address->mutable_closings())[id.value()] = closings;
    }
  }
}

void EncodeIntroduction(const PeerIntroduction& introduction, peer::v1::PeerIntroduction* out) {
  out->set_protocol_min(introduction.protocol.oldest);
  out->set_protocol_max(introduction.protocol.newest);
  out->set_node(introduction.node);
  out->set_incarnation(introduction.incarnation.value());
  out->set_boot_id(introduction.boot_id);
  out->set_uid(introduction.uid);
  out->set_peer_socket(introduction.peer_socket);
  out->set_nonce(introduction.nonce);
  out->set_in_reverse(introduction.in_reverse);
  out->set_visiting(introduction.visiting);
}

void EncodeHello(const PeerHello& hello, peer::v1::PeerHello* proto) {
  for (const PeerDeviceInfo& device : hello.devices) EncodeDevice(device, proto->add_devices());
  proto->set_ucx_version(hello.ucx_version);
  proto->set_daemon_version(hello.daemon_version);
  proto->set_nccl_version(hello.nccl_version);
  proto->set_network_namespace(hello.network_namespace);
  proto->set_tcp(hello.tcp);
}

}  // namespace ferry
