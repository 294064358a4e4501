// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/number_programs.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/compute/parsed_program.h"

namespace ferry::compute::testing {
namespace {

// Conversions of the first `count` multiples of 2^shift, as bits of type `from`, to other types.
// `bits` is the unsigned type of as many bits.
Program Conversions(absl::string_view from, uint64_t count, absl::string_view bits, int shift) {
  const std::string dims = absl::StrCat("[", count, "]");
  std::string buffers = "program 1\n";
  std::string ops = absl::StrCat(
      "%i = iota dimension=0 : ", bits, dims, "\n%n = constant splat=", shift, " : ", bits, dims,
      "\n%s = shift_left %i, %n\n", "%x = bitcast_convert %s : ", from, dims, "\n");
  int outputs = 0;
  const auto store = [&](DType to, absl::string_view how) {
    if (NameOf(to) == from) return;
    const int name = outputs++;
    absl::StrAppend(&buffers, "buffer @b", name, " write ", BytesOf(to, count), "\n");
    absl::StrAppend(&ops, "%v", name, " = convert %x", how, " : ", NameOf(to), dims, "\nstore @b",
                    name, ", %v", name, "\n");
  };
  for (const DType to : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kU64}) {
    store(to, "");
  }
  for (const absl::string_view mode : {"", " mode=saturate"}) {
    for (const DType to : {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF4E2M1FN}) store(to, mode);
    for (const absl::string_view rounding : {"", " rounding=floor", " rounding=nearest_half_up"}) {
      store(DType::kF8E8M0FNU, absl::StrCat(mode, rounding));
    }
  }
  return ParsedProgram(absl::StrCat(buffers, ops));
}

// Every number of 16 bits in blocks of both formats, also of elements between which others lie, so
// that NaN of both signs are alone in a block and beside others.
Program Quantised(absl::string_view type) {
  std::string text = "program 1\n";
  std::string ops = absl::StrCat(
      "%i = iota dimension=0 : u16[65536]\n%f = constant splat=40503 : u16[65536]\n"
      "%s = multiply %i, %f\n%b = bitcast_convert %s : ",
      type, "[65536]\n%x = reshape %b : ", type, "[256,256]\n");
  int made = 0;
  for (const int block : {1, 4, 32}) {
    for (const absl::string_view types :
         {"f8e5m2[256,256], f8e8m0fnu", "f8e4m3fn[256,256], f8e8m0fnu",
          "f4e2m1fn[256,256], f8e8m0fnu", "f4e2m1fn[256,256], f8e4m3fn"}) {
      const bool packed = absl::StrContains(types, "f4");
      absl::StrAppend(&text, "buffer @q", made, " write ", packed ? 32768 : 65536, "\nbuffer @s",
                      made, " write ", 65536 / block, "\n");
      absl::StrAppend(&ops, "%q", made, ", %s", made, " = quantize_block %x block=", block, " : ",
                      types, "[256,", 256 / block, "]\nstore @q", made, ", %q", made, "\nstore @s",
                      made, ", %s", made, "\n");
      ++made;
    }
  }
  return ParsedProgram(text + ops);
}

}  // namespace

std::vector<Program> ConversionPrograms() {
  return {Conversions("f32", 1 << 18, "u32", 14),
          Conversions("f16", 1 << 16, "u16", 0),
          Conversions("bf16", 1 << 16, "u16", 0),
          Conversions("f8e4m3fn", 1 << 8, "u8", 0),
          Conversions("f8e5m2", 1 << 8, "u8", 0),
          Quantised("f16"),
          Quantised("bf16")};
}

std::vector<Program> QuotientPrograms() {
  // The bits that are kept of random ones, those that are added, and what a row is divided by.
  const auto masked = [](uint32_t kept, uint32_t added, absl::string_view reduction) {
    constexpr absl::string_view kDims = "[256,1024]\n";
    return ParsedProgram(absl::StrCat(
        "program 1\nbuffer @x read 1048576\nbuffer @y write 1048576\n%n = input @x : u32", kDims,
        "%k = constant splat=", kept, " : u32", kDims, "%o = constant splat=", added, " : u32",
        kDims, "%l = and %n, %k\n%h = or %l, %o\n%v = bitcast_convert %h : f32", kDims,
        "%w = reduce %v reduction=", reduction, " dimensions=[1] : f32[256]\n",
        "%d = broadcast_in_dim %w dimensions=[0] : f32", kDims,
        "%z = divide %v, %d\nstore @y, %z\n"));
  };
  return {masked(0xBFFFFFFF, 0, "max"), masked(0x7FFFFF, 0x3F800000, "sum"),
          masked(0x80FFFFFF, 0x3F000000, "max")};
}

}  // namespace ferry::compute::testing
