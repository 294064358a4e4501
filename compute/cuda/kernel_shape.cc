// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/kernel_shape.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <utility>

#include "compute/cuda/column_tile.h"
#include "compute/cuda/kernel_text.h"
#include "compute/plan/plan.h"
#include "compute/plan/rows.h"

namespace ferry::compute {
namespace {

using A = Attribute;
using Kind = KernelShape::Kind;
using Level = KernelShape::Level;
using Value = KernelShape::Value;
using Sink = KernelShape::Sink;

int LowBit(int64_t value) {
  constexpr int64_t kMost = 16;
  const int64_t bit = value & -value;
  return static_cast<int>(bit == 0 || bit > kMost ? kMost : bit);
}

// Of a vector in a kernel of so many ops, so that all stay in registers and code is short.
int MostElements(size_t ops) { return ops > 16 ? 2 : ops > 8 ? 4 : ops > 4 ? 8 : 16; }

// Finds the shape, one step after the other. Used once.
class ShapeFinder {
 public:
  ShapeFinder(const Program& program, absl::Span<const uint32_t> alignments,
              const CodeOptions& options)
      : program_(program), options_(options) {
    shape_.alignments = alignments;
    shape_.loop = LoopOf(program);
    shape_.values.resize(program.types.size());
    Classify();
    ClassifySinks();
    ChooseTemplate();
    shape_.columns = ColumnWidthOf(program, shape_);
    ChooseVector();
    ChooseTile();
    shape_.wide = IsWide();
  }

  KernelShape Take() { return std::move(shape_); }

 private:
  uint64_t Elements(ValueId value) const { return *ElementsOf(program_.types[value]); }
  DType TypeOf(ValueId value) const { return program_.types[value].dtype; }

  void Classify();
  void ClassifyNode(OpIndex index);
  // What is reduced, or what that is made of, is read in the order in which it is reduced. Nothing
  // else of the kernel looks at all of these elements (Partition::AbsorbReduced).
  void OrderReduced();
  // The kinds of nodes: what another value is seen as, what is there before the kernel begins
  // (input, constant, iota), and result number `result` of what is computed in the loop.
  void ClassifyMove(const Node& node, Value& value);
  void ClassifySource(const Node& node, Value& value);
  void MakeInLoop(OpIndex index, uint32_t result, Level level);
  void ClassifySinks();
  void ChooseTemplate();
  bool RowSinkOverlapsRead() const;
  bool CanHoldRows() const;
  // Bits of an element, at most, that are needed in a later phase than the one that makes them.
  int HeldBits() const;
  void ChooseVector();
  void FitRuns();
  void ChooseTile();
  bool IsWide() const;

