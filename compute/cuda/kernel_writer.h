// SPDX-License-Identifier: Apache-2.0
// Writes the code of one kernel. A thread takes vectors of V consecutive elements, U of them at a
// time. First it reads all U vectors, so that many loads are under way at once; then it does the
// ops on each, and stores. There are two templates. "flat" goes through all elements and does not
// look for rows. "rows" gives each row a warp; if rows are long, each chunk of a reduction. The
// result of a reduction is spread over its row by going through the row again; if that is all
// elementwise, a block of threads has the row in registers instead, and reads it once. Where rows
// lie across memory, a block of threads has several neighbouring ones (column_tile.h). Code is
// written where it is first needed, so that the text of an op does not depend on what else is
// there. Single-threaded; used once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compute/cuda/kernel_code.h"
#include "compute/cuda/kernel_shape.h"
#include "compute/cuda/kernel_text.h"

namespace ferry::compute {

class KernelWriter {
 public:
  KernelWriter(const Program& program, absl::Span<const uint32_t> alignments,
               const CodeOptions& options);

  KernelCode Write(bool baked);

 private:
  using Kind = KernelShape::Kind;
  using Level = KernelShape::Level;
  using Value = KernelShape::Value;
  using Sink = KernelShape::Sink;
  // The code of one loop, with the names that are known in it.
  struct Loop {
    std::vector<std::string> declarations;  // written before the loads
    std::vector<std::string> loads;         // for each of the U vectors
    LoopBody body;                          // for each of the U vectors
    std::map<ValueId, std::string> full;
    std::map<ValueId, std::string> row;  // template "flat" only
    // Of held rows: values of phases before, and quotients of these in this one, as operands.
    std::set<ValueId> earlier;
    std::vector<std::string> quotients;
  };
  // A reduction of a row while a chunk is read.
  struct Reducing {
    const Node* node = nullptr;
    std::string name;
    DType type = DType::kF32;  // the type of its sums

    bool IsArgmax() const { return node->op == Op::kArgmax; }
  };
  // The results of chunks, in scratch.
  struct Partial {
    Reducing reducing;
    uint32_t values = 0;
    uint32_t indices = 0;  // argmax only
  };

  uint64_t Elements(ValueId value) const { return *ElementsOf(program_.types[value]); }
  DType TypeOf(ValueId value) const { return program_.types[value].dtype; }
  const Value& ValueOf(ValueId value) const { return shape_.Of(value); }
  // Whether the threads of a warp that have a block of the op's can find its largest together.
  bool CanShuffle(const Node& quantize) const;

  // kernel_writer.cc: expressions
  std::string Once(ValueId value);
  std::string Row(ValueId value);
  std::string Full(ValueId value);  // an expression in u and k
  std::string Operand(ValueId value, Level level, uint64_t elements);
  // A division of what is held by a value that the whole row has: a divisor that is made once.
  bool DividesHeld(const Node& node) const;
  std::string DivideHeld(const Node& node);
  std::string LoadFull(ValueId value);
  void EmitFull(ValueId value);
  std::string Expression(const Node& node, Level level);
  std::string ReadOf(const Value& value, DType type, const std::string& pointer,
                     const std::string& place) const;
  // The element at position `index` of a value that is in memory, or the same for all positions.
  std::string At(ValueId value, const std::string& index);
  std::string TableOf(ValueId value);
  std::string PointerOf(ValueId value);
  std::string PlaceOf(const Views& views, const std::string& index);
  // The position of element (r, c), which is element `i` in all.
  std::string LoopPlace(const Views& views, const std::string& more);

  // kernel_ops.cc: ops whose elements come from positions of their own
  void EmitOpaque(const Node& node, const std::string& result);
  std::vector<std::string> Coordinates(const TensorType& type);
  std::string Linear(const TensorType& type, const std::vector<std::string>& places);
  void EmitSlice(const Node& node, const std::string& result);
  void EmitPad(const Node& node, const std::string& result);
  void EmitConcatenate(const Node& node, const std::string& result);
  void EmitGather(const Node& node, const std::string& result);
  void EmitSwizzle(const Node& node, const std::string& result);
  void EmitBitcast(const Node& node, const std::string& result);
  // kernel_products.cc
  void EmitDot(const Node& node, const std::string& result);
  void EmitBlockScaledDot(const Node& node, const std::string& result);
  void EmitSum(const std::string& type, const std::string& product, int64_t depth);
  // Element `step` of row `row` of a factor, seen as batches, rows and the contracted dimensions.
  std::string FactorAt(ValueId value, absl::Span<const int64_t> batch, int64_t contract,
                       const std::string& row);
  void EmitQuantize(const Node& node);
  void EmitDequantize(const Node& node);
  std::string ScaleAt(ValueId scales, const TensorType& data, const std::string& row,
                      const std::string& block);
  // kernel_sinks.cc
  void EmitSink(const Sink& sink);
  std::optional<int> AlignmentOfRuns(const Node& sink, const View& view) const;
  std::vector<std::string> RowSink(const Sink& sink);
  void EmitBlockSink(const Sink& sink);

  // kernel_templates.cc
  void Begin();
  void WriteFlat(KernelCode& code);
  void WriteRows(KernelCode& code);
  void WriteHeldRows(KernelCode& code);
  void WriteChunks(KernelCode& code);
  void WriteLines(KernelCode& code);
  void AddFlatLoop(const Loop& loop, const std::string& elements);
  void BeginTile();
  void BeginRows(absl::string_view unit);
  // A block of threads has shape_.columns results, of each a chunk if there are several `parts`.
  void BeginColumns(uint64_t parts);
  // A loop over a row's elements from `begin` to `end`, both names.
  void AddRowLoop(const Loop& loop, const std::string& begin, const std::string& end);
  std::vector<Reducing> Reductions(uint32_t phase, Loop& loop);
  void DeclareReduction(const Reducing& reducing, absl::string_view vector);
  std::string CloseReduction(const Reducing& reducing);
  void EndReduction(const Reducing& reducing, const std::string& result);
  void NameReductions(std::vector<Partial>& partials);
  void ReadPartials(const std::vector<Partial>& partials, const std::string& units);
  void WritePartials(std::vector<Partial>& partials, uint64_t units, KernelCode& code);
  void AddRowSinks();

  const Program& program_;
  KernelShape shape_;  // but for a search of its own its vectors are those of the loop
  const std::vector<OpIndex> definitions_;
  bool baked_ = false;
  bool reads_neighbours_ = false;
  bool alone_ = false;  // the code that is being written runs on some threads of a warp only
  // The code that is being written is of a block of threads that has shape_.columns results.
  bool in_columns_ = false;

  std::optional<KernelText> text_;
  Loop* loop_ = nullptr;
  std::map<ValueId, std::string> once_;
  std::map<ValueId, std::string> row_names_;  // template "rows" only
  std::map<ValueId, std::string> divisors_;
  std::map<ValueId, std::string> tables_;  // of constants: their names, once they are written
};

}  // namespace ferry::compute
