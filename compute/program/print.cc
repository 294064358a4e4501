// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/program/text.h"

namespace ferry::compute {
namespace {

std::string Quoted(absl::string_view bytes) {
  return absl::StrCat("\"", absl::CEscape(bytes), "\"");
}

std::string Values(ValueId first, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "%", first + i);
  }
  return text;
}

std::string Value(const Program& program, const Node& node, Attribute attribute,
                  const AttributeValue& value) {
  const AttributeInfo& info = InfoOf(attribute);
  switch (info.kind) {
    case AttributeKind::kInt:
      return absl::StrCat(std::get<int64_t>(value));
    case AttributeKind::kInts:
      return absl::StrCat("[", absl::StrJoin(std::get<std::vector<int64_t>>(value), ","), "]");
    case AttributeKind::kWord:
      return std::string(info.words[std::get<int64_t>(value)]);
    case AttributeKind::kBytes:
      return Quoted(std::get<std::string>(value));
    case AttributeKind::kData:
      return PrintElements(program.types[node.first_result].dtype, std::get<std::string>(value),
                           attribute == Attribute::kValues);
  }
  return "";
}

std::string Line(const Program& program, const Node& node) {
  std::string line;
  if (node.results > 0) {
    absl::StrAppend(&line, Values(node.first_result, node.results), " = ");
  }
  absl::StrAppend(&line, InfoOf(node.op).name);
  const char* separator = " ";
  for (const uint32_t buffer : node.buffers) {
    absl::StrAppend(&line, separator, "@", program.buffers[buffer].name);
    separator = ", ";
  }
  for (const ValueId operand : node.operands) {
    absl::StrAppend(&line, separator, "%", operand);
    separator = ", ";
  }
  for (const auto& [attribute, value] : node.attributes.entries()) {
    absl::StrAppend(&line, " ", InfoOf(attribute).name, "=",
                    Value(program, node, attribute, value));
  }
  if (node.op == Op::kRepeat) {
    absl::StrAppend(&line, " (", Values(node.first_parameter(), node.parameters()), ")");
  }
  separator = " : ";
  for (const TensorType& type : program.ResultTypes(node)) {
    absl::StrAppend(&line, separator, ToString(type));
    separator = ", ";
  }
  separator = " after ";
  for (const OpIndex index : node.after) {
    absl::StrAppend(&line, separator, "^", index);
    separator = ", ";
  }
  if (!node.label.empty()) absl::StrAppend(&line, " ", Quoted(node.label));
  return line;
}

}  // namespace

std::string Print(const Program& program) {
  std::string text = "program 1\n";
  if (program.numerics.accumulation != Accumulation::kExactProducts) {
    absl::StrAppend(&text, "accumulation ",
                    kAccumulationNames[static_cast<size_t>(program.numerics.accumulation)], "\n");
  }
  if (program.numerics.allow_reassociation) absl::StrAppend(&text, "allow_reassociation\n");
  for (const Buffer& buffer : program.buffers) {
    absl::StrAppend(&text, "buffer @", buffer.name, " ",
                    kAccessNames[static_cast<size_t>(buffer.access)], " ", buffer.bytes,
                    buffer.donated ? " donated" : "", buffer.constant ? " constant\n" : "\n");
  }
  std::set<OpIndex> marked;
  for (const Node& node : program.nodes) marked.insert(node.after.begin(), node.after.end());

  std::vector<std::pair<size_t, const Node*>> open;  // the end of a body, and whose it is
  const auto close = [&](size_t at) {
    while (!open.empty() && open.back().first == at) {
      absl::StrAppend(&text, std::string(2 * open.size(), ' '), "yield");
      const char* separator = " ";
      for (const ValueId value : open.back().second->yielded) {
        absl::StrAppend(&text, separator, "%", value);
        separator = ", ";
      }
      absl::StrAppend(&text, "\n");
      open.pop_back();
    }
  };
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    close(i);
    const Node& node = program.nodes[i];
    absl::StrAppend(&text, std::string(2 * open.size(), ' '));
    if (marked.count(static_cast<OpIndex>(i)) > 0) absl::StrAppend(&text, "^", i, ": ");
    absl::StrAppend(&text, Line(program, node), "\n");
    if (node.op == Op::kRepeat) open.push_back({i + 1 + node.body, &node});
  }
  close(program.nodes.size());
  return text;
}

}  // namespace ferry::compute
