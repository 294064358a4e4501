// SPDX-License-Identifier: Apache-2.0
// UcxReceives gives UCX the memory of receives: all at once, so that two ends which order their ops
// differently cannot wait for each other; of a staged receive message by message, as they arrive. A
// receive ends (PROTOCOL_ERROR) whose messages are not of the sizes that both ends cut.
//
// Home: the lane. Owner: UcxTransport; UCX calls back. Owns nothing: `arriving` is the channel's.
#pragma once

#include <cstddef>

#include "base/home.h"
#include "transfer/staging/host_staging.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_ops.h"
#include "transfer/ucx/ucx_records.h"
#include "transfer/ucx/ucx_request.h"
#include "transfer/ucx/ucx_staging.h"

namespace ferry {

class UcxReceives {
 public:
  UcxReceives(const UcxApi& api, UcxOps& ops, UcxStaging& staging)
      : api_(api), ops_(ops), staging_(staging) {}

  // Posts the receive's messages; those of a staged one when they arrive.
  void Post(UcxOp& receive);
  // Gives memory to messages that have come, in the order in which they came. If the first one is
  // of no op here, looks for messages of at most `most_ops` ops behind it.
  bool TakeArrivals(UcxChannel& channel, size_t most_ops);

 private:
  // `arrived`: the message, if it has come already.
  void PostMessage(UcxMessage& message, const UcxBuffer& buffer,
                   ucp_tag_message_h arrived = nullptr);
  // Takes the op's next message if it has come and there is memory.
  bool TakeArrival(UcxOp& op);
  // UCX is done with the message: copies it to the GPU if it is staged, or gives its memory back.
  void OnReceived(UcxMessage& message, ucs_status_t status, size_t length);
  void OnCopied(HostStaging::Message& copied);

  const UcxApi& api_;
  UcxOps& ops_;
  UcxStaging& staging_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
