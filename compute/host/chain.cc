// SPDX-License-Identifier: Apache-2.0
// This file includes itself once a target of Highway's dispatch.
#include "compute/host/chain.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/host/chain.cc"
// Three levels of x86 are enough; vectors without a size cannot be held in variables as here.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ferry::compute {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The f32 tag's ways with vectors that it has.
template <typename D>
struct Chain {
  using D16 = hn::Rebind<uint16_t, D>;
  using D32 = hn::RebindToUnsigned<D>;
  using V = hn::Vec<D>;
  static constexpr D d = {};
  static constexpr D32 d32 = {};
  static constexpr D16 d16 = {};

  static HWY_INLINE V Widen(hn::Vec<D16> codes) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, codes)));
  }
  // Buffers begin where clients like, and a single lane is moved as a scalar, which has to be
  // aligned.
  template <typename T>
  static HWY_INLINE T ScalarAt(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  template <typename DT>
  static HWY_INLINE hn::Vec<DT> LoadAt(DT tag, const std::byte* from, size_t index) {
    using T = hn::TFromD<DT>;
    if constexpr (hn::MaxLanes(DT()) == 1) {
      return hn::Set(tag, ScalarAt<T>(from + index * sizeof(T)));
    } else {
      return hn::LoadU(tag, reinterpret_cast<const T*>(from + index * sizeof(T)));
    }
  }
  template <typename DT>
  static HWY_INLINE void StoreAt(DT tag, hn::Vec<DT> v, std::byte* to, size_t index) {
    using T = hn::TFromD<DT>;
    if constexpr (hn::MaxLanes(DT()) == 1) {
      const T value = hn::GetLane(v);
      std::memcpy(to + index * sizeof(T), &value, sizeof(value));
    } else {
      hn::StoreU(v, tag, reinterpret_cast<T*>(to + index * sizeof(T)));
    }
  }
  template <ChainForm form>
  static HWY_INLINE V Get(const std::byte* operand, size_t index) {
    if constexpr (form == ChainForm::kF32) {
      return LoadAt(d, operand, index);
    } else if constexpr (form == ChainForm::kBF16) {
      return Widen(LoadAt(d16, operand, index));
    } else if constexpr (form == ChainForm::kSameF32) {
      return hn::Set(d, ScalarAt<float>(operand));
    } else {
      return Widen(hn::Set(d16, ScalarAt<uint16_t>(operand)));
    }
  }
  // The code of the nearest bf16, ties to even, in the upper half; below it anything.
  static HWY_INLINE hn::Vec<D32> Nearest(V v) {
    const auto bits = hn::BitCast(d32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFF)));
    const auto nan = hn::RebindMask(d32, hn::IsNaN(v));
    return hn::IfThenElse(nan, hn::Set(d32, 0x7FFF0000), rounded);
  }
  static HWY_INLINE V Rounded(V v) {
    return hn::BitCast(d, hn::And(Nearest(v), hn::Set(d32, 0xFFFF0000)));
  }
  static HWY_INLINE void PutF32(V v, std::byte* out, size_t index) { StoreAt(d, v, out, index); }
  static HWY_INLINE void PutBF16(V v, std::byte* out, size_t index) {
    const hn::RebindToSigned<D> di;
    const auto codes = hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(Nearest(v))));
    StoreAt(d16, codes, out, index);
  }
  template <bool maximum>
  static HWY_INLINE V Largest(V a, V b) {
    const auto both = maximum ? hn::And(a, b) : hn::Or(a, b);  // of zeros, or of equals
    const auto better = maximum ? hn::Gt(a, b) : hn::Lt(a, b);
    const auto number = hn::IfThenElse(better, a, b);  // b if it is NaN
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), both, number));
  }
  template <bool maximum>
  static HWY_INLINE V LargestSure(V v, V bound) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
    return maximum ? hn::Max(bound, v) : hn::Min(bound, v);  // x86 gives the second if one is NaN
#else
    return hn::IfThenElse(maximum ? hn::Lt(v, bound) : hn::Gt(v, bound), bound, v);
#endif
  }
};

#define FERRY_EACH_OF_8(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define FERRY_EACH_OF_1(X) X(0)

// clang-format off
#define FERRY_WITH(i, expression) { const auto b = C::template Get<form>(step.operand, at + i * n); const auto a = v##i; v##i = expression; }
#define FERRY_ADD(i) FERRY_WITH(i, hn::Add(a, b))
#define FERRY_SUBTRACT(i) FERRY_WITH(i, hn::Sub(a, b))
#define FERRY_SUBTRACT_FROM(i) FERRY_WITH(i, hn::Sub(b, a))
#define FERRY_MULTIPLY(i) FERRY_WITH(i, hn::Mul(a, b))
#define FERRY_DIVIDE(i) FERRY_WITH(i, hn::Div(a, b))
#define FERRY_DIVIDE_FROM(i) FERRY_WITH(i, hn::Div(b, a))
#define FERRY_MAXIMUM(i) FERRY_WITH(i, C::template Largest<true>(a, b))
#define FERRY_MINIMUM(i) FERRY_WITH(i, C::template Largest<false>(a, b))
#define FERRY_MAXIMUM_SURE(i) FERRY_WITH(i, C::template LargestSure<true>(a, b))
#define FERRY_MINIMUM_SURE(i) FERRY_WITH(i, C::template LargestSure<false>(a, b))
#define FERRY_LOAD(i) v##i = C::template Get<form>(step.operand, at + i * n);
#define FERRY_NEGATE(i) v##i = hn::Neg(v##i);
#define FERRY_ABS(i) v##i = hn::Abs(v##i);
#define FERRY_SQRT(i) v##i = hn::Sqrt(v##i);
#define FERRY_ROUND(i) v##i = C::Rounded(v##i);
#define FERRY_STORE_F32(i) C::PutF32(v##i, step.operand, at + i * n);
#define FERRY_STORE_BF16(i) C::PutBF16(v##i, step.operand, at + i * n);

