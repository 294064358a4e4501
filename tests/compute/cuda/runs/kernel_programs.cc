// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/kernel_programs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/compute/parsed_program.h"

namespace ferry::compute::testing {
namespace {

constexpr int64_t kRows = 6;
constexpr int64_t kColumns = 96;

// Puts a program together; what is made is stored.
class Lines {
 public:
  std::string Input(const std::string& type, uint64_t bytes) {
    const std::string name = absl::StrCat(count_++);
    absl::StrAppend(&buffers_, "buffer @in", name, " read ", bytes, "\n");
    absl::StrAppend(&ops_, "%i", name, " = input @in", name, " : ", type, "\n");
    return absl::StrCat("%i", name);
  }
  std::string Add(const std::string& op, const std::string& type) {
    const std::string name = absl::StrCat("%v", count_++);
    absl::StrAppend(&ops_, name, " = ", op, type.empty() ? "" : " : ", type, "\n");
    return name;
  }
  void Store(const std::string& value, uint64_t bytes) {
    const std::string name = absl::StrCat(count_++);
    absl::StrAppend(&buffers_, "buffer @out", name, " write ", bytes, "\n");
    absl::StrAppend(&ops_, "store @out", name, ", ", value, "\n");
  }
  void Line(const std::string& line) { absl::StrAppend(&ops_, line, "\n"); }

  Program Make() const { return ParsedProgram(absl::StrCat("program 1\n", buffers_, ops_)); }

