// SPDX-License-Identifier: Apache-2.0
// TcpOps has each op of a lane until it is answered, and ends ops, each exactly once: there is no
// other way by which an op leaves its link. An op that has ended is answered when nothing copies
// its bytes any more; until then its memory is used.
//
// It refuses an op whose tag another op of the link and the direction has.
//
// Home: the lane. Owner: TcpTransport; all classes of the folder that know ops call. Owns the ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/home.h"
#include "base/reason.h"
#include "transfer/tcp/tcp_bundles.h"
#include "transfer/tcp/tcp_device_link.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/tcp/tcp_staging.h"
#include "transfer/transport.h"

namespace ferry {

class TcpOps {
 public:
  TcpOps(OpSink sink, TcpBundles& bundles, TcpStaging& staging)
      : sink_(std::move(sink)), bundles_(bundles), staging_(staging) {}

  // Takes a launched op, which is on the link from now on. Null: it was refused.
  TcpOp* Add(TransportOp launched, TcpDeviceLink& link);
  // Answers an op that was not taken.
  void Refuse(const TransportOp& op, absl::Status why);
  // Null: there is none, or it is answered.
  TcpOp* Find(TransferId transfer, uint32_t attempt) const;

  // The op ends with `status`: no connection, no queue and no bundle has it any more. Does nothing
  // if it has ended before. The op may be destroyed afterwards.
  void End(TcpOp& op, absl::Status status);
  // Ends all ops of the link.
  void EndAll(TcpDeviceLink& link, const absl::Status& status);
  // A copy of the op's bytes is over: answers the op if it has ended, and this was the last one.
  void AnswerIfQuiet(TcpOp& op);

  // Tells the sink what was answered.
  void Answer();
  bool has_answers() const { return !results_.empty(); }
  // Whether posted ops have not ended.
  bool active() const { return active_ > 0; }
  bool empty() const { return ops_.empty(); }

  // What an op is told: what it was about, then `why`.
  static absl::Status OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                              absl::string_view why);

 private:
  using Key = std::pair<TransferId, uint32_t>;  // with the attempt

  const OpSink sink_;
  TcpBundles& bundles_;
  TcpStaging& staging_;
  absl::flat_hash_map<Key, std::unique_ptr<TcpOp>> ops_;
  size_t active_ = 0;  // ops that are not prepared and have not ended
  std::vector<OpResult> results_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
