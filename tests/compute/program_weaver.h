// SPDX-License-Identifier: Apache-2.0
// Makes programs of many elementwise ops, reductions and broadcasts over matrices of one size,
// products, in-place stores and loops. Plans are made for such programs, and random programs of all
// ops have little of this. Verify accepts them. Single-threaded.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/program/program.h"

namespace ferry::compute::testing {

class Weaver {
 public:
  explicit Weaver(uint64_t seed, int64_t side = 4)
      : full_type_{DType::kF32, {side, side}}, random_(seed) {}

  Program Make() {
    for (size_t i = 0; i < 3; ++i) {
      program_.buffers.push_back(
          {"x" + std::to_string(i), Access::kReadWrite, *BytesOf(full_type_), true});
      inputs_.push_back(AddInput(static_cast<uint32_t>(i)));
    }
    full_ = inputs_;
    Weave(25);
    for (uint32_t i = 0; i < 3; ++i) {
      if (Below(3) > 0) Store(i);
    }
    if (Below(2) == 0) Loop();
    for (uint32_t i = 0; i < 2; ++i) {
      program_.buffers.push_back({"y" + std::to_string(i), Access::kWrite, *BytesOf(full_type_)});
      Store(3 + i);
    }
    return std::move(program_);
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  ValueId Pick(const std::vector<ValueId>& values) {
    // Mostly one of the last four values.
    const size_t back = std::min<size_t>(values.size(), Below(3) == 0 ? values.size() : 4);
    return values[values.size() - 1 - Below(back)];
  }
  ValueId Add(Op op, std::vector<ValueId> operands, Attributes attributes = {},
              std::vector<TensorType> types = {}) {
    Node node;
    node.op = op;
    node.operands = std::move(operands);
    node.attributes = std::move(attributes);
    return program_.Result(types.empty() ? program_.Append(std::move(node))
                                         : program_.Append(std::move(node), std::move(types)));
  }
  ValueId AddInput(uint32_t buffer) {
    Node node;
    node.op = Op::kInput;
    node.buffers = {buffer};
    return program_.Result(program_.Append(std::move(node), {full_type_}));
  }

  void Weave(int ops) {
    for (int i = 0; i < ops; ++i) {
      const ValueId one = Pick(full_);
      switch (Below(14)) {
        case 0:
          rows_.push_back(Add(Op::kReduce, {one},
                              {{Attribute::kReduction, int64_t{0}},
                               {Attribute::kDimensions, std::vector<int64_t>{1}}}));
          break;
        case 1:
          if (rows_.empty()) break;
          full_.push_back(Add(Op::kBroadcastInDim, {Pick(rows_)},
                              {{Attribute::kDimensions, std::vector<int64_t>{0}}}, {full_type_}));
          break;
        case 2:
          if (!rows_.empty()) rows_.push_back(Add(Op::kMultiply, {Pick(rows_), Pick(rows_)}));
          break;
        case 3:
          full_.push_back(Add(Op::kDotGeneral, {one, Pick(full_)},
                              {{Attribute::kLhsContract, std::vector<int64_t>{1}},
                               {Attribute::kRhsContract, std::vector<int64_t>{0}}}));
          break;
        case 4:
          full_.push_back(
              Add(Op::kTranspose, {one}, {{Attribute::kPermutation, std::vector<int64_t>{1, 0}}}));
          break;
        case 5:
          full_.push_back(
              Add(Op::kReverse, {one}, {{Attribute::kDimensions, std::vector<int64_t>{1}}}));
          break;
        case 6:
          full_.push_back(Add(Op::kBarrier, {one}));
          break;
        case 7:
          full_.push_back(Add(Op::kTanh, {one}));
          break;
        case 8:
          full_.push_back(Add(Op::kAbs, {one}));
          break;
        default: {
          const ValueId other = Pick(full_);
          full_.push_back(Add(Below(2) == 0 ? Op::kAdd : Op::kMultiply, {one, other}));
        }
      }
    }
  }

  // Stores into the buffer after everything that has read or written it.
  void Store(uint32_t buffer) {
    Node node;
    node.op = Below(4) == 0 && buffer < 3 ? Op::kAccumulate : Op::kStore;
    node.operands = {Pick(full_)};
    node.buffers = {buffer};
    for (OpIndex i = 0; i < program_.nodes.size(); ++i) {
      const std::vector<uint32_t>& buffers = program_.nodes[i].buffers;
      if (!buffers.empty() && buffers[0] == buffer) node.after.push_back(i);
    }
    program_.Append(std::move(node), {});
  }

  void Loop() {
    Node node;
    node.op = Op::kRepeat;
    node.operands = {Pick(full_), Pick(full_), Pick(full_)};
    node.attributes = {{Attribute::kTrips, int64_t{3}}};
    const OpIndex repeat = program_.Append(std::move(node), {full_type_, full_type_, full_type_});
    const std::vector<ValueId> outside = full_, rows = rows_;
    for (ValueId i = 1; i < 4; ++i) {
      full_.push_back(program_.nodes[repeat].first_parameter() + i);
    }
    Weave(8);
    program_.Close(repeat, {Pick(full_), Pick(full_), Pick(full_)});
    full_ = outside;
    rows_ = rows;
    for (uint32_t i = 0; i < 3; ++i) full_.push_back(program_.Result(repeat, i));
    Weave(6);
  }

  const TensorType full_type_;
  std::mt19937_64 random_;
  Program program_;
  std::vector<ValueId> inputs_, full_, rows_;
};

}  // namespace ferry::compute::testing
