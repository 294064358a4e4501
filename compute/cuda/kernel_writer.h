// SPDX-License-Identifier: Apache-2.0
// Writes the code of one kernel. A thread takes vectors of V consecutive elements, U of them at a
// time. First it reads all U vectors, so that many loads are under way at once; then it does the
// ops on each, and stores. There are two templates. "flat" goes through all elements and does not
// look for rows. "rows" gives each row a warp; if rows are long, each chunk of a reduction. The
// result of a reduction is spread over its row by going through the row again. Code is written
// where it is first needed, so that the text of an op does not depend on what else is there.
// Single-threaded; used once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compute/cuda/kernel_code.h"
#include "compute/cuda/kernel_text.h"
#include "compute/plan/kernel_loop.h"

namespace ferry::compute {

// Whether the op reads other elements of its operands than those at the position of its result.
bool IsOpaque(const Program& program, const Node& node);

class KernelWriter {
 public:
  KernelWriter(const Program& program, absl::Span<const uint32_t> alignments,
               const CodeOptions& options);

  KernelCode Write(bool baked);

 private:
  enum class Kind : uint8_t { kMemory, kPlaces, kTable, kOnce, kLoop };
  enum class Level : uint8_t { kOnce, kFull, kRow, kBlock };
  struct Value {
    Kind kind = Kind::kMemory;
    Level level = Level::kFull;  // kLoop: where its elements change
    uint32_t phase = 0;          // kLoop: number of loops over its row after which it is known
    OpIndex node = 0;            // kLoop and kOnce: the node that makes it
    ValueId source = 0;          // itself, or a value that differs from it only in shape
    uint32_t buffer = 0;         // kMemory
    int64_t offset = 0;          // kMemory; in bytes
    Views views;                 // kMemory, kPlaces and kTable
    std::string table;           // kTable: its name, once it is written
  };
  struct Sink {
    const Node* node = nullptr;
    Level level = Level::kFull;
    uint32_t phase = 0;
  };
  // The code of one loop, with the names that are known in it.
  struct Loop {
    std::vector<std::string> declarations;  // written before the loads
    std::vector<std::string> loads;         // for each of the U vectors
    std::vector<std::string> body;          // for each of the U vectors
    std::map<ValueId, std::string> full;
    std::map<ValueId, std::string> row;  // template "flat" only
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
  const Value& ValueOf(ValueId value) const { return values_[values_[value].source]; }

  // kernel_values.cc
  void Classify();
  void ClassifyNode(OpIndex index);
  // The kinds of nodes: what another value is seen as, what is there before the kernel begins
  // (input, constant, iota), and result number `result` of what is computed in the loop.
  void ClassifyMove(const Node& node, Value& value);
  void ClassifySource(const Node& node, Value& value);
  void MakeInLoop(OpIndex index, uint32_t result, Level level);
  void ClassifySinks();
  void ChooseTemplate();
  void ChooseVector();
  bool IsWide() const;
  bool CanShuffle(const Node& quantize, int vector) const;
  bool RowSinkOverlapsRead() const;

  // kernel_writer.cc: expressions
  std::string Once(ValueId value);
  std::string Row(ValueId value);
  std::string Full(ValueId value);  // an expression in u and k
  std::string Operand(ValueId value, Level level, uint64_t elements);
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
  std::optional<std::pair<View, View>> SplitRow(const Views& views) const;
  int AlignmentOf(uint32_t buffer, int64_t offset) const;

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
  void EmitRowSink(const Sink& sink, std::vector<std::string>& lines);
  void EmitBlockSink(const Sink& sink);

  // kernel_templates.cc
  void Begin();
  void WriteFlat(KernelCode& code);
  void WriteRows(KernelCode& code);
  void WriteChunks(KernelCode& code);
  void WriteLines(KernelCode& code);
  void AddFlatLoop(const Loop& loop, const std::string& elements);
  void BeginRows(absl::string_view unit);
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
  const absl::Span<const uint32_t> alignments_;
  const CodeOptions options_;
  const KernelLoop loop_of_;
  std::vector<OpIndex> definitions_;
  std::vector<Value> values_;
  std::vector<Sink> sinks_;
  bool rows_ = false;    // the template is "rows"
  bool chunks_ = false;  // template "rows": a warp takes a chunk of a row
  bool baked_ = false;
  bool wide_ = false;
  int vector_ = 1;
  int unroll_ = 1;
  bool reads_neighbours_ = false;
  bool alone_ = false;  // the code that is being written runs on some threads of a warp only

  std::optional<KernelText> text_;
  Loop* loop_ = nullptr;
  std::map<ValueId, std::string> once_;
  std::map<ValueId, std::string> row_names_;  // template "rows" only
};

}  // namespace ferry::compute
