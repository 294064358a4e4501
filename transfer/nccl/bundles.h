// SPDX-License-Identifier: Apache-2.0
// The armed prepared transfers of a GPU's lane on route `nccl`, in bundles: those of the same two
// batches. Sees when the word of this end allows the next firing and says so once; the engines of
// both ends decide when it is launched (transfer/engine_bundle.cc), and NcclTransport tells what of
// it has moved. Whoever waits for the firing is told from here, with no way over control.
//
// Home: the lane, but for constructor and destructor. An armed transfer is answered once, because
// it is aborted or the lane goes; it is aborted only while no group carries its bundle, and nothing
// is gathered ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "device/lane.h"
#include "device/prepared_batch.h"
#include "transfer/nccl/group_part.h"
#include "transfer/transport.h"

namespace ferry {

// A transfer to be armed; see Armed.
struct BundleHalf {
  TransferId transfer;
  uint32_t attempt = 0;
  uint64_t bundle = 0;
  uint64_t place = 0;
  PreparedBatch* own = nullptr;
  GroupPart part;
};

class NcclBundles : private Poller {
 public:
  // The word of our end allows the next firing of a bundle; from the lane.
  using Wanted = std::function<void(uint64_t bundle)>;

  NcclBundles(Lane& lane, OpSink sink, Wanted wanted)
      : lane_(lane), sink_(std::move(sink)), wanted_(std::move(wanted)) {}
  // Answers what is left with ABORTED and waits for the lane. Not from the lane.
  ~NcclBundles() override;

  void Arm(std::vector<BundleHalf> halves);
  // The bundle that it has left.
  uint64_t Abort(TransferId transfer, uint32_t attempt, const absl::Status& why);

  // Of a firing.
  uint64_t BytesOf(uint64_t bundle) const { return bundles_.at(bundle)->bytes; }
  // Our parts of so many bytes of it.
  std::vector<GroupPart> PartsOf(uint64_t bundle, uint64_t offset, uint64_t bytes) const;
  // So much of the firing has arrived, or left.
  void OnMoved(uint64_t bundle, uint64_t bytes);

 private:
  struct Bundle {
    PreparedBatch* own = nullptr;
    std::vector<BundleHalf> halves;  // by place
    uint64_t bytes = 0;
    uint64_t over = 0;   // firings
    uint64_t moved = 0;  // of the one after these
    bool told = false;   // that it is wanted
    bool Wants() const { return !told && own->Wants(over + 1); }
  };

  void Answer(OpResult result);

  bool Poll() override;
  bool Busy() const override { return false; }
  bool Watching() const override { return !bundles_.empty(); }
  // A GPU may write the words.
  bool Restless() const override { return !bundles_.empty(); }
  bool PrepareToPark() override;

  Lane& lane_;
  const OpSink sink_;
  const Wanted wanted_;
  bool polled_ = false;  // by the lane
  absl::btree_map<uint64_t, std::unique_ptr<Bundle>> bundles_;
  absl::flat_hash_map<std::pair<TransferId, uint32_t>, std::pair<uint64_t, uint64_t>>
      places_;                     // bundle and place
  std::vector<OpResult> answers_;  // to be given by a task
};

}  // namespace ferry
