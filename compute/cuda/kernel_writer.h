// SPDX-License-Identifier: Apache-2.0
// Writes the code of one kernel. A thread takes vectors of V elements that follow each other, U of
// them at a time: first it reads all U, so that as many loads are on their way, then it does the
// ops of each and stores. Two templates: "flat" goes through all elements, without looking for
// rows; "rows" has a warp for each row (of long rows: for each chunk of a reduction). What a
// reduction gives is spread over its row by going through the row again.
// What is needed is written where it is first needed, so that the text is the same whatever is
// beside it. Single-threaded; used once.
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

// Does the op read elements of its operands other than those at the place of what it makes?
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
    Level level = Level::kFull;  // of kLoop
    uint32_t phase = 0;          // of kLoop: after how many loops of its row it is known
    OpIndex node = 0;            // of kLoop and kOnce: that makes it
    ValueId source = 0;          // itself, or what is the same but for its shape
    uint32_t buffer = 0;         // of kMemory
    int64_t offset = 0;          // of kMemory, in bytes
    Views views;                 // of kMemory, kPlaces and kTable
    std::string table;           // of kTable, once it is written
  };
  struct Sink {
    const Node* node = nullptr;
    Level level = Level::kFull;
    uint32_t phase = 0;
  };
  // What is written of one loop: names are known in it only.
  struct Loop {
    std::vector<std::string> declarations;  // before the loads
    std::vector<std::string> loads;         // of each of U
    std::vector<std::string> body;          // of each of U
    std::map<ValueId, std::string> full;
    std::map<ValueId, std::string> row;  // flat only
  };
  // Of a row that is reduced: what holds it while a chunk is read.
  struct Reducing {
    const Node* node = nullptr;
    std::string name;
    DType type = DType::kF32;  // that it is done in

    bool IsArgmax() const { return node->op == Op::kArgmax; }
  };
  // What chunks came to, in scratch.
  struct Partial {
    Reducing reducing;
    uint32_t values = 0;
    uint32_t indices = 0;  // of argmax
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
  std::string Full(ValueId value);  // an expression of u and k
  std::string Operand(ValueId value, Level level, uint64_t elements);
  std::string LoadFull(ValueId value);
  void EmitFull(ValueId value);
  std::string Expression(const Node& node, Level level);
  std::string ReadOf(const Value& value, DType type, const std::string& pointer,
                     const std::string& place) const;
  // The element of a value in memory, or the same for all, at the place `index` of its tensor.
  std::string At(ValueId value, const std::string& index);
  std::string TableOf(ValueId value);
  std::string PointerOf(ValueId value);
  std::string PlaceOf(const Views& views, const std::string& index);
  // Where element (r, c), at `i` in all, is.
  std::string LoopPlace(const Views& views, const std::string& more);
  std::optional<std::pair<View, View>> SplitRow(const Views& views) const;
  int AlignmentOf(uint32_t buffer, int64_t offset) const;

  // kernel_ops.cc: ops with elements of their own ways
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
  // Element `step` of the row `row` of a factor as batches, rows and what is contracted.
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
  // Of a row's elements from `begin` to `end`, names of both.
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
  bool rows_ = false;    // the template
  bool chunks_ = false;  // of it: a warp for each chunk
  bool baked_ = false;
  bool wide_ = false;
  int vector_ = 1;
  int unroll_ = 1;
  bool reads_neighbours_ = false;
  bool alone_ = false;  // what is written is done by some threads of a warp only

  std::optional<KernelText> text_;
  Loop* loop_ = nullptr;
  std::map<ValueId, std::string> once_;
  std::map<ValueId, std::string> row_names_;  // rows only
};

}  // namespace ferry::compute
