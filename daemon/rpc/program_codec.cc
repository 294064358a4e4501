// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/program_codec.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/status.h"
#include "compute/program/verify.h"

namespace ferry {
namespace {

using compute::Attribute;
using compute::AttributeInfo;
using compute::AttributeKind;
using compute::AttributeValue;

// Types by compute::DType.
constexpr std::array<v1::DataType, compute::kDTypes> kDataTypeOf = {
    v1::DATA_TYPE_F64,      v1::DATA_TYPE_F32,    v1::DATA_TYPE_F16,      v1::DATA_TYPE_BF16,
    v1::DATA_TYPE_F8E4M3FN, v1::DATA_TYPE_F8E5M2, v1::DATA_TYPE_F4E2M1FN, v1::DATA_TYPE_F8E8M0FNU,
    v1::DATA_TYPE_S64,      v1::DATA_TYPE_S32,    v1::DATA_TYPE_S16,      v1::DATA_TYPE_S8,
    v1::DATA_TYPE_U64,      v1::DATA_TYPE_U32,    v1::DATA_TYPE_U16,      v1::DATA_TYPE_U8,
    v1::DATA_TYPE_PRED,
};

absl::Status BadProgram(const std::string& where, const std::string& text) {
  return FieldError(absl::StrCat("program.", where),
                    absl::StrCat("read the program: ", where, ": ", text));
}

absl::StatusOr<compute::TensorType> TypeFromProto(const v1::TensorType& proto,
                                                  const std::string& where) {
  const std::optional<compute::DType> type = DTypeOf(proto.data_type());
  if (!type) return BadProgram(where, absl::StrCat("no value has data_type ", proto.data_type()));
  if (proto.dims_size() > compute::kMaxRank) {
    return BadProgram(where, absl::StrCat("a type has at most ", compute::kMaxRank,
                                          " dimensions, not ", proto.dims_size()));
  }
  return compute::TensorType{*type, {proto.dims().begin(), proto.dims().end()}};
}

void AttributeToProto(const compute::Attributes::Entry& entry, v1::ProgramAttribute* out) {
  const AttributeInfo& info = InfoOf(entry.first);
  out->set_name(std::string(info.name));
  if (const auto* bytes = std::get_if<std::string>(&entry.second)) {
    out->set_data(*bytes);
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&entry.second)) {
    out->mutable_numbers()->mutable_numbers()->Add(list->begin(), list->end());
  } else if (info.kind == AttributeKind::kWord) {
    out->set_word(std::string(info.words[static_cast<size_t>(std::get<int64_t>(entry.second))]));
  } else {
    out->set_number(std::get<int64_t>(entry.second));
  }
}

absl::Status AttributeFromProto(const v1::ProgramAttribute& proto, const std::string& where,
                                compute::Attributes& attributes) {
  const auto attribute = compute::AttributeOf(proto.name());
  if (!attribute) return BadProgram(where, absl::StrCat("there is no attribute ", proto.name()));
  const AttributeInfo& info = InfoOf(*attribute);
  AttributeValue value = int64_t{0};
  const bool is_word = info.kind == AttributeKind::kWord;
  if (is_word != (proto.value_case() == v1::ProgramAttribute::kWord)) {
    return BadProgram(where, absl::StrCat(info.name, is_word ? " is a word" : " is no word"));
  }
  switch (proto.value_case()) {
    case v1::ProgramAttribute::kNumber:
      value = int64_t{proto.number()};
      break;
    case v1::ProgramAttribute::kNumbers:
      value =
          std::vector<int64_t>(proto.numbers().numbers().begin(), proto.numbers().numbers().end());
      break;
    case v1::ProgramAttribute::kWord: {
      const auto word = WordOf(*attribute, proto.word());
      if (!word) {
        return BadProgram(where, absl::StrCat("'", proto.word(), "' is no ", info.name));
      }
      value = *word;
      break;
    }
    case v1::ProgramAttribute::kData:
      value = proto.data();
      break;
    case v1::ProgramAttribute::VALUE_NOT_SET:
      return BadProgram(where, absl::StrCat(info.name, " has no value"));
  }
  const std::string wrong = ProblemOf(*attribute, value);
  if (!wrong.empty()) return BadProgram(where, wrong);
  if (attributes.Has(*attribute)) {
    return BadProgram(where, absl::StrCat(info.name, " is given twice"));
  }
  attributes.Set(*attribute, std::move(value));
  return absl::OkStatus();
}

absl::Status AddNode(const v1::ProgramNode& proto, const std::string& where,
                     compute::Program& program) {
  const auto op = compute::OpOf(proto.op());
  if (!op) return BadProgram(where, absl::StrCat("there is no op ", proto.op()));
  const auto most = static_cast<int>(compute::kMaxOperands);
  if (proto.operands_size() > most || proto.results_size() > most || proto.after_size() > most ||
      proto.yielded_size() > most || proto.buffers_size() > most) {
    return BadProgram(where, absl::StrCat("at most ", most, " operands, results, after, yielded"));
  }
  compute::Node node;
  node.op = *op;
  node.operands.assign(proto.operands().begin(), proto.operands().end());
  node.buffers.assign(proto.buffers().begin(), proto.buffers().end());
  node.after.assign(proto.after().begin(), proto.after().end());
  node.label = proto.label();
  for (const v1::ProgramAttribute& attribute : proto.attributes()) {
    RETURN_IF_ERROR(AttributeFromProto(attribute, where, node.attributes));
  }
  std::vector<compute::TensorType> results;
  for (const v1::TensorType& type : proto.results()) {
    ASSIGN_OR_RETURN(compute::TensorType result, TypeFromProto(type, where));
    results.push_back(std::move(result));
  }
  node.body = proto.body_nodes();
  node.yielded.assign(proto.yielded().begin(), proto.yielded().end());
  program.Append(std::move(node), std::move(results));
  return absl::OkStatus();
}

}  // namespace

