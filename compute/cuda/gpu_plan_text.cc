// SPDX-License-Identifier: Apache-2.0
// GPU plans for people, and for golden tests.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {
namespace {

std::string TextOf(const GpuPlan& plan, const GpuPlace& place) {
  std::string text;
  switch (place.kind) {
    case GpuPlace::Kind::kBuffer:
      text = absl::StrCat("@", plan.plan.buffers[place.index].name);
      break;
    case GpuPlace::Kind::kSlot:
      text = absl::StrCat("#", place.index);
      break;
    case GpuPlace::Kind::kTemporary:
      text = absl::StrCat("%", place.index);
  }
  return place.offset == 0 ? text : absl::StrCat(text, "+", place.offset);
}

std::string TextOf(const GpuPlan& plan, const GpuMatrix& matrix) {
  std::string text =
      absl::StrCat(TextOf(plan, matrix.place), " ", NameOf(matrix.type), "(", matrix.batch_stride,
                   ",", matrix.row_stride, ",", matrix.column_stride, ")");
  if (matrix.scales) {
    absl::StrAppend(&text, " scales ", TextOf(plan, *matrix.scales), " ",
                    NameOf(matrix.scale_type));
  }
  return text;
}

void AppendAccumulation(const GpuCommand& command, std::string& text) {
  if (!command.accumulation) return;
  absl::StrAppend(&text,
                  " accumulation=", kAccumulationNames[static_cast<size_t>(*command.accumulation)]);
}

void AppendCommands(const GpuPlan& plan, const std::vector<GpuCommand>& commands, size_t indent,
                    std::string& text) {
  for (const GpuCommand& command : commands) {
    absl::StrAppend(&text, std::string(indent, ' '), command.step, " ");
    switch (command.kind) {
      case GpuCommand::Kind::kLaunch: {
        absl::StrAppend(&text, "launch ", plan.kernels[command.kernel].name,
                        " blocks=", command.blocks, " threads=", command.threads);
        AppendAccumulation(command, text);
        for (const GpuArgument& argument : command.arguments) {
          absl::StrAppend(
              &text, " ",
              argument.place ? TextOf(plan, *argument.place) : absl::StrCat(argument.number));
        }
        break;
      }
      case GpuCommand::Kind::kProduct: {
        const GpuProduct& product = command.product;
        absl::StrAppend(&text, "product cublaslt batches=", product.batches, " m=", product.m,
                        " n=", product.n, " k=", product.k, " ", TextOf(plan, product.left), " ",
                        TextOf(plan, product.right), " -> ", TextOf(plan, product.result),
                        " compute=", NameOf(product.compute));
        if (product.adds) text += " adds";
        if (product.block > 0) absl::StrAppend(&text, " block=", product.block);
        if (product.factors) absl::StrAppend(&text, " times ", TextOf(plan, *product.factors));
        AppendAccumulation(command, text);
        absl::StrAppend(&text, " workspace ", TextOf(plan, product.workspace), " of ",
                        product.workspace_bytes);
        break;
      }
      case GpuCommand::Kind::kCopy:
        absl::StrAppend(&text, "copy ", TextOf(plan, command.from), " -> ",
                        TextOf(plan, command.to), " bytes=", command.bytes);
        break;
      case GpuCommand::Kind::kSend:
      case GpuCommand::Kind::kReceive: {
        const bool sends = command.kind == GpuCommand::Kind::kSend;
        absl::StrAppend(&text, sends ? "send " : "recv ",
                        TextOf(plan, sends ? command.from : command.to), " bytes=", command.bytes,
                        command.device
                            ? absl::StrCat(" device=", *command.device)
                            : absl::StrCat(" peer=\"", absl::CEscape(command.peer), "\""),
                        " key=\"", absl::CEscape(command.key), "\"");
        break;
      }
      case GpuCommand::Kind::kRepeat:
        absl::StrAppend(&text, "repeat trips=", command.trips);
        if (command.count) absl::StrAppend(&text, " count=", TextOf(plan, *command.count));
    }
    text += "\n";
    AppendCommands(plan, command.body, indent + 2, text);
  }
}

}  // namespace

std::string ToText(const GpuPlan& plan, bool sources) {
  std::string text = absl::StrCat("gpu plan 1 ", plan.arch.name, "\n");
  for (size_t i = 0; i < plan.plan.slots.size(); ++i) {
    const Slot& slot = plan.plan.slots[i];
    absl::StrAppend(&text, "slot #", i, " ", ToString(slot.type), " at ", slot.offset, ", steps ",
                    slot.first, " to ", slot.last, " \"", absl::CEscape(slot.label), "\"\n");
  }
  for (size_t i = 0; i < plan.temporaries.size(); ++i) {
    const GpuTemporary& temporary = plan.temporaries[i];
    absl::StrAppend(&text, "temporary %", i, " at ", temporary.offset, " of ", temporary.bytes,
                    " bytes, step ", temporary.step, ": ", temporary.use, "\n");
  }
  AppendCommands(plan, plan.commands, 0, text);
  absl::StrAppend(&text, plan.kernels.size(), " kernels; arena ", plan.scratch_bytes,
                  " bytes, of slots ", plan.plan.memory.bytes, "\n");
  if (!sources) return text;
  for (const GpuKernel& kernel : plan.kernels) absl::StrAppend(&text, "\n", SourceOf(kernel));
  return text;
}

}  // namespace ferry::compute
