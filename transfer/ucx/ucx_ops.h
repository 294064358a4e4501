// SPDX-License-Identifier: Apache-2.0
// UcxOps has each op of a lane until it is answered, and says how an op ends: it is stopped, or all
// its messages have been moved; it is complete when UCX has no request of it and nothing copies its
// bytes; it is answered by the next Answer(), exactly once.
//
// Home: the lane. Owner: UcxTransport; all classes of the folder that know ops call. Owns the ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/reason.h"
#include "transfer/transport.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_records.h"

namespace ferry {

class UcxOps {
 public:
  UcxOps(const UcxApi& api, OpSink sink) : api_(api), sink_(std::move(sink)) {}

  // Takes a launched op, cut into messages. It is on the link, which has a channel, from now on.
  UcxOp& Add(TransportOp launched, size_t bytes, UcxDeviceLink& link);
  // Answers an op that was not taken.
  void Refuse(const TransportOp& op, Reason reason, absl::string_view why);
  // Null: there is none, or it is answered.
  UcxOp* Find(TransferId transfer, uint32_t attempt) const;
  // Calls `visit` with each op. It must neither add nor answer any.
  template <typename Visit>
  void ForEach(Visit visit) const {
    home_.Check();
    for (const auto& [key, op] : ops_) visit(*op);
  }

  // --- Requests of UCX.

  // An error from a callback of UCX, in which little can be done: StopFailed() stops the op. Only
  // the first error counts.
  void Fail(UcxOp& op, absl::StatusCode code, Reason reason, absl::string_view why);
  // UCX gives a request back; may complete the op.
  void Returned(UcxMessage& message, void* request);
  // The op is answered next if it is complete.
  void FinishIfComplete(UcxOp& op);

  // --- Ends.

  // Ends an op as far as this end can: posts nothing more and cancels receives. The op is answered
  // when all its requests have returned.
  void Stop(UcxOp& op, const absl::Status& why);
  // Stops the link's ops that UCX has and, if `queued`, those that UCX does not have yet.
  void StopAll(UcxDeviceLink& link, const absl::Status& why, bool queued);
  // Stops all ops of the channel.
  void StopAll(UcxChannel& channel, const absl::Status& why);
  void StopFailed();

  // Hands the results to the sink; while more ops are under way, a moment later, because each call
  // of the sink wakes whoever waits for it. True if the sink was called.
  bool Answer();
  // Hands all results to the sink, also of ops whose requests never returned: no worker is left.
  void AnswerAll();
  bool has_results() const { return !results_.empty(); }
  // Whether there is anything that StopFailed() or Answer() would look at.
  bool waits() const { return !results_.empty() || !finished_.empty() || !failed_.empty(); }

  // What an op is told: what it was about, then `why`.
  static absl::Status OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                              absl::string_view why);

 private:
  using Key = std::pair<TransferId, uint32_t>;  // with the attempt

  void StopEach(const std::vector<UcxOp*>& ops, const absl::Status& why);

  const UcxApi& api_;
  const OpSink sink_;
  absl::flat_hash_map<Key, std::unique_ptr<UcxOp>> ops_;
  std::vector<UcxOp*> finished_;  // complete ops, which the next Answer() answers
  std::vector<UcxOp*> failed_;    // ops with an error from a callback, to be stopped
  std::vector<OpResult> results_;
  // Time of the first result, while other ops are under way.
  absl::Time held_since_ = absl::InfiniteFuture();
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
