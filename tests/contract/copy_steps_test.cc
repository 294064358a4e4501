// SPDX-License-Identifier: Apache-2.0
// Which bytes the one-sided routes put into one step.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "tests/contract/rig.h"
#include "tests/contract/stepped_copier.h"
#include "transfer/local/copy_transport.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kStep = uint64_t{64} << 20;
constexpr uint64_t kTurn = kStep / CopyTransport::kTurns;

class CopyStepsTest : public ::testing::Test {
 protected:
  static TransferId Id(uint64_t session, uint64_t sequence) {
    return MakeTransferId(SessionId(static_cast<uint32_t>(session)), sequence);
  }
  TransportOp Op(TransferId id, uint64_t bytes) {
    TransportOp op;
    op.transfer = id;
    op.attempt = 1;
    op.role = LaunchRole::kCopy;
    const Layout layout({{ArenaId(1), 0, bytes}});
    op.copy.emplace(layout, absl::InlinedVector<const std::byte*, 1>{bytes_.get()}, layout,
                    absl::InlinedVector<std::byte*, 1>{bytes_.get()});
    return op;
  }
  void Launch(std::vector<TransportOp> ops) {
    lane_.RunAndWait([&] {
      answers_.BeginCall();
      transport_.Launch(std::move(ops));
      answers_.EndCall();
    });
  }

  // Once all is answered: the bytes of each step.
  std::vector<size_t> Steps() {
    std::vector<size_t> all;
    lane_.RunAndWait([&] {
      for (const SteppedCopier::Step& step : steps_) all.push_back(step.bytes);
    });
    return all;
  }

  const std::unique_ptr<std::byte[]> bytes_{new std::byte[2 * kStep]};  // not touched
  std::vector<SteppedCopier::Step> steps_;
  Answers answers_;
  Lane lane_{"copy-steps", absl::ZeroDuration()};
  CopyTransport transport_{lane_, std::make_unique<SteppedCopier>(kStep, steps_), answers_.Sink(),
                           nullptr};
};

TEST_F(CopyStepsTest, WhatIsSmallHasStepsOfItsOwn) {
  Launch(
      {Op(Id(1, 1), 2 * kStep), Op(Id(2, 1), 4096), Op(Id(2, 2), 8192), Op(Id(3, 1), 2 * kStep)});
  answers_.AwaitCount(4);
  const std::vector<size_t> steps = Steps();
  // Which of them share one is the queue's affair.
  for (const size_t step : steps) EXPECT_EQ(step % kTurn == 0, step > 4096 + 8192) << step;
  EXPECT_EQ(std::accumulate(steps.begin(), steps.end(), size_t{0}), 4 * kStep + 4096 + 8192);
  const std::vector<TransferId> order = answers_.order();
  EXPECT_THAT(std::vector(order.begin(), order.begin() + 2), ElementsAre(Id(2, 1), Id(2, 2)));
}

TEST_F(CopyStepsTest, LargeOnesOfTwoSessionsShareEveryStep) {
  Launch({Op(Id(1, 1), 2 * kStep), Op(Id(2, 1), 2 * kStep)});
  answers_.AwaitCount(2);
  EXPECT_THAT(Steps(), ElementsAre(kStep, kStep, kStep, kStep));
}

// A job has its parts one by one, but for what is so small that a step of its own would cost more.
TEST_F(CopyStepsTest, AStepEndsWithWhatIsPrompt) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  std::vector<TransportOp> ops;
  for (const uint64_t mib : {2, 24, 24, 4, 24}) {
    ops.push_back(Op(Id(1, ops.size() + 1), mib * kMiB));
    ops.back().prompt = ops.size() <= 3;
  }
  Launch(std::move(ops));
  answers_.AwaitCount(5);
  EXPECT_THAT(Steps(), ElementsAre(26 * kMiB, 24 * kMiB, 28 * kMiB));
}

}  // namespace
}  // namespace ferry
