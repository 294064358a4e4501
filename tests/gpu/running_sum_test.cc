// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt's running sums lose on a GPU, by their length.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/cuda/cublaslt_library.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/product_pieces.h"
#include "compute/cuda/run/cublaslt_products.h"
#include "tests/compute/product_text.h"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

namespace fc = ferry::compute;
using fc::DType;
using fc::testing::Bytes;
using fc::testing::ProductElement;
using fc::testing::ProductShape;
using Numbers = std::vector<double>;

// The library by itself: what its running sums lose by their length. The bound must hold for pieces
// of the lengths that plans have; what longer ones lose is printed.
class GpuRunningSumTest : public GpuTest {
 protected:
  static constexpr int64_t kPatterns = 64;  // rows that differ

  void SetUp() override {
    GpuTest::SetUp();
    if (driver_ == nullptr) return;
    side_ = fake() ? kPatterns : 4096;  // more tiles than a GPU works on: the library divides none
    const char* const named = getenv("FERRY_CUBLASLT_LIBRARY");
    const std::string library = named == nullptr ? "" : named;
    int version = 0;
    driver_->Find<decltype(&::cuDriverGetVersion)>("cuDriverGetVersion")(&version);
    ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
    auto products = fc::CublasLtProducts::Make(fc::CublasLtLibrary(library, version));
    if (!products.ok()) GTEST_SKIP() << "NEEDS CUBLASLT: " << products.status();
    products_ = *std::move(products);
    ASSERT_CU(driver_->cuStreamCreate(&own_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    if (driver_ != nullptr) driver_->cuCtxSetCurrent(driver_->context(0));
    products_.reset();
    for (const CUdeviceptr each : memory_) driver_->cuMemFree(each);
    if (own_ != nullptr) driver_->cuStreamDestroy(own_);
    GpuTest::TearDown();
  }

  CUdeviceptr Allocate(uint64_t bytes) {
    CUdeviceptr made = 0;
    EXPECT_CU(driver_->cuMemAlloc(&made, bytes));
    memory_.push_back(made);
    return made;
  }
  // [side, k] whose rows are those of `patterns`, again and again.
  CUdeviceptr Factor(const Bytes& patterns) {
    const CUdeviceptr made = Allocate(patterns.size() * static_cast<uint64_t>(side_ / kPatterns));
    for (int64_t i = 0; i < side_ / kPatterns; ++i) {
      EXPECT_CU(driver_->cuMemcpyHtoDAsync(made + static_cast<uint64_t>(i) * patterns.size(),
                                           patterns.data(), patterns.size(), own_));
    }
    EXPECT_CU(driver_->cuStreamSynchronize(own_));
    return made;
  }
  // Rows of equal terms, and rows of positive ones.
  static Numbers Patterns(int64_t k, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> among(0.5, 1);
    Numbers made;
    for (int64_t row = 0; row < kPatterns; ++row) {
      const double one = row == 0 ? 0.1 : row == 1 ? 1 : row == 2 ? 1.9921875 : among(random);
      for (int64_t i = 0; i < k; ++i) made.push_back(row < kPatterns / 2 ? one : among(random));
    }
    return made;
  }

  // How much of the bound the worst element's error is.
  double WorstOf(DType type, int64_t k) {
    const bool wide = type == DType::kF64;
    fc::GpuProduct product;
    product.m = product.n = side_;
    product.k = k;
    product.compute = wide ? DType::kF64 : DType::kF32;
    product.left = product.right = {{}, type, 0, k, 1};
    product.result = {{}, product.compute, 0, side_, 1};
    product.workspace_bytes = fc::kWorkspaceBytes;
    const Bytes left = fc::testing::ElementsOf(type, Patterns(k, 19));
    const Bytes right = fc::testing::ElementsOf(type, Patterns(k, 20));
    const auto pointer = [](CUdeviceptr memory) { return reinterpret_cast<std::byte*>(memory); };
    const uint64_t result_bytes =
        fc::BytesOf(product.compute, static_cast<uint64_t>(side_ * side_));
    const CUdeviceptr result = Allocate(result_bytes);
    const absl::Status queued =
        products_->Queue(product,
                         {pointer(Factor(left)), pointer(Factor(right)), pointer(result),
                          pointer(Allocate(product.workspace_bytes))},
                         own_);
    EXPECT_TRUE(queued.ok()) << queued;
    Bytes made(result_bytes);
    EXPECT_CU(driver_->cuMemcpyDtoHAsync(made.data(), result, made.size(), own_));
    EXPECT_CU(driver_->cuStreamSynchronize(own_));
    for (const CUdeviceptr each : std::exchange(memory_, {})) driver_->cuMemFree(each);
    const auto count = static_cast<uint64_t>(kPatterns * k);
    const Numbers x = fc::testing::NumbersOf(type, left, count);
    const Numbers w = fc::testing::NumbersOf(type, right, count);
    const Numbers all =
        fc::testing::NumbersOf(product.compute, made, static_cast<uint64_t>(side_ * side_));
    const ProductShape shape = {1, kPatterns, k, kPatterns, "", "", "mk", "nk"};
    double worst = 0;
    for (int64_t i = 0; i < kPatterns; ++i) {
      for (int64_t j = 0; j < kPatterns; ++j) {
        const ProductElement element =
            ElementOf(shape, x, w, static_cast<uint64_t>(i * kPatterns + j));
        for (const int64_t tile : {int64_t{0}, side_ / kPatterns - 1}) {
          const int64_t row = tile * kPatterns + i;
          const double share =
              ShareOfBound(element, product.compute, all[static_cast<size_t>(row * side_ + j)],
                           fc::testing::ToleranceOf(product.compute));
          worst = std::isnan(share) ? 1e9 : std::max(worst, share);
        }
      }
    }
    return worst;
  }

  int64_t side_ = 0;
  CUstream own_ = nullptr;
  std::vector<CUdeviceptr> memory_;
  std::unique_ptr<fc::CublasLtProducts> products_;
};

TEST_F(GpuRunningSumTest, PiecesAreShortEnough) {
  if (products_ == nullptr) return;
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    const int64_t most = type == DType::kBF16  ? fc::kTermsOfBf16
                         : type == DType::kF16 ? fc::kTermsOfF16
                                               : fc::kTermsOfWide;
    for (int64_t k = fake() ? most : most / 2; k <= (fake() ? most : 8 * most); k *= 2) {
      const double worst = WorstOf(type, k);
      std::cout << fc::NameOf(type) << ", " << k << " terms: " << worst << " of the bound\n";
      EXPECT_TRUE(worst <= 1 || k > most) << fc::NameOf(type) << ", " << k << " terms";
    }
    if (fake() || most == fc::kTermsOfWide) continue;
    // What is promised of results of 16 bits: 2^-13, which is 16 times the bound of others.
    const double rounded = WorstOf(type, fc::kTermsOfRounded);
    EXPECT_LE(rounded, 16) << fc::NameOf(type) << ", " << fc::kTermsOfRounded << " terms";
  }
}

}  // namespace
}  // namespace ferry::testing
