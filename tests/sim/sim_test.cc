// SPDX-License-Identifier: Apache-2.0
// Fixed seeds for every run; any seed, with its story, by
//   ferry_sim --seed=N [--engines=M] [--steps=K] [--verbose]
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "simulation.h"

namespace ferry {
namespace {

class SimulationTest : public testing::TestWithParam<int> {};

TEST_P(SimulationTest, EveryTransferEndsOnceAndAsItShould) {
  const std::vector<std::string> failures =
      Simulation({.seed = static_cast<uint64_t>(GetParam())}).Run();
  EXPECT_TRUE(failures.empty()) << absl::StrJoin(failures, "\n")
                                << "\nreplay: ferry_sim --seed=" << GetParam() << " --verbose";
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, testing::Range(1, 51));

TEST(SimulationTest, TheSameSeedTellsTheSameStory) {
  std::string stories[2];
  for (std::string& story : stories) {
    testing::internal::CaptureStdout();
    Simulation({.seed = 7, .engines = 4, .verbose = true}).Run();
    story = testing::internal::GetCapturedStdout();
  }
  EXPECT_GT(stories[0].size(), 10'000u);
  EXPECT_EQ(stories[0], stories[1]);
}

// One seed, or with --seeds=N that many from --seed on. The number that failed.
int Replay(SimulationOptions options, uint64_t seeds) {
  int failed = 0;
  for (uint64_t i = 0; i < seeds; ++i, ++options.seed) {
    const std::vector<std::string> failures = Simulation(options).Run();
    if (failures.empty()) continue;
    ++failed;
    printf("seed %llu:\n  %s\n", static_cast<unsigned long long>(options.seed),
           absl::StrJoin(failures, "\n  ").c_str());
  }
  printf("%llu seeds, %d failed\n", static_cast<unsigned long long>(seeds), failed);
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
    } else if (absl::ConsumePrefix(&flag, "--engines=")) {
      good = absl::SimpleAtoi(flag, &options.engines) && options.engines >= 2;
    } else if (absl::ConsumePrefix(&flag, "--steps=")) {
      good = absl::SimpleAtoi(flag, &options.steps) && options.steps > 0;
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
