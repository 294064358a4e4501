// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/gpu_planner.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/cuda/byte_kernels.h"
#include "compute/cuda/kernel_compiler.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr size_t kMostOfLabel = 48;

uint64_t AlignedTo(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// A label as a part of a name in C.
std::string Identifier(absl::string_view label) {
  std::string name;
  for (const char c : label.substr(0, kMostOfLabel)) {
    name += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name[0]))
             ? absl::StrCat("k_", name)
             : name;
}

// All commands of the plan, also those of repeats.
std::vector<const GpuCommand*> AllCommands(const GpuPlan& plan) {
  std::vector<const GpuCommand*> all;
  const auto add = [&all](const std::vector<GpuCommand>& commands) {
    for (const GpuCommand& command : commands) all.push_back(&command);
  };
  add(plan.commands);
  for (size_t i = 0; i < all.size(); ++i) add(all[i]->body);
  return all;
}

}  // namespace

GpuPlace GpuPlanner::PlaceOf(const Binding& binding) const {
  return {binding.slot ? GpuPlace::Kind::kSlot : GpuPlace::Kind::kBuffer, binding.index, 0};
}

uint32_t GpuPlanner::AlignmentOf(const GpuPlace& place) const {
  uint64_t alignment = place.kind == GpuPlace::Kind::kBuffer ? options_.buffer_alignment
                       : place.kind == GpuPlace::Kind::kSlot ? kScratchAlignment
                                                             : kTemporaryAlignment;
  while (place.offset % alignment != 0) alignment /= 2;
  return static_cast<uint32_t>(alignment);
}

GpuPlace GpuPlanner::Temporary(uint64_t bytes, absl::string_view use) {
  const uint64_t base = AlignedTo(made_.plan.memory.bytes, kTemporaryAlignment);
  made_.temporaries.push_back({step_, base + taken_, bytes, std::string(use)});
  taken_ += AlignedTo(bytes, kTemporaryAlignment);
  made_.scratch_bytes = std::max(made_.scratch_bytes, base + taken_);
  return {GpuPlace::Kind::kTemporary, static_cast<uint32_t>(made_.temporaries.size() - 1), 0};
}

bool GpuPlanner::Overlap(const GpuPlace& a, uint64_t a_bytes, const GpuPlace& b,
                         uint64_t b_bytes) const {
  const bool of_buffer = a.kind == GpuPlace::Kind::kBuffer;
  if (of_buffer != (b.kind == GpuPlace::Kind::kBuffer)) return false;
  if (of_buffer && a.index != b.index) return false;
  const uint64_t first = of_buffer ? a.offset : ScratchOffsetOf(made_, a);
  const uint64_t second = of_buffer ? b.offset : ScratchOffsetOf(made_, b);
  return first < second + b_bytes && second < first + a_bytes;
}

uint32_t GpuPlanner::KernelOf(const std::string& source, absl::string_view label,
                              std::map<std::string, uint32_t>& known,
                              std::vector<GpuKernel>& kernels) {
  const auto [at, fresh] = known.try_emplace(source, static_cast<uint32_t>(kernels.size()));
  if (fresh) {
    kernels.push_back({absl::StrCat(Identifier(label), "_", SourceMark(source)), source});
  }
  return at->second;
}

absl::Status GpuPlanner::AddLaunches(const KernelCode& code, const KernelCode* first,
                                     absl::Span<const GpuPlace> places,
                                     std::vector<GpuCommand>& commands, absl::string_view label) {
  std::vector<GpuPlace> scratch;
  for (const uint64_t bytes : code.scratch) scratch.push_back(Temporary(bytes, "partial sums"));
  const auto arguments_of = [&](const KernelLaunch& launch) {
    std::vector<GpuArgument> all;
    for (const KernelArgument& argument : launch.arguments) {
      GpuArgument made;
      made.bytes = argument.bytes;
      if (argument.kind == KernelArgument::Kind::kNumber) {
        made.number = argument.value;
      } else {
        made.place = argument.kind == KernelArgument::Kind::kBuffer ? places[argument.index]
                                                                    : scratch[argument.index];
        made.place->offset += static_cast<uint64_t>(argument.value);
      }
      all.push_back(std::move(made));
    }
    return all;
  };
  for (size_t i = 0; i < code.launches.size(); ++i) {
    const KernelLaunch& launch = code.launches[i];
    GpuCommand command;
    command.step = step_;
    command.kernel = KernelOf(launch.source, label, kernels_, made_.kernels);
    command.blocks = launch.blocks;
    command.threads = launch.threads;
    command.busy = launch.busy;
    if (code.multiplies) command.accumulation = Accumulation::kExactProducts;
    command.arguments = arguments_of(launch);
    if (first != nullptr) {
      const KernelLaunch& other = first->launches[i];
      command.first = {KernelOf(other.source, label, first_kernels_, made_.first_kernels),
                       other.blocks, other.threads, arguments_of(other)};
    }
    commands.push_back(std::move(command));
  }
  return absl::OkStatus();
}

