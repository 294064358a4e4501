// SPDX-License-Identifier: Apache-2.0
#include "compute/program/program.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compute/program/rules.h"

namespace ferry::compute {
namespace {

using Wide = unsigned __int128;
constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();

// The bytes from the first element to the last of `type` with `strides`, in elements.
Wide SpanBytes(const TensorType& type, absl::Span<const int64_t> strides) {
  const uint64_t elements = ElementsOf(type).value_or(kMost);
  if (elements == 0) return 0;
  if (strides.empty()) return BytesOf(type).value_or(kMost);
  Wide last = 0;
  for (size_t i = 0; i < type.dims.size() && i < strides.size(); ++i) {
    last += Wide(static_cast<uint64_t>(type.dims[i] - 1)) * static_cast<uint64_t>(strides[i]);
  }
  return (last + 1) * (InfoOf(type.dtype).bits / 8);
}

BufferRange RangeAt(uint32_t buffer, int64_t offset, Wide bytes) {
  const Wide end = static_cast<Wide>(offset) + bytes;
  return {buffer, static_cast<uint64_t>(offset),
          end > kMost ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(end)};
}

}  // namespace

std::string ToString(const TensorType& type) {
  return absl::StrCat(NameOf(type.dtype), "[", absl::StrJoin(type.dims, ","), "]");
}

std::optional<uint64_t> ElementsOf(const TensorType& type) {
  // As if no dimension were 0: strides are products of some of them.
  Wide product = 1;
  bool none = false;
  for (const int64_t dim : type.dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) none = true;
    product *= static_cast<uint64_t>(std::max<int64_t>(dim, 1));
    if (product > kMost) return std::nullopt;
  }
  return none ? 0 : static_cast<uint64_t>(product);
}

std::optional<uint64_t> BytesOf(const TensorType& type) {
  const std::optional<uint64_t> elements = ElementsOf(type);
  if (!elements || (Wide(*elements) * InfoOf(type.dtype).bits + 7) / 8 > kMost) return std::nullopt;
  return BytesOf(type.dtype, *elements);
}

OpIndex Program::Append(Node node, std::vector<TensorType> result_types) {
  node.first_result = static_cast<ValueId>(types.size());
  node.results = static_cast<uint32_t>(result_types.size());
  std::move(result_types.begin(), result_types.end(), std::back_inserter(types));
  if (node.op == Op::kRepeat) {
    types.push_back({DType::kI32, {}});
    for (const ValueId operand : node.operands) {
      types.push_back(operand < types.size() ? TensorType(types[operand]) : TensorType());
    }
  }
  nodes.push_back(std::move(node));
  return static_cast<OpIndex>(nodes.size() - 1);
}

OpIndex Program::Append(Node node) {
  Inference inference = Infer(*this, node, {});
  FERRY_CHECK(inference.ok());
  return Append(std::move(node), std::move(inference.results));
}

void Program::Close(OpIndex repeat, std::vector<ValueId> yielded) {
  nodes[repeat].body = static_cast<uint32_t>(nodes.size() - repeat - 1);
  nodes[repeat].yielded = std::move(yielded);
}

std::vector<int64_t> ParentsOf(const Program& program) {
  std::vector<int64_t> parents(program.nodes.size(), -1);
  std::vector<std::pair<int64_t, size_t>> open;  // a repeat, and the end of its body
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    while (!open.empty() && open.back().second <= i) open.pop_back();
    if (!open.empty()) parents[i] = open.back().first;
    if (program.nodes[i].op == Op::kRepeat) open.push_back({i, i + 1 + program.nodes[i].body});
  }
  return parents;
}

std::vector<bool> OrderedOps(const Program& program) {
  std::vector<bool> ordered(program.nodes.size());
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    for (const OpIndex other : program.nodes[i].after) {
      ordered[i] = true;
      if (other < ordered.size()) ordered[other] = true;
    }
  }
  return ordered;
}

std::vector<OpIndex> DefinitionsOf(const Program& program) {
  std::vector<OpIndex> definitions(program.types.size(), 0);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    const auto first = definitions.begin() + node.first_result;
    std::fill(first, first + node.results + node.parameters(), static_cast<OpIndex>(i));
  }
  return definitions;
}

std::vector<BufferRange> RangesOf(const Program& program, const Node& node) {
  std::vector<BufferRange> ranges;
  const Attributes& attributes = node.attributes;
  if (node.op == Op::kCopy) {
    const auto bytes = static_cast<Wide>(attributes.Int(Attribute::kBytes));
    ranges.push_back(RangeAt(node.buffers[0], attributes.Int(Attribute::kOffset), bytes));
    ranges.back().writes = true;
    ranges.push_back(RangeAt(node.buffers[1], attributes.Int(Attribute::kSourceOffset), bytes));
    ranges.back().reads = true;
  } else if (node.op == Op::kDeltaApply) {
    ranges.push_back(RangeAt(node.buffers[0], attributes.Int(Attribute::kOffset),
                             static_cast<Wide>(attributes.Int(Attribute::kBytes))));
    ranges.back().reads = ranges.back().writes = true;
  } else if (!node.buffers.empty()) {
    const ValueId value = node.op == Op::kInput ? node.first_result : node.operands[0];
    ranges.push_back(
        RangeAt(node.buffers[0], attributes.Int(Attribute::kOffset),
                SpanBytes(program.types[value], attributes.Ints(Attribute::kStrides))));
    ranges.back().reads = node.op != Op::kStore;
    ranges.back().writes = node.op != Op::kInput;
  }
  return ranges;
}

}  // namespace ferry::compute
