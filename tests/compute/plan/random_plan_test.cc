// SPDX-License-Identifier: Apache-2.0
// Plans of random programs, looked at from outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compute/passes/literal.h"
#include "compute/passes/passes.h"
#include "compute/plan/plan.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/plan/symbolic_run.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_weaver.h"

namespace ferry::compute {
namespace {

using ::ferry::compute::testing::ProgramGenerator;
using ::ferry::compute::testing::SymbolicRun;
using ::ferry::compute::testing::Weaver;

constexpr uint64_t kSeeds = 200;

void ForEachStep(const std::vector<Step>& steps, const std::function<void(const Step&)>& with) {
  for (const Step& step : steps) {
    with(step);
    ForEachStep(step.steps, with);
  }
}

bool IsMove(Op op) {
  return op == Op::kInput || op == Op::kConstant || op == Op::kIota || op == Op::kSlice ||
         op == Op::kReverse || op == Op::kReshape || op == Op::kBroadcastInDim;
}

class RandomPlanTest : public ::testing::Test {
 protected:
  void Check(const Program& with_empty) {
    const Program program = FillEmpty(with_empty, /*poison=*/false);  // as plans have it
    const auto made = MakePlan(program);
    ASSERT_TRUE(made.ok()) << made.status();
    const Plan& plan = *made;
    SymbolicRun of_program, of_plan;
    EXPECT_EQ(of_plan.Run(plan), of_program.Run(program));
    EXPECT_EQ(of_plan.problems(), std::vector<std::string>());
    CheckKernels(plan);
    CheckOps(program, plan);
    CheckOrder(program, plan);
    uint64_t end = 0;
    for (const Slot& slot : plan.slots) end = std::max(end, slot.offset + *BytesOf(slot.type));
    EXPECT_EQ(plan.memory.bytes, end);
    EXPECT_EQ(ToText(*MakePlan(program), true), ToText(plan, true));
    if (HasFailure()) {
      GTEST_LOG_(INFO) << Print(program) << ToText(plan, true);
    }
  }

  void CheckKernels(const Plan& plan) {
    uint32_t number = 0;
    ForEachStep(plan.steps, [&](const Step& step) {
      EXPECT_EQ(step.number, number++);
      for (const uint32_t other : step.after) EXPECT_LT(other, step.number);
      for (const Problem& problem : Verify(step.program)) {
        ADD_FAILURE() << step.number << ": " << ToString(step.program, problem);
      }
      EXPECT_EQ(Parse(Print(step.program)).program, step.program);
      EXPECT_EQ(step.bindings.size(), step.program.buffers.size());
      size_t ops = 0;
      for (const Node& node : step.program.nodes) ops += IsMove(node.op) ? 0 : 1;
      if (step.kind == StepKind::kKernel && ops > 3) ++fused_;
      if (step.kind == StepKind::kProduct && ops > 2) ++around_products_;
      if (step.kind != StepKind::kCopy && step.kind != StepKind::kRepeat) CheckInPlace(plan, step);
    });
  }

  // Where a step writes over what it reads, it does so element by element.
  void CheckInPlace(const Plan& plan, const Step& step) {
    const Program& kernel = step.program;
    struct Touch {
      const Node* node;
      bool slot;
      uint32_t buffer;
      uint64_t begin, end;
      TensorType type;
    };
    std::vector<Touch> touches;
    for (const Node& node : kernel.nodes) {
      for (const BufferRange& range : RangesOf(kernel, node)) {
        const Binding binding = step.bindings[range.buffer];
        const uint64_t base = binding.slot ? plan.slots[binding.index].offset : 0;
        const ValueId value = node.op == Op::kInput ? node.first_result : node.operands[0];
        touches.push_back({&node, binding.slot, binding.slot ? 0 : binding.index,
                           base + range.begin, base + range.end, kernel.types[value]});
      }
    }
    for (const Touch& read : touches) {
      if (read.node->op != Op::kInput) continue;
      for (const Touch& write : touches) {
        if (write.node->op == Op::kInput || write.slot != read.slot ||
            write.buffer != read.buffer || ElementsOf(write.type) == 1u ||
            read.begin >= write.end || write.begin >= read.end) {
          continue;
        }
        ++in_place_;
        EXPECT_EQ(read.begin, write.begin) << step.number;
        EXPECT_EQ(read.end, write.end) << step.number;
        EXPECT_EQ(ElementsOf(read.type), ElementsOf(write.type)) << step.number;
        EXPECT_EQ(read.node->attributes.Ints(Attribute::kStrides),
                  write.node->attributes.Ints(Attribute::kStrides));
        for (const Node& user : kernel.nodes) {
          const auto used =
              std::count(user.operands.begin(), user.operands.end(), read.node->first_result);
          if (used == 0 || user.op == Op::kStore || user.op == Op::kAccumulate) continue;
          const TensorType& result = kernel.types[user.first_result];
          const bool pointwise =
              (user.op == Op::kReshape || IsElementwise(user, result, read.type)) &&
              ElementsOf(result) == ElementsOf(read.type);
          const bool rows = user.op == Op::kReduce || user.op == Op::kArgmax ||
                            user.op == Op::kQuantizeBlock || user.op == Op::kDequantizeBlock ||
                            (user.op == Op::kBroadcastInDim && write.node->op == Op::kStore);
          EXPECT_TRUE(pointwise || rows) << step.number << " " << InfoOf(user.op).name;
        }
      }
    }
  }

