// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/shaped_programs.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/stored_broadcast.h"

namespace ferry::compute::testing {
namespace {

using Dims = std::vector<int64_t>;

struct Reduction {
  Dims dims;
  Dims reduced;

  Dims kept() const {
    Dims kept;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) == reduced.end()) {
        kept.push_back(dims[d]);
      }
    }
    return kept;
  }
  bool empty() const { return *std::min_element(dims.begin(), dims.end()) == 0; }
};

// Few columns and many, of parts of a vector, of several tiles, of several chunks, of none; leading
// and middle dimensions, and two that are apart.
const Reduction kReductions[] = {
    {{300, 7}, {0}},       {{4097, 3}, {0}},      {{129, 140}, {0}},   {{20, 1100}, {0}},
    {{5, 2600}, {0}},      {{12, 70, 5}, {1}},    {{3, 64, 300}, {1}}, {{6, 5, 4, 90}, {0, 2}},
    {{40, 3, 50, 2}, {2}}, {{20, 30, 4}, {0, 1}}, {{0, 5}, {0}},       {{2, 0, 200}, {1}},
    {{1, 128}, {0}},       {{100, 128, 1}, {0}}};

std::string ShapeOf(const std::string& type, const Dims& dims) {
  return absl::StrCat(type, "[", absl::StrJoin(dims, ","), "]");
}

uint64_t RoomFor(const Dims& dims) {
  uint64_t elements = 1;
  for (const int64_t dim : dims) elements *= static_cast<uint64_t>(dim);
  return elements * 8 + 64;
}

std::string BeginOf(const Reduction& one, const std::string& type) {
  return absl::StrCat("program 1\nbuffer @x read ", RoomFor(one.dims), "\nbuffer @y write ",
                      RoomFor(one.kept()), "\n%x = input @x : ", ShapeOf(type, one.dims), "\n");
}

std::string ReducedOver(const Reduction& one) {
  return absl::StrCat(" dimensions=[", absl::StrJoin(one.reduced, ","), "]");
}

std::string ArgmaxOf(const std::string& value, const Reduction& one) {
  return absl::StrCat("%y = argmax ", value, " dimension=", one.reduced[0], " : ",
                      ShapeOf("i32", one.kept()), "\nstore @y, %y\n");
}

// All of `reductions` of the same values.
Program Reductions(const Reduction& one, const std::string& type,
                   const std::vector<std::string>& reductions) {
  const uint64_t room = RoomFor(one.kept());
  std::string text =
      absl::StrCat("program 1\nbuffer @x read ", RoomFor(one.dims), "\nbuffer @y write ",
                   room * reductions.size(), "\n%x = input @x : ", ShapeOf(type, one.dims), "\n");
  for (size_t i = 0; i < reductions.size(); ++i) {
    absl::StrAppend(&text, "%y", i, " = reduce %x reduction=", reductions[i], ReducedOver(one),
                    "\nstore @y, %y", i, " offset=", i * room, "\n");
  }
  return ParsedProgram(text);
}

// The op of inputs of that type and size, whose results are stored.
Program Elementwise(Op op, DType type, int64_t elements) {
  Program program;
  Node node;
  node.op = op;
  for (size_t k = 0; k < InfoOf(op).operands.least; ++k) {
    program.buffers.push_back(
        {absl::StrCat("in", k), Access::kRead, BytesOf(type, static_cast<uint64_t>(elements))});
    Node input;
    input.op = Op::kInput;
    input.buffers = {static_cast<uint32_t>(k)};
    node.operands.push_back(
        program.Result(program.Append(std::move(input), {TensorType{type, {elements}}})));
  }
  program.Append(std::move(node));
  StoreAll(program);
  for (const Problem& problem : Verify(program)) ADD_FAILURE() << ToString(program, problem);
  return program;
}

