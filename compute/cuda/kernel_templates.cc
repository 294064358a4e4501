// SPDX-License-Identifier: Apache-2.0
// What is around the ops of a kernel.
#include <algorithm>
#include <numeric>
#include <utility>

#include "compute/cuda/column_tile.h"
#include "compute/cuda/kernel_writer.h"
#include "compute/program/op.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint64_t kFlatThreads = 256;
constexpr uint64_t kRowThreads = 128;
constexpr uint64_t kRowsOfBlock = kRowThreads / 32;

constexpr absl::string_view kCombiners[] = {"Sum", "Product", "Max", "Min", "Any", "All"};

constexpr absl::string_view kWarpUnit = "unit";

absl::string_view CombinerName(const Node& reduce) {
  return kCombiners[reduce.attributes.Int(A::kReduction)];
}

uint64_t Ceil(uint64_t count, uint64_t part) { return count / part + (count % part != 0 ? 1 : 0); }

KernelLaunch ColumnLaunch(KernelText& text, const KernelShape& shape, uint64_t parts) {
  KernelLaunch launch = text.Finish(ColumnBlocksOf(shape, parts), kColumnThreads);
  launch.busy = ColumnBusyOf(shape, parts);
  return launch;
}

}  // namespace

KernelWriter::KernelWriter(const Program& program, absl::Span<const uint32_t> alignments,
                           const CodeOptions& options)
    : program_(program),
      shape_(ShapeOf(program, alignments, options)),
      definitions_(DefinitionsOf(program)) {}

void KernelWriter::Begin() {
  text_.emplace(shape_.wide, baked_);
  once_.clear();
  row_names_.clear();
  divisors_.clear();
  in_columns_ = false;
  loop_ = nullptr;
  tables_.clear();
}

KernelCode KernelWriter::Write(bool baked) {
  baked_ = baked;
  KernelCode code;
  const bool keeps_rows = std::any_of(program_.nodes.begin(), program_.nodes.end(),
                                      [](const Node& node) {
                                        return node.op == Op::kReduce || node.op == Op::kArgmax;
                                      }) ||
                          std::any_of(shape_.sinks.begin(), shape_.sinks.end(),
                                      [](const Sink& sink) { return sink.level == Level::kRow; });
  if (shape_.loop.rows == 0 || (shape_.loop.row == 0 && !keeps_rows)) return code;
  const bool lines = std::any_of(program_.nodes.begin(), program_.nodes.end(),
                                 [](const Node& node) { return node.op == Op::kCumulativeSum; });
  if (lines) {
    WriteLines(code);
  } else if (shape_.chunks) {
    WriteChunks(code);
  } else if (shape_.held) {
    WriteHeldRows(code);
  } else if (shape_.rows) {
    WriteRows(code);
  } else {
    WriteFlat(code);
  }
  code.reads_neighbours = reads_neighbours_;
  code.multiplies = std::any_of(program_.nodes.begin(), program_.nodes.end(), [](const Node& node) {
    return node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
  });
  return code;
}

void KernelWriter::AddFlatLoop(const Loop& loop, const std::string& elements) {
  const std::string row =
      shape_.loop.has_rows ? text_->Number(static_cast<int64_t>(shape_.loop.row)) : "";
  const uint64_t of_block = kFlatThreads * static_cast<uint64_t>(shape_.vector * shape_.unroll);
  const std::string step = shape_.tile ? text_->Number(shape_.tile->between * shape_.tile->last)
                                       : absl::StrCat("(", kFlatThreads, " * V)");
  const std::string count =
      CountText(shape_.tile || shape_.loop.elements % of_block == 0, "i", elements);
  const auto begin = [&] {
    text_->Add("FERRY_UNROLL");
    text_->Add("for (int u = 0; u < U; ++u) {");
    text_->Add(absl::StrCat("[[maybe_unused]] const Index i = begin + u * ", step, ";"));
    text_->Add(count);
    if (!row.empty()) {
      text_->Add(
          absl::StrCat("[[maybe_unused]] const Index r = i / ", row, ", c = i % ", row, ";"));
    }
  };
  text_->Add(loop.declarations);
  if (!loop.loads.empty()) {
    begin();
    text_->Add(loop.loads);
    text_->Add("}");
  }
  begin();
  text_->Add(loop.body);
  text_->Add("}");
}

