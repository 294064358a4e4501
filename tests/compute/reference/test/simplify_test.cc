// SPDX-License-Identifier: Apache-2.0
// What the passes make of random programs does the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute::testing {
namespace {

struct Outcome {
  std::vector<Bytes> buffers;
  std::map<std::string, Bytes> sent;

  bool operator==(const Outcome&) const = default;
};

Outcome Run(const Program& program, uint64_t seed) {
  Outcome outcome;
  Transfers transfers;
  transfers.receive = [&](int64_t device, const std::string& key, const TensorType& type) {
    const size_t hash = std::hash<std::string>()(absl::StrCat(seed, " ", device, key));
    return TensorOf(type, RandomBytes(*BytesOf(type), hash));
  };
  transfers.send = [&](int64_t device, const std::string& key, const Tensor& tensor) {
    outcome.sent[absl::StrCat(device, " ", key)] = PackedOf(tensor);
  };
  std::vector<Memory> buffers;
  for (Bytes& bytes : RandomBuffers(program, seed)) buffers.emplace_back(std::move(bytes));
  Evaluate(program, buffers, transfers);
  for (const Memory& memory : buffers) outcome.buffers.push_back(memory.bytes());
  return outcome;
}

using Pass = Program (*)(const Program&);

void ExpectSame(Pass pass, uint64_t seeds) {
  int changed = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program = ProgramGenerator(seed, {seed % 3 == 0 ? 15 : 60}).Make();
    if (seed % 4 != 0) StoreAll(program);
    const Program after = pass(program);
    changed += after == program ? 0 : 1;
    const Outcome was = Run(program, seed);
    const Outcome is = Run(after, seed);
    if (was == is) continue;
    for (size_t i = 0; i < was.buffers.size(); ++i) {
      EXPECT_EQ(was.buffers[i] == is.buffers[i], true) << "@" << program.buffers[i].name;
    }
    ADD_FAILURE() << Print(program) << "\nbecomes\n\n" << Print(after);
    return;
  }
  EXPECT_GT(changed, static_cast<int>(seeds / 5));
}

TEST(SimplifyTest, FoldingDoesTheSame) { ExpectSame(&FoldConstants, 150); }
TEST(SimplifyTest, MergingDoesTheSame) { ExpectSame(&MergeEqualOps, 150); }
TEST(SimplifyTest, RemovingDeadCodeDoesTheSame) { ExpectSame(&RemoveDeadCode, 150); }
TEST(SimplifyTest, SimplifyingDoesTheSame) { ExpectSame(&Simplify, 300); }

}  // namespace
}  // namespace ferry::compute::testing