Program Rows(const std::string& dims) {
  const std::pair<std::string, std::string> sizes = absl::StrSplit(dims, ',');
  const std::string& rows = sizes.first;
  int64_t row = 0;
  if (!absl::SimpleAtoi(sizes.second, &row)) ADD_FAILURE() << dims;
  return ParsedProgram(absl::StrCat(
      "program 1\nbuffer @x read 110000\nbuffer @s read 1200\nbuffer @y write 110000\n"
      "buffer @m write 1200\nbuffer @q write 27100\nbuffer @e write 2000\nbuffer @i write 1200\n"
      "%x = input @x : f32[",
      dims, "]\n%s = input @s : f32[", rows,
      "]\n%m = reduce %x reduction=max dimensions=[1]\n%t = abs %m\n%u = add %t, %s\n"
      "%b = broadcast_in_dim %u dimensions=[0] : f32[",
      dims, "]\n%y = subtract %x, %b\n%n = negate %y\n%i = argmax %x dimension=1 : i32[", rows,
      "]\nstore @y, %n\nstore @m, %u\nstore @i, %i\n"
      "%q, %e = quantize_block %y block=16 : f8e4m3fn[",
      dims, "], f8e8m0fnu[", rows, ",", (row + 15) / 16, "]\nstore @q, %q\nstore @e, %e\n"));
}

}  // namespace

std::vector<Program> ElementwisePrograms() {
  std::vector<Program> programs;
  for (auto op = static_cast<size_t>(Op::kAdd); op <= static_cast<size_t>(Op::kFma); ++op) {
    for (size_t type = 0; type < kDTypes; ++type) {
      if (!Contains(InfoOf(static_cast<Op>(op)).dtypes, static_cast<DType>(type))) continue;
      for (const int64_t elements : {1, 700}) {
        programs.push_back(Elementwise(static_cast<Op>(op), static_cast<DType>(type), elements));
      }
    }
  }
  return programs;
}

std::vector<Program> ChainPrograms() {
  std::vector<Program> programs;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::minstd_rand random(seed);
    const std::string shape = seed % 3 == 0 ? "[1]" : "[700]";
    std::string text =
        "program 1\nbuffer @f read 2800\nbuffer @b read 1400\nbuffer @y write 2800\n";
    absl::StrAppend(&text, "%f32 = input @f : f32", shape, "\n%bf16 = input @b : bf16", shape,
                    "\n");
    std::string type = seed % 2 == 0 ? "f32" : "bf16";
    std::string last = absl::StrCat("%", type);
    const uint32_t ops = 2 + seed % 6;
    for (uint32_t op = 0; op < ops; ++op) {
      const char* const unary[] = {"negate", "abs", "sqrt"};
      const char* const binary[] = {"add", "subtract", "multiply", "divide", "maximum", "minimum"};
      const std::string value = absl::StrCat("%v", op);
      const auto kind = random() % 8;
      if (kind < 4) {
        type = type == "f32" ? "bf16" : "f32";
        absl::StrAppend(&text, value, " = convert ", last, " : ", type, shape, "\n");
      } else if (kind < 5) {
        absl::StrAppend(&text, value, " = ", unary[random() % 3], " ", last, "\n");
      } else {
        const std::string other = absl::StrCat("%", type);
        const bool turned = random() % 2 == 0;
        absl::StrAppend(&text, value, " = ", binary[random() % 6], " ", turned ? other : last, ", ",
                        turned ? last : other, "\n");
      }
      last = value;
    }
    programs.push_back(ParsedProgram(absl::StrCat(text, "store @y, ", last, "\n")));
  }
  return programs;
}

std::vector<Program> RowPrograms() {
  std::vector<Program> programs;
  for (const char* dims : {"300,1", "90,7", "3,512", "3,513", "2,8192", "3,9001", "0,5"}) {
    programs.push_back(Rows(dims));
  }
  for (const char* dims : {"3,700", "2,5000", "1,16900", "40,3"}) {
    programs.push_back(ParsedProgram(absl::StrCat(
        "program 1\nbuffer @x read 80000\nbuffer @y write 256\n%x = input @x : bf16[", dims,
        "]\n%a = convert %x : f32[", dims,
        "]\n%n = negate %a\n%s = reduce %n reduction=sum dimensions=[1]\nstore @y, %s\n")));
  }
  return programs;
}

