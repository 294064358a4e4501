// SPDX-License-Identifier: Apache-2.0
// The example of docs/how-to-add.md, "A route": a lane posts the next bytes of a send to the lane
// of the other end, which copies them and posts back. Control launches a receive before the other
// daemon may send, and lanes run tasks in order: a message of an unknown tag is of a receive that
// has ended. Home: the lane, but for constructor and destructor.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "device/lane.h"
#include "transfer/fair_queue.h"
#include "transfer/transport.h"

namespace ferry {

class RelayTransport : public Transport {
 public:
  struct Relay {  // what two ends share; outlives them
    Mutex mutex;
    RelayTransport* ends[2] ABSL_GUARDED_BY(mutex) = {};  // null: not there
  };
  RelayTransport(Relay& relay, int end, Lane& lane, OpSink sink)
      : relay_(relay), end_(end), lane_(lane), sink_(std::move(sink)) {
    MutexLock lock(relay_.mutex);
    relay_.ends[end_] = this;
  }
  ~RelayTransport() override;
  void Launch(std::vector<TransportOp> ops) override;
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override {
    if (ops_.contains({transfer, attempt})) End({transfer, attempt}, why);
  }

 private:
  using OpKey = std::pair<TransferId, uint32_t>;
  struct Op : FairQueue::Item {
    explicit Op(TransportOp launched)
        : Item(SessionOf(launched.transfer).value(), launched.priority, launched.layout.bytes()),
          op(std::move(launched)),
          next(op.layout) {}
    void Move(std::vector<std::byte>& message);  // copies the op's next bytes to or from it
    const TransportOp op;
    LayoutCursor next;
  };

  void SendNext();  // unless a message is under way
  void OnMessage(uint64_t tag, std::vector<std::byte>& message);
  void OnTaken();
  void End(OpKey key, absl::Status status);
  bool PostTo(int end, std::function<void(RelayTransport&)> task);

  Relay& relay_;
  const int end_;
  Lane& lane_;
  const OpSink sink_;
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops_;
  absl::flat_hash_map<uint64_t, Op*> receives_;  // by tag
  FairQueue sends_;
  bool under_way_ = false;  // a message is, of the op `sent_`
  OpKey sent_;
};

}  // namespace ferry