// Where the thread's square begins. A warp has 8 squares along the last dimension, and 4 along the
// other: of both it reads or writes 64 bytes or more that follow each other.
void KernelWriter::BeginTile() {
  const auto number = [&](int64_t value) { return text_->Number(value); };
  const auto tiles = [&](int64_t dim) {
    const int64_t side = int64_t{kTileSquares} * shape_.vector;
    return number((dim + side - 1) / side);
  };
  const std::string last = number(shape_.tile->last), along = number(shape_.tile->along);
  const std::string between = number(shape_.tile->between), columns = tiles(shape_.tile->last);
  const std::string rows = tiles(shape_.tile->along);
  text_->Add(absl::StrCat("constexpr int kSide = ", kTileSquares, " * V;"));
  text_->Add("const int thread = static_cast<int>(threadIdx.x);");
  text_->Add("const Index tile = static_cast<Index>(blockIdx.x);");
  text_->Add(absl::StrCat("const Index b = tile % ", columns,
                          " * kSide + (thread % 8 + thread / 32 % 2 * 8) * V;"));
  text_->Add(absl::StrCat("const Index a = tile / ", columns, " % ", rows,
                          " * kSide + (thread / 8 % 4 + thread / 64 * 4) * V;"));
  text_->Add(absl::StrCat("const Index rest = tile / ", columns, " / ", rows, ";"));
  text_->Add(absl::StrCat("if (a >= ", along, " || b >= ", last, ") return;"));
  text_->Add(absl::StrCat("const Index begin = ((rest / ", between, " * ", along, " + a) * ",
                          between, " + rest % ", between, ") * ", last, " + b;"));
}

void KernelWriter::WriteFlat(KernelCode& code) {
  Begin();
  text_->Add(absl::StrCat("[[maybe_unused]] constexpr int V = ", shape_.vector,
                          ", U = ", shape_.unroll, ";"));
  if (shape_.tile) {
    BeginTile();
  } else {
    text_->Add(absl::StrCat("const Index begin = static_cast<Index>(blockIdx.x) * (", kFlatThreads,
                            " * V * U) + static_cast<Index>(threadIdx.x) * V;"));
  }
  const std::string elements = text_->Number(static_cast<int64_t>(shape_.loop.elements));
  Loop loop;
  loop_ = &loop;
  for (const Sink& sink : shape_.sinks) EmitSink(sink);
  AddFlatLoop(loop, elements);
  const uint64_t of_block = kFlatThreads * static_cast<uint64_t>(shape_.vector * shape_.unroll);
  const uint64_t blocks =
      shape_.tile ? BlocksOf(*shape_.tile, shape_.vector) : Ceil(shape_.loop.elements, of_block);
  code.launches.push_back(text_->Finish(blocks, kFlatThreads));
  KernelLaunch& launch = code.launches.back();
  launch.busy =
      std::min(launch.busy, Ceil(shape_.loop.elements, static_cast<uint64_t>(shape_.vector)));
}

