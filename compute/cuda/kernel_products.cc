// SPDX-License-Identifier: Apache-2.0
// Plain products, an element a thread, and what block formats need of scales.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compute/cuda/kernel_writer.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr int64_t kWarpThreads = 32;
constexpr absl::string_view kScaleRoundings[] = {"kCeil", "kFloor", "kNearestHalfUp"};

// How a factor is seen: batches, rows, what is contracted.
std::vector<size_t> FactorOrder(const TensorType& type, absl::Span<const int64_t> batch,
                                int64_t contract) {
  std::vector<size_t> order(batch.begin(), batch.end());
  for (int64_t d = 0; d < static_cast<int64_t>(type.dims.size()); ++d) {
    if (d != contract && std::count(batch.begin(), batch.end(), d) == 0) {
      order.push_back(static_cast<size_t>(d));
    }
  }
  order.push_back(static_cast<size_t>(contract));
  return order;
}

int64_t RowsOfFactor(const TensorType& type, absl::Span<const int64_t> batch, int64_t contract) {
  int64_t rows = 1;
  const std::vector<size_t> order = FactorOrder(type, batch, contract);
  for (size_t i = batch.size(); i + 1 < order.size(); ++i) rows *= type.dims[order[i]];
  return rows;
}

}  // namespace

std::string KernelWriter::FactorAt(ValueId id, absl::Span<const int64_t> batch, int64_t contract,
                                   const std::string& row) {
  const ValueId source = shape_.values[id].source;
  const Value& value = shape_.values[source];
  if (value.kind == Kind::kOnce) return Once(source);
  FERRY_CHECK(value.kind != Kind::kLoop);  // factors are in memory
  const TensorType& type = program_.types[id];
  Views views = value.views;
  Permute(FactorOrder(type, batch, contract), type, views);
  const Views known = std::exchange(shape_.values[source].views, views);
  std::string element;
  if (views.size() == 1 && value.kind == Kind::kMemory) {
    // What does not change along the sum is outside of its loop.
    View rows = views[0];
    const int64_t stride = rows.strides.back();
    rows.dims.pop_back();
    rows.strides.pop_back();
    const std::string base = absl::StrCat("at_", row);
    loop_->body.Add(absl::StrCat("const Index ", base, " = ", text_->Place(rows, row, true), ";"));
    const std::string by = stride == 1 ? "" : absl::StrCat(" * ", text_->Number(stride));
    element = ReadOf(value, type.dtype, PointerOf(source), absl::StrCat(base, " + step", by));
  } else {
    element =
        At(source, absl::StrCat(row, " * ", text_->Number(type.dims[static_cast<size_t>(contract)]),
                                " + step"));
  }
  shape_.values[source].views = known;
  return element;
}

// In parts of 64, which are added up in f64, so that long sums lose little.
void KernelWriter::EmitSum(const std::string& type, const std::string& product, int64_t depth) {
  const std::string length = text_->Number(depth);
  loop_->body.Add(absl::StrCat(type == "f32" ? "f64" : type, " sum = 0;"));
  loop_->body.Add(absl::StrCat("for (Index first = 0; first < ", length, "; first += 64) {"));
  loop_->body.Add(absl::StrCat(type, " part = 0;"));
  loop_->body.Add(
      absl::StrCat("for (Index step = first; step < ", length, " && step < first + 64; ++step) {"));
  loop_->body.Add(absl::StrCat("part += ", product, ";"));
  loop_->body.Add("}");
  loop_->body.Add("sum += part;");
  loop_->body.Add("}");
}

void KernelWriter::EmitDot(const Node& node, const std::string& result) {
  const auto ints = [&](A attribute) { return node.attributes.Ints(attribute); };
  const TensorType& lhs = program_.types[node.operands[0]];
  const TensorType& rhs = program_.types[node.operands[1]];
  const DType type = TypeOf(node.first_result);
  const int64_t contract = ints(A::kLhsContract)[0];
  const int64_t right_contract = ints(A::kRhsContract)[0];
  const std::string rows = text_->Number(RowsOfFactor(lhs, ints(A::kLhsBatch), contract));
  const std::string columns = text_->Number(RowsOfFactor(rhs, ints(A::kRhsBatch), right_contract));
  loop_->body.Add(absl::StrCat("const Index left = (i + k) / ", columns, ";"));
  loop_->body.Add(absl::StrCat("const Index right = left / ", rows, " * ", columns, " + (i + k) % ",
                               columns, ";"));
  const std::string a = FactorAt(node.operands[0], ints(A::kLhsBatch), contract, "left");
  const std::string b = FactorAt(node.operands[1], ints(A::kRhsBatch), right_contract, "right");
  const DType sum = node.attributes.Has(A::kAccumulate)
                        ? static_cast<DType>(node.attributes.Int(A::kAccumulate))
                        : type;
  const int64_t depth = lhs.dims[static_cast<size_t>(contract)];
  if (InfoOf(type).floating) {
    const std::string work = sum == DType::kF64 ? "f64" : "f32";
    EmitSum(work, absl::StrCat("Convert<", work, ">(", a, ") * Convert<", work, ">(", b, ")"),
            depth);
    loop_->body.Add(absl::StrCat(result, " = Convert<", CppType(type), ">(sum);"));
  } else {
    // Modulo what the sum's type holds; without a sign, so that nothing overflows.
    EmitSum("u64",
            absl::StrCat("static_cast<u64>(Convert<i64>(", a, ")) * static_cast<u64>(Convert<i64>(",
                         b, "))"),
            depth);
    loop_->body.Add(absl::StrCat(result, " = Convert<", CppType(type), ">(Convert<", CppType(sum),
                                 ">(static_cast<i64>(sum)));"));
  }
}

