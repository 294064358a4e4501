// SPDX-License-Identifier: Apache-2.0
// UcxSends gives UCX the messages of sends, by turns (FairQueue), in the window of their link. A
// window has as many requests and bytes with UCX as it may; a send whose message finds no room, or
// no staging memory, waits.
//
// Home: the lane. Owner: UcxTransport; UCX calls back. Owns nothing: windows are the channel's.
#pragma once

#include <cstddef>

#include "base/home.h"
#include "transfer/staging/host_staging.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_endpoints.h"
#include "transfer/ucx/ucx_ops.h"
#include "transfer/ucx/ucx_records.h"
#include "transfer/ucx/ucx_request.h"
#include "transfer/ucx/ucx_staging.h"

namespace ferry {

class UcxSends {
 public:
  UcxSends(const UcxApi& api, UcxOps& ops, UcxStaging& staging, UcxEndpoints& endpoints)
      : api_(api), ops_(ops), staging_(staging), endpoints_(endpoints) {}

  // The send, which has messages, waits for its turn in its link's window.
  void Enqueue(UcxOp& send);
  // Posts messages of the channel's windows until none has room. True if one was posted.
  bool Pump(UcxChannel& channel);

 private:
  // UCX has taken a message of the window, or given it back.
  static void Occupy(UcxChannel& channel, UcxWindow& window, size_t bytes);
  static void Vacate(UcxChannel& channel, UcxWindow& window, size_t bytes);
  // Whether the window has as many requests or bytes under way as it may.
  bool Full(const UcxChannel& channel, const UcxWindow& window) const;
  void Post(UcxOp& op);
  void PassToUcx(UcxMessage& message, const UcxBuffer& buffer);
  // UCX is done with the message.
  void OnSent(UcxMessage& message, ucs_status_t status);
  void OnCopied(HostStaging::Message& copied);

  const UcxApi& api_;
  UcxOps& ops_;
  UcxStaging& staging_;
  UcxEndpoints& endpoints_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
