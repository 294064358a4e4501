// SPDX-License-Identifier: Apache-2.0
#include "compute/host/step_builder.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "compute/host/constant_slots.h"
#include "compute/host/fusion_builder.h"
#include "compute/plan/part.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint64_t kAlignment = 64;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsWholeTensor(const Node& node, const Program& program) {
  if (node.op == Op::kBitcastConvert) {
    return program.types[node.operands[0]].dims != program.types[node.first_result].dims;
  }
  return IsWholeOp(node.op);
}

// What writes the value into memory; `all`: or what is made of it.
std::vector<const Node*> SinksOf(const Program& program, ValueId value, bool all) {
  std::vector<const Node*> sinks;
  for (const Node& node : program.nodes) {
    if (node.op != Op::kStore && node.op != Op::kAccumulate) continue;
    if (all || node.operands[0] == value) sinks.push_back(&node);
  }
  return sinks;
}

}  // namespace

// Of `elements` that cost so much together, how many are one launch; all ones: they all are.
uint64_t StepBuilder::LaunchOf(const Cost& cost, uint64_t elements) const {
  const uint64_t work = WorkOf(cost);
  const uint64_t most = std::max<uint64_t>(1, made_.options_.launch_flops / kLaunchShare);
  const auto some = static_cast<unsigned __int128>(elements) * most / std::max<uint64_t>(work, 1);
  if (some >= elements) return std::numeric_limits<uint64_t>::max();
  return std::max<uint64_t>(1, static_cast<uint64_t>(some));
}

Location StepBuilder::PlaceOf(const Binding& binding) const {
  if (!binding.slot) return {Location::Kind::kBuffer, binding.index, 0};
  const auto kept = slots_from_constants_.find(binding.index);
  if (kept != slots_from_constants_.end()) return {Location::Kind::kFromConstants, 0, kept->second};
  return {Location::Kind::kScratch, 0, made_.plan_.slots[binding.index].offset};
}

std::vector<Location> StepBuilder::PlacesOf(const Step& step) const {
  std::vector<Location> places;
  for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
  return places;
}

bool StepBuilder::IsConstantInput(const Step& step, const Node& node) const {
  if (node.op != Op::kInput) return false;
  const Binding& binding = step.bindings[node.buffers[0]];
  return binding.slot ? slots_from_constants_.contains(binding.index)
                      : made_.plan_.buffers[binding.index].constant;
}

bool StepBuilder::IsOfConstants(const Step& step, const Program& part) const {
  bool reads = false;
  for (const Node& node : part.nodes) {
    if (node.op != Op::kInput) continue;
    if (!IsConstantInput(step, node)) return false;
    reads = true;
  }
  return reads;
}

Location StepBuilder::Temporary(uint64_t bytes) {
  if (Aligned(bytes) <= planned_end_ - planned_) {
    const uint64_t at = planned_;
    planned_ += Aligned(bytes);
    return {Location::Kind::kScratch, 0, at};
  }
  const uint64_t at = base_ + taken_;
  taken_ += Aligned(bytes);
  most_ = std::max(most_, taken_);
  return {Location::Kind::kScratch, 0, at};
}

Location StepBuilder::Scratch(uint64_t bytes) {
  most_ = std::max(most_, taken_ + Aligned(bytes));
  return {Location::Kind::kScratch, 0, base_ + taken_};
}

uint64_t StepBuilder::Keep(Work& work, uint64_t bytes) {
  work.keeper = made_.keepers_++;
  const uint64_t at = made_.from_constants_bytes_;
  made_.from_constants_bytes_ += Aligned(bytes);
  return at;
}

StepBuilder::Work* StepBuilder::AddFusion(const Program& program, absl::Span<const Location> places,
                                          std::vector<Work>& works) {
  Work work;
  work.fusion = FusionBuilder(program, places, made_.constants_).Build();
  if (work.fusion.IsEmpty()) return nullptr;
  work.fusion.launch_elements =
      LaunchOf(CostOf(program), work.fusion.rows * std::max<uint64_t>(work.fusion.row, 1));
  work.scratch = Scratch(work.fusion.ScratchBytes(made_.options_.threads));
  works.push_back(std::move(work));
  return &works.back();
}

