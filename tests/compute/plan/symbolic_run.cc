// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/plan/symbolic_run.h"

#include <algorithm>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ferry::compute::testing {
namespace {

using A = Attribute;

uint64_t Hash(const std::string& text) { return std::hash<std::string>()(text); }

std::string AttributesText(const Node& node) {
  std::string text;
  for (const auto& [attribute, value] : node.attributes.entries()) {
    absl::StrAppend(&text, " ", InfoOf(attribute).name, "=");
    if (const auto* number = std::get_if<int64_t>(&value)) absl::StrAppend(&text, *number);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      absl::StrAppend(&text, absl::StrJoin(*list, ","));
    }
    if (const auto* bytes = std::get_if<std::string>(&value)) {
      absl::StrAppend(&text, absl::BytesToHexString(*bytes));
    }
  }
  return text;
}

std::vector<int64_t> Strides(const Node& node) {
  const auto list = node.attributes.Ints(A::kStrides);
  return {list.begin(), list.end()};
}

}  // namespace

std::vector<std::string> SymbolicRun::Run(const Program& program) {
  plan_ = nullptr;
  std::vector<Symbol> values(program.types.size());
  RunBlock(program, 0, program.nodes.size(), values);
  std::sort(effects_.begin(), effects_.end());
  return effects_;
}

std::vector<std::string> SymbolicRun::Run(const Plan& plan) {
  plan_ = &plan;
  RunSteps(plan.steps);
  std::sort(effects_.begin(), effects_.end());
  return effects_;
}

void SymbolicRun::RunSteps(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    for (int64_t trip = 0; step.kind == StepKind::kRepeat && trip < step.trips; ++trip) {
      if (step.count) {
        Claim(*step.count);
        slots_[*step.count] = {{{0, {}, "i32[]"}, {Hash(absl::StrCat("trip ", trip)), 1}}};
      }
      RunSteps(step.steps);
    }
    step_ = &step;
    if (step.scratch) Claim(*step.scratch);
    std::vector<Symbol> values(step.program.types.size());
    RunBlock(step.program, 0, step.program.nodes.size(), values);
  }
}

Binding SymbolicRun::Bound(uint32_t buffer) const {
  return plan_ == nullptr ? Binding{false, buffer} : step_->bindings[buffer];
}

void SymbolicRun::RunBlock(const Program& program, size_t begin, size_t end,
                           std::vector<Symbol>& values) {
  for (size_t i = begin; i < end; i += program.nodes[i].body + 1) {
    const Node& node = program.nodes[i];
    const auto operand = [&](size_t index) { return values[node.operands[index]]; };
    const auto set = [&](ValueId value, Symbol symbol) {
      const bool empty = ElementsOf(program.types[value]) == 0u;
      values[value] = empty ? Hash("empty" + ToString(program.types[value])) : symbol;
    };
    switch (node.op) {
      case Op::kRepeat: {
        std::vector<Symbol> carried;
        for (size_t j = 0; j < node.operands.size(); ++j) carried.push_back(operand(j));
        for (int64_t trip = 0; trip < node.attributes.Int(A::kTrips); ++trip) {
          values[node.first_parameter()] = Hash(absl::StrCat("trip ", trip));
          for (size_t j = 0; j < carried.size(); ++j) {
            values[node.first_parameter() + 1 + j] = carried[j];
          }
          RunBlock(program, i + 1, i + 1 + node.body, values);
          for (size_t j = 0; j < carried.size(); ++j) carried[j] = values[node.yielded[j]];
        }
        for (size_t j = 0; j < carried.size(); ++j) values[node.first_result + j] = carried[j];
        break;
      }
      case Op::kBarrier:
        for (size_t j = 0; j < node.operands.size(); ++j) {
          values[node.first_result + j] = operand(j);
        }
        break;
      case Op::kKeep:
        break;
      case Op::kInput:
        set(node.first_result, Read(program, node));
        break;
      case Op::kStore:
      case Op::kAccumulate:
        WriteTo(program, node, operand(0));
        break;
      case Op::kCopy: {
        const std::vector<BufferRange> ranges = RangesOf(program, node);
        const uint32_t to = Bound(ranges[0].buffer).index;
        const uint32_t from = Bound(ranges[1].buffer).index;
        const std::string text =
            absl::StrCat("copy @", to, " @", from, AttributesText(node), " of ",
                         Earlier(from, ranges[1].begin, ranges[1].end), " over ",
                         Earlier(to, ranges[0].begin, ranges[0].end));
        effects_.push_back(text);
        writes_[to].push_back({ranges[0].begin, ranges[0].end, Hash(text)});
        break;
      }
      case Op::kDeltaApply: {
        const BufferRange range = RangesOf(program, node)[0];
        const uint32_t to = Bound(range.buffer).index;
        const std::string text = absl::StrCat("delta_apply @", to, AttributesText(node), " ",
                                              operand(0), " ", operand(1), " ", operand(2),
                                              " over ", Earlier(to, range.begin, range.end));
        effects_.push_back(text);
        writes_[to].push_back({range.begin, range.end, Hash(text)});
        break;
      }
      case Op::kSend:
        effects_.push_back(absl::StrCat("send", AttributesText(node), " ", operand(0)));
        for (size_t j = 0; plan_ != nullptr && j < step_->bindings.size(); ++j) {
          if (step_->bindings[j].slot) sent_.push_back(step_->bindings[j].index);
        }
        break;
      case Op::kRecv:
        effects_.push_back(absl::StrCat("recv", AttributesText(node)));
        set(node.first_result, Hash(effects_.back()));
        break;
      case Op::kConcatenate:
        set(node.first_result, Concatenated(program, node, values));
        break;
      default:
        for (uint32_t j = 0; j < node.results; ++j) {
          set(node.first_result + j, Made(program, node, j, values));
        }
    }
  }
}