// What rows of phase `phase` are reduced to, and in the loop what is put into it.
std::vector<KernelWriter::Reducing> KernelWriter::Reductions(uint32_t phase, Loop& loop) {
  std::vector<Reducing> made;
  for (const Node& node : program_.nodes) {
    if (node.op != Op::kReduce && node.op != Op::kArgmax) continue;
    const Value& result = shape_.values[node.first_result];
    if (result.phase != phase + 1) continue;
    const DType from = TypeOf(node.operands[0]);
    Reducing reducing;
    reducing.node = &node;
    reducing.type = node.op == Op::kArgmax ? from : AccumulatorOf(node, from);
    const std::string value = Full(node.operands[0]);
    reducing.name = text_->Name();
    if (reducing.IsArgmax()) {
      loop.body.AddEach(
          "", absl::StrCat("if (k < count) ", reducing.name, ".Put(", value, ", c + k);"));
    } else {
      const std::string slot = in_columns_ ? "u % kOwn" : shape_.vector == 1 ? "u % 4" : "k";
      loop.body.AddEach("", absl::StrCat("if (k < count) ", reducing.name, ".Put(", slot,
                                         ", Convert<", CppType(reducing.type), ">(", value, "));"));
    }
    made.push_back(std::move(reducing));
  }
  return made;
}

void KernelWriter::AddRowLoop(const Loop& loop, const std::string& begin, const std::string& end) {
  const std::string row = text_->Number(static_cast<int64_t>(shape_.loop.row));
  const int step = in_columns_          ? kColumnThreads / shape_.columns
                   : shape_.vector == 1 ? 32
                                        : kRowThreads;
  const auto of_loop =
      static_cast<uint64_t>(step * shape_.unroll);  // which a chunk is a multiple of
  const std::string count = CountText(shape_.loop.row % of_loop == 0, "c", end);
  const auto open = [&] {
    text_->Add("FERRY_UNROLL");
    text_->Add("for (int u = 0; u < U; ++u) {");
    text_->Add(absl::StrCat("const Index c = base + u * ", step, " + lane * V;"));
    text_->Add(absl::StrCat("[[maybe_unused]] const Index i = r * ", row, " + c;"));
    text_->Add(count);
  };
  text_->Add(
      absl::StrCat("for (Index base = ", begin, "; base < ", end, "; base += U * ", step, ") {"));
  text_->Add(loop.declarations);
  if (!loop.loads.empty()) {
    open();
    text_->Add(loop.loads);
    text_->Add("}");
  }
  open();
  text_->Add(loop.body);
  text_->Add("}");
  text_->Add("}");
}

// `unit` is the name of what a warp does.
void KernelWriter::BeginRows(absl::string_view unit) {
  Begin();
  text_->Add(absl::StrCat("[[maybe_unused]] constexpr int V = ", shape_.vector,
                          ", U = ", shape_.unroll, ";"));
  text_->Add("const int lane = static_cast<int>(threadIdx.x % 32);");
  text_->Add(absl::StrCat("const Index ", unit, " = static_cast<Index>(blockIdx.x) * ",
                          kRowsOfBlock, " + static_cast<Index>(threadIdx.x / 32);"));
}

void KernelWriter::DeclareReduction(const Reducing& reducing, absl::string_view vector) {
  const std::string type = CppType(reducing.type);
  const std::string width = in_columns_ ? ", W" : "";
  if (reducing.IsArgmax()) {
    text_->Add(absl::StrCat(in_columns_ ? "Column" : "", "Largest<", type, width, "> ",
                            reducing.name, ";"));
    return;
  }
  text_->Add(absl::StrCat(in_columns_   ? "ColumnLanes<"
                          : shape_.held ? "RowLanes<"
                                        : "Lanes<",
                          CombinerName(*reducing.node), ", ", type, ", ",
                          in_columns_ ? "W" : vector, "> ", reducing.name, ";"));
}

// What the chunk from `first` to `end` came to; of argmax its index.
std::string KernelWriter::CloseReduction(const Reducing& reducing) {
  if (reducing.IsArgmax()) {
    text_->Add(absl::StrCat(reducing.name, ".Close();"));
    return absl::StrCat(reducing.name, ".index()");
  }
  std::string name = text_->Name();
  text_->Add(absl::StrCat("const ", CppType(reducing.type), " ", name, " = ", reducing.name,
                          ".Close(lane, static_cast<int>(end - first));"));
  return name;
}

