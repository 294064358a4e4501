// SPDX-License-Identifier: Apache-2.0
// A test fixture of two engines with batches that go as convoys between them.
#pragma once

#include "transfer/convoy.h"
#include "two_daemons.h"

namespace ferry {

class EngineConvoyTest : public testing::Test {
 protected:
  static constexpr size_t kCount = 20;
  // `count` halves of 4 KiB with the keys k0, k1, ..., 8 KiB apart.
  static std::vector<TransferSpec> Batch(Side side, size_t count = kCount, size_t first = 0) {
    std::vector<TransferSpec> batch;
    for (size_t i = 0; i < count; ++i) {
      TransferSpec spec = SpecOf(side, absl::StrCat("k", first + i), 0, 2);
      spec.layout = Layout({Range{ArenaId(side == Side::kSend ? 10 : 20), 8192 * i, 4096}});
      spec.over_value = 1 + i;
      spec.deadline = absl::UnixEpoch() + absl::Seconds(160);
      batch.push_back(spec);
    }
    return batch;
  }
  void SetUp() override { two_.LinkUp(); }
  TransferId Member(TransferId first, size_t place) { return TransferId(first.value() + place); }
  // How many transfers of a node are over, and how many of these ended well.
  std::pair<size_t, size_t> Over(int node) {
    size_t over = 0, well = 0;
    for (const Ended& ended : two_.daemons[node].ended) {
      over += ended.count;
      well += ended.status.ok() ? ended.count : 0;
    }
    return {over, well};
  }
  size_t Launches(int node = kB) { return two_.daemons[node].launches.size(); }
  void AnswerAll() {
    for (size_t i = 0; i < Launches(); ++i) {
      const Launch launch = two_.daemons[kB].launches[i];
      two_.b().OnLaunchDone(two_.now, launch.transfer, launch.attempt, absl::OkStatus());
    }
    two_.Run();
  }
  TwoDaemons two_;
};

}  // namespace ferry
