// SPDX-License-Identifier: Apache-2.0
// Ops that read elements of their operands at other places than that of what they make. `i + k` is
// the place that is made.
#include <numeric>

#include "absl/strings/str_join.h"
#include "compute/cuda/kernel_writer.h"

namespace ferry::compute {
namespace {

using A = Attribute;

int64_t InnerElements(const TensorType& type, size_t dimension) {
  return std::accumulate(type.dims.begin() + static_cast<std::ptrdiff_t>(dimension) + 1,
                         type.dims.end(), int64_t{1}, std::multiplies<int64_t>());
}

}  // namespace

// Names of the coordinates of what is made.
std::vector<std::string> KernelWriter::Coordinates(const TensorType& type) {
  std::vector<std::string> names(type.dims.size());
  loop_->body.Add("Index rest = i + k;");
  for (size_t d = type.dims.size(); d-- > 0;) {
    names[d] = absl::StrCat("d", d);
    const std::string dim = text_->Number(type.dims[d]);
    loop_->body.Add(
        absl::StrCat("const Index ", names[d], " = rest % ", dim, "; rest /= ", dim, ";"));
  }
  return names;
}

std::string KernelWriter::Linear(const TensorType& type, const std::vector<std::string>& places) {
  std::string linear = "0";
  for (size_t d = 0; d < places.size(); ++d) {
    linear = d == 0
                 ? places[d]
                 : absl::StrCat("(", linear, ") * ", text_->Number(type.dims[d]), " + ", places[d]);
  }
  return linear;
}

void KernelWriter::EmitSlice(const Node& node, const std::string& result) {
  const TensorType& from = program_.types[node.operands[0]];
  const auto sizes = node.attributes.Ints(A::kSizes);
  std::vector<std::string> places = Coordinates(program_.types[node.first_result]);
  for (size_t d = 0; d < places.size(); ++d) {
    const std::string most = text_->Number(from.dims[d] - sizes[d]);
    absl::StrAppend(&places[d], " + ClampedIndex<Index>(", Once(node.operands[d + 1]), ", ", most,
                    ")");
  }
  const std::string element = At(node.operands[0], Linear(from, places));
  loop_->body.Add(absl::StrCat(result, " = ", element, ";"));
}

void KernelWriter::EmitPad(const Node& node, const std::string& result) {
  const TensorType& from = program_.types[node.operands[0]];
  const auto low = node.attributes.Ints(A::kLow);
  const auto interior = node.attributes.Ints(A::kInterior);
  std::vector<std::string> places = Coordinates(program_.types[node.first_result]);
  std::string inside;
  for (size_t d = 0; d < places.size(); ++d) {
    const std::string moved = absl::StrCat("x", d);
    loop_->body.Add(absl::StrCat("const Index ", moved, " = ", places[d], " - ",
                                 low.empty() ? "0" : text_->Number(low[d]), ";"));
    const std::string step =
        interior.empty() || interior[d] == 0 ? "" : text_->Number(interior[d] + 1);
    places[d] = step.empty() ? moved : absl::StrCat(moved, " / ", step);
    absl::StrAppend(&inside, inside.empty() ? "" : " && ", moved, " >= 0 && ", places[d], " < ",
                    text_->Number(from.dims[d]));
    if (!step.empty()) absl::StrAppend(&inside, " && ", moved, " % ", step, " == 0");
  }
  const std::string outside = Once(node.operands[1]);
  const std::string element = At(node.operands[0], Linear(from, places));
  loop_->body.Add(absl::StrCat(result, " = ", outside, ";"));
  loop_->body.Add(
      absl::StrCat("if (", inside.empty() ? "true" : inside, ") ", result, " = ", element, ";"));
}

void KernelWriter::EmitConcatenate(const Node& node, const std::string& result) {
  const TensorType& type = program_.types[node.first_result];
  const auto dimension = static_cast<size_t>(node.attributes.Int(A::kDimension));
  const std::string inner = text_->Number(InnerElements(type, dimension));
  const std::string length = text_->Number(type.dims[dimension]);
  loop_->body.Add(absl::StrCat("const Index within = (i + k) % ", inner, ";"));
  loop_->body.Add(absl::StrCat("Index at = (i + k) / ", inner, " % ", length, ";"));
  loop_->body.Add(absl::StrCat("const Index outer = (i + k) / ", inner, " / ", length, ";"));
  loop_->body.Add("do {");
  for (const ValueId operand : node.operands) {
    const std::string part = text_->Number(program_.types[operand].dims[dimension]);
    const std::string element =
        At(operand, absl::StrCat("(outer * ", part, " + at) * ", inner, " + within"));
    loop_->body.Add(absl::StrCat("if (at < ", part, ") {"));
    loop_->body.Add(absl::StrCat(result, " = ", element, ";"));
    loop_->body.Add("break;");
    loop_->body.Add("}");
    loop_->body.Add(absl::StrCat("at -= ", part, ";"));
  }
  loop_->body.Add("} while (false);");
}

void KernelWriter::EmitGather(const Node& node, const std::string& result) {
  const TensorType& from = program_.types[node.operands[0]];
  const std::string length = text_->Number(InnerElements(from, 0));
  const std::string index = At(node.operands[1], absl::StrCat("(i + k) / ", length));
  loop_->body.Add(absl::StrCat("const Index row = ClampedIndex<Index>(", index, ", ",
                               text_->Number(from.dims[0] - 1), ");"));
  const std::string element =
      At(node.operands[0], absl::StrCat("row * ", length, " + (i + k) % ", length));
  loop_->body.Add(absl::StrCat(result, " = ", element, ";"));
}

void KernelWriter::EmitSwizzle(const Node& node, const std::string& result) {
  const bool back = node.op == Op::kUnswizzleScales;
  const TensorType& plain = program_.types[back ? node.first_result : node.operands[0]];
  const std::string columns = text_->Number(plain.dims[1]);
  if (back) {
    const std::string element =
        At(node.operands[0], absl::StrCat("static_cast<Index>(SwizzledOffset((i + k) / ", columns,
                                          ", (i + k) % ", columns, ", ", columns, "))"));
    loop_->body.Add(absl::StrCat(result, " = ", element, ";"));
    return;
  }
  loop_->body.Add(
      absl::StrCat("const Index row = static_cast<Index>(SwizzledRow(i + k, ", columns, "));"));
  loop_->body.Add(absl::StrCat("const Index column = static_cast<Index>(SwizzledColumn(i + k, ",
                               columns, "));"));
  const std::string element = At(node.operands[0], absl::StrCat("row * ", columns, " + column"));
  loop_->body.Add(absl::StrCat(result, " = ", CodeText(plain.dtype, 0), ";"));
  loop_->body.Add(absl::StrCat("if (row < ", text_->Number(plain.dims[0]), " && column < ", columns,
                               ") ", result, " = ", element, ";"));
}

void KernelWriter::EmitBitcast(const Node& node, const std::string& result) {
  const DType to = TypeOf(node.first_result);
  const int from_bits = InfoOf(TypeOf(node.operands[0])).bits;
  const int to_bits = InfoOf(to).bits;
  if (to_bits < from_bits) {
    const int ratio = from_bits / to_bits;
    const uint64_t mask = (uint64_t{1} << to_bits) - 1;
    const std::string whole = At(node.operands[0], absl::StrCat("(i + k) / ", ratio));
    loop_->body.Add(absl::StrCat(result, " = FromCode<", CppType(to), ">(CodeOf(", whole,
                                 ") >> ((i + k) % ", ratio, " * ", to_bits, ") & 0x",
                                 absl::Hex(mask), "ull);"));
    return;
  }
  const int ratio = to_bits / from_bits;
  const std::string part = At(node.operands[0], absl::StrCat("(i + k) * ", ratio, " + part"));
  loop_->body.Add("u64 code = 0;");
  loop_->body.Add(absl::StrCat("FERRY_UNROLL for (int part = 0; part < ", ratio, "; ++part) {"));
  loop_->body.Add(
      absl::StrCat("code |= static_cast<u64>(CodeOf(", part, ")) << (part * ", from_bits, ");"));
  loop_->body.Add("}");
  loop_->body.Add(absl::StrCat(result, " = FromCode<", CppType(to), ">(code);"));
}

void KernelWriter::EmitOpaque(const Node& node, const std::string& result) {
  loop_->body.Add("FERRY_EACH {");
  loop_->body.Add("if (k >= count) break;");
  switch (node.op) {
    case Op::kDynamicSlice:
      EmitSlice(node, result);
      break;
    case Op::kPad:
      EmitPad(node, result);
      break;
    case Op::kConcatenate:
      EmitConcatenate(node, result);
      break;
    case Op::kGatherRows:
      EmitGather(node, result);
      break;
    case Op::kSwizzleScales:
    case Op::kUnswizzleScales:
      EmitSwizzle(node, result);
      break;
    case Op::kDotGeneral:
      EmitDot(node, result);
      break;
    case Op::kBlockScaledDot:
      EmitBlockScaledDot(node, result);
      break;
    default:
      EmitBitcast(node, result);
  }
  loop_->body.Add("}");
}

}  // namespace ferry::compute