// What a reduction came to is a value of the row.
void KernelWriter::EndReduction(const Reducing& reducing, const std::string& result) {
  const ValueId id = reducing.node->first_result;
  const std::string type = CppType(TypeOf(id));
  const std::string name = text_->Name();
  text_->Add(absl::StrCat("const ", type, " ", name, " = Convert<", type, ">(", result, ");"));
  row_names_[id] = name;
}

// Names are of one launch.
void KernelWriter::NameReductions(std::vector<Partial>& partials) {
  for (Partial& partial : partials) partial.reducing.name = text_->Name();
}

void KernelWriter::AddRowSinks() {
  loop_ = nullptr;
  std::vector<std::string> lines;
  for (const Sink& sink : shape_.sinks) {
    if (sink.level != Level::kRow) continue;
    for (std::string& line : RowSink(sink)) lines.push_back(std::move(line));
  }
  if (lines.empty()) return;
  // All have read what may be written over.
  text_->Add(shape_.held || in_columns_ ? "__syncthreads();" : "__syncwarp();");
  text_->Add(lines);
}

// A warp a row, which it goes through once for each reduction that needs another before it.
void KernelWriter::WriteRows(KernelCode& code) {
  if (shape_.columns > 0) {
    BeginColumns(1);
  } else {
    BeginRows("r");
    text_->Add(absl::StrCat("if (r >= ", text_->Number(static_cast<int64_t>(shape_.loop.rows)),
                            ") return;"));
  }
  const std::string row = text_->Number(static_cast<int64_t>(shape_.loop.row));
  const int64_t last = shape_.LastPhase();
  for (int64_t phase = 0; phase <= last; ++phase) {
    Loop loop;
    loop_ = &loop;
    const std::vector<Reducing> reductions = Reductions(static_cast<uint32_t>(phase), loop);
    if (phase == last) {
      for (const Sink& sink : shape_.sinks) {
        if (sink.level != Level::kRow) EmitSink(sink);
      }
    }
    std::vector<Reducing> chunked;
    for (const Reducing& reducing : reductions) {
      if (reducing.IsArgmax()) {
        DeclareReduction(reducing, "V");
        continue;
      }
      chunked.push_back(reducing);
      const auto reduction = static_cast<Reduction>(reducing.node->attributes.Int(A::kReduction));
      text_->Add(absl::StrCat(CppType(reducing.type), " ", reducing.name, "_all = ",
                              CodeText(reducing.type, IdentityOf(reduction, reducing.type)), ";"));
    }
    if (chunked.empty()) {
      AddRowLoop(loop, "0", row);
    } else {
      text_->Add(absl::StrCat("for (Index first = 0; first < ", row, "; first += kChunk) {"));
      text_->Add(absl::StrCat("const Index end = first + kChunk < ", row,
                              " ? first + kChunk : ", row, ";"));
      for (const Reducing& reducing : chunked) DeclareReduction(reducing, "V");
      AddRowLoop(loop, "first", "end");
      for (const Reducing& reducing : chunked) {
        const std::string chunk = CloseReduction(reducing);
        const std::string all = absl::StrCat(reducing.name, "_all");
        text_->Add(absl::StrCat(all, " = first == 0 ? ", chunk, " : ", CombinerName(*reducing.node),
                                "::Of(", all, ", ", chunk, ");"));
      }
      text_->Add("}");
    }
    for (const Reducing& reducing : reductions) {
      EndReduction(reducing, reducing.IsArgmax() ? CloseReduction(reducing)
                                                 : absl::StrCat(reducing.name, "_all"));
    }
  }
  AddRowSinks();
  if (in_columns_) {
    code.launches.push_back(ColumnLaunch(*text_, shape_, 1));
  } else {
    code.launches.push_back(text_->Finish(Ceil(shape_.loop.rows, kRowsOfBlock), kRowThreads));
  }
}