StepBuilder::Operand StepBuilder::PlaceOperand(const Step& step, ValueId value, const Node& made_by,
                                               bool may_keep, std::vector<Work>& works) {
  const Program& program = step.program;
  if (made_by.op == Op::kInput && !made_by.attributes.Has(A::kStrides)) {
    Location place = PlaceOf(step.bindings[made_by.buffers[0]]);
    place.offset += static_cast<uint64_t>(made_by.attributes.Int(A::kOffset));
    return {place};
  }
  if (made_by.op == Op::kConstant && made_by.attributes.Has(A::kValues)) {
    const absl::string_view bytes = made_by.attributes.Bytes(A::kValues);
    const Location place = {Location::Kind::kConstant, 0, made_.constants_.size()};
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    made_.constants_.insert(made_.constants_.end(), begin, begin + bytes.size());
    return {place};
  }
  Part part(program);
  const uint64_t bytes = *BytesOf(program.types[value]);
  part.Store(value, part.AddBuffer(bytes));
  const bool keeps = may_keep && IsOfConstants(step, part.program());
  if (IsWholeTensor(made_by, program)) return PlaceWhole(step, value, made_by, keeps, works);
  const Location place =
      keeps ? Location{Location::Kind::kFromConstants, 0, made_.from_constants_bytes_}
            : Temporary(bytes);
  std::vector<Location> places = PlacesOf(step);
  places.push_back(place);
  Work* const fusion = AddFusion(part.program(), places, works);
  if (!keeps || fusion == nullptr) return {place};
  Keep(*fusion, bytes);
  return {place, true};
}

// An operand of one op on whole tensors that is another one's result.
StepBuilder::Operand StepBuilder::PlaceWhole(const Step& step, ValueId value, const Node& made_by,
                                             bool keeps, std::vector<Work>& works) {
  const Program& program = step.program;
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  Work work;
  work.kind = Work::Kind::kWhole;
  work.step = step.number;
  work.whole.node = made_by;
  work.whole.out_types = {program.types[value]};
  work.whole.wanted = {true};
  for (const ValueId operand : made_by.operands) {
    work.whole.in_types.push_back(program.types[operand]);
    const Node& input = program.nodes[definitions[operand]];
    work.in.push_back(PlaceOperand(step, operand, input, keeps, works).place);
  }
  const uint64_t bytes = *BytesOf(program.types[value]);
  Location place;
  if (keeps) {
    place = {Location::Kind::kFromConstants, 0, Keep(work, bytes)};
  } else {
    place = Temporary(bytes);
  }
  work.out = {place};
  works.push_back(std::move(work));
  return {place, keeps};
}

Location StepBuilder::PlaceResult(const Step& step, ValueId value,
                                  std::vector<const Node*>& sinks) {
  const bool plain = std::all_of(sinks.begin(), sinks.end(), [&](const Node* sink) {
    return sink->op == Op::kStore && sink->operands[0] == value;
  });
  const auto dense = std::find_if(sinks.begin(), sinks.end(), [](const Node* store) {
    return !store->attributes.Has(A::kStrides);
  });
  if (!plain || dense == sinks.end()) {
    return Temporary(*BytesOf(step.program.types[value]));
  }
  Location result = PlaceOf(step.bindings[(*dense)->buffers[0]]);
  result.offset += static_cast<uint64_t>((*dense)->attributes.Int(A::kOffset));
  sinks.erase(dense);
  return result;
}

void StepBuilder::MakeProduct(const Program& program, const std::vector<bool>& constant,
                              Work& work) {
  const uint64_t flops = std::max<uint64_t>(CostOf(program, work.whole.node).flops, 1);
  work.product = std::make_unique<Product>(work.whole, constant, made_.options_.threads,
                                           (flops - 1) / made_.options_.launch_flops + 1);
  work.scratch = Scratch(work.product->scratch_bytes());
  if (work.product->from_constants_bytes() > 0) {
    work.from_constants_offset = Keep(work, work.product->from_constants_bytes());
  }
}