absl::Status GpuPlanner::WriteTiers(const Program& program, absl::Span<const GpuPlace> places,
                                    KernelCode& code, std::optional<KernelCode>& first) const {
  std::vector<uint32_t> alignments;
  for (const GpuPlace& place : places) alignments.push_back(AlignmentOf(place));
  ASSIGN_OR_RETURN(code, WriteKernel(program, alignments, options_.code));
  if (!options_.first_tier) return absl::OkStatus();
  for (const CodeOptions& options : kFirstTierCode) {
    absl::StatusOr<KernelCode> made = WriteKernel(program, alignments, options);
    // Threads that take fewer elements may be too many for a launch, or find more in what other
    // threads read, which may not be written over then.
    if (!made.ok() || made->launches.size() != code.launches.size() ||
        made->scratch != code.scratch || (made->reads_neighbours && !code.reads_neighbours)) {
      continue;
    }
    first = *std::move(made);
    break;
  }
  return absl::OkStatus();
}

absl::Status GpuPlanner::AddKernel(const Program& program, std::vector<GpuPlace> places,
                                   std::vector<GpuCommand>& commands, absl::string_view label) {
  KernelCode code;
  std::optional<KernelCode> first;
  RETURN_IF_ERROR(WriteTiers(program, places, code, first));
  if (code.reads_neighbours) return AddApart(program, std::move(places), commands, label);
  return AddLaunches(code, first ? &*first : nullptr, places, commands, label);
}

// What is read and may be written is copied first.
absl::Status GpuPlanner::AddApart(Program program, std::vector<GpuPlace> places,
                                  std::vector<GpuCommand>& commands, absl::string_view label) {
  std::vector<uint32_t> written;
  for (const Node& node : program.nodes) {
    if (node.op == Op::kStore || node.op == Op::kAccumulate) written.push_back(node.buffers[0]);
  }
  std::map<uint32_t, uint32_t> copies;
  for (Node& node : program.nodes) {
    if (node.op != Op::kInput) continue;
    const uint32_t buffer = node.buffers[0];
    const uint64_t bytes = program.buffers[buffer].bytes;
    const bool overlaps = std::any_of(written.begin(), written.end(), [&](uint32_t other) {
      return Overlap(places[buffer], bytes, places[other], program.buffers[other].bytes);
    });
    if (!overlaps) continue;
    const auto [at, fresh] =
        copies.try_emplace(buffer, static_cast<uint32_t>(program.buffers.size()));
    if (fresh) {
      program.buffers.push_back(program.buffers[buffer]);
      places.push_back(Temporary(bytes, "a copy of what is written over"));
      AddCopy(places.back(), places[buffer], bytes, commands);
    }
    node.buffers[0] = at->second;
  }
  KernelCode code;
  std::optional<KernelCode> first;
  RETURN_IF_ERROR(WriteTiers(program, places, code, first));
  return AddLaunches(code, first ? &*first : nullptr, places, commands, label);
}

void GpuPlanner::AddCopy(const GpuPlace& to, const GpuPlace& from, uint64_t bytes,
                         std::vector<GpuCommand>& commands) {
  if (bytes == 0) return;
  GpuCommand command;
  command.kind = GpuCommand::Kind::kCopy;
  command.step = step_;
  command.to = to;
  command.from = from;
  command.bytes = bytes;
  commands.push_back(std::move(command));
}

std::optional<OpIndex> GpuPlanner::BytesOpOf(const Program& program) {
  for (OpIndex i = 0; i < program.nodes.size(); ++i) {
    const Op op = program.nodes[i].op;
    if (op == Op::kChecksum || op == Op::kDeltaEncode || op == Op::kDeltaApply) return i;
  }
  return std::nullopt;
}

