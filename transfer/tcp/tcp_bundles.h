// SPDX-License-Identifier: Apache-2.0
// TcpBundles has the prepared ops of a lane by bundle, and watches the words that fire them. What a
// firing does say TcpFirings.
//
// Home: the lane. Owner: TcpTransport; TcpFirings and TcpOps call. Owns the bundles; an op is in
// one from Join() until Leave().
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/home.h"
#include "device/lane.h"
#include "device/prepared_batch.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/trigger.h"

namespace ferry {

// The ops of one prepared batch on one link in one direction: a bundle, and as TCP does not know
// the peer's batches perhaps several. Their words are looked at once.
struct TcpBundle {
  TcpBundle(Lane& lane, const TcpOp& op)
      : own(op.op.prepared->own),
        link(op.link),
        receives(op.receive()),
        silent(op.op.prepared->silent),
        trigger(lane, {own, nullptr, nullptr, std::nullopt}) {}
  PreparedBatch* const own;
  TcpDeviceLink* const link;
  const bool receives;
  const bool silent;  // a GPU may write the batch's word, and rings no doorbell
  std::vector<TcpOp*> ops;
  Trigger trigger;  // a firing has begun when this end wants it
};

class TcpBundles {
 public:
  explicit TcpBundles(Lane& lane) : lane_(lane) {}

  // The op, which is prepared and on its link, joins its bundle.
  void Join(TcpOp& op);
  // The op leaves its bundle, and a bundle without ops ends.
  void Leave(TcpOp& op);

  size_t size() const { return bundles_.size(); }
  TcpBundle& operator[](size_t i) {
    home_.Check();
    return *bundles_[i];
  }
  // Whether a firing of any bundle may begin.
  bool AnyReady() const;
  // Whether a GPU may write the word of any bundle.
  bool AnySilent() const { return silent_ > 0; }

 private:
  Lane& lane_;
  std::vector<std::unique_ptr<TcpBundle>> bundles_;
  size_t silent_ = 0;  // bundles whose words a GPU may write
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
