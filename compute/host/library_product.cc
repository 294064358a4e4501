// SPDX-License-Identifier: Apache-2.0
#include "compute/host/library_product.h"

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/host/onednn_matmul.h"
#include "compute/host/pieced_product.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kAlignment = 64;

std::byte* AlignedIn(std::byte* memory) {
  return memory + (kAlignment - reinterpret_cast<uintptr_t>(memory) % kAlignment);
}

View DenseView(int64_t rows, int64_t depth) {
  return {0, {1, rows, depth}, {rows * depth, depth, 1}};
}

// What a product is tried with: all elements are the same.
template <typename Left, typename Right, typename Sum>
struct Trial {
  DType left_type, right_type, sum_type;
  Left left;
  Right right;
  int64_t depth;
  Sum sum;                          // that it should come to
  int64_t rows = 37, columns = 45;  // parts of blocks too
};

// Of such factors.
template <typename Left, typename Right, typename Sum>
bool ComesTo(const Trial<Left, Right, Sum>& trial, const OnednnMatmul& product) {
  const std::vector<Left> lhs(static_cast<size_t>(trial.rows * trial.depth), trial.left);
  const std::vector<Right> rhs(static_cast<size_t>(trial.columns * trial.depth), trial.right);
  std::vector<Sum> sums(static_cast<size_t>(trial.rows * trial.columns));
  std::vector<std::byte> scratch(product.scratch_bytes() + kAlignment);
  std::vector<std::byte> order(product.packed_bytes() + kAlignment);
  const auto* weights = reinterpret_cast<const std::byte*>(rhs.data());
  if (product.packed_bytes() > 0) {
    product.Pack(weights, AlignedIn(order.data()));
    weights = AlignedIn(order.data());
  }
  RunControl control;
  product.Run(reinterpret_cast<const std::byte*>(lhs.data()), weights,
              reinterpret_cast<std::byte*>(sums.data()), AlignedIn(scratch.data()), nullptr,
              control, [](uint64_t, uint64_t) {});
  return std::all_of(sums.begin(), sums.end(), [&](Sum sum) { return sum == trial.sum; });
}

template <typename Left, typename Right, typename Sum>
std::unique_ptr<OnednnMatmul> MakeTrial(const Trial<Left, Right, Sum>& trial, bool packed) {
  return OnednnMatmul::Make({trial.left_type, trial.right_type, DenseView(trial.rows, trial.depth),
                             DenseView(trial.columns, trial.depth)},
                            {.result = trial.sum_type, .packed = packed});
}

// Up to this depth every sum of products of 8-bit integers is an integer that an f32 holds.
constexpr int64_t kFewProducts = 512;

// Which sums of an implementation of the library's are exact modulo 2^32; empty: none was tried.
struct Exact {
  std::optional<bool> few;   // of at most kFewProducts
  std::optional<bool> many;  // of more
};
using ExactBy = std::map<std::string, Exact>;  // by the implementation's name

// Whether integers are exact here: by trying, once, whatever the CPU says it has. CPUs that have no
// instruction for it add two products as 16 bits first, and keep the largest of what does not fit;
// and oneDNN 2.6 has sums of some small products with VNNI go through f32.
template <typename Left>
ExactBy TryIntegers(DType type, std::array<Left, 2> most) {
  ExactBy exact;
  // The sums of the last but one are more than an f32 holds, those of the last more than an i32.
  for (const int64_t depth :
       {int64_t{7}, int64_t{64}, kFewProducts, int64_t{1051}, int64_t{150001}}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{8, 8}, {37, 45}}) {
      for (const Left left : most) {
        for (const int8_t right : {-128, 127}) {
          const auto sum = static_cast<int32_t>(static_cast<uint32_t>(left * right * depth));
          const Trial<Left, int8_t, int32_t> trial = {type,  DType::kI8, DType::kI32, left,   right,
                                                      depth, sum,        rows,        columns};
          for (const bool packed : {false, true}) {
            const auto product = MakeTrial(trial, packed);
            if (product == nullptr) continue;
            const bool right_sums = ComesTo(trial, *product);
            for (const std::string& name : product->implementations()) {
              std::optional<bool>& so_far =
                  depth <= kFewProducts ? exact[name].few : exact[name].many;
              so_far = so_far.value_or(true) && right_sums;
            }
          }
        }
      }
    }
  }
  return exact;
}

