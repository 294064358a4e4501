// SPDX-License-Identifier: Apache-2.0
// A Rig of two GPUs that exchange by groups of the fake NCCL. Here the rig does what the daemons'
// engines do: pairs halves, cuts them into chunks, and launches the same groups at both ends.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/mutex.h"
#include "tests/contract/rig.h"
#include "transfer/nccl/communicator.h"
#include "transfer/nccl/nccl_transport.h"

namespace ferry {

class NcclRig : public Rig {
 public:
  explicit NcclRig(uint64_t arena_bytes);
  ~NcclRig() override;
  bool two_sided() const override { return true; }
  Transport& transport(int end) override { return halves_[end]; }
  void TakeDown(int end) override { transports_[end].reset(); }

 private:
  // One end as the suite sees it: takes halves, which become parts of groups.
  class Halves : public Transport {
   public:
    void Launch(std::vector<TransportOp> ops) override;
    // Does nothing: a transfer cannot be taken out of its groups.
    void Abort(TransferId, uint32_t, const absl::Status&) override {}
    NcclRig* rig = nullptr;
    int end = 0;
  };
  struct Half {
    bool send = false;
    Layout layout;
    bool launched = false;
    size_t chunks = 0;  // chunks that are not answered
    absl::Status status;
  };
  using Group = std::vector<TransferId>;  // the transfers of its chunks, in order

  void Add(int end, std::vector<TransportOp> ops);
  void LaunchPairs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnOver(int end, const std::vector<std::pair<uint64_t, absl::Status>>& over);

  Mutex mutex_;
  absl::btree_map<TransferId, Half> pairs_[2] ABSL_GUARDED_BY(mutex_);
  std::vector<Group> groups_ ABSL_GUARDED_BY(mutex_);  // by number
  Halves halves_[2];
  OpSink sinks_[2];
  std::unique_ptr<Communicator> communicators_[2];
  std::unique_ptr<NcclTransport> transports_[2];
};

}  // namespace ferry