// There may be more scales than are needed; the surplus is not looked at.
std::string KernelWriter::ScaleAt(ValueId id, const TensorType& data, const std::string& row,
                                  const std::string& block) {
  const ValueId source = shape_.values[id].source;
  Value& value = shape_.values[source];
  if (value.kind == Kind::kOnce) return Once(source);
  const Views known = value.views;
  View& view = value.views.back();
  for (size_t d = 0; d + 1 < view.dims.size(); ++d) view.dims[d] = data.dims[d];
  const std::string columns = text_->Number(program_.types[id].dims.back());
  std::string scale = At(source, absl::StrCat(row, " * ", columns, " + ", block));
  value.views = known;
  return scale;
}

void KernelWriter::EmitBlockScaledDot(const Node& node, const std::string& result) {
  const TensorType& lhs = program_.types[node.operands[0]];
  const TensorType& rhs = program_.types[node.operands[1]];
  const size_t rank = lhs.dims.size();
  const std::vector<int64_t> batch(rank - 2, 0);
  const auto last = static_cast<int64_t>(rank - 1);
  const std::string rows = text_->Number(lhs.dims[rank - 2]);
  const std::string columns = text_->Number(rhs.dims[rank - 2]);
  loop_->body.Add(absl::StrCat("const Index left = (i + k) / ", columns, ";"));
  loop_->body.Add(absl::StrCat("const Index right = left / ", rows, " * ", columns, " + (i + k) % ",
                               columns, ";"));
  const auto factor = [&](size_t data, size_t scales, const std::string& row) {
    const TensorType& type = program_.types[node.operands[data]];
    const std::string element = FactorAt(node.operands[data], batch, last, row);
    if (node.operands.size() <= scales) return absl::StrCat("Convert<f32>(", element, ")");
    const auto block = BlockOf(node, type, program_.types[node.operands[scales]]);
    const std::string scale =
        ScaleAt(node.operands[scales], type, row,
                absl::StrCat("step / ", text_->Number(static_cast<int64_t>(block))));
    return absl::StrCat("Dequantized(", element, ", ", scale, ")");
  };
  const std::string a = factor(0, 2, "left");
  const std::string b = factor(1, 3, "right");
  std::string global = node.operands.size() > 4 ? Once(node.operands[4]) : "";
  if (!global.empty() && TypeOf(node.operands[4]) != DType::kF32) {
    global = absl::StrCat("Convert<f32>(", global, ")");
  }
  EmitSum("f32", absl::StrCat(a, " * ", b), lhs.dims[rank - 1]);
  const std::string sum = global.empty() ? "sum" : absl::StrCat("sum * Convert<f64>(", global, ")");
  loop_->body.Add(
      absl::StrCat(result, " = Convert<", CppType(TypeOf(node.first_result)), ">(", sum, ");"));
}

bool KernelWriter::CanShuffle(const Node& quantize) const {
  const auto block = static_cast<int64_t>(BlockOf(quantize, program_.types[quantize.first_result],
                                                  program_.types[quantize.first_result + 1]));
  if (alone_ || (block & (block - 1)) != 0 || block > kWarpThreads * shape_.vector) return false;
  return shape_.rows ||
         shape_.loop.row % static_cast<uint64_t>(std::max<int64_t>(block, shape_.vector)) == 0;
}

