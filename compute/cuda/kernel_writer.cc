// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/kernel_writer.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/passes/literal.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr absl::string_view kRoundings[] = {"kCeil", "kFloor", "kNearestHalfUp"};
constexpr absl::string_view kComparisons[] = {"Eq", "Ne", "Lt", "Le", "Gt", "Ge"};

std::string Plus(const std::string& index, const std::string& more) {
  return more.empty() ? index : absl::StrCat(index, " + ", more);
}

}  // namespace

std::string KernelWriter::PointerOf(ValueId id) {
  const Value& value = shape_.values[id];
  return text_->Pointer(false, KernelArgument::Kind::kBuffer, value.buffer, value.offset);
}

std::string KernelWriter::PlaceOf(const Views& views, const std::string& index) {
  std::string place = index;
  for (size_t view = views.size(); view-- > 0;) place = text_->Place(views[view], place, true);
  return place;
}

std::string KernelWriter::LoopPlace(const Views& views, const std::string& more) {
  const auto split = shape_.SplitRow(views);
  if (!split || IsDense(views[0])) return PlaceOf(views, Plus("i", more));
  const std::string column = text_->Place(split->second, Plus("c", more), false);
  const std::string row = text_->Place(split->first, "r", true);
  if (column == "0") return row;
  return row == "0" ? column : absl::StrCat(column, " + ", row);
}

std::string KernelWriter::ReadOf(const Value& value, DType type, const std::string& pointer,
                                 const std::string& place) const {
  return absl::StrCat("ReadOne<", CppType(type), ", ",
                      shape_.AlignmentOf(value.buffer, value.offset), ">(", pointer, ", ", place,
                      ")");
}

// The codes of a constant that is not the same everywhere.
std::string KernelWriter::TableOf(ValueId id) {
  std::string& table = tables_[id];
  if (!table.empty()) return table;
  const Value& value = shape_.values[id];
  const Node& constant = program_.nodes[value.node];
  const Literal literal = LiteralOf(program_.types[constant.first_result], constant.attributes);
  table = absl::StrCat(kEntryPlace, "_", text_->Name());
  std::vector<std::string> codes;
  for (const uint64_t code : literal.codes) codes.push_back(absl::StrCat("0x", absl::Hex(code)));
  const size_t size = std::max<size_t>(codes.size(), 1);
  text_->AddGlobal(absl::StrCat("static __constant__ const u64 ", table, "[", size, "] = {",
                                absl::StrJoin(codes, ", "), "};"));
  return table;
}

std::string KernelWriter::At(ValueId id, const std::string& index) {
  const ValueId source = shape_.values[id].source;
  const Value& value = shape_.values[source];
  const DType type = TypeOf(source);
  // Places are made in statements of their own: a compiler evaluates a call's arguments in an order
  // of its choice, and each order gives another source.
  switch (value.kind) {
    case Kind::kMemory: {
      const std::string place = PlaceOf(value.views, index);
      return ReadOf(value, type, PointerOf(source), place);
    }
    case Kind::kPlaces:
      return absl::StrCat("Convert<", CppType(type), ">(static_cast<i64>(",
                          PlaceOf(value.views, index), "))");
    case Kind::kTable: {
      const std::string place = PlaceOf(value.views, index);
      return absl::StrCat("FromCode<", CppType(type), ">(", TableOf(source), "[", place, "])");
    }
    default:
      return Once(source);
  }
}

std::string KernelWriter::Once(ValueId id) {
  const ValueId source = shape_.values[id].source;
  const Value& value = shape_.values[source];
  if (value.kind == Kind::kLoop) return value.level == Level::kRow ? Row(source) : Full(source);
  const auto known = once_.find(source);
  if (known != once_.end()) return known->second;
  const Node& node = program_.nodes[value.node];
  std::string text;
  if (value.kind != Kind::kOnce) {
    text = At(source, "0");
  } else if (IsMove(node.op)) {
    return once_[source] = Once(node.operands[0]);
  } else if (node.op == Op::kConstant) {
    text = CodeText(TypeOf(source), LiteralOf(program_.types[source], node.attributes).at(0));
  } else {
    text = Expression(node, Level::kOnce);
  }
  const std::string name = text_->Name();
  text_->Add(absl::StrCat("const ", CppType(TypeOf(source)), " ", name, " = ", text, ";"));
  return once_[source] = name;
}