// Of what chunks of a row came to, `units` of them: those from `first` to `end`.
void KernelWriter::ReadPartials(const std::vector<Partial>& partials, const std::string& units) {
  for (const Partial& partial : partials) DeclareReduction(partial.reducing, "1");
  text_->Add("for (Index base = first; base < end; base += kLanes) {");
  text_->Add("FERRY_UNROLL");
  text_->Add("for (int u = 0; u < 4; ++u) {");
  text_->Add("const Index c = base + u * 32 + lane;");
  text_->Add("if (c >= end) break;");
  for (const Partial& partial : partials) {
    const auto read = [&](DType type, uint32_t scratch) {
      const std::string pointer = text_->Pointer(false, KernelArgument::Kind::kScratch, scratch, 0);
      return absl::StrCat("ReadOne<", CppType(type), ", 16>(", pointer, ", r * ", units, " + c)");
    };
    const Reducing& reducing = partial.reducing;
    const std::string value = read(reducing.type, partial.values);
    text_->Add(reducing.IsArgmax() ? absl::StrCat(reducing.name, ".Put(", value, ", ",
                                                  read(DType::kI64, partial.indices), ");")
                                   : absl::StrCat(reducing.name, ".Put(u, ", value, ");"));
  }
  text_->Add("}");
  text_->Add("}");
}

// What the chunk came to, into scratch.
void KernelWriter::WritePartials(std::vector<Partial>& partials, uint64_t units, KernelCode& code) {
  const auto write = [&](DType type, const std::string& value) {
    code.scratch.push_back(units * BytesOf(type, 1));
    const auto scratch = static_cast<uint32_t>(code.scratch.size() - 1);
    const std::string pointer = text_->Pointer(true, KernelArgument::Kind::kScratch, scratch, 0);
    text_->Add(absl::StrCat(in_columns_ ? "if (writes) " : "if (lane == 0) ", "WriteOne<16>(",
                            pointer, ", unit, ", value, ");"));
    return scratch;
  };
  for (Partial& partial : partials) {
    const Reducing& reducing = partial.reducing;
    const std::string value = CloseReduction(reducing);
    if (!reducing.IsArgmax()) {
      partial.values = write(reducing.type, value);
      continue;
    }
    partial.values = write(reducing.type, absl::StrCat(reducing.name, ".value()"));
    partial.indices = write(DType::kI64, value);
  }
}

// Long rows: a warp a chunk, whose results are reduced in the same way until they are one chunk.
void KernelWriter::WriteChunks(KernelCode& code) {
  const auto begin_chunks = [&](uint64_t units, uint64_t parts, bool columns) {
    if (columns) {
      BeginColumns(parts);
    } else {
      BeginRows(kWarpUnit);
    }
    const std::string all = text_->Number(static_cast<int64_t>(units));
    const std::string of_row = text_->Number(static_cast<int64_t>(parts));
    if (columns) {
      text_->Add(
          absl::StrCat("const Index unit = r * ", of_row, " + part, first = part * kChunk;"));
    } else {
      text_->Add(absl::StrCat("const Index r = unit / ", of_row, ", first = unit % ", of_row,
                              " * kChunk;"));
      text_->Add(absl::StrCat("if (r >= ", text_->Number(static_cast<int64_t>(shape_.loop.rows)),
                              ") return;"));
    }
    text_->Add(
        absl::StrCat("const Index end = first + kChunk < ", all, " ? first + kChunk : ", all, ";"));
    return all;
  };
  const auto finish = [&](uint64_t units) {
    code.launches.push_back(text_->Finish(Ceil(units, kRowsOfBlock), kRowThreads));
  };
  uint64_t parts = Ceil(shape_.loop.row, kReductionChunk);
  begin_chunks(shape_.loop.row, parts, shape_.columns > 0);
  Loop loop;
  loop_ = &loop;
  std::vector<Partial> partials;
  for (Reducing& reducing : Reductions(0, loop)) partials.push_back({std::move(reducing)});
  for (const Sink& sink : shape_.sinks) {
    if (sink.level != Level::kRow) EmitSink(sink);
  }
  for (const Partial& partial : partials) DeclareReduction(partial.reducing, "V");
  AddRowLoop(loop, "first", "end");
  WritePartials(partials, shape_.loop.rows * parts, code);
  if (in_columns_) {
    code.launches.push_back(ColumnLaunch(*text_, shape_, parts));
  } else {
    finish(shape_.loop.rows * parts);
  }
  while (parts > kReductionChunk) {
    const uint64_t units = std::exchange(parts, Ceil(parts, kReductionChunk));
    const std::string all = begin_chunks(units, parts, false);
    NameReductions(partials);
    ReadPartials(partials, all);
    WritePartials(partials, shape_.loop.rows * parts, code);
    finish(shape_.loop.rows * parts);
  }
  BeginRows("r");
  text_->Add(absl::StrCat("if (r >= ", text_->Number(static_cast<int64_t>(shape_.loop.rows)),
                          ") return;"));
  const std::string all = text_->Number(static_cast<int64_t>(parts));
  text_->Add(absl::StrCat("const Index first = 0, end = ", all, ";"));
  NameReductions(partials);
  ReadPartials(partials, all);
  for (const Partial& partial : partials) {
    EndReduction(partial.reducing, CloseReduction(partial.reducing));
  }
  AddRowSinks();
  finish(shape_.loop.rows);
}

