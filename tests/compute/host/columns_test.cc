// SPDX-License-Identifier: Apache-2.0
// Reductions whose results follow each other in memory, and moves across memory: the bits are the
// reference's, whatever the shape and the number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/compute/host/host_runs.h"

namespace ferry::compute {
namespace {

using testing::DifferenceOf;
using testing::Parsed;
using testing::RunOnHost;

using ColumnDims = std::vector<int64_t>;

std::string ShapeOf(const std::string& type, const ColumnDims& dims) {
  return absl::StrCat(type, "[", absl::StrJoin(dims, ","), "]");
}

struct ColumnsCase {
  ColumnDims dims;
  ColumnDims reduced;
};

// Few columns and many, of parts of a vector, of several tiles, of several chunks, of none; leading
// and middle dimensions, and two that are apart.
const ColumnsCase kColumnsCases[] = {
    {{300, 7}, {0}},       {{4097, 3}, {0}},      {{129, 140}, {0}},   {{20, 1100}, {0}},
    {{5, 2600}, {0}},      {{12, 70, 5}, {1}},    {{3, 64, 300}, {1}}, {{6, 5, 4, 90}, {0, 2}},
    {{40, 3, 50, 2}, {2}}, {{20, 30, 4}, {0, 1}}, {{0, 5}, {0}},       {{2, 0, 200}, {1}},
    {{1, 128}, {0}},       {{100, 128, 1}, {0}}};

ColumnDims KeptOf(const ColumnsCase& one) {
  ColumnDims kept;
  for (size_t d = 0; d < one.dims.size(); ++d) {
    if (std::find(one.reduced.begin(), one.reduced.end(), static_cast<int64_t>(d)) ==
        one.reduced.end()) {
      kept.push_back(one.dims[d]);
    }
  }
  return kept;
}

uint64_t RoomFor(const ColumnDims& dims) {
  uint64_t elements = 1;
  for (const int64_t dim : dims) elements *= static_cast<uint64_t>(dim);
  return elements * 8 + 64;
}

std::string BeginOf(const ColumnsCase& one, const std::string& type) {
  return absl::StrCat("program 1\nbuffer @x read ", RoomFor(one.dims), "\nbuffer @y write ",
                      RoomFor(KeptOf(one)), "\n%x = input @x : ", ShapeOf(type, one.dims), "\n");
}

void ExpectAsReference(const std::string& text) {
  SCOPED_TRACE(text);
  const Program program = Parsed(text);
  const std::vector<testing::Bytes> buffers = testing::RandomBuffers(program, 11);
  EXPECT_EQ(DifferenceOf(program, buffers, 1), "");
  EXPECT_TRUE(RunOnHost(program, buffers, 1) == RunOnHost(program, buffers, 3));
}

// All of `reductions` of the same values.
void ExpectReductions(const ColumnsCase& one, const std::string& type,
                      const std::vector<std::string>& reductions) {
  const uint64_t room = RoomFor(KeptOf(one));
  std::string text =
      absl::StrCat("program 1\nbuffer @x read ", RoomFor(one.dims), "\nbuffer @y write ",
                   room * reductions.size(), "\n%x = input @x : ", ShapeOf(type, one.dims), "\n");
  for (size_t i = 0; i < reductions.size(); ++i) {
    absl::StrAppend(&text, "%y", i, " = reduce %x reduction=", reductions[i], " dimensions=[",
                    absl::StrJoin(one.reduced, ","), "]\nstore @y, %y", i, " offset=", i * room,
                    "\n");
  }
  ExpectAsReference(text);
}

TEST(ColumnsTest, ReductionsOfAllTypesAreAsTheReferenceSays) {
  for (const std::string type : {"f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u16"}) {
    for (const ColumnsCase& one : kColumnsCases) {
      ExpectReductions(one, type, {"sum", "product", "max", "min"});
    }
  }
  for (const ColumnsCase& one : kColumnsCases) ExpectReductions(one, "bool", {"any", "all"});
}

TEST(ColumnsTest, ChunksOfManyColumnsAreAsTheReferenceSays) {
  for (const std::string type : {"f32", "bf16"}) {
    ExpectReductions({{8193, 130}, {0}}, type, {"sum"});
    ExpectReductions({{2, 4200, 60}, {1}}, type, {"sum"});
  }
}

// Of tensors that lie as what is reduced does, are spread, or are counted.
TEST(ColumnsTest, WhatIsReducedIsMadeOnTheWay) {
  for (const std::string type : {"f32", "bf16", "i32"}) {
    for (const ColumnsCase& one : kColumnsCases) {
      const std::string shape = ShapeOf(type, one.dims);
      const std::string ops = absl::StrCat(
          BeginOf(one, type), "%i = iota dimension=0 : ", shape, "\n%r = reverse %x dimensions=[",
          one.dims.size() - 1, "]\n%a = abs %x\n%b = subtract %a, %r\n%c = add %b, %i\n");
      ExpectAsReference(absl::StrCat(ops, "%y = reduce %c reduction=sum dimensions=[",
                                     absl::StrJoin(one.reduced, ","), "]\nstore @y, %y\n"));
      if (one.reduced.size() > 1 || *std::min_element(one.dims.begin(), one.dims.end()) == 0) {
        continue;
      }
      ExpectAsReference(absl::StrCat(ops, "%y = argmax %c dimension=", one.reduced[0], " : ",
                                     ShapeOf("i32", KeptOf(one)), "\nstore @y, %y\n"));
    }
  }
}

// Of few bits there are ties, and NaN of halves.
TEST(ColumnsTest, ArgmaxIsTheFirstOfTheLargest) {
  for (const std::string type : {"f32", "bf16", "f16", "i8", "u64"}) {
    for (const ColumnsCase& one : kColumnsCases) {
      if (one.reduced.size() > 1 || *std::min_element(one.dims.begin(), one.dims.end()) == 0) {
        continue;
      }
      ExpectAsReference(absl::StrCat(BeginOf(one, type),
                                     "%y = argmax %x dimension=", one.reduced[0], " : ",
                                     ShapeOf("i32", KeptOf(one)), "\nstore @y, %y\n"));
    }
  }
}

// The sums are f32 unless the program says f64, and are rounded once.
TEST(ColumnsTest, SumsAreMadeInTheTypeThatTheProgramSays) {
  for (const std::string sum : {"f32", "f64"}) {
    ExpectAsReference(absl::StrCat(
        "program 1\nbuffer @x read 1400000\nbuffer @y write 600\n%x = input @x : bf16[5000,130]\n"
        "%y = reduce %x reduction=sum dimensions=[0] accumulate=",
        sum, "\nstore @y, %y\n"));
  }
}

// What is seen through a transpose or a slice lies across too.
TEST(ColumnsTest, ViewsThatLieAcross) {
  const std::string begin =
      "program 1\nbuffer @x read 1200000\nbuffer @y write 12000\n%x = input @x : f32[400,700]\n";
  for (const std::string view :
       {"%v = transpose %x permutation=[1,0]\n%y = reduce %v reduction=sum dimensions=[1]\n",
        "%v = transpose %x permutation=[1,0]\n%y = reduce %v reduction=sum dimensions=[0]\n",
        "%v = slice %x start=[3,5] limit=[390,600] step=[2,3]\n%y = reduce %v reduction=sum "
        "dimensions=[0]\n",
        "%v = reverse %x dimensions=[0,1]\n%y = reduce %v reduction=sum dimensions=[0]\n",
        "%v = reshape %x : f32[20,100,140]\n%y = reduce %v reduction=sum dimensions=[1]\n"}) {
    ExpectAsReference(absl::StrCat(begin, view, "store @y, %y\n"));
  }
}

// What is done with the results, once a row: also into their own memory.
TEST(ColumnsTest, ResultsAreUsedAtOnce) {
  for (const ColumnDims& dims : {ColumnDims{700, 90}, ColumnDims{700, 900}}) {
    const std::string rows = absl::StrCat("[", dims[1], "]");
    ExpectAsReference(absl::StrCat(
        "program 1\nbuffer @x read 2600000\nbuffer @y read_write 3600 donated\nbuffer @z write "
        "3600\n"
        "%x = input @x : ",
        ShapeOf("f32", dims), "\n^m: %o = input @y : f32", rows,
        "\n%s = reduce %x reduction=sum dimensions=[0]\n%a = multiply %s, %o\n%b = abs %a\n"
        "store @z, %b\naccumulate @y, %s after ^m\n"));
  }
}

// Sides of parts of a square, of several, and of few elements; of dimensions between the two.
struct MoveCase {
  ColumnDims from;
  ColumnDims permutation;
  ColumnDims to;
};
const MoveCase kMoveCases[] = {{{70, 130}, {1, 0}, {130, 70}},
                               {{3, 1000}, {1, 0}, {1000, 3}},
                               {{1000, 5}, {1, 0}, {5, 1000}},
                               {{257, 263}, {1, 0}, {263, 257}},
                               {{9, 70, 33}, {0, 2, 1}, {9, 33, 70}},
                               {{9, 70, 33}, {2, 1, 0}, {33, 70, 9}},
                               {{9, 70, 33}, {1, 2, 0}, {70, 33, 9}},
                               {{4, 6, 10, 66}, {3, 1, 2, 0}, {66, 6, 10, 4}},
                               {{4, 1, 10, 66}, {0, 3, 1, 2}, {4, 66, 1, 10}},
                               {{0, 30}, {1, 0}, {30, 0}},
                               {{1, 999}, {1, 0}, {999, 1}}};

TEST(SquaresTest, TransposesMoveAllBytes) {
  for (const std::string type : {"f64", "f32", "bf16", "i8", "f8e4m3fn", "f4e2m1fn", "bool"}) {
    for (const MoveCase& one : kMoveCases) {
      ExpectAsReference(absl::StrCat(
          "program 1\nbuffer @x read ", RoomFor(one.from), "\nbuffer @y write ", RoomFor(one.to),
          "\n%x = input @x : ", ShapeOf(type, one.from), "\n%y = transpose %x permutation=[",
          absl::StrJoin(one.permutation, ","), "]\nstore @y, %y\n"));
    }
  }
}

// Ops on what is read across, beside what is not; a step and a reversal; positions; into memory
// that is read, and into one that is not dense.
TEST(SquaresTest, OpsOnWhatIsReadAcross) {
  const std::string begin =
      "program 1\nbuffer @x read 90000\nbuffer @z read 90000\nbuffer @y read_write 180000\n"
      "%x = input @x : f32[110,190]\n%t = transpose %x permutation=[1,0]\n"
      "%z = input @z : f32[190,110]\n";
  for (const std::string ops :
       {"%a = multiply %t, %z\n%y = convert %a : bf16[190,110]\nstore @y, %y\n",
        "%a = abs %t\nstore @y, %a\nstore @y, %a offset=83600\n",
        "%a = slice %t start=[7,3] limit=[190,103] step=[2,1]\n%b = reverse %a dimensions=[0,1]\n"
        "%y = negate %b\nstore @y, %y\n",
        "%i = iota dimension=1 : f32[190,110]\n%y = add %t, %i\nstore @y, %y\n",
        "%f = reshape %t : f32[20900]\n%g = reshape %z : f32[20900]\n%y = add %f, %g\n"
        "store @y, %y\n",
        "%y = abs %t\nstore @y, %y strides=[200,1]\n", "%y = abs %t\naccumulate @y, %y\n"}) {
    ExpectAsReference(absl::StrCat(begin, ops));
  }
}

}  // namespace
}  // namespace ferry::compute
