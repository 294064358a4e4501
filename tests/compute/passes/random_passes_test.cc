// SPDX-License-Identifier: Apache-2.0
// Every pass over random programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compute/passes/passes.h"
#include "compute/program/cost.h"
#include "compute/program/fingerprint.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/program_generator.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kSeeds = 150;

// Each op that has an effect, with its buffers and attributes, in order: what no pass may touch.
std::vector<std::string> EffectsOf(const Program& program) {
  std::vector<std::string> effects;
  for (const Node& node : program.nodes) {
    if (InfoOf(node.op).effect != Effect::kSideEffecting) continue;
    std::string text(InfoOf(node.op).name);
    for (const uint32_t buffer : node.buffers) text += " @" + program.buffers[buffer].name;
    for (const ValueId value : node.operands) text += " " + ToString(program.types[value]);
    text += " " + std::string(node.attributes.Bytes(Attribute::kKey));
    text += " " + std::to_string(node.attributes.Int(Attribute::kOffset));
    effects.push_back(text);
  }
  return effects;
}

// Which of those ops come after which: pairs of places among them, by all that CheckOrder goes by.
// An op has a beginning and an end, between which is its body.
std::set<std::pair<size_t, size_t>> OrdersOf(const Program& program) {
  const std::vector<int64_t> parents = ParentsOf(program);
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  using Before = std::bitset<2048>;  // beginnings even, ends odd
  std::vector<Before> before(2 * program.nodes.size());
  std::vector<size_t> effects;
  const auto add = [&](size_t later, size_t earlier) {
    before[later] |= before[earlier];
    before[later].set(earlier);
  };
  std::function<void(size_t, size_t)> pass_body = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += program.nodes[i].body + 1) {
      if (parents[i] >= 0) add(2 * i, 2 * static_cast<size_t>(parents[i]));
      // What anything in it needs from outside is over before it begins.
      for (size_t j = i; j <= i + program.nodes[i].body; ++j) {
        const Node& node = program.nodes[j];
        std::vector<OpIndex> needs = node.after;
        for (const ValueId value : node.operands) needs.push_back(definitions[value]);
        for (const ValueId value : node.yielded) needs.push_back(definitions[value]);
        for (const OpIndex need : needs) {
          const bool around = program.nodes[need].body > 0 && need + program.nodes[need].body >= i;
          if (need < i && !around) add(2 * i, 2 * need + 1);
        }
      }
      pass_body(i + 1, i + 1 + program.nodes[i].body);
      add(2 * i + 1, 2 * i);
      for (size_t j = i + 1; j <= i + program.nodes[i].body; ++j) add(2 * i + 1, 2 * j + 1);
    }
  };
  pass_body(0, program.nodes.size());
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    if (InfoOf(program.nodes[i].op).effect == Effect::kSideEffecting) effects.push_back(i);
  }
  std::set<std::pair<size_t, size_t>> orders;
  for (size_t later = 0; later < effects.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      if (before[2 * effects[later]][2 * effects[earlier] + 1]) orders.insert({earlier, later});
    }
  }
  return orders;
}

class RandomPassesTest : public ::testing::Test {
 protected:
  // Checks what holds of all passes, and gives what the pass made.
  Program Run(Program (*pass)(const Program&), const Program& before) {
    const Program after = pass(before);
    for (const Problem& problem : Verify(after)) ADD_FAILURE() << ToString(after, problem);
    EXPECT_EQ(Parse(Print(after)).program, after);
    EXPECT_EQ(EffectsOf(after), EffectsOf(before));
    const auto orders = OrdersOf(before);
    const auto still = OrdersOf(after);
    EXPECT_TRUE(std::includes(still.begin(), still.end(), orders.begin(), orders.end()));
    orders_ += orders.size();
    // JoinMoves leaves what it goes round behind.
    EXPECT_LE(RemoveDeadCode(after).nodes.size(), before.nodes.size());
    changed_ += after == before ? 0 : 1;
    return after;
  }

  int changed_ = 0;
  size_t orders_ = 0;
};

