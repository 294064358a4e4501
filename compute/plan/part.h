// SPDX-License-Identifier: Apache-2.0
// Makes a part of a program into a program of its own, with the same buffers and more behind them.
// For executors that do a step of a plan in several parts. Single-threaded; must not outlive the
// program.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "compute/program/program.h"

namespace ferry::compute {

class Part {
 public:
  explicit Part(const Program& whole) : whole_(whole), definitions_(DefinitionsOf(whole)) {
    program_.numerics = whole.numerics;
    program_.buffers = whole.buffers;
  }

  Program& program() { return program_; }

  uint32_t AddBuffer(uint64_t bytes) {
    Buffer buffer;
    buffer.bytes = bytes;
    program_.buffers.push_back(std::move(buffer));
    return static_cast<uint32_t>(program_.buffers.size() - 1);
  }
  // `value` is read from `buffer`, instead of being computed.
  void Read(ValueId value, uint32_t buffer) {
    Node node;
    node.op = Op::kInput;
    node.buffers = {buffer};
    values_[value] = program_.Result(program_.Append(std::move(node), {whole_.types[value]}));
  }
  // `made`, a value of the new program, stands for `value`.
  void Set(ValueId value, ValueId made) { values_[value] = made; }
  // `value` in the new program; adds the ops that it is computed by.
  ValueId Take(ValueId value) {
    const auto at = values_.find(value);
    if (at != values_.end()) return at->second;
    Put(whole_.nodes[definitions_[value]]);
    return values_[value];
  }
  void Put(Node node) {
    const ValueId first = node.first_result;
    for (ValueId& operand : node.operands) operand = Take(operand);
    node.after.clear();
    std::vector<TensorType> types;
    for (uint32_t i = 0; i < node.results; ++i) types.push_back(whole_.types[first + i]);
    const auto results = static_cast<uint32_t>(types.size());
    const OpIndex op = program_.Append(std::move(node), std::move(types));
    for (uint32_t i = 0; i < results; ++i) values_[first + i] = program_.Result(op, i);
  }
  void Store(ValueId value, uint32_t buffer) {
    Node node;
    node.op = Op::kStore;
    node.operands = {Take(value)};
    node.buffers = {buffer};
    program_.Append(std::move(node), {});
  }

 private:
  const Program& whole_;
  const std::vector<OpIndex> definitions_;
  Program program_;
  std::map<ValueId, ValueId> values_;
};

}  // namespace ferry::compute