std::string KernelWriter::Row(ValueId id) {
  const ValueId source = shape_.values[id].source;
  const Value& value = shape_.values[source];
  if (value.kind == Kind::kOnce) return Once(source);
  std::map<ValueId, std::string>& names = shape_.rows ? row_names_ : loop_->row;
  const auto known = names.find(source);
  if (known != names.end()) return known->second;
  const std::string type = CppType(TypeOf(source));
  if (value.kind == Kind::kLoop) {
    FERRY_CHECK(value.level == Level::kRow);
    const std::string text = Expression(program_.nodes[value.node], Level::kRow);
    const std::string name = text_->Name();
    const std::string line = absl::StrCat("const ", type, " ", name, " = ", text, ";");
    if (shape_.rows) {
      text_->Add(line);
    } else {
      loop_->body.Add(line);
    }
    return names[source] = name;
  }
  const std::string text = At(source, "r");
  const std::string name = text_->Name();
  if (shape_.rows) {
    text_->Add(absl::StrCat("const ", type, " ", name, " = ", text, ";"));
    return names[source] = name;
  }
  loop_->declarations.push_back(absl::StrCat(type, " ", name, "[U] = {};"));
  loop_->loads.push_back(absl::StrCat("if (count > 0) ", name, "[u] = ", text, ";"));
  return names[source] = absl::StrCat(name, "[u]");
}

std::string KernelWriter::Full(ValueId id) {
  const ValueId source = shape_.values[id].source;
  const Value& value = shape_.values[source];
  if (value.kind == Kind::kOnce) return Once(source);
  if (value.kind == Kind::kLoop && value.level == Level::kRow) return Row(source);
  const auto known = loop_->full.find(source);
  if (known != loop_->full.end()) return known->second;
  if (value.kind != Kind::kLoop) return loop_->full[source] = LoadFull(source);
  EmitFull(source);
  return loop_->full.at(source);
}

std::string KernelWriter::Operand(ValueId id, Level level, uint64_t elements) {
  if (level == Level::kOnce || (Elements(id) == 1 && elements != 1)) return Once(id);
  return level == Level::kRow ? Row(id) : Full(id);
}

std::string KernelWriter::LoadFull(ValueId id) {
  const Value& value = shape_.values[id];
  const DType dtype = TypeOf(id);
  const std::string type = CppType(dtype);
  if (value.kind != Kind::kMemory) {
    const std::string place = LoopPlace(value.views, "k");
    const std::string name = text_->Name();
    loop_->body.AddEach(
        absl::StrCat("Vector<", type, ", V> ", name, ";"),
        value.kind == Kind::kPlaces
            ? absl::StrCat(name, "[k] = Convert<", type, ">(static_cast<i64>(", place, "));")
            : absl::StrCat("if (k < count) ", name, "[k] = FromCode<", type, ">(", TableOf(id), "[",
                           place, "]);"));
    return absl::StrCat(name, "[k]");
  }
  // Of the innermost dimension as the loop sees it.
  const auto split = shape_.SplitRow(value.views);
  const View inner = Collapsed(split ? split->second : value.views[0]);
  const bool dense = value.views.size() == 1 && IsDense(value.views[0]);
  const bool whole =
      value.views.size() == 1 && !inner.dims.empty() && inner.dims.back() % shape_.vector == 0;
  const std::optional<int> aligned = shape_.AlignmentOf(value, dtype);
  const std::string pointer = PointerOf(id);
  if (shape_.tile && aligned && shape_.IsReadAcross(value, dtype)) {
    const std::string name = text_->Name();
    text_->Add(absl::StrCat("const Index ", name, "_at = ", PlaceOf(value.views, "begin"), ";"));
    loop_->declarations.push_back(absl::StrCat("Vector<", type, ", V> ", name, "[U];"));
    loop_->loads.push_back(absl::StrCat("ReadVector<", *aligned, ">(", pointer, ", ", name,
                                        "_at + u * ", text_->Number(shape_.tile->stride), ", V, ",
                                        name, "[u]);"));
    return absl::StrCat(name, "[k][u]");
  }
  if (aligned && (dense || (whole && inner.strides.back() == 1))) {
    const std::string place = LoopPlace(value.views, "");
    const std::string name = text_->Name();
    loop_->declarations.push_back(absl::StrCat("Vector<", type, ", V> ", name, "[U];"));
    loop_->loads.push_back(absl::StrCat("ReadVector<", *aligned, ">(", pointer, ", ", place,
                                        ", count, ", name, "[u]);"));
    return absl::StrCat(name, "[u][k]");
  }
  if (whole && inner.strides.back() == 0) {
    const std::string place = LoopPlace(value.views, "");
    const std::string name = text_->Name();
    loop_->declarations.push_back(absl::StrCat(type, " ", name, "[U] = {};"));
    loop_->loads.push_back(
        absl::StrCat("if (count > 0) ", name, "[u] = ", ReadOf(value, dtype, pointer, place), ";"));
    return absl::StrCat(name, "[u]");
  }
  const std::string place = LoopPlace(value.views, "k");
  const std::string name = text_->Name();
  loop_->declarations.push_back(absl::StrCat("Vector<", type, ", V> ", name, "[U];"));
  loop_->loads.push_back(absl::StrCat("FERRY_EACH if (k < count) ", name,
                                      "[u][k] = ", ReadOf(value, dtype, pointer, place), ";"));
  return absl::StrCat(name, "[u][k]");
}