// A thread a line along the dimension, one element after the other.
void KernelWriter::WriteLines(KernelCode& code) {
  const auto found = std::find_if(program_.nodes.begin(), program_.nodes.end(),
                                  [](const Node& node) { return node.op == Op::kCumulativeSum; });
  const Node& node = *found;
  const TensorType& type = program_.types[node.operands[0]];
  const auto dimension = static_cast<size_t>(node.attributes.Int(A::kDimension));
  const auto length = static_cast<uint64_t>(type.dims[dimension]);
  const uint64_t lines = length == 0 ? 0 : *ElementsOf(type) / length;
  if (lines == 0) return;
  int64_t inner = 1;
  for (size_t d = dimension + 1; d < type.dims.size(); ++d) inner *= type.dims[d];
  Begin();
  shape_.vector = 1;
  const std::string steps = text_->Number(static_cast<int64_t>(length));
  const std::string stride = text_->Number(inner);
  text_->Add("constexpr int V = 1, count = 1, k = 0;");
  text_->Add(absl::StrCat("const Index line = static_cast<Index>(blockIdx.x) * ", kFlatThreads,
                          " + static_cast<Index>(threadIdx.x);"));
  text_->Add(absl::StrCat("if (line >= ", text_->Number(static_cast<int64_t>(lines)), ") return;"));
  const DType sum = AccumulatorOf(node, type.dtype);
  Loop loop;
  loop_ = &loop;
  const std::string element = At(node.operands[0], "i");
  const std::string name = text_->Name();
  const std::string result = CppType(TypeOf(node.first_result));
  for (const std::string& line :
       {absl::StrCat("const ", CppType(sum), " term = Convert<", CppType(sum), ">(", element, ");"),
        std::string("sum = step == 0 ? term : Add(sum, term);"),
        absl::StrCat("Vector<", result, ", V> ", name, ";"),
        absl::StrCat(name, "[k] = Convert<", result, ">(sum);")}) {
    loop.body.Add(line);
  }
  loop.full[node.first_result] = absl::StrCat(name, "[k]");
  for (const Sink& sink : shape_.sinks) EmitSink(sink);
  text_->Add(absl::StrCat(CppType(sum), " sum = {};"));
  text_->Add(absl::StrCat("for (Index step = 0; step < ", steps, "; ++step) {"));
  text_->Add(absl::StrCat("const Index i = (line / ", stride, " * ", steps, " + step) * ", stride,
                          " + line % ", stride, ";"));
  text_->Add(loop.body);
  text_->Add("}");
  code.launches.push_back(text_->Finish(Ceil(lines, kFlatThreads), kFlatThreads));
  code.launches.back().busy = lines;
}

}  // namespace ferry::compute
