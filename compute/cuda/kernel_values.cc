// SPDX-License-Identifier: Apache-2.0
// What values of a kernel are, and which template fits.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "compute/cuda/kernel_writer.h"
#include "compute/plan/plan.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr int64_t kWarpThreads = 32;

// Of a vector in a kernel of so many ops, so that all stay in registers and code is short.
int MostElements(size_t ops) { return ops > 16 ? 2 : ops > 8 ? 4 : ops > 4 ? 8 : 16; }

}  // namespace

bool IsOpaque(const Program& program, const Node& node) {
  switch (node.op) {
    case Op::kDynamicSlice:
    case Op::kPad:
    case Op::kConcatenate:
    case Op::kGatherRows:
    case Op::kSwizzleScales:
    case Op::kUnswizzleScales:
    case Op::kDotGeneral:
    case Op::kBlockScaledDot:
      return true;
    case Op::kBitcastConvert:
      return program.types[node.operands[0]].dims != program.types[node.first_result].dims;
    default:
      return false;
  }
}

KernelWriter::KernelWriter(const Program& program, absl::Span<const uint32_t> alignments,
                           const CodeOptions& options)
    : program_(program),
      alignments_(alignments),
      options_(options),
      loop_of_(LoopOf(program)),
      definitions_(DefinitionsOf(program)),
      values_(program.types.size()) {
  Classify();
  ClassifySinks();
  ChooseTemplate();
  ChooseVector();
  wide_ = IsWide();
}

void KernelWriter::Classify() {
  for (ValueId value = 0; value < values_.size(); ++value) values_[value].source = value;
  std::vector<bool> permuted(values_.size());
  for (OpIndex i = 0; i < program_.nodes.size(); ++i) {
    ClassifyNode(i);
    const Node& node = program_.nodes[i];
    if (node.op != Op::kReduce && node.op != Op::kArgmax) continue;
    // In the order in which it is reduced. Nobody reads it in another.
    const ValueId operand = values_[node.operands[0]].source;
    Value& value = values_[operand];
    if (value.kind == Kind::kLoop || value.kind == Kind::kOnce || permuted[operand]) continue;
    permuted[operand] = true;
    Permute(ReductionOrder(node, program_.types[operand]), program_.types[operand], value.views);
  }
  for (ValueId id = 0; id < values_.size(); ++id) {
    Value& value = values_[id];
    if (value.kind != Kind::kMemory) continue;
    int64_t& first = value.views[0].offset;
    const int64_t half_bytes = first * InfoOf(TypeOf(id)).bits / 4;
    if (half_bytes % 2 != 0) continue;
    value.offset += half_bytes / 2;
    first = 0;
  }
}

void KernelWriter::MakeInLoop(OpIndex index, uint32_t result, Level level) {
  const Node& node = program_.nodes[index];
  Value& value = values_[node.first_result + result];
  value.kind = Kind::kLoop;
  value.level = level;
  value.node = index;
  for (const ValueId operand : node.operands) {
    const Value& of = ValueOf(operand);
    if (of.kind == Kind::kLoop) value.phase = std::max(value.phase, of.phase);
  }
}

void KernelWriter::ClassifyMove(const Node& node, Value& value) {
  const ValueId result = node.first_result;
  const ValueId operand = node.operands[0];
  const Value& from = ValueOf(operand);
  if (from.kind == Kind::kLoop || from.kind == Kind::kOnce) {
    value = from;  // a row's is its elements' too
  } else if (Elements(operand) == 1 && Elements(result) != 1) {
    value.kind = Kind::kOnce;
  } else {
    value = from;
    value.source = result;
    Move(node, program_.types[operand], program_.types[result], value.views);
  }
}

void KernelWriter::ClassifySource(const Node& node, Value& value) {
  const ValueId result = node.first_result;
  const TensorType& type = program_.types[result];
  if (node.op == Op::kInput) {
    value.kind = Kind::kMemory;
    value.buffer = node.buffers[0];
    value.offset = node.attributes.Int(A::kOffset);
    value.views = {BufferView(node, type)};
  } else if (node.op == Op::kConstant) {
    value.kind =
        node.attributes.Has(A::kSplat) || Elements(result) == 1 ? Kind::kOnce : Kind::kTable;
    value.views = {LinearView(type.dims)};
  } else {
    value.kind = Kind::kPlaces;
    View view = LinearView(type.dims);
    std::fill(view.strides.begin(), view.strides.end(), 0);
    view.strides[static_cast<size_t>(node.attributes.Int(A::kDimension))] = 1;
    value.views = {std::move(view)};
  }
}

void KernelWriter::ClassifyNode(OpIndex index) {
  const Node& node = program_.nodes[index];
  if (node.results == 0) return;
  const ValueId result = node.first_result;
  Value& value = values_[result];
  value.node = index;
  const bool full = Elements(result) == loop_of_.elements;
  if (IsMove(node.op)) return ClassifyMove(node, value);
  switch (node.op) {
    case Op::kInput:
    case Op::kConstant:
    case Op::kIota:
      return ClassifySource(node, value);
    case Op::kReduce:
    case Op::kArgmax:
      MakeInLoop(index, 0, Level::kRow);
      ++value.phase;
      return;
    case Op::kQuantizeBlock:
      MakeInLoop(index, 0, Level::kFull);
      MakeInLoop(index, 1, Level::kBlock);
      return;
    case Op::kRngBits:
      return MakeInLoop(index, 0, full ? Level::kFull : Level::kRow);
    case Op::kDequantizeBlock:
    case Op::kCumulativeSum:
      return MakeInLoop(index, 0, Level::kFull);
    default:
      break;
  }
  if (IsOpaque(program_, node)) return MakeInLoop(index, 0, Level::kFull);
  const bool once = Elements(result) == 1 &&
                    std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId operand) {
                      return ValueOf(operand).kind != Kind::kLoop && Elements(operand) == 1;
                    });
  if (once) {
    value.kind = Kind::kOnce;
    return;
  }
  MakeInLoop(index, 0, full ? Level::kFull : Level::kRow);
}