// Where `value` is made: where one of its `stores` puts it, which is taken out of them, or else in
// memory of the step.
GpuPlace GpuPlanner::PlaceBytes(const Step& step, ValueId value, std::vector<const Node*>& stores) {
  const auto dense = std::find_if(stores.begin(), stores.end(), [](const Node* node) {
    return node->op == Op::kStore && !node->attributes.Has(A::kStrides);
  });
  // What is added to a buffer, or stored across it, may be where the dense one is.
  const bool plain = std::all_of(stores.begin(), stores.end(),
                                 [](const Node* node) { return node->op == Op::kStore; });
  if (dense == stores.end() || !plain) {
    return Temporary(*BytesOf(step.program.types[value]), "bytes that an op makes");
  }
  GpuPlace place = PlaceOf(step.bindings[(*dense)->buffers[0]]);
  place.offset += static_cast<uint64_t>((*dense)->attributes.Int(A::kOffset));
  stores.erase(dense);
  return place;
}

absl::Status GpuPlanner::AddBytesOp(const Step& step, OpIndex index,
                                    std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  const Node& node = program.nodes[index];
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  std::vector<GpuPlace> places;
  for (const ValueId value : node.operands) {
    const Node& input = program.nodes[definitions[value]];
    FERRY_CHECK(input.op == Op::kInput && !input.attributes.Has(A::kStrides));  // so it is planned
    places.push_back(PlaceOf(step.bindings[input.buffers[0]]));
    places.back().offset += static_cast<uint64_t>(input.attributes.Int(A::kOffset));
  }
  if (node.op == Op::kDeltaApply) {
    places.push_back(PlaceOf(step.bindings[node.buffers[0]]));
    places.back().offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
  }
  std::vector<std::vector<const Node*>> after(node.results);
  std::vector<bool> wanted(node.results);
  const size_t operands = node.operands.size();
  for (uint32_t i = 0; i < node.results; ++i) {
    const ValueId result = program.Result(index, i);
    for (const Node& sink : program.nodes) {
      if (sink.op != Op::kStore && sink.op != Op::kAccumulate) continue;
      if (sink.operands[0] == result) after[i].push_back(&sink);
    }
    wanted[i] = !after[i].empty();
    // The first one is made in any case: others are made of it.
    places.push_back(wanted[i] || i == 0 ? PlaceBytes(step, result, after[i]) : GpuPlace());
  }
  DeltaWanted some;
  if (node.results > 1) some = {wanted[1], wanted[2], wanted[3]};
  std::vector<uint32_t> alignments;
  for (const GpuPlace& place : places) alignments.push_back(AlignmentOf(place));
  // Of the first tier they differ only in how they are compiled.
  const KernelCode code = WriteBytesOp(program, node, some, alignments);
  RETURN_IF_ERROR(
      AddLaunches(code, options_.first_tier ? &code : nullptr, places, commands, step.label));
  for (uint32_t i = 0; i < node.results; ++i) {
    if (after[i].empty()) continue;
    const ValueId result = program.Result(index, i);
    Part part(program);
    part.Read(result, part.AddBuffer(*BytesOf(program.types[result])));
    std::vector<GpuPlace> around;
    for (const Binding& binding : step.bindings) around.push_back(PlaceOf(binding));
    around.push_back(places[operands + i]);
    for (const Node* sink : after[i]) part.Put(*sink);
    RETURN_IF_ERROR(AddKernel(part.program(), std::move(around), commands, step.label));
  }
  return absl::OkStatus();
}