std::optional<compute::DType> DTypeOf(v1::DataType type) {
  for (size_t i = 0; i < kDataTypeOf.size(); ++i) {
    if (kDataTypeOf[i] == type) return static_cast<compute::DType>(i);
  }
  return std::nullopt;
}

void ToProto(const compute::Buffer& buffer, v1::ProgramBuffer* out) {
  out->set_name(buffer.name);
  out->set_access(static_cast<v1::ProgramAccess>(static_cast<int>(buffer.access) + 1));
  out->set_size_bytes(buffer.bytes);
  out->set_donated(buffer.donated);
  out->set_constant(buffer.constant);
}

void ToProto(const compute::Program& program, v1::Program* out) {
  out->set_version(1);
  for (const compute::Buffer& buffer : program.buffers) ToProto(buffer, out->add_buffers());
  for (const compute::Node& node : program.nodes) {
    v1::ProgramNode* to = out->add_nodes();
    to->set_op(std::string(InfoOf(node.op).name));
    to->mutable_operands()->Add(node.operands.begin(), node.operands.end());
    to->mutable_buffers()->Add(node.buffers.begin(), node.buffers.end());
    for (const auto& entry : node.attributes.entries()) {
      AttributeToProto(entry, to->add_attributes());
    }
    for (const compute::TensorType& type : program.ResultTypes(node)) {
      v1::TensorType* result = to->add_results();
      result->set_data_type(kDataTypeOf[static_cast<size_t>(type.dtype)]);
      result->mutable_dims()->Add(type.dims.begin(), type.dims.end());
    }
    to->mutable_after()->Add(node.after.begin(), node.after.end());
    to->set_label(node.label);
    to->set_body_nodes(node.body);
    to->mutable_yielded()->Add(node.yielded.begin(), node.yielded.end());
  }
  out->mutable_numerics()->set_accumulation(
      static_cast<v1::AccumulationClass>(static_cast<int>(program.numerics.accumulation) + 1));
  out->mutable_numerics()->set_allow_reassociation(program.numerics.allow_reassociation);
}

absl::StatusOr<compute::Program> FromProto(const v1::Program& proto) {
  if (proto.version() != 1) {
    return BadProgram("version", absl::StrCat(proto.version(), " is unknown, 1 is known"));
  }
  if (static_cast<size_t>(proto.nodes_size()) > compute::kMaxOps ||
      static_cast<size_t>(proto.buffers_size()) > compute::kMaxBuffers) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
        absl::StrCat("read the program: ", proto.nodes_size(), " ops and ", proto.buffers_size(),
                     " buffers, at most ", compute::kMaxOps, " and ", compute::kMaxBuffers));
  }
  compute::Program program;
  const int accumulation = proto.numerics().accumulation();
  if (accumulation < 0 || accumulation > v1::ACCUMULATION_CLASS_NATIVE_BLOCK) {
    return BadProgram("numerics", absl::StrCat("accumulation ", accumulation, " is unknown"));
  }
  if (accumulation > 0) {
    program.numerics.accumulation = static_cast<compute::Accumulation>(accumulation - 1);
  }
  program.numerics.allow_reassociation = proto.numerics().allow_reassociation();
  for (int i = 0; i < proto.buffers_size(); ++i) {
    const v1::ProgramBuffer& buffer = proto.buffers(i);
    if (buffer.access() < v1::PROGRAM_ACCESS_READ ||
        buffer.access() > v1::PROGRAM_ACCESS_READ_WRITE) {
      return BadProgram(absl::StrCat("buffers[", i, "]"),
                        absl::StrCat("access ", buffer.access(), " is unknown"));
    }
    program.buffers.push_back({buffer.name(), static_cast<compute::Access>(buffer.access() - 1),
                               buffer.size_bytes(), buffer.donated(), buffer.constant()});
  }
  for (int i = 0; i < proto.nodes_size(); ++i) {
    RETURN_IF_ERROR(AddNode(proto.nodes(i), absl::StrCat("nodes[", i, "]"), program));
  }
  const std::vector<compute::Problem> problems = CheckStructure(program);
  if (problems.empty()) return program;
  const int64_t op = problems[0].op;
  return OfField(ToStatus(program, problems),
                 op < 0 ? "program" : absl::StrCat("program.nodes[", op, "]"));
}

}  // namespace ferry