// What no trial of the implementation was like is not believed.
bool IsExact(const OnednnMatmul& product, DType left_type, int64_t depth) {
  static const ExactBy of_signed = TryIntegers(DType::kI8, std::array<int8_t, 2>{-128, 127});
  static const ExactBy of_unsigned = TryIntegers(DType::kU8, std::array<uint8_t, 2>{1, 255});
  const ExactBy& tried = left_type == DType::kI8 ? of_signed : of_unsigned;
  const auto& names = product.implementations();
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const auto found = tried.find(name);
    if (found == tried.end()) return false;
    return (depth <= kFewProducts ? found->second.few : found->second.many) == true;
  });
}

// Whether f32 below the least normal number count, as factors and as products: by trying, once.
bool AreSmallF32Exact() {
  static const bool exact = [] {
    constexpr DType kType = DType::kF32;
    for (const int64_t depth : {7, 64, 1051}) {
      const float sum = static_cast<float>(depth) * 0x1p-140f;
      for (const auto& [left, right] :
           {std::pair(0x1p-140f, 1.0f), {1.0f, 0x1p-140f}, {0x1p-70f, 0x1p-70f}}) {
        const Trial<float, float, float> trial = {kType, kType, kType, left, right, depth, sum};
        for (const bool packed : {false, true}) {
          const auto product = MakeTrial(trial, packed);
          if (product == nullptr || !ComesTo(trial, *product)) return false;
        }
      }
    }
    return true;
  }();
  return exact;
}

}  // namespace

bool LibraryProduct::DropsSmall(DType factors) {
  return InfoOf(factors).floating && (factors != DType::kF32 || !AreSmallF32Exact());
}

std::unique_ptr<LibraryProduct> LibraryProduct::Make(const LibraryFactors& factors, DType result,
                                                     bool packed, size_t parts, uint64_t launches) {
  const DType left = factors.left_type;
  const DType right = factors.right_type;
  const bool integers =
      (left == DType::kI8 || left == DType::kU8) && right == DType::kI8 && result == DType::kI32;
  const bool floats = left == right &&
                      ((left == DType::kF32 && result == DType::kF32) ||
                       (left == DType::kBF16 && (result == DType::kF32 || result == DType::kBF16)));
  if ((!floats && !integers) || !LibraryProblem().empty()) return nullptr;
  // It divides by dimensions of 0.
  const auto empty = [](const View& view) { return ElementsOf(view) == 0; };
  if (empty(factors.left) || empty(factors.right)) return nullptr;
  const OnednnMatmul::Options options = {
      .result = result, .packed = packed, .parts = parts, .launches = launches};
  if (floats && factors.left.dims[2] > kTermsOfLibrary) {
    return result == DType::kF32 ? PiecedProduct::Make(factors, options) : nullptr;
  }
  auto made = OnednnMatmul::Make(factors, options);
  if (made == nullptr || (integers && !IsExact(*made, left, factors.left.dims[2]))) return nullptr;
  return made;
}

const std::string& LibraryProblem() {
  static const std::string problem = [] {
    try {  // to make one is not enough: some code is made by the first run
      constexpr int64_t kSide = 64;
      const View view = DenseView(kSide, kSide);
      const OnednnMatmul matmul({DType::kF32, DType::kF32, view, view}, {});
      if (!matmul.ok()) return std::string("it has no product of f32 here");
      const std::vector<float> ones(kSide * kSide, 1.0f);
      std::vector<float> sums(kSide * kSide);
      std::vector<float> scratch((matmul.scratch_bytes() + kAlignment) / sizeof(float));
      RunControl control;
      const auto* factor = reinterpret_cast<const std::byte*>(ones.data());
      matmul.Run(factor, factor, reinterpret_cast<std::byte*>(sums.data()),
                 AlignedIn(reinterpret_cast<std::byte*>(scratch.data())), nullptr, control,
                 [](uint64_t, uint64_t) {});
      if (sums.back() != static_cast<float>(kSide)) return std::string("its products are wrong");
      return std::string();
    } catch (const dnnl::error& why) {
      return absl::StrCat("it cannot make code in this process: ", why.what());
    }
  }();
  return problem;
}

}  // namespace ferry::compute
