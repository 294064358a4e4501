// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compute/plan/kernel_loop.h"

namespace ferry::compute {

bool Graph::IsMadeIn(ValueId value, BlockId block) const {
  const ItemId item = definitions[value];
  return item != kNoItem && items[item].block == block && IsClustered(items[item].role);
}

bool Graph::IsSeenMemory(ValueId value) const {
  for (;;) {
    const ItemId item = definitions[sources[value]];
    if (item == kNoItem || items[item].role != Role::kInlined) return true;
    const Node& node = items[item].node;
    if (node.op == Op::kInput) return true;
    if (!IsMove(node.op)) return false;
    value = node.operands[0];
  }
}

Views Graph::ViewsOf(ValueId value) const {
  const ItemId item = definitions[sources[value]];
  if (item == kNoItem || items[item].role != Role::kInlined) return {LinearView(types[value].dims)};
  const Node& node = items[item].node;
  if (node.op == Op::kInput) return {BufferView(node, types[value])};
  if (!IsMove(node.op)) return {LinearView(types[value].dims)};
  Views views = ViewsOf(node.operands[0]);
  Move(node, types[node.operands[0]], types[value], views);
  return views;
}

std::optional<uint64_t> Graph::OffsetOfRows(const Node& slice) const {
  const std::vector<int64_t>& dims = types[slice.operands[0]].dims;
  const std::vector<int64_t>& rows = types[slice.first_result].dims;
  const auto step = slice.attributes.Ints(Attribute::kStep);
  if (dims.empty() || (!step.empty() && step[0] != 1)) return std::nullopt;
  auto bits = static_cast<uint64_t>(InfoOf(types[slice.first_result].dtype).bits) *
              static_cast<uint64_t>(slice.attributes.Ints(Attribute::kStart)[0]);
  for (size_t i = 1; i < dims.size(); ++i) {
    if (rows[i] != dims[i]) return std::nullopt;
    bits *= static_cast<uint64_t>(dims[i]);
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

std::vector<ItemId> Graph::NeedsOf(ItemId item) const {
  std::vector<ItemId> needs = items[item].before;
  needs.insert(needs.end(), items[item].beside.begin(), items[item].beside.end());
  for (const ValueId value : items[item].node.operands) {
    const ItemId definition = definitions[value];
    if (definition != kNoItem && items[definition].block == items[item].block) {
      needs.push_back(definition);
    }
  }
  std::sort(needs.begin(), needs.end());
  needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
  return needs;
}

std::vector<bool> Graph::AwaitedByTransfers() const {
  std::vector<bool> awaited(items.size());
  for (auto i = static_cast<ItemId>(items.size()); i-- > 0;) {
    const Op op = items[i].node.op;
    if (!awaited[i] && op != Op::kSend && op != Op::kRecv) continue;
    for (const ItemId need : NeedsOf(i)) awaited[need] = true;
  }
  return awaited;
}

std::string Graph::LabelOf(const Node& node) const {
  if (!node.label.empty()) return node.label;
  const std::string op(InfoOf(node.op).name);
  return node.op == Op::kInput ? absl::StrCat(op, " @", program.buffers[node.buffers[0]].name) : op;
}

uint32_t Graph::AddSlot(TensorType type, std::string label, BlockId block, bool shared) {
  slots.push_back({std::move(type), std::move(label)});
  slot_blocks.push_back(block);
  shared_slots.push_back(shared);
  return static_cast<uint32_t>(slots.size() - 1);
}

ItemId Graph::Lifted(ItemId item, BlockId block) const {
  while (item != kNoItem && items[item].block != block) item = blocks[items[item].block].repeat;
  return item;
}

}  // namespace ferry::compute
