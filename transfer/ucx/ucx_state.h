// SPDX-License-Identifier: Apache-2.0
// The state behind UcxTransport, private to ucx_transport.cc, which launches, aborts and says what
// happens after progress of a worker. All else that becomes of ops, links and workers say these:
//
//   UcxAddresses  what peers are told of this lane
//   UcxStaging    host memory for messages of GPUs, and their copies
//   UcxOps        every op until it is answered, and how it ends
//   UcxChannels   workers, and how one is thrown away
//   UcxEndpoints  links to devices of peers, and how their endpoints are closed
//   UcxSends      messages of sends, in the windows of links
//   UcxReceives   messages of receives (UcxStrays: those that nobody waits for)
//
// Each calls only those above it, but for the hooks of UcxChannels; UCX calls UcxSends, UcxReceives
// and UcxEndpoints back. Home: the lane, but for UcxAddresses.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "device/lane.h"
#include "transfer/ucx/ucx_addresses.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_channels.h"
#include "transfer/ucx/ucx_endpoints.h"
#include "transfer/ucx/ucx_ops.h"
#include "transfer/ucx/ucx_receives.h"
#include "transfer/ucx/ucx_records.h"
#include "transfer/ucx/ucx_sends.h"
#include "transfer/ucx/ucx_staging.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

struct UcxTransport::Impl {
  Impl(const UcxApi& api, Lane& lane, OpSink sink, GpuStaging* gpu,
       const std::function<void(std::optional<PeerId>)>& moved)
      : lane(lane),
        staging(gpu),
        ops(api, std::move(sink)),
        channels(api, lane, ops, staging, addresses,
                 {[this](UcxChannel& channel) { SetHooks(channel); },
                  [this](UcxChannel& channel) { endpoints.Forget(channel); }, moved}),
        endpoints(api, ops, addresses, channels, moved),
        sends(api, ops, staging, endpoints),
        receives(api, ops, staging) {}

  // A GPU's lane only: how its memory gets to UCX.
  void SetUpGpu(const UcxOptions& options);
  void TakeDown();
  void Start(TransportOp op);

  void SetHooks(UcxChannel& channel);
  bool Busy(const UcxChannel& channel) const;
  // Called after progress of the channel's worker. Its work is not done in UCX's callbacks, which
  // may call little of UCX, nor in Launch or Abort, which must not answer.
  bool AfterProgress(UcxChannel& channel);
  // UCX does not wake the lane for messages that have come already, so all of them were looked at.
  bool MayPark(UcxChannel& channel);

  Lane& lane;
  UcxAddresses addresses;
  UcxStaging staging;
  UcxOps ops;
  UcxChannels channels;
  UcxEndpoints endpoints;
  UcxSends sends;
  UcxReceives receives;
  std::string way;  // UcxTransport::way
};

}  // namespace ferry
