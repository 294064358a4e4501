// SPDX-License-Identifier: Apache-2.0
// UcxEndpoints has the links to the devices of peers, each with its endpoint: opened by the first
// op that needs it, closed by force when a lost peer does not let go of requests, or because it
// failed. An endpoint of shared memory cannot be closed by force: its channel is drained.
//
// A link that was lost takes no ops; its endpoint stays, and serves again when the link comes back
// with the same address.
//
// Home: the lane. Owner: UcxTransport; UcxSends calls. Owns the links.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/ucx/ucx_addresses.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_channels.h"
#include "transfer/ucx/ucx_ops.h"
#include "transfer/ucx/ucx_records.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

class UcxEndpoints {
 public:
  // `moved`: UcxOptions::moved.
  UcxEndpoints(const UcxApi& api, UcxOps& ops, UcxAddresses& addresses, UcxChannels& channels,
               std::function<void(std::optional<PeerId>)> moved)
      : api_(api),
        ops_(ops),
        addresses_(addresses),
        channels_(channels),
        moved_(std::move(moved)) {}

  // --- Peers: see UcxTransport.

  void AddPeer(PeerId peer, GlobalDeviceId device, const UcxAddressBlob& address,
               uint64_t closings);
  void RemovePeer(PeerId peer, const absl::Status& why);
  // Null: no peer has said how the device is reached.
  UcxDeviceLink* Find(PeerId peer, GlobalDeviceId device) const;

  // --- Endpoints.

  // The link has an endpoint from now on, or the status says why not.
  absl::Status Open(UcxDeviceLink& link);
  // Looks after the link's stopped ops from now on: their endpoint is closed by force when they
  // take too long to leave.
  void Watch(UcxDeviceLink& link);
  // Stops all ops and closes all endpoints.
  void FailAll(const absl::Status& why);
  // The channel's worker is gone, and all endpoints on it.
  void Forget(UcxChannel& channel);

  // --- After progress of the channel's worker. True if anything happened.

  // Closes endpoints that have failed, of all channels.
  bool CloseFailed();
  // Ends what has been closed.
  bool EndClosed(UcxChannel& channel);
  // Closes endpoints that hold requests for too long.
  bool CloseOverdue(UcxChannel& channel);
  bool has_failed() const { return !failed_.empty(); }

 private:
  using Links = absl::flat_hash_map<UcxLinkKey, std::unique_ptr<UcxDeviceLink>>;

  // Stops ops of the link and closes its endpoint: UcxOps::StopAll.
  void Fail(UcxDeviceLink& link, const absl::Status& why, bool queued);
  // Closes the endpoint by force: nothing else makes the requests of a dead peer return.
  void Close(UcxDeviceLink& link);
  // This end has closed the link's endpoint by force: the peer must close its own as often.
  void CountClosing(const UcxDeviceLink& link);
  // Whether a stopped op is of this link, or of an earlier link to the same device, and UCX may
  // hold its requests. UCX lets go by itself of receives by shared memory.
  static bool HoldsRequests(const UcxDeviceLink& link, const UcxOp& op);
  // When the first of these ops must have returned; infinite: there is none, or force was used.
  absl::Time LeaveBy(const UcxDeviceLink& link) const;
  void Drop(Links::iterator link, const absl::Status& why);
  // Links that come up are told of the channel's address again, if no link of the channel has ops
  // to be looked after any more. Links that are up are not: their ends have agreed on another
  // worker, and would have to leave it at the same time.
  void OpenAddress(UcxChannel& channel);

  const UcxApi& api_;
  UcxOps& ops_;
  UcxAddresses& addresses_;
  UcxChannels& channels_;
  const std::function<void(std::optional<PeerId>)> moved_;
  Links links_;
  std::vector<std::unique_ptr<UcxDeviceLink>> old_links_;  // UCX may still call back on them
  std::vector<UcxDeviceLink*> failed_;  // links whose endpoints have told an error
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
