// SPDX-License-Identifier: Apache-2.0
// The plan of a random program, done step by step in one scratch, does the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/passes/passes.h"
#include "compute/plan/plan.h"
#include "compute/program/text.h"
#include "tests/compute/parted_programs.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute::testing {
namespace {

class PlannedRun {
 public:
  PlannedRun(const Program& program, uint64_t seed) : seed_(seed) {
    for (Bytes& bytes : RandomBuffers(program, seed)) buffers_.emplace_back(std::move(bytes));
    transfers_.receive = [this](int64_t device, const std::string& key, const TensorType& type) {
      const size_t hash = std::hash<std::string>()(absl::StrCat(seed_, " ", device, key));
      return TensorOf(type, RandomBytes(*BytesOf(type), hash));
    };
    transfers_.send = [this](int64_t device, const std::string& key, const Tensor& tensor) {
      sent[absl::StrCat(device, " ", key)] = PackedOf(tensor);
    };
  }

  void Run(const Program& program) { Evaluate(program, buffers_, transfers_); }
  void Run(const Plan& plan) {
    for (const Slot& slot : plan.slots)
      slots_.emplace_back(RandomBytes(*BytesOf(slot.type), seed_));
    RunSteps(plan, plan.steps);
  }
  std::vector<Bytes> Buffers() const {
    std::vector<Bytes> all;
    for (const Memory& memory : buffers_) all.push_back(memory.bytes());
    return all;
  }

  std::map<std::string, Bytes> sent;

 private:
  void RunSteps(const Plan& plan, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (int64_t trip = 0; step.kind == StepKind::kRepeat && trip < step.trips; ++trip) {
        if (step.count) {
          const auto count = static_cast<int32_t>(trip);
          Bytes bytes(4);
          std::memcpy(bytes.data(), &count, 4);
          slots_[*step.count] = Memory(bytes);
        }
        RunSteps(plan, step.steps);
      }
      std::vector<Memory> bound;
      for (const Binding& binding : step.bindings) {
        if (!binding.slot) {
          bound.push_back(buffers_[binding.index]);
          continue;
        }
        bound.push_back(slots_[binding.index]);
      }
      Evaluate(step.program, bound, transfers_);
      for (size_t i = 0; i < bound.size(); ++i) {
        const Binding& binding = step.bindings[i];
        const Access access = step.program.buffers[i].access;
        if (access == Access::kRead) continue;
        if (!binding.slot) {
          buffers_[binding.index] = bound[i];
        } else {
          slots_[binding.index] = bound[i];
        }
      }
    }
  }

  const uint64_t seed_;
  Transfers transfers_;
  std::vector<Memory> buffers_;
  std::vector<Memory> slots_;
};

TEST(PlanTest, DoesTheSameStepByStep) {
  size_t steps = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Program program = ProgramGenerator(seed, {seed % 3 == 0 ? 15 : 60}).Make();
    if (seed % 4 != 0) StoreAll(program);
    if (seed % 5 < 2) program = InParts(WithSends(program, UnsentOf(program)), seed);
    program = Simplify(program);
    const auto plan = MakePlan(program);
    ASSERT_TRUE(plan.ok()) << plan.status();
    steps += plan->steps.size();
    PlannedRun was(program, seed), is(program, seed);
    was.Run(FillEmpty(program, /*poison=*/false));  // as plans have it
    is.Run(*plan);
    EXPECT_EQ(was.sent, is.sent);
    const std::vector<Bytes> expected = was.Buffers(), got = is.Buffers();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(expected[i] == got[i], true) << "@" << program.buffers[i].name;
    }
    if (HasFailure()) {
      ADD_FAILURE() << Print(program) << ToText(*plan, true);
      return;
    }
  }
  EXPECT_GT(steps, 1000u);
}

}  // namespace
}  // namespace ferry::compute::testing
