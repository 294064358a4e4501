// SPDX-License-Identifier: Apache-2.0
// This file includes itself once a target of Highway's dispatch.
#include "compute/host/product_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/host/product_loops.cc"
// Three levels of x86 are enough; vectors without a size cannot be in arrays.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace ferry::compute {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = 32;         // of a sum of floats, on every CPU
constexpr size_t kTermsOfSum = 4096;  // after so many the lanes are added up, and begin anew
static_assert(kTermsOfSum % kLanes == 0);

template <typename T>
HWY_INLINE T ValueAt(const std::byte* base, size_t index) {
  T value;
  std::memcpy(&value, base + index * sizeof(T), sizeof(T));
  return value;
}

// The sum of sums of up to kTermsOfSum terms: as if it had no rounding of its own, but the last.
class SumOfFloats {
 public:
  void Add(float sum) { sum_ += sum; }
  float Result() const { return static_cast<float>(sum_); }

 private:
  double sum_ = 0;
};

// What the sum lost is kept beside it (Neumaier, 1974).
class SumOfDoubles {
 public:
  void Add(double term) {
    const double sum = sum_ + term;
    lost_ += std::fabs(sum_) >= std::fabs(term) ? (sum_ - sum) + term : (term - sum) + sum_;
    sum_ = sum;
  }
  // What an infinite sum lost is no number.
  double Result() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, float>, SumOfFloats, SumOfDoubles>;

// `terms` terms of `row` by those of `kRows` others, `stride` bytes apart, so that each part of it
// is loaded once for all of them; of the lanes so many at a time, in `kVectors` vectors a sum, as
// leave registers for that.
template <typename T, size_t kRows, size_t kVectors>
HWY_INLINE void SumTerms(const std::byte* row, const std::byte* others, size_t stride, size_t terms,
                         std::array<SumOf<T>, kRows>& sums) {
  const hn::CappedTag<T, kLanes> d;
  constexpr size_t kWidth = hn::MaxLanes(d);
  const auto at = [&](const std::byte* base, size_t index)
                      HWY_ATTR { return hn::LoadU(d, reinterpret_cast<const T*>(base) + index); };
  alignas(64) std::array<std::array<T, kLanes>, kRows> lanes;
  const size_t whole = terms / kLanes * kLanes;
  for (size_t first = 0; first < kLanes; first += kVectors * kWidth) {
    hn::Vec<decltype(d)> vectors[kRows][kVectors];
    for (size_t j = 0; j < kRows; ++j) {
      for (size_t v = 0; v < kVectors; ++v) vectors[j][v] = hn::Zero(d);
    }
    for (size_t k = first; k < whole; k += kLanes) {
      HWY_UNROLL(16)
      for (size_t v = 0; v < kVectors; ++v) {
        const auto factor = at(row, k + v * kWidth);
        HWY_UNROLL(16)
        for (size_t j = 0; j < kRows; ++j) {
          // Two roundings: a product and a sum are never one here.
          const auto product = hn::Mul(factor, at(others + j * stride, k + v * kWidth));
          vectors[j][v] = hn::Add(vectors[j][v], product);
        }
      }
    }
    for (size_t j = 0; j < kRows; ++j) {
      for (size_t v = 0; v < kVectors; ++v) {
        hn::Store(vectors[j][v], d, &lanes[j][first + v * kWidth]);
      }
    }
  }
  for (size_t j = 0; j < kRows; ++j) {
    for (size_t k = whole; k < terms; ++k) {
      lanes[j][k - whole] += ValueAt<T>(row, k) * ValueAt<T>(others + j * stride, k);
    }
    T sum = 0;
    for (const T lane : lanes[j]) sum += lane;
    sums[j].Add(sum);
  }
}

template <typename T, size_t kRows, size_t kVectors>
HWY_INLINE void SumFloats(const std::byte* row, const std::byte* others, size_t depth, T* out) {
  std::array<SumOf<T>, kRows> sums;
  for (size_t k = 0; k < depth; k += kTermsOfSum) {
    SumTerms<T, kRows, kVectors>(row + k * sizeof(T), others + k * sizeof(T), depth * sizeof(T),
                                 std::min(kTermsOfSum, depth - k), sums);
  }
  for (size_t j = 0; j < kRows; ++j) out[j] = sums[j].Result();
}

template <typename T>
void FloatRows(const std::byte* row, const std::byte* others, size_t count, size_t depth,
               std::byte* out) {
  constexpr size_t kAll = kLanes / hn::MaxLanes(hn::CappedTag<T, kLanes>());
  constexpr size_t kVectors = std::min<size_t>(kAll, 4);
  constexpr size_t kRegisters = HWY_TARGET == HWY_AVX3 || !HWY_ARCH_X86 ? 32 : 16;
  constexpr size_t kRows = std::min<size_t>((kRegisters - 2) / kVectors, 6);
  auto* sums = reinterpret_cast<T*>(out);
  const size_t stride = depth * sizeof(T);
  size_t j = 0;
  for (; j + kRows <= count; j += kRows) {
    SumFloats<T, kRows, kVectors>(row, others + j * stride, depth, sums + j);
  }
  for (; j < count; ++j) SumFloats<T, 1, kVectors>(row, others + j * stride, depth, sums + j);
}

// Sums modulo 2^bits have no order, so the compiler makes vectors of these.
template <typename T, typename Sum, typename Wide>
void IntegerRows(const std::byte* row, const std::byte* others, size_t count, size_t depth,
                 std::byte* out) {
  auto* sums = reinterpret_cast<Sum*>(out);
  const size_t stride = depth * sizeof(T);
  const auto product = [](T a, T b) HWY_ATTR {
    return static_cast<Sum>(static_cast<Wide>(a) * static_cast<Wide>(b));
  };
  size_t j = 0;
  for (; j + 4 <= count; j += 4, others += 4 * stride) {
    Sum s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (size_t k = 0; k < depth; ++k) {
      const T factor = ValueAt<T>(row, k);
      s0 += product(factor, ValueAt<T>(others, k));
      s1 += product(factor, ValueAt<T>(others + stride, k));
      s2 += product(factor, ValueAt<T>(others + 2 * stride, k));
      s3 += product(factor, ValueAt<T>(others + 3 * stride, k));
    }
    sums[j] = s0;
    sums[j + 1] = s1;
    sums[j + 2] = s2;
    sums[j + 3] = s3;
  }
  for (; j < count; ++j, others += stride) {
    Sum sum = 0;
    for (size_t k = 0; k < depth; ++k) sum += product(ValueAt<T>(row, k), ValueAt<T>(others, k));
    sums[j] = sum;
  }
}

RowKernel FindRowKernel(RowType type) {
  switch (type) {
    case RowType::kF32:
      return &FloatRows<float>;
    case RowType::kF64:
      return &FloatRows<double>;
    case RowType::kI16:
      return &IntegerRows<int16_t, uint32_t, int32_t>;
    case RowType::kI32:
      return &IntegerRows<uint32_t, uint32_t, uint32_t>;
    case RowType::kI64:
      return &IntegerRows<uint64_t, uint64_t, uint64_t>;
  }
  return nullptr;
}

template <typename Code>
int SmallestExponentOf(const std::byte* values, size_t count) {
  constexpr int kShift = sizeof(Code) * 8 - 9;
  constexpr Code kMagnitude = static_cast<Code>(~Code{0}) >> 1;
  Code least = kMagnitude;
  for (size_t i = 0; i < count; ++i) {
    const auto code = static_cast<Code>(ValueAt<Code>(values, i) & kMagnitude);
    // 0 becomes the largest there is.
    const auto before = static_cast<Code>(static_cast<Code>(code - 1) & kMagnitude);
    least = before < least ? before : least;
  }
  return least == kMagnitude ? 255 : (least + 1) >> kShift;
}

int SmallestOfF32(const std::byte* values, size_t count) {
  return SmallestExponentOf<uint32_t>(values, count);
}
int SmallestOfBF16(const std::byte* values, size_t count) {
  return SmallestExponentOf<uint16_t>(values, count);
}

bool FitBF16(const float* values, size_t count) {
  uint32_t lost = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = ValueAt<uint32_t>(reinterpret_cast<const std::byte*>(values), i);
    lost |= (bits & 0x7FFFFFFF) > 0x7F800000 ? 0 : bits & 0xFFFF;
  }
  return lost == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::compute {

HWY_EXPORT(FindRowKernel);
HWY_EXPORT(SmallestOfF32);
HWY_EXPORT(SmallestOfBF16);
HWY_EXPORT(FitBF16);

RowKernel RowKernelOf(RowType type) { return HWY_DYNAMIC_DISPATCH(FindRowKernel)(type); }

int SmallestExponentOfF32(const std::byte* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SmallestOfF32)(values, count);
}
int SmallestExponentOfBF16(const std::byte* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SmallestOfBF16)(values, count);
}
bool AllFitBF16(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(FitBF16)(values, count);
}

}  // namespace ferry::compute
#endif
