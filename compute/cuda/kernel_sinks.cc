// SPDX-License-Identifier: Apache-2.0
// What a kernel writes to memory.
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "compute/cuda/kernel_writer.h"

namespace ferry::compute {
namespace {

using A = Attribute;

bool IsAccumulate(const Node& node) { return node.op == Op::kAccumulate; }

}  // namespace

// Where a vector of the loop is one of the elements that follow each other in `view`, which is not
// dense, what is known of its address; else nothing.
std::optional<int> KernelWriter::AlignmentOfRuns(const Node& sink, const View& view) const {
  const DType type = TypeOf(sink.operands[0]);
  if (IsDense(view) || InfoOf(type).bits < 8) return std::nullopt;
  const auto split = shape_.SplitRow({view});
  const View inner = Collapsed(split ? split->second : view);
  if (inner.dims.empty() || inner.strides.back() != 1 || inner.dims.back() % shape_.vector != 0) {
    return std::nullopt;
  }
  return shape_.AlignmentOf(sink.buffers[0], sink.attributes.Int(A::kOffset), view, type);
}

void KernelWriter::EmitSink(const Sink& sink) {
  if (sink.level == Level::kBlock) return EmitBlockSink(sink);
  if (sink.level == Level::kRow) {
    for (std::string& line : RowSink(sink)) loop_->body.Add(std::move(line));
    return;
  }
  const Node& node = *sink.node;
  const ValueId id = node.operands[0];
  const DType dtype = TypeOf(id);
  const std::string type = CppType(dtype);
  const std::string value = Full(id);
  const View view = BufferView(node, program_.types[id]);
  const int64_t offset = node.attributes.Int(A::kOffset);
  const int align = shape_.AlignmentOf(node.buffers[0], offset);
  const std::string pointer =
      text_->Pointer(true, KernelArgument::Kind::kBuffer, node.buffers[0], offset);
  LoopBody& body = loop_->body;
  const std::optional<int> in_runs = AlignmentOfRuns(node, view);
  if (!IsDense(view) && !in_runs) {
    const std::string place = LoopPlace({view}, "k");
    const std::string old =
        absl::StrCat("ReadOne<", type, ", ", align, ">(", pointer, ", ", place, ")");
    body.Add(absl::StrCat(
        "FERRY_EACH if (k < count) WriteOne<", align, ">(", pointer, ", ", place, ", ",
        IsAccumulate(node) ? absl::StrCat("Add(", old, ", ", value, ")") : value, ");"));
    return;
  }
  const std::string at = in_runs ? LoopPlace({view}, "") : "i";
  const int by = in_runs.value_or(align);
  // A vector of what is a vector's element, or a value that all have.
  absl::string_view made = value;
  std::string name;
  if (IsAccumulate(node) || !absl::ConsumeSuffix(&made, "[k]")) {
    name = text_->Name();
    std::string declaration = absl::StrCat("Vector<", type, ", V> ", name, ";");
    if (IsAccumulate(node)) {
      body.Add(std::move(declaration));
      body.Add(absl::StrCat("ReadVector<", by, ">(", pointer, ", ", at, ", count, ", name, ");"));
      body.AddEach("", absl::StrCat(name, "[k] = Add(", name, "[k], ", value, ");"));
    } else {
      body.AddEach(std::move(declaration), absl::StrCat(name, "[k] = ", value, ";"));
    }
  } else {
    name = std::string(made);
  }
  const bool half = dtype == DType::kF4E2M1FN && !in_runs;
  const std::string last =
      half ? absl::StrCat("i + count == ", text_->Number(static_cast<int64_t>(Elements(id))))
           : "false";
  body.Add(absl::StrCat("WriteVector<", by, ">(", pointer, ", ", at, ", count, ", name, ", ", last,
                        ");"));
}

// By one thread of a row.
std::vector<std::string> KernelWriter::RowSink(const Sink& sink) {
  const Node& node = *sink.node;
  const ValueId id = node.operands[0];
  const DType dtype = TypeOf(id);
  const std::string value = Row(id);
  const View view = BufferView(node, program_.types[id]);
  const int64_t offset = node.attributes.Int(A::kOffset);
  const int align = shape_.AlignmentOf(node.buffers[0], offset);
  const std::string pointer =
      text_->Pointer(true, KernelArgument::Kind::kBuffer, node.buffers[0], offset);
  const std::string place = text_->Place(view, "r", true);
  const std::string old =
      absl::StrCat("ReadOne<", CppType(dtype), ", ", align, ">(", pointer, ", ", place, ")");
  const std::string made = IsAccumulate(node) ? absl::StrCat("Add(", old, ", ", value, ")") : value;
  const absl::string_view one = in_columns_   ? "writes"
                                : shape_.rows ? "lane == 0"
                                              : "c == 0 && count > 0";
  std::vector<std::string> lines = {absl::StrCat("if (", one, ") WriteOne<", align, ">(", pointer,
                                                 ", ", place, ", ", made, ");")};
  const uint64_t elements = Elements(id);
  if (dtype != DType::kF4E2M1FN || !IsDense(view) || elements % 2 == 0) return lines;
  // A half byte too many is 0.
  lines.push_back(absl::StrCat("if (", one,
                               " && r == ", text_->Number(static_cast<int64_t>(elements - 1)),
                               ") PutHalf(", pointer, " + (r >> 1), 1, 0);"));
  return lines;
}

// Scales, each by the thread that has its block's first element.
void KernelWriter::EmitBlockSink(const Sink& sink) {
  const Node& node = *sink.node;
  const ValueId id = node.operands[0];
  const Node& quantize = program_.nodes[ValueOf(id).node];
  const std::string scales = Full(id);
  const uint64_t block = BlockOf(quantize, program_.types[quantize.first_result],
                                 program_.types[quantize.first_result + 1]);
  const int64_t columns = program_.types[quantize.first_result + 1].dims.back();
  const std::string pointer = text_->Pointer(true, KernelArgument::Kind::kBuffer, node.buffers[0],
                                             node.attributes.Int(A::kOffset));
  // Blocks that are found by shuffles are in the kernel's code already.
  const bool known = CanShuffle(quantize);
  const std::string size = known ? absl::StrCat(block) : text_->Number(static_cast<int64_t>(block));
  const bool whole = static_cast<uint64_t>(columns) * block == shape_.loop.row;
  const std::string scale =
      whole ? absl::StrCat("(i + k) / ", size)
            : absl::StrCat("r * ", text_->Number(columns), " + (c + k) / ", size);
  const std::string place = text_->Place(BufferView(node, program_.types[id]), scale, true);
  const std::string each =
      known ? absl::StrCat("FERRY_UNROLL for (int k = 0; k < V; k += Least(V, ", size, "))")
            : "FERRY_EACH";
  loop_->body.Add(absl::StrCat(each, " if (k < count && (", whole ? "i" : "c", " + k) % ", size,
                               " == 0) WriteOne<1>(", pointer, ", ", place, ", ", scales, ");"));
}

}  // namespace ferry::compute
