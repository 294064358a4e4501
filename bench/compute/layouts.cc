// SPDX-License-Identifier: Apache-2.0
#include "bench/compute/layouts.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kBytes = uint64_t{64} << 20;  // of each tensor

using Dims = std::vector<int64_t>;

std::string Shape(const std::string& type, const Dims& dims) {
  return absl::StrCat(type, "[", absl::StrJoin(dims, ","), "]");
}

uint64_t ElementBytes(const std::string& type) {
  return type == "bf16" ? 2 : type == "i8" ? 1 : type == "f64" ? 8 : 4;
}

std::string ReduceText(const std::string& type, const Dims& dims, size_t dimension,
                       const std::string& ops, const std::string& reduced) {
  Dims kept = dims;
  kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(dimension));
  return absl::StrCat("program 1\nbuffer @x read ", kBytes, "\nbuffer @y write ", kBytes,
                      "\n%x = input @x : ", Shape(type, dims), "\n", ops, "%y = reduce ", reduced,
                      " reduction=sum dimensions=[", dimension, "]\nstore @y, %y\n");
}

}  // namespace

void Reductions(Bench& bench, size_t threads) {
  Memory x(kBytes), y(kBytes);
  struct Case {
    std::string type;
    Dims dims;
    size_t dimension;
    bool chain = false;
    double target = 0;
  };
  const std::vector<Case> cases = {
      {"f32", {4096, 4096}, 0, false, 0.5}, {"f32", {4096, 4096}, 0, true, 0},
      {"bf16", {8192, 4096}, 0, false, 0},  {"f32", {64, 4096, 64}, 1, false, 0},
      {"f32", {4096, 64, 64}, 0, false, 0}, {"f32", {4194304, 4}, 0, false, 0}};
  for (const Case& one : cases) {
    Dims last = {1, 1};  // the same elements, reduced over the last dimension
    for (size_t d = 0; d < one.dims.size(); ++d) last[d == one.dimension ? 1 : 0] *= one.dims[d];
    std::string ops;
    if (one.chain) ops = "%a = abs %x\n%s = multiply %a, %x\n";
    const std::string reduced = one.chain ? "%s" : "%x";
    Prepared other(ReduceText(one.type, last, 1, ops, reduced), threads, {&x, &y});
    Prepared ours(ReduceText(one.type, one.dims, one.dimension, ops, reduced), threads, {&x, &y});
    bench.Compare(absl::StrCat(one.chain ? "2 ops and sum " : "sum ", Shape(one.type, one.dims),
                               " over ", one.dimension),
                  "GB/s", static_cast<double>(kBytes) * 1e-9, 1, [&] { ours.Run(); },
                  {{"over the last", [&] { other.Run(); }, one.target}});
  }
}

void Transposes(Bench& bench, size_t threads) {
  Memory x(kBytes), y(kBytes);
  compute::Workers workers(threads);
  const auto copy = [&] {
    InHalves(workers, kBytes, [&](size_t at, size_t n) { std::memcpy(y.at + at, x.at + at, n); });
  };
  for (const std::string type : {"i8", "bf16", "f32", "f64"}) {
    const auto rows = static_cast<int64_t>(kBytes / ElementBytes(type) / 4096);
    Prepared transpose(absl::StrCat("program 1\nbuffer @x read ", kBytes, "\nbuffer @y write ",
                                    kBytes, "\n%x = input @x : ", Shape(type, {rows, 4096}),
                                    "\n%y = transpose %x permutation=[1,0]\nstore @y, %y\n"),
                       threads, {&x, &y});
    bench.Compare(absl::StrCat("transpose ", Shape(type, {rows, 4096})), "GB/s",
                  static_cast<double>(kBytes) * 2e-9, 1, [&] { transpose.Run(); },
                  {{"memcpy", copy, 0.0}});
  }
}

}  // namespace ferry::bench
