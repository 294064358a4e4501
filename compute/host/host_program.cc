// SPDX-License-Identifier: Apache-2.0
#include "compute/host/host_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/host/planner.h"
#include "compute/host/whole_ops.h"

namespace ferry::compute {

absl::StatusOr<HostProgram> HostProgram::Make(Program program) {
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const Op op = program.nodes[i].op;
    if (op != Op::kSend && op != Op::kRecv) continue;
    return Error(absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
                 absl::StrCat("make a program ready for the CPU: op ", i, " ", InfoOf(op).name,
                              ": a transfer is not run as a part of a program"));
  }
  HostProgram made;
  made.program_ = std::move(program);
  HostPlanner(made).Plan();
  return made;
}

void HostProgram::Run(absl::Span<const absl::Span<std::byte>> buffers,
                      absl::Span<std::byte> arena) const {
  RunSteps(0, steps_.size(), {buffers, arena.data(), constants_.data()});
}

void HostProgram::RunSteps(size_t begin, size_t end, const RunMemory& memory) const {
  for (size_t i = begin; i < end; ++i) {
    const Step& step = steps_[i];
    switch (step.kind) {
      case Step::Kind::kGroup:
        groups_[step.index].Run(memory, memory.Write(step.scratch));
        break;
      case Step::Kind::kWhole: {
        const Node& node = program_.nodes[step.index];
        WholeOp op{node, {}, {}};
        for (const ValueId value : node.operands) op.in_types.push_back(program_.types[value]);
        for (const TensorType& type : program_.ResultTypes(node)) op.out_types.push_back(type);
        std::vector<const std::byte*> in;
        for (const Location& at : step.in) in.push_back(memory.Read(at));
        std::vector<std::byte*> out;
        for (const Location& at : step.out) out.push_back(memory.Write(at));
        RunWholeOp(op, in, out, memory.Write(step.scratch));
        break;
      }
      case Step::Kind::kCopy:
        std::memmove(memory.Write(step.out[0]), memory.Read(step.in[0]), step.bytes[0]);
        break;
      case Step::Kind::kRepeat:
        RunRepeat(step, i + 1, memory);
        i = step.end;
        break;
      case Step::Kind::kEnd:
        break;  // RunRepeat's
    }
  }
}

void HostProgram::RunRepeat(const Step& step, size_t begin, const RunMemory& memory) const {
  const auto copy = [&](const Location& to, const Location& from, uint64_t bytes) {
    if (bytes > 0) std::memmove(memory.Write(to), memory.Read(from), bytes);
  };
  const Step& end = steps_[step.end];
  for (size_t i = 0; i < step.in.size(); ++i) copy(step.out[i + 1], step.in[i], step.bytes[i]);
  const auto trips =
      static_cast<int32_t>(program_.nodes[step.index].attributes.Int(Attribute::kTrips));
  for (int32_t trip = 0; trip < trips; ++trip) {
    std::memcpy(memory.Write(step.out[0]), &trip, sizeof(trip));
    RunSteps(begin, step.end, memory);
    for (size_t i = 0; i < end.in.size(); ++i) copy(end.yielded[i], end.in[i], step.bytes[i]);
    for (size_t i = 0; i < end.in.size(); ++i) {
      copy(step.out[i + 1], end.yielded[i], step.bytes[i]);
    }
  }
}

}  // namespace ferry::compute