void KernelWriter::EmitFull(ValueId id) {
  const Node& node = program_.nodes[shape_.values[id].node];
  switch (node.op) {
    case Op::kQuantizeBlock:
      return EmitQuantize(node);
    case Op::kDequantizeBlock:
      return EmitDequantize(node);
    default:
      break;
  }
  const std::string type = CppType(TypeOf(id));
  if (IsOpaque(program_, node)) {
    const std::string name = text_->Name();
    loop_->body.Add(absl::StrCat("Vector<", type, ", V> ", name, ";"));
    EmitOpaque(node, absl::StrCat(name, "[k]"));
    loop_->full[id] = absl::StrCat(name, "[k]");
    return;
  }
  const std::string made = Expression(node, Level::kFull);
  const std::string name = text_->Name();
  if (shape_.held) {  // for phases to come
    loop_->declarations.push_back(absl::StrCat("Vector<", type, ", V> ", name, "[U];"));
    loop_->body.AddEach("", absl::StrCat(name, "[u][k] = ", made, ";"));
    loop_->full[id] = absl::StrCat(name, "[u][k]");
    return;
  }
  loop_->body.AddEach(absl::StrCat("Vector<", type, ", V> ", name, ";"),
                      absl::StrCat(name, "[k] = ", made, ";"));
  loop_->full[id] = absl::StrCat(name, "[k]");
}

std::string KernelWriter::Expression(const Node& node, Level level) {
  const auto int_of = [&](A attribute) { return node.attributes.Int(attribute); };
  const uint64_t elements = Elements(node.first_result);
  const std::string type = CppType(TypeOf(node.first_result));
  std::vector<std::string> operands;
  if (node.op == Op::kRngBits) {
    for (const ValueId operand : node.operands) operands.push_back(Once(operand));
    operands.push_back(
        absl::StrCat("static_cast<u64>(", level == Level::kFull ? "i + k" : "r", ")"));
    return absl::StrCat("RandomBits<", type, ">(", absl::StrJoin(operands, ", "), ")");
  }
  if (level == Level::kFull && DividesHeld(node)) return DivideHeld(node);
  for (const ValueId operand : node.operands) {
    operands.push_back(Operand(operand, level, elements));
  }
  const std::string list = absl::StrJoin(operands, ", ");
  switch (node.op) {
    case Op::kConvert: {
      std::string how = type;
      if (int_of(A::kMode) != 0 || int_of(A::kRounding) != 0) {
        absl::StrAppend(&how, ", ", int_of(A::kMode) != 0 ? "true" : "false");
      }
      if (int_of(A::kRounding) != 0) absl::StrAppend(&how, ", ", kRoundings[int_of(A::kRounding)]);
      return absl::StrCat("Convert<", how, ">(", list, ")");
    }
    case Op::kBitcastConvert:
      return absl::StrCat("FromCode<", type, ">(CodeOf(", list, "))");
    case Op::kCompare:
      return absl::StrCat(kComparisons[int_of(A::kDirection)],
                          int_of(A::kTotalOrder) != 0 ? "Total" : "", "(", list, ")");
    default:
      return absl::StrCat(FunctionOf(InfoOf(node.op).name), "(", list, ")");
  }
}

absl::StatusOr<KernelCode> WriteKernel(const Program& program,
                                       absl::Span<const uint32_t> alignments,
                                       const CodeOptions& options) {
  KernelWriter writer(program, alignments, options);
  KernelCode code = writer.Write(/*baked=*/false);
  const auto is_too_long = [](const KernelLaunch& launch) {
    uint64_t bytes = kBeginBytes;
    for (const KernelArgument& argument : launch.arguments) bytes += argument.bytes;
    return bytes > kMaxArgumentBytes;
  };
  if (std::any_of(code.launches.begin(), code.launches.end(), is_too_long)) {
    code = writer.Write(/*baked=*/true);
  }
  for (const KernelLaunch& launch : code.launches) {
    if (launch.blocks <= kMaxBlocks) continue;
    return Error(absl::StatusCode::kResourceExhausted, Reason::kBatchTooLarge,
                 absl::StrCat("plan a kernel for GPUs: it takes ", launch.blocks,
                              " blocks of threads, a launch has at most ", kMaxBlocks,
                              "; divide the tensors into parts"));
  }
  return code;
}

}  // namespace ferry::compute
