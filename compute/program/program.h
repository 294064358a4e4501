// SPDX-License-Identifier: Apache-2.0
// A program: a graph of values in SSA form with static shapes, over named buffers. Plain data, as a
// client sent it: Verify says whether it makes sense. Any thread; its holder owns all of it.
// Invariant (kept by Append and Close, through which all programs are made):
// - Ops are in the order of the text; the ops of a repeat's body follow it directly. An op is known
//   by its index, a value by its number. Values are numbered in the order of ops: an op's results,
//   then, for a repeat, the parameters of its body (the number of the trip, an i32[], and the
//   values that it carries).
// - The numbers of operands, of buffers and of ops in `after` may be anything: Verify checks them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/dtype.h"
#include "compute/program/op.h"

namespace ferry::compute {

using ValueId = uint32_t;
using OpIndex = uint32_t;

struct TensorType {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;

  bool operator==(const TensorType& other) const {
    return dtype == other.dtype && dims == other.dims;
  }
  bool operator!=(const TensorType& other) const { return !(*this == other); }
};

// The type as text: "f32[4,8]".
std::string ToString(const TensorType& type);
// Nothing if there are more than an int64_t can count, or if a dimension is negative.
std::optional<uint64_t> ElementsOf(const TensorType& type);
std::optional<uint64_t> BytesOf(const TensorType& type);

enum class Access : uint8_t { kRead, kWrite, kReadWrite };
inline constexpr absl::string_view kAccessNames[] = {"read", "write", "read_write"};

// What a run binds to memory. Two buffers of a run share a byte only if both are only read and
// neither is donated.
struct Buffer {
  std::string name;
  Access access = Access::kRead;
  uint64_t bytes = 0;
  bool donated = false;  // a run may destroy what it held: ops may write over what `input` reads
  // Only read, and the same bytes in all firings of a prepared job: an executor may keep what it
  // computes from them from one firing to the next.
  bool constant = false;

  bool operator==(const Buffer& other) const {
    return name == other.name && access == other.access && bytes == other.bytes &&
           donated == other.donated && constant == other.constant;
  }
};

// How the sums of products may be computed: docs/programs.md.
enum class Accumulation : uint8_t { kExactProducts, kFp8Tc, kFp8TcFast, kNativeBlock };
inline constexpr absl::string_view kAccumulationNames[] = {"exact_products", "fp8_tc",
                                                           "fp8_tc_fast", "native_block"};

struct Numerics {
  Accumulation accumulation = Accumulation::kExactProducts;
  bool allow_reassociation = false;

  bool operator==(const Numerics& other) const {
    return accumulation == other.accumulation && allow_reassociation == other.allow_reassociation;
  }
};

struct Node {
  Op op = Op::kConstant;
  std::vector<ValueId> operands;
  // Indices into Program::buffers; a copy names its destination first.
  std::vector<uint32_t> buffers;
  Attributes attributes;
  std::vector<OpIndex> after;  // ops that must be over before this op begins
  std::string label;
  ValueId first_result = 0;
  uint32_t results = 0;
  // Repeats only:
  uint32_t body = 0;             // number of ops after it that are its body
  std::vector<ValueId> yielded;  // values for the next trip; in the end the results

  ValueId first_parameter() const { return first_result + results; }
  size_t parameters() const { return op == Op::kRepeat ? operands.size() + 1 : 0; }
  bool operator==(const Node& other) const {
    return op == other.op && operands == other.operands && buffers == other.buffers &&
           attributes == other.attributes && after == other.after && label == other.label &&
           first_result == other.first_result && results == other.results && body == other.body &&
           yielded == other.yielded;
  }
};

struct Program {
  Numerics numerics;
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<TensorType> types;  // by value

  // Appends `node` with results of these types and returns its index. Numbers the results; for a
  // repeat also the parameters of its body, and what is appended from now on is its body until
  // Close().
  OpIndex Append(Node node, std::vector<TensorType> result_types);
  // Ends the body of the repeat that was begun last and is not closed.
  void Close(OpIndex repeat, std::vector<ValueId> yielded);

  // The same, with the result types that follow from the operands. Only for a node that is known to
  // fit.
  OpIndex Append(Node node);
  ValueId Result(OpIndex index, uint32_t result = 0) const {
    return nodes[index].first_result + result;
  }

  absl::Span<const TensorType> ResultTypes(const Node& node) const {
    return absl::MakeConstSpan(types).subspan(node.first_result, node.results);
  }
  bool operator==(const Program& other) const {
    return numerics == other.numerics && buffers == other.buffers && nodes == other.nodes &&
           types == other.types;
  }
};

// By op: the repeat that it is directly in; -1: none.
std::vector<int64_t> ParentsOf(const Program& program);
// By op: whether it comes after another op by `after`, or another one after it. Numbers of ops that
// there are not are ignored.
std::vector<bool> OrderedOps(const Program& program);
// By value: the op that defines it, as a result or as a parameter of its body.
std::vector<OpIndex> DefinitionsOf(const Program& program);

// A range of one buffer that an op touches. With strides it goes from the first byte to the last.
struct BufferRange {
  uint32_t buffer = 0;
  uint64_t begin = 0;
  uint64_t end = 0;  // saturates
  bool reads = false;
  bool writes = false;
};
std::vector<BufferRange> RangesOf(const Program& program, const Node& node);

}  // namespace ferry::compute
