// SPDX-License-Identifier: Apache-2.0
// Programs that send and receive, run section by section. The other ends are as late as they may
// be: what is received comes just before the section that awaits it, what is sent is read when
// somebody waits for it, or at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "compute/plan/transfers.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

Bytes ReceivedBytes(uint64_t seed, uint64_t device, const std::string& key, uint64_t bytes) {
  const size_t hash = std::hash<std::string>()(absl::StrCat(seed, " ", device, " ", key));
  return testing::RandomBytes(bytes, hash);
}

struct StagedRun {
  std::vector<Bytes> buffers;
  std::map<std::string, Bytes> sent;
  size_t sections = 0;
};

StagedRun RunByStages(const Program& program, std::vector<Bytes> buffers, uint64_t seed) {
  StagedRun run;
  const absl::StatusOr<HostProgram> made = HostProgram::Make(program);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return run;
  const Plan& plan = made->plan();
  const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, (made->scratch_bytes() + 63) / 64 * 64)),
      &std::free);
  std::fill_n(scratch.get(), made->scratch_bytes(), std::byte{0xA5});
  std::vector<absl::Span<std::byte>> spans;
  for (Bytes& buffer : buffers) spans.push_back(absl::MakeSpan(buffer));

  const std::vector<PlanTransfer> transfers = TransfersOf(plan);
  std::vector<bool> begun(transfers.size());
  std::vector<bool> over(transfers.size());
  const auto finish = [&](size_t i) {
    const PlanTransfer& transfer = transfers[i];
    EXPECT_TRUE(begun[i]) << "awaited before its turn";
    EXPECT_FALSE(over[i]) << "awaited twice";
    over[i] = true;
    const uint64_t bytes = *BytesOf(transfer.type);
    std::byte* const at = (transfer.at.slot ? scratch.get() + plan.slots[transfer.at.index].offset
                                            : spans[transfer.at.index].data()) +
                          transfer.offset;
    if (transfer.sends) {
      run.sent[absl::StrCat(*transfer.device, " ", transfer.key)] = Bytes(at, at + bytes);
    } else {
      const Bytes came = ReceivedBytes(seed, *transfer.device, transfer.key, bytes);
      // As an executor would find it: bits beyond the last element are 0.
      const Bytes packed = testing::PackedOf(testing::TensorOf(transfer.type, came));
      std::copy(packed.begin(), packed.end(), at);
    }
  };
  size_t begin = 0;
  for (const Section& section : SectionsOf(plan)) {
    for (const size_t i : section.awaited) finish(i);
    const absl::Status status =
        made->RunSteps(begin, section.end, nullptr, spans, {scratch.get(), made->scratch_bytes()},
                       nullptr, [&](size_t step) {
                         for (size_t i = 0; i < transfers.size(); ++i) {
                           if (transfers[i].step == step) begun[i] = true;
                         }
                       });
    EXPECT_TRUE(status.ok()) << status;
    begin = section.end;
    ++run.sections;
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (!over[i]) finish(i);
  }
  run.buffers = std::move(buffers);
  return run;
}

TEST(TransferTest, RandomProgramsSendAndReceiveWhatTheReferenceDoes) {
  size_t sent = 0, sections = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Program program = testing::ProgramGenerator(seed, {seed % 3 == 0 ? 120 : 50, 5}).Make();
    testing::StoreAll(program);
    if (seed % 2 == 0) program = Simplify(program);
    std::vector<testing::Memory> memory;
    for (Bytes& bytes : testing::RandomBuffers(program, seed))
      memory.emplace_back(std::move(bytes));
    std::map<std::string, testing::Tensor> expected;
    testing::Transfers transfers;
    transfers.receive = [&](int64_t device, const std::string& key, const TensorType& type) {
      return testing::TensorOf(
          type, ReceivedBytes(seed, static_cast<uint64_t>(device), key, *BytesOf(type)));
    };
    transfers.send = [&](int64_t device, const std::string& key, const testing::Tensor& tensor) {
      expected[absl::StrCat(device, " ", key)] = tensor;
    };
    testing::Evaluate(program, memory, transfers);
    const StagedRun run = RunByStages(program, testing::RandomBuffers(program, seed), seed);
    ASSERT_EQ(run.buffers.size(), memory.size());
    for (size_t i = 0; i < memory.size(); ++i) {
      ASSERT_EQ(memory[i].DifferenceOf(run.buffers[i]), "")
          << "@" << program.buffers[i].name << " seed " << seed << "\n"
          << Print(program);
    }
    ASSERT_EQ(run.sent.size(), expected.size()) << seed;
    for (const auto& [key, tensor] : expected) {
      ASSERT_EQ(testing::DifferenceOf(tensor, run.sent.at(key)), "")
          << key << " seed " << seed << "\n"
          << Print(program);
    }
    sent += expected.size();
    sections += run.sections - 1;
  }
  EXPECT_GT(sent, 200u);
  EXPECT_GT(sections, 100u);
}

}  // namespace
}  // namespace ferry::compute
