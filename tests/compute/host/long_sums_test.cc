// SPDX-License-Identifier: Apache-2.0
// Products of many terms are within the bound of docs/numerics.md, whoever multiplies. Equal terms
// are the worst: all that is rounded goes the same way.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/host/library_product.h"
#include "compute/numerics/convert.h"
#include "tests/compute/host/host_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

// Memory that is aligned as an arena's.
class Aligned {
 public:
  explicit Aligned(uint64_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)),
                &std::free) {
    std::memset(memory_.get(), 0xA5, bytes);
  }
  std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

// How much of 2^-17 of the terms' magnitudes a sum loses at most, of those by the library of so
// many equal terms; of terms whose bits differ in many ways. -1: the library does not multiply
// such.
class LibrarySumTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kRows = 17, kColumns = 67;

  static double Loss(int64_t terms, bool packed) {
    const View left = {0, {1, kRows, terms}, {kRows * terms, terms, 1}};
    const View right = {0, {1, kColumns, terms}, {kColumns * terms, terms, 1}};
    const auto product =
        LibraryProduct::Make({GetParam(), GetParam(), left, right}, DType::kF32, packed, 2);
    if (product == nullptr) return -1;
    double worst = 0;
    for (int i = 0; i < 24; ++i) {
      const double a = 1 + i / 24.0 + i * 1e-3, b = i < 12 ? 1 + i * 7 % 24 / 31.0 : 1;
      worst = std::max(worst, LossOf(*product, terms, a, b));
    }
    return worst;
  }

 private:
  static double LossOf(const LibraryProduct& product, int64_t terms, double a, double b) {
    const Aligned left = Filled(kRows * terms, a), right = Filled(kColumns * terms, b);
    const Aligned scratch(product.scratch_bytes()), packed(product.packed_bytes());
    std::vector<float> sums(kRows * kColumns);
    if (product.packed_bytes() > 0) product.Pack(right.data(), packed.data());
    RunControl control;
    product.Run(left.data(), product.packed_bytes() > 0 ? packed.data() : right.data(),
                reinterpret_cast<std::byte*>(sums.data()), scratch.data(), nullptr, control,
                [](uint64_t, uint64_t) {});
    const double exact = a * b * static_cast<double>(terms);
    double worst = 0;
    for (const float sum : sums) worst = std::max(worst, std::fabs(sum - exact) / exact);
    return worst / 0x1p-17;
  }

  // `value` becomes what the type has of it.
  static Aligned Filled(int64_t count, double& value) {
    Aligned filled(BytesOf(GetParam(), static_cast<uint64_t>(count)));
    const std::vector<double> values(static_cast<size_t>(count), value);
    Convert(DType::kF64, reinterpret_cast<const std::byte*>(values.data()), GetParam(),
            filled.data(), static_cast<uint64_t>(count));
    Convert(GetParam(), filled.data(), DType::kF64, reinterpret_cast<std::byte*>(&value), 1);
    return filled;
  }
};

// 1,025 are two pieces, 33,000 more than one sum of pieces, 69,632 whole pieces only.
TEST_P(LibrarySumTest, PiecesAreShortEnough) {
  for (const int64_t terms : {int64_t{256}, kTermsOfLibrary, kTermsOfLibrary + 1, int64_t{33'000},
                              int64_t{69'632}, int64_t{70'001}}) {
    for (const bool packed : {false, true}) {
      EXPECT_LE(Loss(terms, packed), 1) << terms << " terms, packed " << packed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LibrarySumTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& of) { return std::string(NameOf(of.param)); });

struct Case {
  std::string name;
  int rows;  // as many columns
  int64_t terms;
  std::string factor, result;
  double value;  // of the left side; the right side has ones
  double bound;  // of the terms' magnitudes
};

void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

class LongSumTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::string Text(const std::string& sides, const std::string& product) {
    const Case& of = GetParam();
    return absl::StrReplaceAll(
        absl::StrCat("program 1\nbuffer @y write ", of.rows * of.rows * 8, "\n", sides,
                     "%p = ", product,
                     " : RESULT[ROWS,ROWS]\n%y = convert %p : f64[ROWS,ROWS]\n"
                     "store @y, %y\n"),
        {{"ROWS", absl::StrCat(of.rows)},
         {"TERMS", absl::StrCat(of.terms)},
         {"BLOCKS", absl::StrCat(of.terms / 32)},
         {"PADDED", absl::StrCat(of.terms / 32 + 8)},
         {"FACTOR", of.factor},
         {"RESULT", of.result},
         {"VALUE", absl::StrCat(of.value)}});
  }

  static void ExpectNear(const std::string& text, double term) {
    const Program program = testing::Parsed(text);
    std::vector<Bytes> buffers = testing::RunOnHost(program, testing::RandomBuffers(program, 1), 2);
    const double exact = term * static_cast<double>(GetParam().terms);
    const double rounding = GetParam().result == "bf16" ? 0x1p-8 : 0;
    for (size_t i = 0; i < buffers[0].size(); i += sizeof(double)) {
      double sum;
      std::memcpy(&sum, buffers[0].data() + i, sizeof(sum));
      ASSERT_LE(std::fabs(sum - exact), exact * (GetParam().bound + rounding))
          << sum << " " << exact;
    }
  }
};

TEST_P(LongSumTest, IsWithinTheBound) {
  const Case& of = GetParam();
  double term = of.value;
  for (const DType type : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3FN}) {
    if (NameOf(type) != of.factor) continue;
    Bytes code(8);
    Convert(DType::kF64, reinterpret_cast<const std::byte*>(&of.value), type, code.data(), 1);
    Convert(type, code.data(), DType::kF64, reinterpret_cast<std::byte*>(&term), 1);
  }
  const std::string sides =
      "%a = constant splat=VALUE : FACTOR[ROWS,TERMS]\n%b = constant splat=1 : "
      "FACTOR[ROWS,TERMS]\n";
  ExpectNear(Text(sides, "dot_general %a, %b lhs_contract=[1] rhs_contract=[1]"), term);
  if (of.factor != "f8e4m3fn") return;
  // Scales of 1, and some behind them that mean nothing.
  const std::string scales =
      "%s = constant splat=1 : f8e8m0fnu[ROWS,BLOCKS]\n"
      "%t = constant splat=1 : f8e8m0fnu[ROWS,PADDED]\n";
  ExpectNear(Text(sides + scales, "block_scaled_dot %a, %b, %s, %s block=32"), term);
  ExpectNear(Text(sides + scales, "block_scaled_dot %a, %b, %t, %t block=32"), term);
}

// One row of 2^19 terms is too little for the library, so our own loops make it; and all of f64.
INSTANTIATE_TEST_SUITE_P(
    Sums, LongSumTest,
    ::testing::Values(Case{"F32ByOurselves", 1, 1 << 19, "f32", "f32", 0.1, 0x1p-17},
                      Case{"F64", 2, 1 << 20, "f64", "f64", 0.1, 0x1p-46},
                      Case{"F32OneByOne", 1, 1 << 20, "f32", "f32", 0.1, 0x1p-17},
                      Case{"F32", 16, 1 << 20, "f32", "f32", 0.1, 0x1p-17},
                      Case{"F16", 16, 1 << 18, "f16", "f32", 0.1, 0x1p-17},
                      Case{"BF16", 16, 1 << 20, "bf16", "f32", 1.4, 0x1p-17},
                      Case{"BF16ToItself", 16, 1 << 18, "bf16", "bf16", 1.4, 0x1p-17},
                      Case{"F8", 16, 1 << 18, "f8e4m3fn", "f32", 0.15, 0x1p-17}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace ferry::compute
