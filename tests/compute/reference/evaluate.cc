// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/reference/evaluate.h"

#include <utility>

#include "base/check.h"
#include "tests/compute/reference/ops.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

using A = Attribute;

class Run {
 public:
  Run(const Program& program, std::vector<Memory>& buffers, const Transfers& transfers)
      : program_(program),
        buffers_(buffers),
        transfers_(transfers),
        values_(program.types.size()) {}

  void Block(size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 1 + program_.nodes[i].body) RunOp(i);
  }

 private:
  void RunOp(size_t index) {
    const Node& node = program_.nodes[index];
    std::vector<const Tensor*> in;
    for (const ValueId value : node.operands) in.push_back(&values_[value]);
    const auto types = program_.ResultTypes(node);
    switch (node.op) {
      case Op::kInput:
        values_[node.first_result] = Input(node, types[0]);
        return;
      case Op::kStore:
      case Op::kAccumulate:
        return Store(node, *in[0]);
      case Op::kCopy:
        buffers_[node.buffers[0]].Copy(static_cast<uint64_t>(node.attributes.Int(A::kOffset)),
                                       buffers_[node.buffers[1]],
                                       static_cast<uint64_t>(node.attributes.Int(A::kSourceOffset)),
                                       static_cast<uint64_t>(node.attributes.Int(A::kBytes)));
        return;
      case Op::kDeltaApply:
        return ApplyDelta(node, in, buffers_[node.buffers[0]]);
      case Op::kSend:
        return transfers_.send(node.attributes.Int(A::kDevice), Key(node), *in[0]);
      case Op::kRecv:
        values_[node.first_result] =
            transfers_.receive(node.attributes.Int(A::kDevice), Key(node), types[0]);
        return;
      case Op::kKeep:
        return;
      case Op::kRepeat:
        return Repeat(index);
      default: {
        std::vector<Tensor> results =
            EvaluateOp(program_.numerics, node, {types.begin(), types.end()}, in);
        for (size_t i = 0; i < results.size(); ++i) {
          FERRY_CHECK(results[i].elements.size() == *ElementsOf(types[i]));
          values_[node.first_result + i] = std::move(results[i]);
        }
      }
    }
  }

  static std::string Key(const Node& node) { return std::string(node.attributes.Bytes(A::kKey)); }

  // The element of a buffer, counted from the op's offset, at each place of `type`.
  static std::vector<uint64_t> Indices(const Node& node, const TensorType& type) {
    const auto strides = node.attributes.Ints(A::kStrides);
    std::vector<uint64_t> indices;
    for (uint64_t i = 0; i < *ElementsOf(type); ++i) {
      uint64_t index = strides.empty() ? i : 0;
      const std::vector<int64_t> place = PlaceOf(type.dims, i);
      for (size_t d = 0; d < strides.size(); ++d) {
        index += static_cast<uint64_t>(place[d] * strides[d]);
      }
      indices.push_back(index);
    }
    return indices;
  }

  Tensor Input(const Node& node, const TensorType& type) const {
    const auto offset = static_cast<uint64_t>(node.attributes.Int(A::kOffset));
    Tensor tensor{type, {}};
    for (const uint64_t index : Indices(node, type)) {
      tensor.elements.push_back(buffers_[node.buffers[0]].Read(type.dtype, offset, index));
    }
    return tensor;
  }

  void Store(const Node& node, const Tensor& tensor) {
    const auto offset = static_cast<uint64_t>(node.attributes.Int(A::kOffset));
    const DType type = tensor.type.dtype;
    Memory& buffer = buffers_[node.buffers[0]];
    const std::vector<uint64_t> indices = Indices(node, tensor.type);
    for (size_t i = 0; i < indices.size(); ++i) {
      Element element = tensor.elements[i];
      if (node.op == Op::kAccumulate) {
        const Element before = buffer.Read(type, offset, indices[i]);
        const bool known = before.error == 0 && element.error == 0;
        element = {Arithmetic(Op::kAdd, type, {before.code, element.code}), known ? 0 : kAnything};
      }
      buffer.Write(type, offset, indices[i], element);
    }
    if (type == DType::kF4E2M1FN) buffer.EndHalfByte(offset, indices.size());
  }

  void Repeat(size_t index) {
    const Node& node = program_.nodes[index];
    std::vector<Tensor> carried;
    for (const ValueId value : node.operands) carried.push_back(values_[value]);
    for (int64_t trip = 0; trip < node.attributes.Int(A::kTrips); ++trip) {
      values_[node.first_parameter()] = {{DType::kI32, {}}, {{static_cast<uint32_t>(trip)}}};
      for (size_t i = 0; i < carried.size(); ++i) {
        values_[node.first_parameter() + 1 + i] = std::move(carried[i]);
      }
      Block(index + 1, index + 1 + node.body);
      for (size_t i = 0; i < carried.size(); ++i) carried[i] = values_[node.yielded[i]];
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      values_[node.first_result + i] = std::move(carried[i]);
    }
  }

  const Program& program_;
  std::vector<Memory>& buffers_;
  const Transfers& transfers_;
  std::vector<Tensor> values_;
};

}  // namespace

std::vector<Tensor> EvaluateOp(const Numerics& numerics, const Node& node,
                               const std::vector<TensorType>& results,
                               const std::vector<const Tensor*>& in) {
  const OpInput op{numerics, node, results, in};
  switch (node.op) {
    case Op::kConstant:
    case Op::kEmpty:
    case Op::kIota:
    case Op::kRngBits:
      return {EvaluateSource(op)};
    case Op::kBitcastConvert:
      return {EvaluateBitcast(op)};
    case Op::kQuantizeBlock:
      return EvaluateQuantize(op);
    case Op::kDequantizeBlock:
      return {EvaluateDequantize(op)};
    case Op::kSwizzleScales:
    case Op::kUnswizzleScales:
      return {EvaluateSwizzle(op)};
    case Op::kChecksum:
      return {EvaluateChecksum(op)};
    case Op::kDeltaEncode:
      return EvaluateDeltaEncode(op);
    case Op::kBroadcastInDim:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kDynamicSlice:
    case Op::kPad:
    case Op::kConcatenate:
    case Op::kReverse:
    case Op::kGatherRows:
      return {EvaluateMove(op)};
    case Op::kReduce:
      return {EvaluateReduce(op)};
    case Op::kArgmax:
      return {EvaluateArgmax(op)};
    case Op::kCumulativeSum:
      return {EvaluateCumulativeSum(op)};
    case Op::kDotGeneral:
      return {EvaluateDot(op)};
    case Op::kBlockScaledDot:
      return {EvaluateBlockScaledDot(op)};
    case Op::kBarrier: {
      std::vector<Tensor> out;
      for (const Tensor* tensor : in) out.push_back(*tensor);
      return out;
    }
    default:
      return {EvaluateElementwise(op)};
  }
}

void Evaluate(const Program& program, std::vector<Memory>& buffers, const Transfers& transfers) {
  Run(program, buffers, transfers).Block(0, program.nodes.size());
}

}  // namespace ferry::compute::testing