  // Each op is done once, but for what is cheap.
  void CheckOps(const Program& program, const Plan& plan) {
    std::vector<int> done(program.nodes.size());
    ForEachStep(plan.steps, [&](const Step& step) {
      std::set<int64_t> here(step.origins.begin(), step.origins.end());
      for (const int64_t op : here) {
        if (op >= 0) ++done[op];
      }
    });
    for (size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      const OpInfo& info = InfoOf(node.op);
      const bool cheap = IsMove(node.op) ||
                         (node.results == 1 && ElementsOf(program.types[node.first_result]) == 1u);
      if (node.op == Op::kBarrier || node.op == Op::kKeep || node.op == Op::kConcatenate ||
          node.op == Op::kRepeat) {
        continue;
      }
      if (!cheap) {
        EXPECT_GE(done[i], 1) << "op " << i;
      }
      if (done[i] <= 1 || cheap) continue;
      ++duplicated_;
      EXPECT_LE(done[i], 3) << "op " << i;
      EXPECT_EQ(info.cost.transcendentals, 0) << "op " << i;
      EXPECT_TRUE(
          IsElementwise(node, program.types[node.first_result], program.types[node.operands[0]]))
          << "op " << i;
    }
  }

  // What comes after another effect, by values or by name, is in a later step.
  void CheckOrder(const Program& program, const Plan& plan) {
    const std::vector<int64_t> parents = ParentsOf(program);
    const std::vector<OpIndex> definitions = DefinitionsOf(program);
    std::map<int64_t, std::pair<uint32_t, uint32_t>> numbers;  // by op, its steps
    ForEachStep(plan.steps, [&](const Step& step) {
      for (const int64_t op : step.origins) {
        const auto at = numbers.try_emplace(op, step.number, step.number).first;
        at->second.first = std::min(at->second.first, step.number);
        at->second.second = std::max(at->second.second, step.number);
      }
    });
    std::vector<std::set<OpIndex>> before(program.nodes.size());  // effects; of all in a body
    for (OpIndex i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      std::vector<OpIndex> needs = node.after;
      for (const ValueId value : node.operands) needs.push_back(definitions[value]);
      std::set<OpIndex> all;
      for (const OpIndex need : needs) {
        if (parents[need] != parents[i]) continue;
        all.insert(before[need].begin(), before[need].end());
        const bool effect = InfoOf(program.nodes[need].op).effect == Effect::kSideEffecting &&
                            program.nodes[need].op != Op::kKeep;
        if (effect) all.insert(need);
      }
      before[i] = all;
      if (InfoOf(node.op).effect != Effect::kSideEffecting || node.op == Op::kKeep) continue;
      for (const OpIndex other : all) {
        ++orders_;
        EXPECT_LT(numbers.at(other).second, numbers.at(i).first) << other << " before " << i;
      }
    }
  }

  int fused_ = 0;
  int around_products_ = 0;
  int in_place_ = 0;
  int duplicated_ = 0;
  int orders_ = 0;
};

TEST_F(RandomPlanTest, PlansDoWhatProgramsDo) {
  for (uint64_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const int ops = seed % 3 == 0 ? 15 : seed % 3 == 1 ? 40 : 120;
    Check(Simplify(ProgramGenerator(seed, {ops, seed % 2 == 0 ? 5 : 2}).Make()));
  }
  EXPECT_GT(fused_, static_cast<int>(kSeeds / 20));
  EXPECT_GT(around_products_, 5);
  EXPECT_GT(in_place_, 5);
  EXPECT_GT(duplicated_, 0);
  EXPECT_GT(orders_, static_cast<int>(kSeeds / 10));
}

TEST_F(RandomPlanTest, WovenPlansDoWhatProgramsDo) {
  for (uint64_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const Program program = Weaver(seed).Make();
    ASSERT_EQ(ToStatus(program, Verify(program)), absl::OkStatus());
    Check(Simplify(program));
  }
  EXPECT_GT(fused_, static_cast<int>(kSeeds));
  EXPECT_GT(around_products_, static_cast<int>(kSeeds / 2));
  EXPECT_GT(in_place_, static_cast<int>(kSeeds / 2));
  EXPECT_GT(duplicated_, 0);
}

// What Simplify has not seen is planned too.
TEST_F(RandomPlanTest, DeadCodeIsNoHarm) {
  for (uint64_t seed = 0; seed < kSeeds / 3 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const Program program = FillEmpty(ProgramGenerator(seed, {60}).Make(), /*poison=*/false);
    const auto plan = MakePlan(program);
    ASSERT_TRUE(plan.ok());
    SymbolicRun of_program, of_plan;
    EXPECT_EQ(of_plan.Run(*plan), of_program.Run(program));
    EXPECT_EQ(of_plan.problems(), std::vector<std::string>());
    if (HasFailure()) GTEST_LOG_(INFO) << Print(program) << ToText(*plan, true);
  }
}

// With ops that are after others of their body for no reason but that it says so.
TEST_F(RandomPlanTest, OrdersByNameAreKept) {
  for (uint64_t seed = 0; seed < kSeeds / 2 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Program program = ProgramGenerator(seed, {60, 3}).Make();
    const std::vector<int64_t> parents = ParentsOf(program);
    std::mt19937_64 random(seed);
    for (OpIndex later = 1; later < program.nodes.size(); ++later) {
      const auto earlier = later - 1 - static_cast<OpIndex>(random() % std::min(later, 6u));
      if (random() % 2 == 0 && parents[earlier] == parents[later]) {
        program.nodes[later].after.push_back(earlier);
      }
    }
    Check(Simplify(program));
  }
}

}  // namespace
}  // namespace ferry::compute
