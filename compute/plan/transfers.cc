// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/transfers.h"

#include <map>
#include <utility>

namespace ferry::compute {

std::optional<PlanTransfer> TransferOf(const Step& step) {
  if (step.kind != StepKind::kSend && step.kind != StepKind::kRecv) return std::nullopt;
  PlanTransfer transfer;
  transfer.sends = step.kind == StepKind::kSend;
  transfer.at = step.bindings[0];
  for (const Node& node : step.program.nodes) {
    if (node.op == Op::kInput) {
      transfer.offset = static_cast<uint64_t>(node.attributes.Int(Attribute::kOffset));
    }
    if (node.op != Op::kSend && node.op != Op::kRecv) continue;
    const ValueId value = transfer.sends ? node.operands[0] : node.first_result;
    transfer.type = step.program.types[value];
    transfer.peer = std::string(node.attributes.Bytes(Attribute::kPeer));
    transfer.key = std::string(node.attributes.Bytes(Attribute::kKey));
    if (node.attributes.Has(Attribute::kDevice)) {
      transfer.device = static_cast<uint64_t>(node.attributes.Int(Attribute::kDevice));
    }
  }
  return transfer;
}

std::vector<PlanTransfer> TransfersOf(const Plan& plan) {
  std::vector<PlanTransfer> transfers;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    std::optional<PlanTransfer> transfer = TransferOf(plan.steps[i]);
    if (!transfer) continue;
    transfer->step = i;
    transfers.push_back(*std::move(transfer));
  }
  return transfers;
}

std::vector<Section> SectionsOf(const Plan& plan) {
  std::map<uint32_t, size_t> not_awaited;  // transfers, by number of their step
  std::vector<Section> sections(1);
  size_t transfers = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    std::vector<size_t> awaited;
    for (const uint32_t other : step.after) {
      const auto found = not_awaited.find(other);
      if (found == not_awaited.end()) continue;
      awaited.push_back(found->second);
      not_awaited.erase(found);
    }
    if (!awaited.empty()) {
      sections.back().end = i;
      sections.emplace_back();
      sections.back().awaited = std::move(awaited);
    }
    if (step.kind == StepKind::kSend || step.kind == StepKind::kRecv) {
      not_awaited.emplace(step.number, transfers++);
    }
  }
  sections.back().end = plan.steps.size();
  return sections;
}

}  // namespace ferry::compute
