// SPDX-License-Identifier: Apache-2.0
// Linked with a core in which one rule is broken.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/sim/model/simulation.h"

#define FERRY_MUTANT_TEST_NAMED(name) TEST(MutantTest, name)
#define FERRY_MUTANT_TEST(name) FERRY_MUTANT_TEST_NAMED(name)

namespace ferry {
namespace {

FERRY_MUTANT_TEST(MUTANT) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Simulation simulation({.seed = seed, .daemons = 4, .story = true});
    for (const std::string& failure : simulation.Run()) {
      if (!absl::StrContains(failure, MUTANT_EXPECT)) continue;
      EXPECT_TRUE(absl::StartsWith(simulation.Story(), "the story of node-"));
      EXPECT_TRUE(absl::StrContains(simulation.Story(), "FAILED: "));
      return;  // caught, and told
    }
  }
  ADD_FAILURE() << "the simulator does not notice";
}

}  // namespace
}  // namespace ferry
