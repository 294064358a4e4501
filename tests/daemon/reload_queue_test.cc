// SPDX-License-Identifier: Apache-2.0
#include "daemon/reload_queue.h"

#include <vector>

#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;

TEST(ReloadQueue, AReloadAnswersThoseWhoAskedBeforeItBegan) {
  int woken = 0;
  ReloadQueue queue([&] { ++woken; });
  std::vector<uint64_t> first, second;
  const auto into = [](std::vector<uint64_t>& seen) {
    return
        [&seen](const absl::StatusOr<Reloaded>& outcome) { seen.push_back(outcome->generation); };
  };
  queue.Ask(into(first));
  queue.Ask(into(first));
  const std::vector<ReloadQueue::Done> asked = queue.Take();
  queue.Ask(into(second));  // while it goes on: its file may have been read already
  queue.Answer(asked, Reloaded{2, {}});
  EXPECT_EQ(woken, 3);
  EXPECT_EQ(first, (std::vector<uint64_t>{2, 2}));
  EXPECT_TRUE(second.empty());
  queue.Answer(queue.Take(), Reloaded{3, {}});
  EXPECT_EQ(second, std::vector<uint64_t>{3});
  EXPECT_EQ(queue.generation(), 3u);
}

TEST(ReloadQueue, ARefusedReloadLeavesTheGeneration) {
  ReloadQueue queue([] {});
  EXPECT_TRUE(queue.last_ok());
  absl::Status told;
  queue.Ask([&](const absl::StatusOr<Reloaded>& outcome) { told = outcome.status(); });
  queue.Answer(queue.Take(),
               Error(absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid, "bad"));
  EXPECT_THAT(told, Is("INVALID_ARGUMENT/CONFIG_INVALID", "bad"));
  EXPECT_EQ(queue.generation(), 1u);
  EXPECT_FALSE(queue.last_ok());
  queue.Answer({}, Reloaded{2, {}});  // by a signal
  EXPECT_TRUE(queue.last_ok());
}

TEST(ReloadQueue, WhoeverWaitsAtTheEndIsTold) {
  ReloadQueue queue([] {});
  std::vector<absl::Status> told;
  const auto ask = [&] {
    queue.Ask([&](const absl::StatusOr<Reloaded>& outcome) { told.push_back(outcome.status()); });
  };
  ask();
  queue.RefuseAll(Error(absl::StatusCode::kUnavailable, Reason::kDraining, "it stops"));
  ask();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[0], Is("UNAVAILABLE/DRAINING", "it stops"));
  EXPECT_THAT(told[1], Is("UNAVAILABLE/DRAINING", "it stops"));
}

TEST(ReloadQueue, WithoutSomebodyWhoReloadsItIsRefused) {
  ReloadQueue queue(nullptr);
  absl::Status told;
  queue.Ask([&](const absl::StatusOr<Reloaded>& outcome) { told = outcome.status(); });
  EXPECT_THAT(told, Is("FAILED_PRECONDITION/NOT_READY", "read its configuration again"));
}

}  // namespace
}  // namespace ferry
