// SPDX-License-Identifier: Apache-2.0
// Turns what daemons say of themselves (introduction, hello, devices) into its proto and back.
// These are the parts of peer_codec.h that come before any event. Pure. Home: any thread.
#pragma once

#include "absl/status/statusor.h"
#include "daemon/peer/peer_stream.h"
#include "ferry/peer/v1/peer.pb.h"

namespace ferry {

// The most devices of one daemon.
inline constexpr int kMaxDevices = 65'536;

// The error INVALID_ARGUMENT/PROTOCOL_ERROR with the text "peer link: ...".
absl::Status Broken(const char* what);

// Every length has a bound; what is longer is an error as Broken makes it.
absl::StatusOr<PeerIntroduction> DecodeIntroduction(const peer::v1::PeerIntroduction& in);
absl::StatusOr<PeerHello> DecodeHello(const peer::v1::PeerHello& in);
absl::StatusOr<PeerDeviceInfo> DecodeDevice(const peer::v1::PeerDevice& device);
void EncodeIntroduction(const PeerIntroduction& introduction, peer::v1::PeerIntroduction* out);
void EncodeHello(const PeerHello& hello, peer::v1::PeerHello* proto);
void EncodeDevice(const PeerDeviceInfo& device, peer::v1::PeerDevice* out);

}  // namespace ferry