#define FERRY_FORM(code, name, EACH, X) \
  case Key(ChainCode::code, ChainForm::name): { constexpr ChainForm form = ChainForm::name; EACH(X) break; }
#define FERRY_CASE(code, EACH, X) \
  FERRY_FORM(code, kF32, EACH, X) FERRY_FORM(code, kBF16, EACH, X) \
  FERRY_FORM(code, kSameF32, EACH, X) FERRY_FORM(code, kSameBF16, EACH, X)
#define FERRY_PLAIN(code, EACH, X) case Key(ChainCode::code, ChainForm::kF32): { EACH(X) break; }

// From `at`, in turns of all the vectors of EACH, as many as there are whole ones.
#define FERRY_TURNS(Name, EACH, vectors)                                             \
  template <typename D>                                                              \
  size_t Name(D d, const ChainStep* steps, size_t size, size_t at, size_t count) {   \
    using C = Chain<D>;                                                              \
    const size_t n = hn::Lanes(d);                                                   \
    for (; at + vectors * n <= count; at += vectors * n) {                           \
      EACH(FERRY_ZERO)                                                               \
      for (const ChainStep* one = steps; one != steps + size; ++one) {               \
        const ChainStep& step = *one;                                                \
        switch (Key(step.code, step.form)) {                                         \
          FERRY_CASE(kLoad, EACH, FERRY_LOAD)                                        \
          FERRY_CASE(kAdd, EACH, FERRY_ADD)                                          \
          FERRY_CASE(kSubtract, EACH, FERRY_SUBTRACT)                                \
          FERRY_CASE(kSubtractFrom, EACH, FERRY_SUBTRACT_FROM)                       \
          FERRY_CASE(kMultiply, EACH, FERRY_MULTIPLY)                                \
          FERRY_CASE(kDivide, EACH, FERRY_DIVIDE)                                    \
          FERRY_CASE(kDivideFrom, EACH, FERRY_DIVIDE_FROM)                           \
          FERRY_CASE(kMaximum, EACH, FERRY_MAXIMUM)                                  \
          FERRY_CASE(kMinimum, EACH, FERRY_MINIMUM)                                  \
          FERRY_CASE(kMaximumSure, EACH, FERRY_MAXIMUM_SURE)                         \
          FERRY_CASE(kMinimumSure, EACH, FERRY_MINIMUM_SURE)                         \
          FERRY_PLAIN(kNegate, EACH, FERRY_NEGATE)                                   \
          FERRY_PLAIN(kAbs, EACH, FERRY_ABS)                                         \
          FERRY_PLAIN(kSqrt, EACH, FERRY_SQRT)                                       \
          FERRY_PLAIN(kRound, EACH, FERRY_ROUND)                                     \
          case Key(ChainCode::kStore, ChainForm::kF32): { EACH(FERRY_STORE_F32) break; }   \
          case Key(ChainCode::kStore, ChainForm::kBF16): { EACH(FERRY_STORE_BF16) break; } \
          default: break;                                                            \
        }                                                                            \
      }                                                                              \
    }                                                                                \
    return at;                                                                       \
  }
#define FERRY_ZERO(i) auto v##i = hn::Zero(d);
// clang-format on

constexpr unsigned Key(ChainCode code, ChainForm form) {
  return static_cast<unsigned>(code) * 4 + static_cast<unsigned>(form);
}

FERRY_TURNS(TurnsOf8, FERRY_EACH_OF_8, 8)
FERRY_TURNS(TurnsOf1, FERRY_EACH_OF_1, 1)

void RunChain(const ChainStep* steps, size_t size, size_t count) {
  const hn::ScalableTag<float> d;
  size_t at = TurnsOf8(d, steps, size, 0, count);
  at = TurnsOf1(d, steps, size, at, count);
  TurnsOf1(hn::CappedTag<float, 1>(), steps, size, at, count);
}

ChainKernel FindChainKernel() { return &RunChain; }

}  // namespace HWY_NAMESPACE
}  // namespace ferry::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::compute {

HWY_EXPORT(FindChainKernel);

ChainKernel ChainKernelOfCpu() { return HWY_DYNAMIC_DISPATCH(FindChainKernel)(); }

}  // namespace ferry::compute
#endif