TEST_F(RandomPassesTest, FoldingStops) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = testing::ProgramGenerator(seed).Make();
    const Program folded = Run(&FoldConstants, program);
    EXPECT_EQ(Print(FoldConstants(folded)), Print(folded));
  }
  EXPECT_GT(changed_, static_cast<int>(kSeeds / 2));
}

TEST_F(RandomPassesTest, JoiningStops) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = testing::ProgramGenerator(seed, {100, 2}).Make();
    const Program joined = Run(&JoinMoves, program);
    EXPECT_EQ(JoinMoves(joined), joined);
  }
  EXPECT_GT(changed_, static_cast<int>(kSeeds / 8));
}

// Equal ops of a fingerprint are one anyway.
TEST_F(RandomPassesTest, MergingKeepsTheFingerprint) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = testing::ProgramGenerator(seed, {100, 2}).Make();
    const Program merged = Run(&MergeEqualOps, program);
    EXPECT_EQ(FingerprintOf(merged), FingerprintOf(program));
    EXPECT_EQ(MergeEqualOps(merged), merged);
  }
  EXPECT_GT(changed_, static_cast<int>(kSeeds / 4));
}

// What nobody needs is not in a fingerprint. (Where barriers and repeats have lost operands, or ops
// have come to be after others, it is another.)
TEST_F(RandomPassesTest, RemovingKeepsTheFingerprint) {
  const auto operands = [](const Program& program) {
    size_t count = 0;
    for (const Node& node : program.nodes) {
      const bool selective = node.op == Op::kBarrier || node.op == Op::kRepeat;
      count += selective ? 1 + node.operands.size() : 0;
    }
    return count;
  };
  const auto is_ordered = [](const Program& program) {
    return std::any_of(program.nodes.begin(), program.nodes.end(),
                       [](const Node& node) { return !node.after.empty(); });
  };
  int compared = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = testing::ProgramGenerator(seed, {seed % 2 == 0 ? 10 : 40}).Make();
    const Program live = Run(&RemoveDeadCode, program);
    EXPECT_EQ(RemoveDeadCode(live), live);
    if (operands(live) == operands(program) && !is_ordered(live) && !is_ordered(program)) {
      EXPECT_EQ(FingerprintOf(live), FingerprintOf(program));
      ++compared;
    }
  }
  EXPECT_GT(changed_, static_cast<int>(kSeeds / 2));
  EXPECT_GT(compared, static_cast<int>(kSeeds / 10));
}

// With ops that are after others of their body for no reason but that it says so.
TEST_F(RandomPassesTest, AllKeepOrders) {
  for (uint64_t seed = 0; seed < kSeeds / 2; ++seed) {
    SCOPED_TRACE(seed);
    Program program = testing::ProgramGenerator(seed, {60}).Make();
    const std::vector<int64_t> parents = ParentsOf(program);
    std::mt19937_64 random(seed);
    for (OpIndex later = 1; later < program.nodes.size(); ++later) {
      const auto earlier = later - 1 - static_cast<OpIndex>(random() % std::min(later, 6u));
      if (random() % 2 == 0 && parents[earlier] == parents[later]) {
        program.nodes[later].after.push_back(earlier);
      }
    }
    Run(&FoldConstants, program);
    Run(&JoinMoves, program);
    Run(&MergeEqualOps, program);
    const Program live = Run(&RemoveDeadCode, program);
    EXPECT_EQ(RemoveDeadCode(live), live);
    Run(&Simplify, program);
  }
  EXPECT_GT(orders_, 2 * kSeeds);
}

TEST_F(RandomPassesTest, SimplifyingCostsNoMore) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = testing::ProgramGenerator(seed).Make();
    const Cost before = CostOf(program);
    const Cost after = CostOf(Run(&Simplify, program));
    EXPECT_LE(after.flops, before.flops);
    EXPECT_LE(after.steps, before.steps);
    EXPECT_EQ(after.bytes_written, before.bytes_written);
  }
}

}  // namespace
}  // namespace ferry::compute
