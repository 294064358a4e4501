// SPDX-License-Identifier: Apache-2.0
// Which bytes the one-sided routes put into one step.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "tests/contract/rig.h"
#include "transfer/local/copy_transport.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kStep = uint64_t{16} << 20;
constexpr uint64_t kTurn = kStep / CopyTransport::kTurns;

// Notes the bytes of each step.
class SteppedCopier : public Copier {
 public:
  explicit SteppedCopier(std::vector<size_t>& steps) : steps_(steps) {}
  const Limits& limits() const override { return limits_; }
  void Start(absl::Span<const CopyPiece> pieces) override {
    size_t bytes = 0;
    for (const CopyPiece& piece : pieces) bytes += piece.size;
    steps_.push_back(bytes);
    ++under_way_;
  }
  std::optional<absl::Status> TakeOver() override {
    if (under_way_ == 0) return std::nullopt;
    --under_way_;
    return absl::OkStatus();
  }

 private:
  const Limits limits_ = {kStep, 1024, 1};
  std::vector<size_t>& steps_;
  int under_way_ = 0;
};

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

  const std::unique_ptr<std::byte[]> bytes_{new std::byte[2 * kStep]};  // not touched
  std::vector<size_t> steps_;
  Answers answers_;
  Lane lane_{"copy-steps", absl::ZeroDuration()};
  CopyTransport transport_{lane_, std::make_unique<SteppedCopier>(steps_), answers_.Sink(),
                           nullptr};
};

TEST_F(CopyStepsTest, WhatIsSmallHasStepsOfItsOwn) {
  Launch(
      {Op(Id(1, 1), 2 * kStep), Op(Id(2, 1), 4096), Op(Id(2, 2), 8192), Op(Id(3, 1), 2 * kStep)});
  answers_.AwaitCount(4);
  lane_.RunAndWait([&] {
    // Which of them share one is the queue's affair.
    for (const size_t step : steps_) EXPECT_EQ(step % kTurn == 0, step > 4096 + 8192) << step;
    EXPECT_EQ(std::accumulate(steps_.begin(), steps_.end(), size_t{0}), 4 * kStep + 4096 + 8192);
  });
  const std::vector<TransferId> order = answers_.order();
  EXPECT_THAT(std::vector(order.begin(), order.begin() + 2), ElementsAre(Id(2, 1), Id(2, 2)));
}

TEST_F(CopyStepsTest, LargeOnesOfTwoSessionsShareEveryStep) {
  Launch({Op(Id(1, 1), 2 * kStep), Op(Id(2, 1), 2 * kStep)});
  answers_.AwaitCount(2);
  lane_.RunAndWait([&] { EXPECT_THAT(steps_, ElementsAre(kStep, kStep, kStep, kStep)); });
}

}  // namespace
}  // namespace ferry