void KernelWriter::ClassifySinks() {
  for (const Node& node : program_.nodes) {
    if (node.op != Op::kStore && node.op != Op::kAccumulate) continue;
    const ValueId id = node.operands[0];
    const ValueId source = values_[id].source;
    const Value& value = values_[source];
    Sink sink;
    sink.node = &node;
    if (value.kind == Kind::kLoop) {
      sink.phase = value.phase;
      const bool spread = value.level == Level::kRow && Elements(id) != Elements(source);
      sink.level = spread ? Level::kFull : value.level;
    } else {
      sink.level = Elements(id) == loop_of_.elements ? Level::kFull : Level::kRow;
    }
    sinks_.push_back(sink);
  }
}

// Would a thread's store of a row's value be seen by others of the row that still have to read?
bool KernelWriter::RowSinkOverlapsRead() const {
  for (const Sink& sink : sinks_) {
    if (sink.level != Level::kRow) continue;
    const BufferRange to = RangesOf(program_, *sink.node)[0];
    if (sink.node->op == Op::kAccumulate) return true;
    for (const Node& node : program_.nodes) {
      if (node.op != Op::kInput) continue;
      const BufferRange from = RangesOf(program_, node)[0];
      // Different buffers may be one memory: slots that are written over in place.
      if (from.buffer != to.buffer ? Elements(node.first_result) == loop_of_.rows
                                   : from.begin < to.end && to.begin < from.end) {
        return true;
      }
    }
  }
  return false;
}

void KernelWriter::ChooseTemplate() {
  bool reduces = false;
  for (const Node& node : program_.nodes) {
    reduces = reduces || node.op == Op::kReduce || node.op == Op::kArgmax;
  }
  const bool row_sinks = std::any_of(sinks_.begin(), sinks_.end(),
                                     [](const Sink& sink) { return sink.level == Level::kRow; });
  rows_ = reduces || (row_sinks && (loop_of_.row == 0 || RowSinkOverlapsRead()));
  chunks_ = reduces && loop_of_.row > kMaxRow;
}

bool KernelWriter::CanShuffle(const Node& quantize, int vector) const {
  const auto block = static_cast<int64_t>(BlockOf(quantize, program_.types[quantize.first_result],
                                                  program_.types[quantize.first_result + 1]));
  if (alone_ || (block & (block - 1)) != 0 || block > kWarpThreads * vector) return false;
  return rows_ || loop_of_.row % static_cast<uint64_t>(std::max<int64_t>(block, vector)) == 0;
}

void KernelWriter::ChooseVector() {
  const auto row = static_cast<int64_t>(loop_of_.row);
  size_t ops = 0;
  int least_bits = 64;
  int64_t load_bits = 0;
  bool opaque = false;
  bool packs = false;
  const auto look = [&](ValueId value, bool reads) {
    if (Elements(value) != loop_of_.elements) return;
    const int bits = std::max(InfoOf(TypeOf(value)).bits, 8);
    least_bits = std::min(least_bits, bits);
    if (reads) load_bits += bits;
    packs = packs || (!reads && TypeOf(value) == DType::kF4E2M1FN);
  };
  for (const Node& node : program_.nodes) {
    opaque = opaque || IsOpaque(program_, node);
    if (node.op == Op::kInput) look(node.first_result, true);
    if (node.results == 0) look(node.operands[0], node.op == Op::kAccumulate);
    if (node.results > 0 && ValueOf(node.first_result).kind == Kind::kLoop) ++ops;
  }
  if (rows_) {
    vector_ = row % 4 == 0 && options_.most_elements >= 4 ? 4 : 1;
    const bool few = load_bits <= 64 && ops <= 8;
    unroll_ = vector_ == 1 ? 4 : std::min(few ? 4 : 2, options_.most_vectors);
    return;
  }
  if (opaque) {
    vector_ = packs ? 2 : 1;
    return;
  }
  vector_ = std::min({128 / least_bits, MostElements(ops), options_.most_elements});
  while (loop_of_.has_rows && row % vector_ != 0) vector_ /= 2;
  const int64_t words = std::max<int64_t>(1, load_bits * vector_ / 128);
  unroll_ = static_cast<int>(std::clamp<int64_t>(4 / words, 1, options_.most_vectors));
}

// Do places not fit 32 bits, beside what the last block has too many?
bool KernelWriter::IsWide() const {
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max() - (1 << 20);
  uint64_t most = 0;
  for (const TensorType& type : program_.types) most = std::max(most, *ElementsOf(type));
  for (const Node& node : program_.nodes) {
    if (node.op != Op::kInput && node.op != Op::kStore && node.op != Op::kAccumulate) continue;
    const TensorType& type =
        program_.types[node.op == Op::kInput ? node.first_result : node.operands[0]];
    const BufferRange range = RangesOf(program_, node)[0];
    const auto bits = static_cast<uint64_t>(InfoOf(type.dtype).bits);
    most = std::max(most, (range.end - range.begin) / bits * 8 + 8);
  }
  return most > kMost;
}

}  // namespace ferry::compute