 private:
  int count_ = 0;
  std::string buffers_;
  std::string ops_;
};

std::string Shape(DType type, int64_t rows = kRows, int64_t columns = kColumns) {
  return absl::StrCat(NameOf(type), "[", rows, ",", columns, "]");
}
uint64_t Bytes(DType type, int64_t rows = kRows, int64_t columns = kColumns) {
  return BytesOf(type, static_cast<uint64_t>(rows * columns));
}
// "3,8" as numbers.
std::vector<int64_t> DimsOf(absl::string_view text) {
  std::vector<int64_t> dims;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    EXPECT_TRUE(absl::SimpleAtoi(part, &dims.emplace_back())) << text;
  }
  return dims;
}
DType TypeAt(size_t index) { return static_cast<DType>(index); }

// From each type to all, in both modes.
void AddConversions(std::vector<Program>& programs) {
  for (size_t from = 0; from < kDTypes; ++from) {
    for (const std::string mode : {"", " mode=saturate"}) {
      Lines lines;
      const std::string x = lines.Input(Shape(TypeAt(from)), Bytes(TypeAt(from)));
      for (size_t to = 0; to < kDTypes; ++to) {
        const bool small = Contains(dtypes::kSmallFloats | dtypes::kScales, TypeAt(to));
        if (from == to || (!mode.empty() && !small)) continue;
        lines.Store(lines.Add(absl::StrCat("convert ", x, mode), Shape(TypeAt(to))),
                    Bytes(TypeAt(to)));
      }
      programs.push_back(lines.Make());
    }
  }
}

// Each op of each type, some in a kernel.
void AddElementwise(std::vector<Program>& programs) {
  constexpr size_t kOfKernel = 6;
  for (size_t i = 0; i < kDTypes; ++i) {
    const DType type = TypeAt(i);
    std::vector<Op> ops;
    for (size_t j = 0; j < kOps; ++j) {
      const auto op = static_cast<Op>(j);
      if (op >= Op::kAdd && op <= Op::kClamp && Contains(InfoOf(op).dtypes, type)) {
        ops.push_back(op);
      }
    }
    for (size_t first = 0; first < ops.size(); first += kOfKernel) {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      const std::string y = lines.Input(Shape(type), Bytes(type));
      for (size_t j = first; j < std::min(ops.size(), first + kOfKernel); ++j) {
        const OpInfo& info = InfoOf(ops[j]);
        std::vector<std::string> operands;
        for (size_t k = 0; k < info.operands.least; ++k) operands.push_back(k == 1 ? y : x);
        if (ops[j] == Op::kSelect) {
          operands = {lines.Add(absl::StrCat("compare ", x, ", ", y, " direction=lt"), ""), x, y};
        }
        std::string op = absl::StrCat(info.name, " ", absl::StrJoin(operands, ", "));
        if (ops[j] == Op::kCompare) {
          absl::StrAppend(&op, " direction=ge", InfoOf(type).floating ? " total_order=1" : "");
        }
        const bool predicate = ops[j] == Op::kCompare || ops[j] == Op::kIsFinite;
        const DType made = predicate ? DType::kBool : type;
        lines.Store(lines.Add(op, Shape(made)), Bytes(made));
      }
      programs.push_back(lines.Make());
    }
  }
}

// Rows of a vector's width and not, long ones, and reductions that are spread again.
// x less its largest, over what these come to, by rows; and the largest of each row.
Program Normalised(DType type, int64_t rows, int64_t columns) {
  Lines lines;
  const std::string all = Shape(type, rows, columns);
  const std::string row = absl::StrCat(NameOf(type), "[", rows, "]");
  const std::string x = lines.Input(all, Bytes(type, rows, columns));
  const std::string most =
      lines.Add(absl::StrCat("reduce ", x, " reduction=max dimensions=[1]"), row);
  const std::string spread =
      lines.Add(absl::StrCat("broadcast_in_dim ", most, " dimensions=[0]"), all);
  const std::string less = lines.Add(absl::StrCat("subtract ", x, ", ", spread), "");
  const std::string sum =
      lines.Add(absl::StrCat("reduce ", less, " reduction=sum dimensions=[1]"), row);
  const std::string divisor =
      lines.Add(absl::StrCat("broadcast_in_dim ", sum, " dimensions=[0]"), all);
  lines.Store(lines.Add(absl::StrCat("divide ", less, ", ", divisor), ""),
              Bytes(type, rows, columns));
  lines.Store(most, Bytes(type, rows, 1));
  return lines.Make();
}

void AddRows(std::vector<Program>& programs) {
  for (size_t i = 0; i < kDTypes; ++i) {
    const DType type = TypeAt(i);
    if (!Contains(dtypes::kArithmetic, type)) continue;
    const bool truth = type == DType::kBool;
    for (const int64_t columns : {int64_t{96}, int64_t{33}, int64_t{10000}}) {
      Lines lines;
      const std::string x = lines.Input(Shape(type, 3, columns), Bytes(type, 3, columns));
      const std::string row = absl::StrCat(NameOf(type), "[3]");
      for (const std::string& reduction :
           truth ? std::vector<std::string>{"any", "all"}
                 : std::vector<std::string>{"sum", "product", "max", "min"}) {
        lines.Store(
            lines.Add(absl::StrCat("reduce ", x, " reduction=", reduction, " dimensions=[1]"), row),
            Bytes(type, 3, 1));
      }
      if (!truth) {
        lines.Store(lines.Add(absl::StrCat("argmax ", x, " dimension=1"), "i32[3]"), 12);
      }
      programs.push_back(lines.Make());
    }
    if (truth) continue;
    // By warps, and held by blocks of threads: whole chunks, and one that is not.
    for (const int64_t columns : {kColumns, int64_t{384}, int64_t{4096 + 256}}) {
      programs.push_back(Normalised(type, columns > 4096 ? 2 : kRows, columns));
    }
  }
}

// Reductions over the first dimension, of results that follow each other in memory; of many, and of
// long rows, for two types.
void AddColumns(std::vector<Program>& programs) {
  const auto add = [&](DType type, int64_t rows, int64_t columns) {
    Lines lines;
    const std::string x = lines.Input(Shape(type, rows, columns), Bytes(type, rows, columns));
    const std::string row = absl::StrCat("[", columns, "]");
    const bool truth = type == DType::kBool;
    for (const std::string& reduction :
         truth ? std::vector<std::string>{"any", "all"}
               : std::vector<std::string>{"sum", "product", "max", "min"}) {
      lines.Store(lines.Add(absl::StrCat("reduce ", x, " reduction=", reduction, " dimensions=[0]"),
                            absl::StrCat(NameOf(type), row)),
                  Bytes(type, 1, columns));
    }
    if (!truth) {
      lines.Store(lines.Add(absl::StrCat("argmax ", x, " dimension=0"), absl::StrCat("i32", row)),
                  Bytes(DType::kI32, 1, columns));
    }
    programs.push_back(lines.Make());
  };
  for (size_t i = 0; i < kDTypes; ++i) {
    if (Contains(dtypes::kArithmetic, TypeAt(i))) add(TypeAt(i), 270, 41);
  }
  for (const DType type : {DType::kF32, DType::kBF16}) {
    add(type, 20, 8200);
    add(type, 8195, 16);
    add(type, 512, 4104);
  }
}

// What reads columns and writes rows, of dimensions that squares of 2 to 8 elements divide.
void AddAcross(std::vector<Program>& programs) {
  for (size_t i = 0; i < kDTypes; ++i) {
    const DType type = TypeAt(i);
    const auto shape = [&](absl::string_view dims) {
      return absl::StrCat(NameOf(type), "[", dims, "]");
    };
    for (const auto& [from, permutation, to] :
         {std::tuple("24,40", "1,0", "40,24"), std::tuple("3,8,24", "0,2,1", "3,24,8"),
          std::tuple("8,3,24", "2,1,0", "24,3,8"), std::tuple("136,264", "1,0", "264,136")}) {
      Lines lines;
      const uint64_t bytes = BytesOf(type, *ElementsOf({type, DimsOf(from)}));
      const std::string x = lines.Input(shape(from), bytes);
      const std::string y = lines.Input(shape(to), bytes);
      const std::string across =
          lines.Add(absl::StrCat("transpose ", x, " permutation=[", permutation, "]"), shape(to));
      lines.Store(Contains(dtypes::kNumbers, type)
                      ? lines.Add(absl::StrCat("add ", across, ", ", y), "")
                      : across,
                  bytes);
      programs.push_back(lines.Make());
    }
  }
}

void AddBlockFormats(std::vector<Program>& programs) {
  struct Format {
    DType element;
    DType scale;
  };
  for (const Format& format :
       {Format{DType::kF8E4M3FN, DType::kF8E8M0FNU}, Format{DType::kF8E5M2, DType::kF8E8M0FNU},
        Format{DType::kF4E2M1FN, DType::kF8E8M0FNU}, Format{DType::kF4E2M1FN, DType::kF8E4M3FN}}) {
    const bool power = format.scale == DType::kF8E8M0FNU;
    for (const int64_t block : {16, 32, 24}) {  // the last by every thread for itself
      for (const std::string& rounding :
           power ? std::vector<std::string>{"ceil", "floor", "nearest_half_up"}
                 : std::vector<std::string>{""}) {
        for (const DType type : {DType::kF32, DType::kBF16}) {
          Lines lines;
          const std::string x = lines.Input(Shape(type), Bytes(type));
          const std::string global = power ? "" : lines.Input("f32[]", 4);
          const std::string scales = Shape(format.scale, kRows, kColumns / block);
          const std::string doubled = lines.Add(absl::StrCat("add ", x, ", ", x), "");
          lines.Line(absl::StrCat("%q, %s = quantize_block ", doubled, power ? "" : ", ", global,
                                  " block=", block, rounding.empty() ? "" : " rounding=", rounding,
                                  " : ", Shape(format.element), ", ", scales));
          lines.Store("%q", Bytes(format.element));
          lines.Store("%s", Bytes(format.scale, kRows, kColumns / block));
          programs.push_back(lines.Make());
          if (rounding == "floor") continue;
          Lines back;
          const std::string q = back.Input(Shape(format.element), Bytes(format.element));
          const std::string s = back.Input(scales, Bytes(format.scale, kRows, kColumns / block));
          const std::string g = power ? "" : ", " + back.Input("f32[]", 4);
          back.Store(back.Add(absl::StrCat("dequantize_block ", q, ", ", s, g, " block=", block),
                              Shape(type)),
                     Bytes(type));
          programs.push_back(back.Make());
        }
      }
    }
  }
}

// As many elements as blocks of threads take: there are no ends to look for.
void AddWhole(std::vector<Program>& programs) {
  constexpr int64_t kWholeRows = 64, kWholeColumns = 1024;
  Lines lines;
  const std::string x =
      lines.Input(Shape(DType::kBF16, kWholeRows, kWholeColumns), 2 * kWholeRows * kWholeColumns);
  const std::string q = Shape(DType::kF8E4M3FN, kWholeRows, kWholeColumns);
  const std::string s = Shape(DType::kF8E8M0FNU, kWholeRows, kWholeColumns / 32);
  lines.Line(absl::StrCat("%q, %s = quantize_block ", x, " block=32 : ", q, ", ", s));
  lines.Store("%q", kWholeRows * kWholeColumns);
  lines.Store("%s", kWholeRows * kWholeColumns / 32);
  programs.push_back(lines.Make());
  Lines back;
  const std::string data = back.Input(q, kWholeRows * kWholeColumns);
  const std::string scales = back.Input(s, kWholeRows * kWholeColumns / 32);
  back.Store(back.Add(absl::StrCat("dequantize_block ", data, ", ", scales, " block=32"),
                      Shape(DType::kBF16, kWholeRows, kWholeColumns)),
             2 * kWholeRows * kWholeColumns);
  programs.push_back(back.Make());
}

void AddMemory(std::vector<Program>& programs) {
  for (size_t i = 0; i < kDTypes; ++i) {
    const DType type = TypeAt(i);
    {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      lines.Store(lines.Add(absl::StrCat("transpose ", x, " permutation=[1,0]"),
                            Shape(type, kColumns, kRows)),
                  Bytes(type));
      programs.push_back(lines.Make());
    }
    {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      const std::string none = lines.Input(absl::StrCat(NameOf(type), "[]"), BytesOf(type, 1));
      lines.Store(
          lines.Add(absl::StrCat("pad ", x, ", ", none, " low=[1,2] high=[0,1] interior=[0,1]"),
                    Shape(type, kRows + 1, 2 * kColumns + 2)),
          Bytes(type, kRows + 1, 2 * kColumns + 2));
      programs.push_back(lines.Make());
    }
    {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      const std::string a = lines.Input("i32[]", 4);
      const std::string b = lines.Input("i32[]", 4);
      lines.Store(lines.Add(absl::StrCat("dynamic_slice ", x, ", ", a, ", ", b, " sizes=[2,30]"),
                            Shape(type, 2, 30)),
                  Bytes(type, 2, 30));
      programs.push_back(lines.Make());
    }
    {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      const std::string at = lines.Input("i32[5]", 20);
      lines.Store(lines.Add(absl::StrCat("gather_rows ", x, ", ", at), Shape(type, 5, kColumns)),
                  Bytes(type, 5, kColumns));
      programs.push_back(lines.Make());
    }
    {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      const std::string part = lines.Add(
          absl::StrCat("slice ", x, " start=[0,1] limit=[6,95] step=[2,2]"), Shape(type, 3, 47));
      lines.Store(lines.Add(absl::StrCat("reverse ", part, " dimensions=[1]"), ""),
                  Bytes(type, 3, 47));
      programs.push_back(lines.Make());
    }
    if (Contains(dtypes::kNumbers, type)) {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      lines.Store(lines.Add(absl::StrCat("cumulative_sum ", x, " dimension=0"), ""), Bytes(type));
      programs.push_back(lines.Make());
      Lines product;
      const std::string a = product.Input(Shape(type), Bytes(type));
      const std::string b = product.Input(Shape(type), Bytes(type));
      product.Store(product.Add(absl::StrCat("dot_general ", a, ", ", b,
                                             " lhs_contract=[1] rhs_contract=[1]"),
                                Shape(type, kRows, kRows)),
                    Bytes(type, kRows, kRows));
      programs.push_back(product.Make());
    }
    if (type != DType::kBool && InfoOf(type).bits != 8) {
      Lines lines;
      const std::string x = lines.Input(Shape(type), Bytes(type));
      const int bits = InfoOf(type).bits;
      const std::string made = bits == 4
                                   ? absl::StrCat("u8[", kRows, ",", kColumns / 2, "]")
                                   : absl::StrCat("u8[", kRows, ",", kColumns, ",", bits / 8, "]");
      const std::string from =
          bits == 4 ? lines.Add(absl::StrCat("reshape ", x),
                                absl::StrCat(NameOf(type), "[", kRows, ",", kColumns / 2, ",2]"))
                    : x;
      lines.Store(lines.Add(absl::StrCat("bitcast_convert ", from), made), Bytes(type));
      programs.push_back(lines.Make());
    }
  }
  for (const DType type : {DType::kF8E8M0FNU, DType::kF8E4M3FN}) {
    Lines lines;
    const std::string x = lines.Input(Shape(type, 5, 3), 15);
    const std::string tiles = absl::StrCat(NameOf(type), "[512]");
    const std::string swizzled = lines.Add(absl::StrCat("swizzle_scales ", x), tiles);
    lines.Store(swizzled, 512);
    lines.Store(lines.Add(absl::StrCat("unswizzle_scales ", swizzled), Shape(type, 5, 3)), 15);
    programs.push_back(lines.Make());
  }
}

void AddOthers(std::vector<Program>& programs) {
  Lines lines;
  const std::string key = lines.Input("u64[]", 8);
  for (const DType type : {DType::kU32, DType::kU64}) {
    lines.Store(lines.Add(absl::StrCat("rng_bits ", key, ", ", key), Shape(type)), Bytes(type));
  }
  programs.push_back(lines.Make());
  for (size_t i = 0; i < kDTypes; ++i) {
    if (!Contains(dtypes::kNumbers, TypeAt(i))) continue;
    Lines counts;
    const std::string x = counts.Input(Shape(TypeAt(i)), Bytes(TypeAt(i)));
    const std::string column =
        counts.Input(absl::StrCat(NameOf(TypeAt(i)), "[", kColumns, "]"), Bytes(TypeAt(i), 1));
    const std::string all =
        counts.Add(absl::StrCat("broadcast_in_dim ", column, " dimensions=[1]"), Shape(TypeAt(i)));
    const std::string iota = counts.Add("iota dimension=1", Shape(TypeAt(i)));
    const std::string sum = counts.Add(absl::StrCat("add ", x, ", ", iota), "");
    counts.Store(counts.Add(absl::StrCat("multiply ", sum, ", ", all), ""), Bytes(TypeAt(i)));
    programs.push_back(counts.Make());
  }
  for (const std::string formats : {"f8e4m3fn f8e8m0fnu 32", "f4e2m1fn f8e4m3fn 16"}) {
    const std::vector<std::string> parts = absl::StrSplit(formats, ' ');
    const std::string columns = parts[2] == "32" ? "3" : "6";
    Lines product;
    const std::string a = product.Input(parts[0] + "[6,96]", parts[2] == "32" ? 576 : 288);
    const std::string b = product.Input(parts[0] + "[6,96]", parts[2] == "32" ? 576 : 288);
    const std::string as =
        product.Input(parts[1] + "[6," + columns + "]", parts[2] == "32" ? 18 : 36);
    const std::string bs =
        product.Input(parts[1] + "[6," + columns + "]", parts[2] == "32" ? 18 : 36);
    const std::string g = product.Input("f32[]", 4);
    product.Store(product.Add(absl::StrCat("block_scaled_dot ", a, ", ", b, ", ", as, ", ", bs,
                                           ", ", g, " block=", parts[2]),
                              "f32[6,6]"),
                  144);
    programs.push_back(product.Make());
  }
}

}  // namespace

std::vector<Program> KernelPrograms() {
  std::vector<Program> programs;
  AddConversions(programs);
  AddElementwise(programs);
  AddRows(programs);
  AddColumns(programs);
  AddAcross(programs);
  AddBlockFormats(programs);
  AddWhole(programs);
  AddMemory(programs);
  AddOthers(programs);
  return programs;
}

}  // namespace ferry::compute::testing