std::vector<Program> ColumnPrograms() {
  std::vector<Program> programs;
  for (const Reduction& one : kReductions) {
    for (const char* type : {"f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u16"}) {
      programs.push_back(Reductions(one, type, {"sum", "product", "max", "min"}));
    }
    programs.push_back(Reductions(one, "bool", {"any", "all"}));
  }
  // Chunks of many columns.
  for (const char* type : {"f32", "bf16"}) {
    programs.push_back(Reductions({{8193, 130}, {0}}, type, {"sum"}));
    programs.push_back(Reductions({{2, 4200, 60}, {1}}, type, {"sum"}));
  }
  // The sums are f32 unless the program says f64, and are rounded once.
  for (const char* sum : {"f32", "f64"}) {
    programs.push_back(ParsedProgram(absl::StrCat(
        "program 1\nbuffer @x read 1400000\nbuffer @y write 600\n%x = input @x : bf16[5000,130]\n"
        "%y = reduce %x reduction=sum dimensions=[0] accumulate=",
        sum, "\nstore @y, %y\n")));
  }
  return programs;
}

std::vector<Program> MadeColumnPrograms() {
  std::vector<Program> programs;
  for (const char* type : {"f32", "bf16", "i32"}) {
    for (const Reduction& one : kReductions) {
      const std::string ops =
          absl::StrCat(BeginOf(one, type), "%i = iota dimension=0 : ", ShapeOf(type, one.dims),
                       "\n%r = reverse %x dimensions=[", one.dims.size() - 1,
                       "]\n%a = abs %x\n%b = subtract %a, %r\n%c = add %b, %i\n");
      programs.push_back(ParsedProgram(
          absl::StrCat(ops, "%y = reduce %c reduction=sum", ReducedOver(one), "\nstore @y, %y\n")));
      if (one.reduced.size() > 1 || one.empty()) continue;
      programs.push_back(ParsedProgram(absl::StrCat(ops, ArgmaxOf("%c", one))));
    }
  }
  return programs;
}

std::vector<Program> ArgmaxPrograms() {
  std::vector<Program> programs;
  for (const char* type : {"f32", "bf16", "f16", "i8", "u64"}) {
    for (const Reduction& one : kReductions) {
      if (one.reduced.size() > 1 || one.empty()) continue;
      programs.push_back(ParsedProgram(absl::StrCat(BeginOf(one, type), ArgmaxOf("%x", one))));
    }
  }
  return programs;
}

std::vector<Program> ColumnUsePrograms() {
  std::vector<Program> programs;
  for (const char* view :
       {"%v = transpose %x permutation=[1,0]\n%y = reduce %v reduction=sum dimensions=[1]\n",
        "%v = transpose %x permutation=[1,0]\n%y = reduce %v reduction=sum dimensions=[0]\n",
        "%v = slice %x start=[3,5] limit=[390,600] step=[2,3]\n%y = reduce %v reduction=sum "
        "dimensions=[0]\n",
        "%v = reverse %x dimensions=[0,1]\n%y = reduce %v reduction=sum dimensions=[0]\n",
        "%v = reshape %x : f32[20,100,140]\n%y = reduce %v reduction=sum dimensions=[1]\n"}) {
    programs.push_back(ParsedProgram(absl::StrCat(
        "program 1\nbuffer @x read 1200000\nbuffer @y write 12000\n%x = input @x : f32[400,700]\n",
        view, "store @y, %y\n")));
  }
  for (const int64_t columns : {90, 900}) {
    const std::string of = absl::StrCat(columns, "]");
    programs.push_back(ParsedProgram(absl::StrCat(
        "program 1\nbuffer @x read 2600000\nbuffer @y read_write 3600 donated\n"
        "buffer @z write 3600\n%x = input @x : f32[700,",
        of, "\n^m: %o = input @y : f32[", of,
        "\n%s = reduce %x reduction=sum dimensions=[0]\n%a = multiply %s, %o\n%b = abs %a\n"
        "store @z, %b\naccumulate @y, %s after ^m\n")));
  }
  return programs;
}