SymbolicRun::Symbol SymbolicRun::Made(const Program& program, const Node& node, uint32_t result,
                                      const std::vector<Symbol>& values) {
  if (node.op == Op::kReshape &&
      program.types[node.operands[0]] == program.types[node.first_result]) {
    return values[node.operands[0]];
  }
  std::string text = absl::StrCat(InfoOf(node.op).name, AttributesText(node), " ", result);
  for (const ValueId value : node.operands) {
    absl::StrAppend(&text, " ", values[value], " ", ToString(program.types[value]));
  }
  return Hash(absl::StrCat(text, " ", ToString(program.types[node.first_result + result])));
}

// A value that was written in parts; 0: not all of it is there.
SymbolicRun::Symbol SymbolicRun::Joined(const Parts& parts, const TensorType& whole) {
  uint64_t elements = 0;
  std::string text = "parts " + ToString(whole);
  for (const auto& [key, part] : parts) {
    elements += part.elements;
    if (part.elements == *ElementsOf(whole)) return part.symbol;
    const auto& [offset, strides, type] = key;
    absl::StrAppend(&text, " ", offset, "/", absl::StrJoin(strides, ","), "/", type, "/",
                    part.symbol);
  }
  return elements == *ElementsOf(whole) ? Hash(text) : 0;
}

SymbolicRun::Symbol SymbolicRun::Concatenated(const Program& program, const Node& node,
                                              const std::vector<Symbol>& values) {
  const TensorType& whole = program.types[node.first_result];
  const auto dimension = static_cast<size_t>(node.attributes.Int(A::kDimension));
  int64_t outer = 1;
  for (size_t i = 0; i < dimension; ++i) outer *= whole.dims[i];
  int64_t inner = 1;
  for (size_t i = dimension + 1; i < whole.dims.size(); ++i) inner *= whole.dims[i];
  std::vector<int64_t> strides(outer == 1 ? 0 : whole.dims.size(), 1);
  for (size_t i = strides.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * whole.dims[i - 1];
  Parts parts;
  int64_t start = 0;
  for (const ValueId value : node.operands) {
    const TensorType& type = program.types[value];
    if (*ElementsOf(type) > 0) {
      parts[{start * inner * InfoOf(type.dtype).bits, strides, ToString(type)}] = {
          values[value], *ElementsOf(type)};
    }
    start += type.dims[dimension];
  }
  return Joined(parts, whole);
}

std::string SymbolicRun::Earlier(uint32_t buffer, uint64_t begin, uint64_t end) const {
  std::vector<Symbol> symbols;
  const auto at = writes_.find(buffer);
  if (at == writes_.end()) return "";
  for (const Write& write : at->second) {
    if (write.begin < end && begin < write.end) symbols.push_back(write.symbol);
  }
  std::sort(symbols.begin(), symbols.end());
  return absl::StrJoin(symbols, ",");
}

SymbolicRun::Symbol SymbolicRun::Read(const Program& program, const Node& node) {
  const BufferRange range = RangesOf(program, node)[0];
  const TensorType& type = program.types[node.first_result];
  const Binding binding = Bound(range.buffer);
  if (!binding.slot) {
    return Hash(absl::StrCat("input @", binding.index, AttributesText(node), " ", ToString(type),
                             " after ", Earlier(binding.index, range.begin, range.end)));
  }
  const Symbol symbol = Joined(slots_[binding.index], plan_->slots[binding.index].type);
  if (symbol == 0 && *ElementsOf(type) > 0) {
    problems_.push_back(
        absl::StrCat("step ", step_->number, " reads #", binding.index, ", which is not there"));
  }
  if (type != plan_->slots[binding.index].type) {
    problems_.push_back(
        absl::StrCat("step ", step_->number, " takes #", binding.index, " for ", ToString(type)));
  }
  return symbol;
}

// What else is in the bytes of `slot` is gone.
void SymbolicRun::Claim(uint32_t slot) {
  const Slot& one = plan_->slots[slot];
  const auto overlaps = [&](uint32_t index) {
    const Slot& other = plan_->slots[index];
    return one.offset < other.offset + *BytesOf(other.type) &&
           other.offset < one.offset + *BytesOf(one.type);
  };
  for (auto& [index, parts] : slots_) {
    if (index != slot && overlaps(index)) parts.clear();
  }
  for (const uint32_t index : sent_) {
    if (overlaps(index)) {
      problems_.push_back(absl::StrCat("#", index, " is overwritten while it is sent"));
    }
  }
}

void SymbolicRun::WriteTo(const Program& program, const Node& node, Symbol value) {
  const BufferRange range = RangesOf(program, node)[0];
  const TensorType& type = program.types[node.operands[0]];
  const Binding binding = Bound(range.buffer);
  if (!binding.slot) {
    const std::string text = absl::StrCat(InfoOf(node.op).name, " @", binding.index,
                                          AttributesText(node), " ", ToString(type), " ", value,
                                          " over ", Earlier(binding.index, range.begin, range.end));
    effects_.push_back(text);
    writes_[binding.index].push_back({range.begin, range.end, Hash(text)});
    return;
  }
  Claim(binding.index);
  Parts& parts = slots_[binding.index];
  const uint64_t elements = *ElementsOf(type);
  if (elements == 0) return;
  if (elements == *ElementsOf(plan_->slots[binding.index].type)) parts.clear();
  parts[{node.attributes.Int(A::kOffset) * 8, Strides(node), ToString(type)}] = {value, elements};
}

}  // namespace ferry::compute::testing
