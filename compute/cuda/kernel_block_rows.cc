// SPDX-License-Identifier: Apache-2.0
// Rows on which a block of threads works together. Either it has one in registers: what is reduced,
// and what becomes of that in the row, is elementwise; so a value of one phase is in the same
// thread in the next. Or it has several that lie across memory beside each other.
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "compute/cuda/column_tile.h"
#include "compute/cuda/kernel_writer.h"
#include "compute/program/op.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kThreads = 64;  // of a chunk

}  // namespace

bool KernelWriter::DividesHeld(const Node& node) const {
  if (!shape_.held || node.op != Op::kDivide || TypeOf(node.first_result) != DType::kF32)
    return false;
  const Value& by = ValueOf(node.operands[1]);
  const bool of_row = by.kind == Kind::kOnce || (by.kind == Kind::kLoop && by.level == Level::kRow);
  return of_row && loop_->earlier.count(shape_.values[node.operands[0]].source) > 0;
}

std::string KernelWriter::DivideHeld(const Node& node) {
  const ValueId by = shape_.values[node.operands[1]].source;
  std::string& divisor = divisors_[by];
  if (divisor.empty()) {
    const std::string value = Row(by);
    divisor = text_->Name();
    text_->Add(absl::StrCat("const Divisor ", divisor, " = DivisorOf(", value, ");"));
  }
  const std::string operands = absl::StrCat("(", Full(node.operands[0]), ", ", divisor, ")");
  loop_->quotients.push_back(operands);
  return absl::StrCat("DivideBy<kPlain>", operands);
}

// A block of threads a row, 64 of them for each chunk: each has two elements of every 128.
void KernelWriter::WriteHeldRows(KernelCode& code) {
  const uint64_t chunks = (shape_.loop.row + kReductionChunk - 1) / kReductionChunk;
  Begin();
  text_->Add(absl::StrCat("constexpr int V = ", shape_.vector, ", U = ", shape_.unroll, ";"));
  text_->Add("const int lane = static_cast<int>(threadIdx.x);");
  text_->Add("const Index r = static_cast<Index>(blockIdx.x);");
  const std::string row = text_->Number(static_cast<int64_t>(shape_.loop.row));
  const bool whole =
      shape_.loop.row == chunks * static_cast<uint64_t>(shape_.unroll) * kReductionLanes;
  const auto add = [&](const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    text_->Add("FERRY_UNROLL");
    text_->Add("for (int u = 0; u < U; ++u) {");
    text_->Add(absl::StrCat("const Index c = lane / ", kThreads, " * kChunk + u * kLanes + lane % ",
                            kThreads, " * V;"));
    text_->Add(absl::StrCat("[[maybe_unused]] const Index i = r * ", row, " + c;"));
    text_->Add(CountText(whole, "c", row));
    text_->Add(lines);
    text_->Add("}");
  };
  Loop loop;
  loop_ = &loop;
  const int64_t last = shape_.LastPhase();
  for (int64_t phase = 0; phase <= last; ++phase) {
    const std::vector<Reducing> reductions = Reductions(static_cast<uint32_t>(phase), loop);
    for (const Sink& sink : shape_.sinks) {
      if (phase == last && sink.level != Level::kRow) EmitSink(sink);
    }
    for (const Reducing& reducing : reductions) {
      DeclareReduction(reducing, absl::StrCat(chunks));
    }
    text_->Add(std::exchange(loop.declarations, {}));
    add(std::exchange(loop.loads, {}));
    std::vector<std::string> plain;
    for (const std::string& operands : std::exchange(loop.quotients, {})) {
      plain.push_back(absl::StrCat("FERRY_EACH plain = plain && IsPlain", operands, ";"));
    }
    const std::vector<std::string> body = std::exchange(loop.body, {}).lines();
    if (plain.empty()) {
      add(body);
    } else {  // written twice, so that there is no branch for each element
      text_->Add("bool plain = true;");
      add(plain);
      text_->Add("if (plain) {");
      text_->Add("constexpr bool kPlain = true;");
      add(body);
      text_->Add("} else {");
      text_->Add("constexpr bool kPlain = false;");
      add(body);
      text_->Add("}");
    }
    for (const Reducing& reducing : reductions) {
      EndReduction(reducing, absl::StrCat(reducing.name, ".Close(lane)"));
    }
    // What is no array was a name of that loop alone.
    std::erase_if(loop.full,
                  [](const auto& named) { return !absl::StrContains(named.second, "[u]"); });
    for (const auto& [id, name] : loop.full) loop.earlier.insert(id);
  }
  AddRowSinks();
  code.launches.push_back(
      text_->Finish(shape_.loop.rows, static_cast<uint32_t>(kThreads * chunks)));
}

// A warp has the first of kColumnThreads / columns lanes of as many results, the next warp the
// next: neighbouring threads read neighbouring elements. Threads behind the last result do what
// those of the last one do, but for writing.
void KernelWriter::BeginColumns(uint64_t parts) {
  Begin();
  in_columns_ = true;
  const std::string rows = text_->Number(static_cast<int64_t>(shape_.loop.rows));
  text_->Add(absl::StrCat("constexpr int V = 1, U = ", shape_.unroll, ", W = ", shape_.columns,
                          ", kOwn = ColumnLanesOf(W);"));
  text_->Add("const int lane = static_cast<int>(threadIdx.x) / W;");
  if (parts == 1) {
    text_->Add("const Index tile = static_cast<Index>(blockIdx.x);");
  } else {
    const std::string tiles = text_->Number(static_cast<int64_t>(ColumnBlocksOf(shape_, 1)));
    text_->Add(absl::StrCat("const Index tile = static_cast<Index>(blockIdx.x) % ", tiles,
                            ", part = static_cast<Index>(blockIdx.x) / ", tiles, ";"));
  }
  text_->Add("const Index place = tile * W + static_cast<Index>(threadIdx.x) % W;");
  text_->Add(absl::StrCat("const bool writes = lane == 0 && place < ", rows, ";"));
  text_->Add(absl::StrCat("const Index r = place < ", rows, " ? place : ", rows, " - 1;"));
}

}  // namespace ferry::compute