std::vector<Program> TransposePrograms() {
  // Sides of parts of a square, of several, and of few elements; of dimensions between the two.
  const std::pair<Dims, Dims> moves[] = {{{70, 130}, {1, 0}},
                                         {{3, 1000}, {1, 0}},
                                         {{1000, 5}, {1, 0}},
                                         {{257, 263}, {1, 0}},
                                         {{9, 70, 33}, {0, 2, 1}},
                                         {{9, 70, 33}, {2, 1, 0}},
                                         {{9, 70, 33}, {1, 2, 0}},
                                         {{4, 6, 10, 66}, {3, 1, 2, 0}},
                                         {{4, 1, 10, 66}, {0, 3, 1, 2}},
                                         {{0, 30}, {1, 0}},
                                         {{1, 999}, {1, 0}}};
  std::vector<Program> programs;
  for (const char* type : {"f64", "f32", "bf16", "i8", "f8e4m3fn", "f4e2m1fn", "bool"}) {
    for (const auto& [from, permutation] : moves) {
      programs.push_back(ParsedProgram(absl::StrCat(
          "program 1\nbuffer @x read ", RoomFor(from), "\nbuffer @y write ", RoomFor(from),
          "\n%x = input @x : ", ShapeOf(type, from), "\n%y = transpose %x permutation=[",
          absl::StrJoin(permutation, ","), "]\nstore @y, %y\n")));
    }
  }
  return programs;
}

std::vector<Program> AcrossPrograms() {
  std::vector<Program> programs;
  for (const char* ops :
       {"%a = multiply %t, %z\n%y = convert %a : bf16[190,110]\nstore @y, %y\n",
        "%a = abs %t\nstore @y, %a\nstore @y, %a offset=83600\n",
        "%a = slice %t start=[7,3] limit=[190,103] step=[2,1]\n%b = reverse %a dimensions=[0,1]\n"
        "%y = negate %b\nstore @y, %y\n",
        "%i = iota dimension=1 : f32[190,110]\n%y = add %t, %i\nstore @y, %y\n",
        "%f = reshape %t : f32[20900]\n%g = reshape %z : f32[20900]\n%y = add %f, %g\n"
        "store @y, %y\n",
        "%y = abs %t\nstore @y, %y strides=[200,1]\n", "%y = abs %t\naccumulate @y, %y\n"}) {
    programs.push_back(ParsedProgram(absl::StrCat(
        "program 1\nbuffer @x read 90000\nbuffer @z read 90000\nbuffer @y read_write 180000\n"
        "%x = input @x : f32[110,190]\n%t = transpose %x permutation=[1,0]\n"
        "%z = input @z : f32[190,110]\n",
        ops)));
  }
  return programs;
}

std::vector<Program> BufferPrograms() {
  const std::string in_place =
      "program 1\nbuffer @x read_write 8192 donated\n%x = input @x : f32[2048]\n";
  std::vector<Program> programs;
  for (const std::string& text :
       {in_place + "%y = negate %x\nstore @x, %y\n",
        // What is reversed is not where it was.
        in_place + "%y = reverse %x dimensions=[0]\n%z = negate %y\nstore @x, %z\n",
        std::string("program 1\nbuffer @x read_write 8192 donated\n%x = input @x : f32[1024]\n"
                    "%y = negate %x\nstore @x, %y offset=4\n"),
        std::string(kEmptied), std::string(kStoredBroadcast)}) {
    programs.push_back(ParsedProgram(text));
  }
  return programs;
}

}  // namespace ferry::compute::testing