// The op at `center` on whole tensors, with fusions for what is made before and after it.
void StepBuilder::AddAround(const Step& step, OpIndex center, std::vector<Work>& works) {
  const Program& program = step.program;
  const Node& node = program.nodes[center];
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  Work work;
  work.kind = Work::Kind::kWhole;
  work.whole.node = node;
  work.step = step.number;
  const bool multiplies = node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
  std::vector<bool> constant;  // by operand
  std::map<ValueId, Operand> operands;
  for (const ValueId value : node.operands) {
    work.whole.in_types.push_back(program.types[value]);
    const Node& made_by = program.nodes[definitions[value]];
    const auto [operand, fresh] = operands.try_emplace(value);
    if (fresh) operand->second = PlaceOperand(step, value, made_by, multiplies, works);
    constant.push_back(IsConstantInput(step, made_by) || operand->second.kept);
    work.in.push_back(operand->second.place);
  }
  if (node.op == Op::kDeltaApply) {
    work.out = {PlaceOf(step.bindings[node.buffers[0]])};
    work.out[0].offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
    works.push_back(std::move(work));
    return;
  }
  std::vector<std::vector<const Node*>> after;  // by result: what is still to be done with it
  for (uint32_t i = 0; i < node.results; ++i) {
    const ValueId result = program.Result(center, i);
    after.push_back(SinksOf(program, result, node.results == 1));
    work.whole.out_types.push_back(program.types[result]);
    work.whole.wanted.push_back(!after[i].empty());
    const bool nothing = after[i].empty() && i > 0;
    work.out.push_back(nothing ? Location() : PlaceResult(step, result, after[i]));
  }
  if (multiplies) MakeProduct(program, constant, work);
  const std::vector<Location> results = work.out;
  works.push_back(std::move(work));
  for (uint32_t i = 0; i < node.results; ++i) {
    if (after[i].empty()) continue;
    const ValueId result = program.Result(center, i);
    Part part(program);
    part.Read(result, part.AddBuffer(*BytesOf(program.types[result])));
    std::vector<Location> places = PlacesOf(step);
    places.push_back(results[i]);
    for (const Node* sink : after[i]) part.Put(*sink);
    AddFusion(part.program(), places, works);
  }
}

void StepBuilder::AddKernel(const Step& step, std::vector<Work>& works) {
  const Program& program = step.program;
  // The last one: before a product there may be others, of its operands.
  for (OpIndex i = static_cast<OpIndex>(program.nodes.size()); i > 0; --i) {
    if (IsWholeTensor(program.nodes[i - 1], program)) return AddAround(step, i - 1, works);
  }
  std::optional<uint32_t> kept;
  for (const Binding& binding : step.bindings) {
    const bool made =
        binding.slot && constant_slots_[binding.index] &&
        slots_from_constants_.try_emplace(binding.index, made_.from_constants_bytes_).second;
    if (made) kept = binding.index;
  }
  Work* const fusion = AddFusion(program, PlacesOf(step), works);
  if (kept && fusion != nullptr) Keep(*fusion, *BytesOf(made_.plan_.slots[*kept].type));
}

void StepBuilder::AddStep(const Step& step, std::vector<Work>& works) {
  taken_ = planned_ = planned_end_ = 0;
  if (step.scratch) {
    const Slot& slot = made_.plan_.slots[*step.scratch];
    planned_ = slot.offset;
    planned_end_ = slot.offset + *BytesOf(slot.type);
  }
  if (step.kind == StepKind::kRepeat) {
    Work work;
    work.kind = Work::Kind::kRepeat;
    work.trips = step.trips;
    if (step.count) work.out = {PlaceOf({true, *step.count})};
    for (const Step& inner : step.steps) AddStep(inner, work.body);
    works.push_back(std::move(work));
  } else if (step.kind == StepKind::kCopy) {
    const Node& node = step.program.nodes[0];
    Work work;
    work.kind = Work::Kind::kCopy;
    work.bytes = static_cast<uint64_t>(node.attributes.Int(A::kBytes));
    work.out = {PlaceOf(step.bindings[node.buffers[0]])};
    work.out[0].offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
    work.in = {PlaceOf(step.bindings[node.buffers[1]])};
    work.in[0].offset += static_cast<uint64_t>(node.attributes.Int(A::kSourceOffset));
    works.push_back(std::move(work));
  } else if (step.kind != StepKind::kSend && step.kind != StepKind::kRecv) {
    AddKernel(step, works);
  }
}

void StepBuilder::Build() {
  base_ = Aligned(made_.plan_.memory.bytes);
  constant_slots_ = ConstantSlots(made_.plan_);
  for (const Step& step : made_.plan_.steps) {
    AddStep(step, made_.works_);
    made_.ends_.push_back(made_.works_.size());
  }
  made_.scratch_bytes_ = Aligned(base_ + most_);
}

}  // namespace ferry::compute
