// SPDX-License-Identifier: Apache-2.0
// Programs from the wire, and as text: whatever the bytes say, a program is refused, or all that is
// done to good ones can be done to it. The first byte says which of the two follows.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "daemon/job/compiled_program.h"
#include "daemon/job/computer.h"
#include "daemon/job/scratch.h"
#include "daemon/rpc/program_codec.h"

namespace ferry {
namespace {

constexpr uint64_t kMostBytes = 1 << 16;

// Small ones are run too, on memory of just their buffers' sizes: sanitizers see what is beyond.
void Run(const CompiledProgram& program) {
  std::vector<std::string> memory;
  std::vector<absl::Span<std::byte>> spans;
  uint64_t bytes = 0;
  for (const compute::Buffer& buffer : program.buffers) {
    bytes = compute::SaturatingAdd(bytes, buffer.bytes);
  }
  if (bytes > kMostBytes || program.cost.steps > 1000) return;
  for (const compute::Buffer& buffer : program.buffers) memory.emplace_back(buffer.bytes, '\1');
  for (std::string& one : memory) {
    spans.emplace_back(reinterpret_cast<std::byte*>(one.data()), one.size());
  }
  HostComputer computer(1);
  Scratch scratch(computer);
  auto space = scratch.Get(program.scratch_bytes());
  FERRY_CHECK(space.ok());
  // Of what is received it has whatever is there.
  for (size_t i = 0; i < program.sections.size(); ++i) {
    compute::HostProgram::Aside aside;
    Sections sections{i, i + 1};
    FERRY_CHECK(computer
                    .Do({.program = program,
                         .sections = &sections,
                         .memory = spans,
                         .scratch = *space,
                         .step_over = nullptr,
                         .may_go_on = nullptr,
                         .aside = aside})
                    .ok());
  }
}

}  // namespace
}  // namespace ferry

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;  // NOLINT: the fuzzer's own entry
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const JobLimits limits{.bytes = kMostBytes, .flops = 1 << 20};
  CompileResult result;
  if (data[0] == 't') {
    result = CompileProgram(bytes, limits);
  } else {
    v1::Program proto;
    if (!proto.ParseFromString(bytes)) return 0;
    auto program = FromProto(proto);
    if (!program.ok()) return 0;
    v1::Program again;
    ToProto(*program, &again);
    const auto back = FromProto(again);
    FERRY_CHECK(back.ok() && *back == *program);
    result = CompileProgram(*program, limits);
    if (result.status.ok()) {
      FERRY_CHECK(compute::Parse(compute::Print(*program)).program == *program);
    }
  }
  FERRY_CHECK(result.status.ok() == (result.program != nullptr));
  if (result.program != nullptr) Run(*result.program);
  return 0;
}
