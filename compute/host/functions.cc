// SPDX-License-Identifier: Apache-2.0
// Functions with a tolerance: by vectors of the C library's where it has them, else one by one. Its
// erf of vectors is left out, which is off by all that is allowed. This file includes itself once a
// target of Highway's dispatch.
#include "compute/host/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/host/functions.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "compute/host/element_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::compute {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE T Get(const std::byte* in, size_t index) {
  T value;
  std::memcpy(&value, in + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
HWY_INLINE void Put(std::byte* out, size_t index, T value) {
  std::memcpy(out + index * sizeof(T), &value, sizeof(T));
}

// Functions of vectors, of the C library (libmvec), where there are some for the target. Not with
// Clang: it passes vectors in memory that the flags of the whole file, other than those of the
// target, have no registers for, and the functions look for them in registers.
#if defined(__x86_64__) && !defined(__clang__) && __GLIBC_PREREQ(2, 35)
#if HWY_TARGET == HWY_AVX3
#define FERRY_FUNCTIONS
using F32s = __m512;
using F64s = __m512d;
#define FERRY_OF_F32(arguments, name) _ZGVeN16##arguments##_##name##f
#define FERRY_OF_F64(arguments, name) _ZGVeN8##arguments##_##name
#elif HWY_TARGET == HWY_AVX2
#define FERRY_FUNCTIONS
using F32s = __m256;
using F64s = __m256d;
#define FERRY_OF_F32(arguments, name) _ZGVdN8##arguments##_##name##f
#define FERRY_OF_F64(arguments, name) _ZGVdN4##arguments##_##name
#endif
#endif

template <Op op>
struct FunctionOf {
  static constexpr bool kIs = false;
};

#ifdef FERRY_FUNCTIONS
#define FERRY_FUNCTION(op, name)                                \
  extern "C" F32s FERRY_OF_F32(v, name)(F32s);                  \
  extern "C" F64s FERRY_OF_F64(v, name)(F64s);                  \
  template <>                                                   \
  struct FunctionOf<Op::op> {                                   \
    static constexpr bool kIs = true;                           \
    static F32s Of(F32s x) { return FERRY_OF_F32(v, name)(x); } \
    static F64s Of(F64s x) { return FERRY_OF_F64(v, name)(x); } \
  };
FERRY_FUNCTION(kCbrt, cbrt)
FERRY_FUNCTION(kExponential, exp)
FERRY_FUNCTION(kExponentialBase2, exp2)
FERRY_FUNCTION(kExponentialMinusOne, expm1)
FERRY_FUNCTION(kLog, log)
FERRY_FUNCTION(kLogBase2, log2)
FERRY_FUNCTION(kLogPlusOne, log1p)
FERRY_FUNCTION(kSine, sin)
FERRY_FUNCTION(kCosine, cos)
FERRY_FUNCTION(kTanh, tanh)
#undef FERRY_FUNCTION
extern "C" F32s FERRY_OF_F32(vv, pow)(F32s, F32s);
extern "C" F64s FERRY_OF_F64(vv, pow)(F64s, F64s);
template <>
struct FunctionOf<Op::kPower> {
  static constexpr bool kIs = true;
  static F32s Of(F32s x, F32s y) { return FERRY_OF_F32(vv, pow)(x, y); }
  static F64s Of(F64s x, F64s y) { return FERRY_OF_F64(vv, pow)(x, y); }
};
// As Logistic of element_ops.h.
template <>
struct FunctionOf<Op::kLogistic> {
  static constexpr bool kIs = true;
  template <typename Vector>
  static Vector Of(Vector x) {
    using Float = std::conditional_t<std::is_same_v<Vector, F32s>, float, double>;
    constexpr size_t kLanes = sizeof(Vector) / sizeof(Float);
    alignas(64) Float values[kLanes];
    alignas(64) Float results[kLanes];
    std::memcpy(values, &x, sizeof(x));
    for (size_t i = 0; i < kLanes; ++i) results[i] = -std::fabs(values[i]);
    std::memcpy(&x, results, sizeof(x));
    x = FunctionOf<Op::kExponential>::Of(x);
    std::memcpy(results, &x, sizeof(x));
    for (size_t i = 0; i < kLanes; ++i) {
      results[i] = (values[i] < 0 ? results[i] : Float{1}) / (Float{1} + results[i]);
    }
    std::memcpy(&x, results, sizeof(x));
    return x;
  }
};

// `Lanes` elements from `index`, or the last ones; the others of the vector are 1.
template <typename Type, typename Vector, typename Float, size_t kLanes>
HWY_INLINE Vector GetLanes(const std::byte* in, size_t index, size_t count) {
  using Stored = typename Type::Stored;
  alignas(64) Float values[kLanes];
  if (count - index >= kLanes) {
    for (size_t i = 0; i < kLanes; ++i) values[i] = Type::Load(Get<Stored>(in, index + i));
  } else {
    for (size_t i = 0; i < kLanes; ++i) {
      values[i] = index + i < count ? Type::Load(Get<Stored>(in, index + i)) : Float{1};
    }
  }
  Vector vector;
  std::memcpy(&vector, values, sizeof(vector));
  return vector;
}

template <typename Type, Op op, bool two>
void Function(const std::byte* a, const std::byte* b, const std::byte*, std::byte* out,
              size_t count) {
  using Stored = typename Type::Stored;
  using Float = decltype(Type::Load(Stored{}));
  using Vector = std::conditional_t<sizeof(Float) == 4, F32s, F64s>;
  constexpr size_t kLanes = sizeof(Vector) / sizeof(Float);
  for (size_t i = 0; i < count; i += kLanes) {
    Vector x = GetLanes<Type, Vector, Float, kLanes>(a, i, count);
    if constexpr (two) {
      x = FunctionOf<op>::Of(x, GetLanes<Type, Vector, Float, kLanes>(b, i, count));
    } else {
      x = FunctionOf<op>::Of(x);
    }
    alignas(64) Float values[kLanes];
    std::memcpy(values, &x, sizeof(x));
    if (count - i >= kLanes) {
      for (size_t j = 0; j < kLanes; ++j) Put<Stored>(out, i + j, Type::Store(values[j]));
    } else {
      for (size_t j = 0; i + j < count; ++j) Put<Stored>(out, i + j, Type::Store(values[j]));
    }
  }
}
#endif

template <typename Type, Op op, bool two>
void OneByOne(const std::byte* a, const std::byte* b, const std::byte*, std::byte* out,
              size_t count) {
  using Stored = typename Type::Stored;
  for (size_t i = 0; i < count; ++i) {
    const auto x = Type::Load(Get<Stored>(a, i));
    if constexpr (two) {
      Put<Stored>(out, i, Type::Store(ElementOp<op>(x, Type::Load(Get<Stored>(b, i)))));
    } else {
      Put<Stored>(out, i, Type::Store(ElementOp<op>(x)));
    }
  }
}

template <typename Type, Op op, bool two = false>
TileKernel KernelOfFunction() {
#ifdef FERRY_FUNCTIONS
  if constexpr (FunctionOf<op>::kIs) return &Function<Type, op, two>;
#endif
  return &OneByOne<Type, op, two>;
}
#undef FERRY_FUNCTIONS
#undef FERRY_OF_F32
#undef FERRY_OF_F64

template <typename Type>
TileKernel FindOf(Op op) {
  switch (op) {
#define FERRY_CASE(name) \
  case Op::name:         \
    return KernelOfFunction<Type, Op::name>();
    FERRY_CASE(kCbrt)
    FERRY_CASE(kExponential)
    FERRY_CASE(kExponentialBase2)
    FERRY_CASE(kExponentialMinusOne)
    FERRY_CASE(kLog)
    FERRY_CASE(kLogBase2)
    FERRY_CASE(kLogPlusOne)
    FERRY_CASE(kSine)
    FERRY_CASE(kCosine)
    FERRY_CASE(kTanh)
    FERRY_CASE(kLogistic)
    FERRY_CASE(kErf)
#undef FERRY_CASE
    case Op::kPower:
      return KernelOfFunction<Type, Op::kPower, true>();
    default:
      return nullptr;
  }
}

TileKernel FindFunctionKernel(Op op, DType type) {
  switch (type) {
    case DType::kF64:
      return FindOf<DoubleElement>(op);
    case DType::kF32:
      return FindOf<FloatElement>(op);
    case DType::kF16:
      return FindOf<HalfElement<kF16Format>>(op);
    case DType::kBF16:
      return FindOf<HalfElement<kBF16Format>>(op);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::compute {

HWY_EXPORT(FindFunctionKernel);

TileKernel FunctionKernelOf(Op op, DType type) {
  return HWY_DYNAMIC_DISPATCH(FindFunctionKernel)(op, type);
}

}  // namespace ferry::compute
#endif