void KernelWriter::EmitQuantize(const Node& node) {
  const ValueId data = node.first_result;
  const ValueId scales = node.first_result + 1;
  const std::string element = CppType(TypeOf(data));
  const std::string scale = CppType(TypeOf(scales));
  const uint64_t block = BlockOf(node, program_.types[data], program_.types[scales]);
  const std::string global = node.operands.size() > 1 ? Once(node.operands[1]) : "";
  const std::string over = global.empty() ? "" : absl::StrCat(" / ", global);
  const std::string largest = text_->Name();
  std::vector<std::string> search;
  if (CanShuffle(node)) {
    search = {
        absl::StrCat("LargestOfBlocks<", block, ", V>(", largest, "_of, count, ", largest, ");")};
  } else {
    // Each thread looks at all of its block.
    reads_neighbours_ = true;
    Loop* const around = std::exchange(loop_, nullptr);
    const int vector = std::exchange(shape_.vector, 1);
    const bool alone = std::exchange(alone_, true);
    Loop other;
    loop_ = &other;
    const std::string operand = Full(node.operands[0]);
    loop_ = around;
    shape_.vector = vector;
    alone_ = alone;
    const std::string row = text_->Number(static_cast<int64_t>(shape_.loop.row));
    const std::string size = text_->Number(static_cast<int64_t>(block));
    search.push_back(absl::StrCat("const auto ", largest, "_at = [&](Index c) {"));
    search.push_back("[[maybe_unused]] constexpr int V = 1, U = 1, u = 0, k = 0, count = 1;");
    search.push_back(absl::StrCat("[[maybe_unused]] const Index i = r * ", row, " + c;"));
    for (const std::vector<std::string>* lines :
         {&std::as_const(other.declarations), &std::as_const(other.loads), &other.body.lines()}) {
      search.insert(search.end(), lines->begin(), lines->end());
    }
    search.push_back(
        absl::StrCat("return BitCast<u32>(Convert<f32>(", operand, ")", over, ") & 0x7FFFFFFFu;"));
    search.push_back("};");
    search.push_back("FERRY_EACH {");
    search.push_back(absl::StrCat(largest, "[k] = 0;"));
    search.push_back(absl::StrCat("const Index begin = (c + k) / ", size, " * ", size, ";"));
    search.push_back(absl::StrCat("for (Index at = begin; k < count && at < begin + ", size,
                                  " && at < ", row, "; ++at) {"));
    search.push_back(absl::StrCat("const u32 bits = ", largest, "_at(at);"));
    search.push_back(absl::StrCat("if (bits > ", largest, "[k]) ", largest, "[k] = bits;"));
    search.push_back("}");
    search.push_back("}");
  }
  const std::string operand = Full(node.operands[0]);
  LoopBody& body = loop_->body;
  body.AddEach(absl::StrCat("Vector<f32, V> ", largest, "_of;"),
               absl::StrCat(largest, "_of[k] = Convert<f32>(", operand, ")", over, ";"));
  body.Add(absl::StrCat("Vector<u32, V> ", largest, ";"));
  for (std::string& line : search) body.Add(std::move(line));
  const std::string made_scales = text_->Name();
  const std::string made = text_->Name();
  const std::string made_scale =
      absl::StrCat("ScaleOf<", element, ", ", scale, ", ",
                   kScaleRoundings[node.attributes.Int(A::kRounding)], ">(", largest, "[k])");
  body.AddEach(absl::StrCat("Vector<", scale, ", V> ", made_scales, ";"),
               CanShuffle(node)  // once for all that are of one block
                   ? absl::StrCat(made_scales, "[k] = k % Least(V, ", block, ") != 0 ? ",
                                  made_scales, "[k - 1] : ", made_scale, ";")
                   : absl::StrCat(made_scales, "[k] = ", made_scale, ";"));
  body.AddEach(absl::StrCat("Vector<", element, ", V> ", made, ";"),
               absl::StrCat(made, "[k] = Quantized<", element, ">(", largest,
                            "_of[k], Convert<f32>(", operand, "), ", made_scales, "[k]);"));
  loop_->full[scales] = absl::StrCat(made_scales, "[k]");
  loop_->full[data] = absl::StrCat(made, "[k]");
}

void KernelWriter::EmitDequantize(const Node& node) {
  const ValueId result = node.first_result;
  const TensorType& data = program_.types[node.operands[0]];
  const uint64_t block = BlockOf(node, data, program_.types[node.operands[1]]);
  const std::string scale_type = CppType(TypeOf(node.operands[1]));
  const std::string operand = Full(node.operands[0]);
  const std::string global = node.operands.size() > 2 ? Once(node.operands[2]) : "";
  const bool same = block % static_cast<uint64_t>(shape_.vector) == 0;
  const std::string size = text_->Number(static_cast<int64_t>(block));
  const std::string scale =
      ScaleAt(node.operands[1], data, "r", absl::StrCat(same ? "c / " : "(c + k) / ", size));
  const std::string scales = text_->Name();
  if (same) {
    loop_->declarations.push_back(absl::StrCat(scale_type, " ", scales, "[U] = {};"));
    loop_->loads.push_back(absl::StrCat("if (count > 0) ", scales, "[u] = ", scale, ";"));
  } else {
    loop_->declarations.push_back(absl::StrCat("Vector<", scale_type, ", V> ", scales, "[U];"));
    loop_->loads.push_back(
        absl::StrCat("FERRY_EACH if (k < count) ", scales, "[u][k] = ", scale, ";"));
  }
  const std::string name = text_->Name();
  const std::string type = CppType(TypeOf(result));
  loop_->body.AddEach(absl::StrCat("Vector<", type, ", V> ", name, ";"),
                      absl::StrCat(name, "[k] = Convert<", type, ">(Dequantized(", operand, ", ",
                                   scales, "[u]", same ? "" : "[k]", ")",
                                   global.empty() ? "" : absl::StrCat(" * ", global), ");"));
  loop_->full[result] = absl::StrCat(name, "[k]");
}

}  // namespace ferry::compute
