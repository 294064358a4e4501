// SPDX-License-Identifier: Apache-2.0
// Fixed seeds for every run; many, or any one with its story, by
//   ferry_sim --seed=N [--seeds=K] [--daemons=M] [--steps=S] [--removals] [--verbose]
// A seed that fails is run again, and what its two sides did and heard is printed.
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tests/sim/model/simulation.h"

namespace ferry {
namespace {

std::string Command(const SimulationOptions& options) {
  return absl::StrCat("ferry_sim --seed=", options.seed, " --daemons=", options.daemons,
                      " --steps=", options.steps, options.removals ? " --removals" : "");
}

SimulationCount RunWell(const SimulationOptions& options) {
  Simulation simulation(options);
  const std::vector<std::string> failures = simulation.Run();
  EXPECT_TRUE(failures.empty()) << absl::StrJoin(failures, "\n")
                                << "\nreplay: " << Command(options);
  return simulation.count();
}

class SimulationTest : public testing::TestWithParam<int> {};

TEST_P(SimulationTest, EveryTransferEndsOnceAndAsItShould) {
  // Few daemons meet often, many have many links.
  const int seed = GetParam();
  const int daemons[] = {2, 3, 4, 6, 12};
  RunWell({.seed = static_cast<uint64_t>(seed), .daemons = daemons[seed % 5]});
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, testing::Range(1, 101));

// The follower's deadline for a group comes while the leader closes the communicator, whose own end
// of that group is over.
TEST(SimulationTest, AFollowerMayAbortWhatItsLeaderCloses) {
  RunWell({.seed = 10695, .daemons = 20});
}

TEST(SimulationTest, ManyDaemonsAgreeToo) { RunWell({.seed = 1, .daemons = 100, .steps = 2000}); }

TEST(SimulationTest, AThousandDaemonsArePartitionedInGroups) {
  SimulationCount count;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    count.Add(RunWell({.seed = seed, .daemons = 1000, .steps = 1000}));
  }
  SCOPED_TRACE(count.ToString());
  EXPECT_GT(count.splits, 0u);
  EXPECT_GT(count.partitions, 10 * count.splits);
}

TEST(SimulationTest, PeersComeAndLeave) {
  const int daemons[] = {2, 3, 4, 6, 12};
  SimulationCount count;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    count.Add(RunWell({.seed = seed, .daemons = daemons[seed % 5], .removals = true}));
  }
  SCOPED_TRACE(count.ToString());
  EXPECT_GT(count.removals, 100u);
  EXPECT_GT(count.ended_ok, count.posted / 4);
}

TEST(SimulationTest, TheSeedsTogetherHaveEveryKindOfFault) {
  SimulationCount count;
  for (uint64_t seed = 200; seed < 220; ++seed) count.Add(RunWell({.seed = seed, .daemons = 4}));
  SCOPED_TRACE(count.ToString());
  for (uint64_t kind :
       {count.lost, count.doubled, count.reordered, count.early, count.resets, count.partitions,
        count.splits, count.crashes, count.clients, count.launches, count.evictions, count.refused,
        count.fired, count.deserted, count.convoys, count.apart}) {
    EXPECT_GT(kind, 0u);
  }
  EXPECT_GT(count.groups, 100u);
  EXPECT_GT(count.ended_ok, count.posted / 3);
}

TEST(SimulationTest, TheSameSeedTellsTheSameStory) {
  std::string stories[2];
  for (std::string& story : stories) {
    testing::internal::CaptureStdout();
    Simulation({.seed = 7, .daemons = 4, .verbose = true}).Run();
    story = testing::internal::GetCapturedStdout();
  }
  EXPECT_GT(stories[0].size(), 10'000u);
  EXPECT_EQ(stories[0], stories[1]);
}

// One seed, or with --seeds=N that many from --seed on. The number that failed.
int Replay(SimulationOptions options, uint64_t seeds) {
  int failed = 0;
  SimulationCount count;
  for (uint64_t i = 0; i < seeds; ++i, ++options.seed) {
    Simulation simulation(options);
    const std::vector<std::string> failures = simulation.Run();
    count.Add(simulation.count());
    if (failures.empty()) continue;
    if (++failed == 1 && !options.verbose) {
      SimulationOptions again = options;
      again.story = true;
      Simulation told(again);
      told.Run();
      printf("%s", told.Story().c_str());
    }
    printf("seed %llu failed:\n  %s\nreplay: %s\n", static_cast<unsigned long long>(options.seed),
           absl::StrJoin(failures, "\n  ").c_str(), Command(options).c_str());
  }
  printf("%s\n%llu seeds of %d daemons, %d failed\n", count.ToString().c_str(),
         static_cast<unsigned long long>(seeds), options.daemons, failed);
  return failed;
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  ferry::SimulationOptions options;
  uint64_t seeds = 1;
  bool replay = false;
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    bool good = true;
    if (absl::ConsumePrefix(&flag, "--seed=")) {
      good = absl::SimpleAtoi(flag, &options.seed);
      replay = true;
    } else if (absl::ConsumePrefix(&flag, "--seeds=")) {
      good = absl::SimpleAtoi(flag, &seeds);
      replay = true;
    } else if (absl::ConsumePrefix(&flag, "--daemons=")) {
      good = absl::SimpleAtoi(flag, &options.daemons) && options.daemons >= 2;
    } else if (absl::ConsumePrefix(&flag, "--steps=")) {
      good = absl::SimpleAtoi(flag, &options.steps) && options.steps > 0;
    } else if (flag == "--removals") {
      options.removals = true;
    } else if (flag == "--verbose") {
      options.verbose = true;
    } else {
      good = false;
    }
    if (!good) {
      fprintf(stderr, "%s: cannot use %s\n", argv[0], argv[i]);
      return 2;
    }
  }
  if (replay) return ferry::Replay(options, seeds) == 0 ? 0 : 1;
  return RUN_ALL_TESTS();
}
