// SPDX-License-Identifier: Apache-2.0
// The armed prepared transfers of a GPU's lane on route `nccl`, in bundles: all transfers between
// the same two prepared batches. A Trigger sees when the word of this end allows a bundle's next
// firing; NcclBundles says so once. The engines of both ends decide when the firing is launched
// (transfer/clique/bundle_book.h); NcclTransport tells how much of it has moved. The client's
// 'over' word advances from here, without a detour by control.
//
// Home: the lane, but for constructor and destructor. An armed transfer is answered once: because
// it is aborted, or because the lane is taken down. It is aborted only while no group carries its
// bundle and nothing of that is gathered ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/home.h"
#include "device/lane.h"
#include "device/prepared_batch.h"
#include "transfer/nccl/group_part.h"
#include "transfer/op_answers.h"
#include "transfer/transport.h"
#include "transfer/trigger.h"

namespace ferry {

// One half to be armed.
struct BundleHalf {
  TransferId transfer;
  uint32_t attempt = 0;
  // Its bundle, and its place in the bundle's order of bytes.
  uint64_t bundle = 0;
  uint64_t place = 0;
  PreparedBatch* own = nullptr;
  GroupPart part;
};

class NcclBundles : private Poller {
 public:
  // Called from the lane: the word of this end allows the bundle's next firing.
  using Wanted = std::function<void(uint64_t bundle)>;

  NcclBundles(Lane& lane, OpSink sink, Wanted wanted)
      : lane_(lane), answers_(lane, std::move(sink)), wanted_(std::move(wanted)) {}
  // Answers the halves that are left with ABORTED, and waits for the lane. Not from the lane.
  ~NcclBundles() override;

  void Arm(std::vector<BundleHalf> halves);
  // Takes a half out and answers it. Returns the bundle that it has left.
  uint64_t Abort(TransferId transfer, uint32_t attempt, const absl::Status& why);

  // Bytes of one firing of the bundle.
  uint64_t BytesOf(uint64_t bundle) const { return bundles_.at(bundle)->bytes; }
  // This end's parts of the firing's bytes [offset, offset + bytes).
  std::vector<GroupPart> PartsOf(uint64_t bundle, uint64_t offset, uint64_t bytes) const;
  // `bytes` more of the firing have arrived, or left.
  void OnMoved(uint64_t bundle, uint64_t bytes);

 private:
  struct Bundle {
    Bundle(Lane& lane, PreparedBatch* own)
        : own(own), trigger(lane, {own, nullptr, nullptr, std::nullopt}) {}
    PreparedBatch* const own;
    std::vector<BundleHalf> halves;  // by place
    uint64_t bytes = 0;
    uint64_t moved = 0;  // bytes of the firing that has begun
    Trigger trigger;     // a firing has begun when `wanted_` was called for it
  };

  bool Poll() override;
  bool Busy() const override { return false; }
  bool Watching() const override { return !bundles_.empty(); }
  // A GPU may write the words, and rings no doorbell.
  bool Restless() const override { return !bundles_.empty(); }
  bool PrepareToPark() override;

  Lane& lane_;
  OpAnswers answers_;
  const Wanted wanted_;
  bool polled_ = false;  // the lane has it as a poller
  absl::btree_map<uint64_t, std::unique_ptr<Bundle>> bundles_;
  absl::flat_hash_map<std::pair<TransferId, uint32_t>, std::pair<uint64_t, uint64_t>>
      places_;  // by transfer and attempt: its bundle and place
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
