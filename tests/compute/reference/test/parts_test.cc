// SPDX-License-Identifier: Apache-2.0
// What is sent, received and computed in parts is what it is in whole: random programs, of which as
// many values as may be are sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/parted_programs.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute::testing {
namespace {

using A = Attribute;

std::string KeyOf(int64_t device, const std::string& key) { return absl::StrCat(device, " ", key); }

Tensor RowsOf(const Tensor& whole, int64_t parts, int64_t part) {
  const TensorType& type = whole.type;
  Node slice;
  slice.op = Op::kSlice;
  std::vector<int64_t> start(type.dims.size(), 0), limit = type.dims;
  start[0] = type.dims[0] * part / parts;
  limit[0] = type.dims[0] * (part + 1) / parts;
  TensorType rows = type;
  rows.dims[0] = limit[0] - start[0];
  slice.attributes = {{A::kStart, start}, {A::kLimit, limit}};
  return EvaluateOp({}, slice, {rows}, {&whole})[0];
}

// A run whose other ends give, and keep, the rows of what whole transfers give.
class PartedRun {
 public:
  // `parted`: how many parts each transfer has.
  PartedRun(const Program& parted, uint64_t seed) : seed_(seed) {
    for (const Node& node : parted.nodes) {
      if (!IsTransfer(node)) continue;
      const std::string key(node.attributes.Bytes(A::kKey));
      const int64_t device = node.attributes.Int(A::kDevice);
      const int64_t parts = node.attributes.Int(A::kParts);
      for (int64_t part = 0; part < parts; ++part) {
        parts_[{node.op, KeyOf(device, absl::StrCat(key, "/", part))}] = {
            KeyOf(device, key), Travels(parted, node), parts, part};
      }
    }
    transfers_.receive = [this](int64_t device, const std::string& key, const TensorType& type) {
      const auto at = parts_.find({Op::kRecv, KeyOf(device, key)});
      if (at == parts_.end()) return Given(KeyOf(device, key), type);
      const Part& part = at->second;
      return RowsOf(Given(part.whole, part.type), part.parts, part.part);
    };
    transfers_.send = [this](int64_t device, const std::string& key, const Tensor& tensor) {
      sent_.emplace(KeyOf(device, key), tensor);
    };
  }

  std::vector<Bytes> Run(const Program& program) {
    std::vector<Memory> memory;
    for (Bytes& bytes : RandomBuffers(program, seed_)) memory.emplace_back(std::move(bytes));
    Evaluate(FillEmpty(program, /*poison=*/false), memory, transfers_);
    std::vector<Bytes> all;
    for (const Memory& one : memory) all.push_back(one.bytes());
    return all;
  }
  // What was sent of the parts of `whole`, a run's of the program without parts, and of the rest.
  void ExpectSent(const PartedRun& whole) const {
    size_t parts = 0;
    for (const auto& [name, part] : parts_) {
      if (name.first != Op::kSend) continue;
      ++parts;
      ASSERT_EQ(sent_.count(name.second), 1u) << name.second;
      EXPECT_TRUE(PackedOf(sent_.at(name.second)) ==
                  PackedOf(RowsOf(whole.sent_.at(part.whole), part.parts, part.part)))
          << name.second;
    }
    for (const auto& [name, tensor] : whole.sent_) {
      if (sent_.count(name) == 0) continue;
      ++parts;
      EXPECT_TRUE(PackedOf(sent_.at(name)) == PackedOf(tensor)) << name;
    }
    EXPECT_EQ(sent_.size(), parts);
  }

 private:
  struct Part {
    std::string whole;
    TensorType type;
    int64_t parts = 0;
    int64_t part = 0;
  };

  Tensor Given(const std::string& key, const TensorType& type) const {
    const size_t hash = std::hash<std::string>()(absl::StrCat(seed_, " ", key));
    return TensorOf(type, RandomBytes(*BytesOf(type), hash));
  }

  const uint64_t seed_;
  std::map<std::pair<Op, std::string>, Part> parts_;
  std::map<std::string, Tensor> sent_;
  Transfers transfers_;
};

// Ops that compute: neither transfers, nor what is put around them.
size_t Computing(const Program& program) {
  return static_cast<size_t>(
      std::count_if(program.nodes.begin(), program.nodes.end(), [](const Node& node) {
        return !IsTransfer(node) && node.op != Op::kSlice && node.op != Op::kConcatenate;
      }));
}

TEST(PartsTest, RandomProgramsInPartsDoWhatTheyDoInWhole) {
  size_t multiplied = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Program program = ProgramGenerator(seed, {seed % 2 == 0 ? 12 : 40}).Make();
    const std::set<size_t> unsent = UnsentOf(program);
    if (seed % 3 != 0) program = WithSends(std::move(program), unsent);
    const Program parted = InParts(program, seed);
    ASSERT_TRUE(Verify(parted).empty());
    const Program done = PartTransfers(seed % 2 == 0 ? RemoveDeadCode(parted) : parted);
    ASSERT_TRUE(Verify(done).empty()) << Print(done);
    multiplied += Computing(done) > Computing(parted) ? 1 : 0;
    PartedRun was(program, seed), is(parted, seed);
    const std::vector<Bytes> expected = was.Run(program), got = is.Run(done);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(expected[i] == got[i]) << "@" << program.buffers[i].name;
    }
    is.ExpectSent(was);
    if (HasFailure()) {
      ADD_FAILURE() << Print(parted) << Print(done);
      return;
    }
  }
  EXPECT_GT(multiplied, 50u);
}

}  // namespace
}  // namespace ferry::compute::testing