absl::Status GpuPlanner::AddStep(const Step& step, std::vector<GpuCommand>& commands) {
  step_ = step.number;
  taken_ = 0;
  const auto place = [&](uint32_t buffer) { return PlaceOf(step.bindings[buffer]); };
  GpuCommand command;
  command.step = step.number;
  switch (step.kind) {
    case StepKind::kProduct:
      return AddProduct(step, commands);
    case StepKind::kKernel: {
      if (const auto index = BytesOpOf(step.program)) return AddBytesOp(step, *index, commands);
      std::vector<GpuPlace> places;
      for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
      return AddKernel(step.program, std::move(places), commands, step.label);
    }
    case StepKind::kCopy: {
      const Node& node = step.program.nodes[0];
      GpuPlace to = place(node.buffers[0]);
      GpuPlace from = place(node.buffers[1]);
      to.offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
      from.offset += static_cast<uint64_t>(node.attributes.Int(A::kSourceOffset));
      AddCopy(to, from, static_cast<uint64_t>(node.attributes.Int(A::kBytes)), commands);
      return absl::OkStatus();
    }
    case StepKind::kSend:
    case StepKind::kRecv: {
      const bool sends = step.kind == StepKind::kSend;
      command.kind = sends ? GpuCommand::Kind::kSend : GpuCommand::Kind::kReceive;
      for (const Node& node : step.program.nodes) {
        if (node.op == Op::kInput || node.op == Op::kStore) {
          GpuPlace at = place(node.buffers[0]);
          at.offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
          (sends ? command.from : command.to) = at;
          const ValueId value = sends ? node.first_result : node.operands[0];
          command.bytes = *BytesOf(step.program.types[value]);
        } else {
          if (node.attributes.Has(A::kDevice)) {
            command.device = static_cast<uint64_t>(node.attributes.Int(A::kDevice));
          }
          command.peer = std::string(node.attributes.Bytes(A::kPeer));
          command.key = std::string(node.attributes.Bytes(A::kKey));
        }
      }
      commands.push_back(std::move(command));
      return absl::OkStatus();
    }
    case StepKind::kRepeat:
      command.kind = GpuCommand::Kind::kRepeat;
      command.trips = step.trips;
      if (step.count) command.count = PlaceOf({true, *step.count});
      RETURN_IF_ERROR(AddSteps(step.steps, command.body));
      commands.push_back(std::move(command));
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status GpuPlanner::AddSteps(const std::vector<Step>& steps,
                                  std::vector<GpuCommand>& commands) {
  for (const Step& step : steps) RETURN_IF_ERROR(AddStep(step, commands));
  return absl::OkStatus();
}

absl::Status GpuPlanner::Run() {
  made_.scratch_bytes = made_.plan.memory.bytes;
  return AddSteps(made_.plan.steps, made_.commands);
}

absl::StatusOr<GpuPlan> MakeGpuPlan(const Program& program, const GpuArch& arch,
                                    const GpuOptions& options) {
  GpuPlan made;
  made.arch = arch;
  ASSIGN_OR_RETURN(made.plan, MakePlan(program));
  RETURN_IF_ERROR(GpuPlanner(made, options).Run());
  return made;
}

uint64_t LaunchWorkOf(uint64_t work, uint64_t busy) {
  if (busy == 0 || busy >= kThreadsOfGpu) return work;
  const auto whole = static_cast<unsigned __int128>(work) * kThreadsOfGpu / busy;
  return static_cast<uint64_t>(
      std::min<unsigned __int128>(whole, std::numeric_limits<uint64_t>::max()));
}

absl::flat_hash_map<uint32_t, uint64_t> BusyThreadsOf(const GpuPlan& plan) {
  absl::flat_hash_map<uint32_t, uint64_t> busy;
  for (const GpuCommand* command : AllCommands(plan)) {
    uint64_t threads = command->busy;
    if (command->kind == GpuCommand::Kind::kProduct) {
      threads = kThreadsOfGpu;
    } else if (command->kind != GpuCommand::Kind::kLaunch) {
      continue;
    }
    uint64_t& most = busy[command->step];
    most = std::max(most, threads);
  }
  return busy;
}

absl::flat_hash_set<uint32_t> StepsOfTensorCores(const GpuPlan& plan) {
  absl::flat_hash_set<uint32_t> steps;
  for (const GpuCommand* command : AllCommands(plan)) {
    const auto is_narrow = [](const GpuMatrix& factor) { return InfoOf(factor.type).bits <= 16; };
    if (command->kind == GpuCommand::Kind::kProduct && is_narrow(command->product.left) &&
        is_narrow(command->product.right)) {
      steps.insert(command->step);
    }
  }
  return steps;
}

uint64_t ScratchOffsetOf(const GpuPlan& plan, const GpuPlace& place) {
  return place.offset + (place.kind == GpuPlace::Kind::kSlot
                             ? plan.plan.slots[place.index].offset
                             : plan.temporaries[place.index].offset);
}

std::string SourceOf(const GpuKernel& kernel) {
  return absl::StrReplaceAll(kernel.source, {{kEntryPlace, kernel.name}});
}

}  // namespace ferry::compute
