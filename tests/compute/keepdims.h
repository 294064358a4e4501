// SPDX-License-Identifier: Apache-2.0
// Softmax and norms as JAX prints them: what a reduction of rows makes is given a dimension of 1,
// and spread over the rows from there. Each stores f32 or bf16 rows of @x, as many as it reads, in
// @y. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace ferry::compute::testing {

struct KeepdimsProgram {
  std::string name;
  std::string text;
};
// What a test that has one as its parameter is called by.
inline void PrintTo(const KeepdimsProgram& program, std::ostream* out) { *out << program.name; }

// What stands in the programs for types and dimensions of one shape.
struct KeepdimsShape {
  std::vector<int64_t> rows;  // the dimensions before the last
  int64_t row = 64;
  bool bf16 = false;      // of @x and @y; between them f32
  bool reshapes = false;  // a dimension of 1 is added by `reshape`, else by `broadcast_in_dim`
};

namespace keepdims {

// max(x - most), its exponential, and that over its sum.
inline constexpr char kSoftmax[] =
    "%m = reduce %f reduction=max dimensions=[LAST]\n"
    "%low = constant splat=-1e30 : f32[]\n"
    "%lows = broadcast_in_dim %low : f32[ROWS]\n"
    "%mm = maximum %lows, %m\n"
    "%m1 = KEEP(%mm)\n"
    "%mb = broadcast_in_dim %m1 dimensions=[ALL] : f32[FULL]\n"
    "%d = subtract %f, %mb\n"
    "%e = exponential %d\n"
    "%s = reduce %e reduction=sum dimensions=[LAST]\n"
    "%s1 = KEEP(%s)\n"
    "%sb = broadcast_in_dim %s1 dimensions=[ALL] : f32[FULL]\n"
    "%o = divide %e, %sb\n";

// x * rsqrt(mean(x * x) + eps) * w; all of that of one row is done on [.., 1].
inline constexpr char kRmsNorm[] =
    "%q = multiply %f, %f\n"
    "%s = reduce %q reduction=sum dimensions=[LAST]\n"
    "%s1 = KEEP(%s)\n"
    "%n = constant splat=64 : f32[]\n"
    "%n1 = broadcast_in_dim %n : f32[ROWS,1]\n"
    "%v = divide %s1, %n1\n"
    "%eps = constant splat=1e-6 : f32[ROWS,1]\n"
    "%a = add %v, %eps\n"
    "%r = rsqrt %a\n"
    "%rb = broadcast_in_dim %r dimensions=[ALL] : f32[FULL]\n"
    "%y1 = multiply %f, %rb\n"
    "%w = input @w : f32[ROW]\n"
    "%w1 = broadcast_in_dim %w dimensions=[LAST] : f32[ONES,ROW]\n"
    "%wb = broadcast_in_dim %w1 dimensions=[ALL] : f32[FULL]\n"
    "%o = multiply %y1, %wb\n";

// (x - mean) * rsqrt(variance + eps) * w.
inline constexpr char kLayerNorm[] =
    "%s = reduce %f reduction=sum dimensions=[LAST]\n"
    "%s1 = KEEP(%s)\n"
    "%n = constant splat=64 : f32[ROWS,1]\n"
    "%mean = divide %s1, %n\n"
    "%meanb = broadcast_in_dim %mean dimensions=[ALL] : f32[FULL]\n"
    "%c = subtract %f, %meanb\n"
    "%q = multiply %c, %c\n"
    "%t = reduce %q reduction=sum dimensions=[LAST]\n"
    "%t1 = KEEP(%t)\n"
    "%v = divide %t1, %n\n"
    "%again = broadcast_in_dim %mean dimensions=[ALL] : f32[FULL]\n"
    "%e = subtract %f, %again\n"
    "%eps = constant splat=1e-5 : f32[ROWS,1]\n"
    "%a = add %v, %eps\n"
    "%r = rsqrt %a\n"
    "%rb = broadcast_in_dim %r dimensions=[ALL] : f32[FULL]\n"
    "%y1 = multiply %e, %rb\n"
    "%w = input @w : f32[ROW]\n"
    "%w1 = reshape %w : f32[ONES,ROW]\n"
    "%wb = broadcast_in_dim %w1 dimensions=[ALL] : f32[FULL]\n"
    "%o = multiply %y1, %wb\n";

inline std::string Text(const std::string& body, const KeepdimsShape& shape) {
  const size_t rank = shape.rows.size() + 1;
  std::vector<int64_t> full = shape.rows;
  full.push_back(shape.row);
  int64_t elements = 1;
  for (const int64_t dim : full) elements *= dim;
  std::vector<int64_t> kept;
  for (size_t i = 0; i + 1 < rank; ++i) kept.push_back(static_cast<int64_t>(i));
  std::vector<int64_t> all = kept;
  all.push_back(static_cast<int64_t>(rank) - 1);
  const std::string type = shape.bf16 ? "bf16" : "f32";
  const int64_t bytes = elements * (shape.bf16 ? 2 : 4);
  const std::string keep = shape.reshapes
                               ? "reshape \\0 : f32[ROWS,1]"
                               : absl::StrCat("broadcast_in_dim \\0 dimensions=[",
                                              absl::StrJoin(kept, ","), "] : f32[ROWS,1]");
  std::string text = body;
  for (const char* value : {"%mm", "%s", "%t"}) {
    text = absl::StrReplaceAll(
        text, {{absl::StrCat("KEEP(", value, ")"), absl::StrReplaceAll(keep, {{"\\0", value}})}});
  }
  text = absl::StrCat("program 1\nbuffer @x read ", bytes, "\nbuffer @w read ", shape.row * 4,
                      "\nbuffer @y write ", bytes, "\n%x = input @x : ", type, "[FULL]\n",
                      shape.bf16 ? "%f = convert %x : f32[FULL]\n" : "%f = abs %x\n", text,
                      shape.bf16 ? "%z = convert %o : bf16[FULL]\n" : "%z = abs %o\n",
                      "store @y, %z\n");
  return absl::StrReplaceAll(text, {{"FULL", absl::StrJoin(full, ",")},
                                    {"ROWS", absl::StrJoin(shape.rows, ",")},
                                    {"ROW]", absl::StrCat(shape.row, "]")},
                                    {"ONES", absl::StrJoin(std::vector<int64_t>(rank - 1, 1), ",")},
                                    {"LAST", absl::StrCat(rank - 1)},
                                    {"ALL", absl::StrJoin(all, ",")}});
}

}  // namespace keepdims

// Of two and three dimensions, f32 and bf16, with both ways to add a dimension.
inline std::vector<KeepdimsProgram> KeepdimsPrograms() {
  std::vector<KeepdimsProgram> programs;
  for (const auto& [name, body] :
       {std::pair("Softmax", keepdims::kSoftmax), std::pair("RmsNorm", keepdims::kRmsNorm),
        std::pair("LayerNorm", keepdims::kLayerNorm)}) {
    for (const bool reshapes : {false, true}) {
      for (const bool bf16 : {false, true}) {
        for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{{16}, {2, 16}}) {
          programs.push_back({absl::StrCat(name, rows.size() + 1, "d", bf16 ? "Bf16" : "F32",
                                           reshapes ? "ByReshape" : "ByBroadcast"),
                              keepdims::Text(body, {rows, 64, bf16, reshapes})});
        }
      }
    }
  }
  return programs;
}

}  // namespace ferry::compute::testing