  const Program& program_;
  const CodeOptions options_;
  KernelShape shape_;
};

void ShapeFinder::Classify() {
  for (ValueId value = 0; value < shape_.values.size(); ++value)
    shape_.values[value].source = value;
  for (OpIndex i = 0; i < program_.nodes.size(); ++i) ClassifyNode(i);
  OrderReduced();
  for (ValueId id = 0; id < shape_.values.size(); ++id) {
    Value& value = shape_.values[id];
    if (value.kind != Kind::kMemory) continue;
    int64_t& first = value.views[0].offset;
    const int64_t half_bytes = first * InfoOf(TypeOf(id)).bits / 4;
    if (half_bytes % 2 != 0) continue;
    value.offset += half_bytes / 2;
    first = 0;
  }
}

void ShapeFinder::OrderReduced() {
  std::vector<bool> permuted(shape_.values.size());
  for (const Node& node : program_.nodes) {
    if (node.op != Op::kReduce && node.op != Op::kArgmax) continue;
    const ValueId operand = shape_.values[node.operands[0]].source;
    const TensorType& type = program_.types[operand];
    const bool made = shape_.values[operand].kind == Kind::kLoop;
    // Its rows are those of the loop.
    if (made && ReducesRows(node, program_.types[node.operands[0]])) continue;
    for (ValueId id = 0; id < shape_.values.size(); ++id) {
      Value& value = shape_.values[id];
      const bool read = made ? program_.types[id].dims == type.dims : id == operand;
      if (!read || value.kind == Kind::kLoop || value.kind == Kind::kOnce || permuted[id]) continue;
      permuted[id] = true;
      Permute(ReductionOrder(node, type), program_.types[id], value.views);
    }
  }
}

void ShapeFinder::MakeInLoop(OpIndex index, uint32_t result, Level level) {
  const Node& node = program_.nodes[index];
  Value& value = shape_.values[node.first_result + result];
  value.kind = Kind::kLoop;
  value.level = level;
  value.node = index;
  for (const ValueId operand : node.operands) {
    const Value& of = shape_.Of(operand);
    if (of.kind == Kind::kLoop) value.phase = std::max(value.phase, of.phase);
  }
}

void ShapeFinder::ClassifyMove(const Node& node, Value& value) {
  const ValueId result = node.first_result;
  const ValueId operand = node.operands[0];
  const Value& from = shape_.Of(operand);
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

void ShapeFinder::ClassifySource(const Node& node, Value& value) {
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

void ShapeFinder::ClassifyNode(OpIndex index) {
  const Node& node = program_.nodes[index];
  if (node.results == 0) return;
  const ValueId result = node.first_result;
  Value& value = shape_.values[result];
  value.node = index;
  const bool full = Elements(result) == shape_.loop.elements;
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
                      return shape_.Of(operand).kind != Kind::kLoop && Elements(operand) == 1;
                    });
  if (once) {
    value.kind = Kind::kOnce;
    return;
  }
  MakeInLoop(index, 0, full ? Level::kFull : Level::kRow);
}

void ShapeFinder::ClassifySinks() {
  for (const Node& node : program_.nodes) {
    if (node.op != Op::kStore && node.op != Op::kAccumulate) continue;
    const ValueId id = node.operands[0];
    const ValueId source = shape_.values[id].source;
    const Value& value = shape_.values[source];
    Sink sink;
    sink.node = &node;
    if (value.kind == Kind::kLoop) {
      sink.phase = value.phase;
      const bool spread = value.level == Level::kRow && Elements(id) != Elements(source);
      sink.level = spread ? Level::kFull : value.level;
    } else {
      sink.level = Elements(id) == shape_.loop.elements ? Level::kFull : Level::kRow;
    }
    shape_.sinks.push_back(sink);
  }
}

// Would a thread's store of a row's value be seen by others of the row that still have to read?
bool ShapeFinder::RowSinkOverlapsRead() const {
  for (const Sink& sink : shape_.sinks) {
    if (sink.level != Level::kRow) continue;
    const BufferRange to = RangesOf(program_, *sink.node)[0];
    if (sink.node->op == Op::kAccumulate) return true;
    for (const Node& node : program_.nodes) {
      if (node.op != Op::kInput) continue;
      const BufferRange from = RangesOf(program_, node)[0];
      // Different buffers may be one memory: slots that are written over in place.
      if (from.buffer != to.buffer ? Elements(node.first_result) == shape_.loop.rows
                                   : from.begin < to.end && to.begin < from.end) {
        return true;
      }
    }
  }
  return false;
}

void ShapeFinder::ChooseTemplate() {
  bool reduces = false;
  for (const Node& node : program_.nodes) {
    reduces = reduces || node.op == Op::kReduce || node.op == Op::kArgmax;
  }
  const bool row_sinks = std::any_of(shape_.sinks.begin(), shape_.sinks.end(),
                                     [](const Sink& sink) { return sink.level == Level::kRow; });
  shape_.rows = reduces || (row_sinks && (shape_.loop.row == 0 || RowSinkOverlapsRead()));
  shape_.chunks = reduces && shape_.loop.row > kMaxRow;
  shape_.held = reduces && !shape_.chunks && CanHoldRows();
}

bool ShapeFinder::CanHoldRows() const {
  constexpr size_t kMostNodes = 32;  // all of them are written out for each element of a thread
  constexpr int kMostBits = 64;      // of an element: half of a thread's registers
  if (options_.most_elements < 4 || options_.most_vectors < 4) return false;
  if (shape_.loop.row % kReductionLanes != 0 || shape_.LastPhase() <= 0 ||
      program_.nodes.size() > kMostNodes) {
    return false;
  }
  const bool elementwise =
      std::all_of(program_.nodes.begin(), program_.nodes.end(), [&](const Node& node) {
        return !IsOpaque(program_, node) && node.op != Op::kArgmax &&
               node.op != Op::kQuantizeBlock && node.op != Op::kDequantizeBlock;
      });
  return elementwise && HeldBits() <= kMostBits;
}

int ShapeFinder::HeldBits() const {
  const auto last = static_cast<uint32_t>(shape_.LastPhase());
  struct Life {
    std::optional<uint32_t> made;
    uint32_t used = 0;
  };
  std::vector<Life> lives(shape_.values.size());
  const std::function<void(ValueId, uint32_t)> use = [&](ValueId id, uint32_t phase) {
    const ValueId source = shape_.values[id].source;
    const Value& value = shape_.values[source];
    const bool in_loop = value.kind == Kind::kLoop && value.level == Level::kFull;
    if (value.kind != Kind::kMemory && !in_loop) return;
    Life& life = lives[source];
    life.used = phase;
    if (std::exchange(life.made, life.made.value_or(phase)) || !in_loop) return;
    for (const ValueId operand : program_.nodes[value.node].operands) use(operand, phase);
  };
  for (uint32_t phase = 0; phase <= last; ++phase) {
    for (const Node& node : program_.nodes) {
      if (node.op == Op::kReduce && shape_.values[node.first_result].phase == phase + 1) {
        use(node.operands[0], phase);
      }
    }
  }
  for (const Sink& sink : shape_.sinks) {
    if (sink.level != Level::kRow) use(sink.node->operands[0], last);
  }
  int most = 0;
  for (uint32_t phase = 0; phase < last; ++phase) {
    int bits = 0;
    for (ValueId id = 0; id < lives.size(); ++id) {
      const Life& life = lives[id];
      if (life.made && *life.made <= phase && life.used > phase) bits += InfoOf(TypeOf(id)).bits;
    }
    most = std::max(most, bits);
  }
  return most;
}

void ShapeFinder::ChooseVector() {
  const auto row = static_cast<int64_t>(shape_.loop.row);
  size_t ops = 0;
  int full_ops = 0;
  int least_bits = 64;
  int stored_bits = 8;  // the most of an element that is stored
  int64_t load_bits = 0;
  bool opaque = false;
  bool packs = false;
  const auto look = [&](ValueId value, bool reads) {
    if (Elements(value) != shape_.loop.elements) return;
    const int bits = std::max(InfoOf(TypeOf(value)).bits, 8);
    least_bits = std::min(least_bits, bits);
    if (reads) load_bits += bits;
    if (!reads) stored_bits = std::max(stored_bits, bits);
    packs = packs || (!reads && TypeOf(value) == DType::kF4E2M1FN);
  };
  for (const Node& node : program_.nodes) {
    opaque = opaque || IsOpaque(program_, node);
    if (node.op == Op::kInput) look(node.first_result, true);
    if (node.results == 0) look(node.operands[0], node.op == Op::kAccumulate);
    if (node.results == 0 || shape_.Of(node.first_result).kind != Kind::kLoop) continue;
    ++ops;
    full_ops += shape_.Of(node.first_result).level == Level::kFull ? 1 : 0;
  }
  if (shape_.held) {
    shape_.vector = 2;  // and all of a chunk's vectors
    shape_.unroll = static_cast<int>(std::min(shape_.loop.row, kReductionChunk) / kReductionLanes);
    return;
  }
  if (shape_.columns > 0) {
    shape_.unroll = ColumnUnrollOf(shape_, options_.most_vectors == 1 ? 128 : load_bits, full_ops);
    return;
  }
  if (shape_.rows) {
    shape_.vector = row % 4 == 0 && options_.most_elements >= 4 ? 4 : 1;
    const bool few = load_bits <= 64 && ops <= 8;
    shape_.unroll = shape_.vector == 1 ? 4 : std::min(few ? 4 : 2, options_.most_vectors);
    return;
  }
  if (opaque) {
    shape_.vector = packs ? 2 : 1;
    return;
  }
  // A vector of what is stored is one word at most: threads that store words with gaps between them
  // write each sector of memory twice.
  shape_.vector = std::min({128 / least_bits, std::max(2, 128 / stored_bits), MostElements(ops),
                            options_.most_elements});
  while (shape_.loop.has_rows && row % shape_.vector != 0) shape_.vector /= 2;
  FitRuns();
  const int64_t words = std::max<int64_t>(1, load_bits * shape_.vector / 128);
  shape_.unroll = static_cast<int>(std::clamp<int64_t>(4 / words, 1, options_.most_vectors));
}

// A vector is no longer than what follows each other in a part of a tensor, so that it is one word
// of that: of rows of 100 elements 4, not 8 that are read or written one by one. Not if it would be
// shorter than 4 bytes.
void ShapeFinder::FitRuns() {
  constexpr int kLeastBits = 32;
  const auto fit = [&](const View& view, DType type) {
    if (IsDense(view)) return;
    const View all = Collapsed(view);
    if (all.dims.empty() || all.strides.back() != 1) return;
    int vector = shape_.vector;
    while (all.dims.back() % vector != 0) vector /= 2;
    if (vector * InfoOf(type).bits >= kLeastBits) shape_.vector = vector;
  };
  for (ValueId id = 0; id < shape_.values.size(); ++id) {
    const Value& value = shape_.values[id];
    if (value.source == id && value.kind == Kind::kMemory && value.views.size() == 1 &&
        Elements(id) == shape_.loop.elements) {
      fit(value.views[0], TypeOf(id));
    }
  }
  for (const Sink& sink : shape_.sinks) {
    const ValueId id = sink.node->operands[0];
    if (sink.level == Level::kFull) fit(BufferView(*sink.node, program_.types[id]), TypeOf(id));
  }
}

void ShapeFinder::ChooseTile() {
  constexpr int kMost = 8;  // of a square's side, so that it stays in registers
  const int vector = std::min(shape_.vector, kMost);
  if (shape_.rows || shape_.loop.has_rows || vector == 1) return;
  for (ValueId id = 0; id < shape_.values.size() && !shape_.tile; ++id) {
    const Value& value = shape_.values[id];
    if (value.source != id || value.kind != Kind::kMemory || value.views.size() != 1 ||
        Elements(id) != shape_.loop.elements || InfoOf(TypeOf(id)).bits < 8 ||
        !shape_.AlignmentOf(value, TypeOf(id))) {
      continue;
    }
    shape_.tile = TransposeTileOf(value.views[0], vector);
  }
  if (shape_.tile) shape_.vector = shape_.unroll = vector;
}

// Do places not fit 32 bits, beside what the last block has too many?
bool ShapeFinder::IsWide() const {
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

int64_t KernelShape::LastPhase() const {
  int64_t last = -1;
  for (const Sink& sink : sinks) {
    if (sink.level != Level::kRow) last = std::max<int64_t>(last, sink.phase);
  }
  for (const Value& value : values) {
    if (value.kind == Kind::kLoop) last = std::max(last, static_cast<int64_t>(value.phase) - 1);
  }
  return last;
}

int KernelShape::AlignmentOf(uint32_t buffer, int64_t offset) const {
  return std::min(LowBit(alignments[buffer]), LowBit(offset));
}

std::optional<int> KernelShape::AlignmentOf(uint32_t buffer, int64_t offset, const View& view,
                                            DType type) const {
  int align = AlignmentOf(buffer, offset);
  if (IsDense(view)) return view.offset == 0 ? std::optional(align) : std::nullopt;
  bool whole_bytes = view.offset == 0;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    const int64_t stride = std::abs(view.strides[d]);
    if (stride == 1 || view.dims[d] == 1) continue;
    const int64_t half_bytes = stride * InfoOf(type).bits / 4;
    whole_bytes = whole_bytes && half_bytes % 2 == 0;
    align = std::min(align, LowBit(half_bytes / 2));
  }
  return whole_bytes ? std::optional(align) : std::nullopt;
}

bool KernelShape::IsReadAcross(const Value& value, DType type) const {
  return value.kind == Kind::kMemory && value.views.size() == 1 && InfoOf(type).bits >= 8 &&
         AlignmentOf(value, type) && TransposeTileOf(value.views[0], vector) == tile;
}

std::optional<std::pair<View, View>> KernelShape::SplitRow(const Views& views) const {
  if (!loop.has_rows || views.size() != 1) return std::nullopt;
  const View& view = views[0];
  uint64_t row = 1;
  size_t split = view.dims.size();
  while (split > 0 && row < loop.row) row *= static_cast<uint64_t>(view.dims[--split]);
  if (row != loop.row) return std::nullopt;
  const auto at = static_cast<std::ptrdiff_t>(split);
  View rows{view.offset, {view.dims.begin(), view.dims.begin() + at}, {}};
  View columns{0, {view.dims.begin() + at, view.dims.end()}, {}};
  rows.strides = {view.strides.begin(), view.strides.begin() + at};
  columns.strides = {view.strides.begin() + at, view.strides.end()};
  return std::pair(std::move(rows), std::move(columns));
}

KernelShape ShapeOf(const Program& program, absl::Span<const uint32_t> alignments,
                    const CodeOptions& options) {
  return ShapeFinder(program, alignments, options).Take();
}

}  // namespace ferry::compute
