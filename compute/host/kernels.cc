// SPDX-License-Identifier: Apache-2.0
// Plain loops, which the compiler makes vectors of, once for each target of Highway's dispatch.
// This file includes itself once a target.
#include "compute/host/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/host/kernels.cc"
// Three levels of x86 are enough for loops that the compiler makes.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "compute/host/element_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::compute {
namespace HWY_NAMESPACE {

// Elements of different turns have nothing to do with each other, though `out` may be an operand.
#if defined(__clang__)
#define FERRY_EACH_ELEMENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define FERRY_EACH_ELEMENT _Pragma("GCC ivdep")
#endif

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

template <typename Type, Op op>
void Unary(const std::byte* a, const std::byte*, const std::byte*, std::byte* out, size_t count) {
  using Stored = typename Type::Stored;
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    Put<Stored>(out, i, Type::Store(ElementOp<op>(Type::Load(Get<Stored>(a, i)))));
  }
}

template <typename Type, Op op>
void Binary(const std::byte* a, const std::byte* b, const std::byte*, std::byte* out,
            size_t count) {
  using Stored = typename Type::Stored;
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    Put<Stored>(
        out, i,
        Type::Store(ElementOp<op>(Type::Load(Get<Stored>(a, i)), Type::Load(Get<Stored>(b, i)))));
  }
}

template <typename Type>
void Fma(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* out, size_t count) {
  using Stored = typename Type::Stored;
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    Put<Stored>(out, i,
                Type::Fma(Type::Load(Get<Stored>(a, i)), Type::Load(Get<Stored>(b, i)),
                          Type::Load(Get<Stored>(c, i))));
  }
}

template <typename Type>
void Clamp(const std::byte* low, const std::byte* x, const std::byte* high, std::byte* out,
           size_t count) {
  using Stored = typename Type::Stored;
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    const auto raised =
        ElementOp<Op::kMaximum>(Type::Load(Get<Stored>(low, i)), Type::Load(Get<Stored>(x, i)));
    Put<Stored>(out, i,
                Type::Store(ElementOp<Op::kMinimum>(raised, Type::Load(Get<Stored>(high, i)))));
  }
}

template <typename Type>
void IsFinite(const std::byte* a, const std::byte*, const std::byte*, std::byte* out,
              size_t count) {
  using Stored = typename Type::Stored;
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    const auto value = Type::Load(Get<Stored>(a, i));
    Put<uint8_t>(out, i, value - value == 0);
  }
}

template <typename Type, Direction direction, bool total_order>
void Compare(const std::byte* a, const std::byte* b, const std::byte*, std::byte* out,
             size_t count) {
  using Stored = typename Type::Stored;
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    const Stored x = Get<Stored>(a, i);
    const Stored y = Get<Stored>(b, i);
    if constexpr (total_order) {
      Put<uint8_t>(out, i, Holds<direction>(RankOf(x), RankOf(y)));
    } else {
      Put<uint8_t>(out, i, Holds<direction>(Type::Load(x), Type::Load(y)));
    }
  }
}

template <typename Stored>
void Select(const std::byte* a, const std::byte* b, const std::byte* c, std::byte* out,
            size_t count) {
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    const Stored yes = Get<Stored>(b, i);
    const Stored no = Get<Stored>(c, i);
    Put<Stored>(out, i, Get<uint8_t>(a, i) != 0 ? yes : no);
  }
}

template <typename Type>
size_t Argmax(const std::byte* in, size_t count) {
  using Stored = typename Type::Stored;
  size_t best = 0;
  auto most = Type::Load(Get<Stored>(in, 0));
  for (size_t i = 1; i < count && most == most; ++i) {
    const auto value = Type::Load(Get<Stored>(in, i));
    if (!(value > most) && value == value) continue;
    best = i;
    most = value;
  }
  return best;
}

template <typename Type>
void Larger(const std::byte* in, uint64_t at, std::byte* best, uint64_t* index, size_t count) {
  using Stored = typename Type::Stored;
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    const Stored code = Get<Stored>(in, i);
    const Stored had = Get<Stored>(best, i);
    const auto value = Type::Load(code);
    const auto most = Type::Load(had);
    const bool larger = value > most || (value != value && most == most);
    Put<Stored>(best, i, larger ? code : had);
    index[i] = larger ? at : index[i];
  }
}

template <typename From, typename To>
void ConvertBetween(const std::byte* a, const std::byte*, const std::byte*, std::byte* out,
                    size_t count) {
  FERRY_EACH_ELEMENT
  for (size_t i = 0; i < count; ++i) {
    Put<typename To::Stored>(out, i, To::Store(From::Load(Get<typename From::Stored>(a, i))));
  }
}

template <typename Type>
TileKernel FindOfFloat(Op op) {
  switch (op) {
#define FERRY_CASE(name) \
  case Op::name:         \
    return &Unary<Type, Op::name>;
    FERRY_CASE(kNegate)
    FERRY_CASE(kAbs)
    FERRY_CASE(kSign)
    FERRY_CASE(kFloor)
    FERRY_CASE(kCeil)
    FERRY_CASE(kRoundNearestEven)
    FERRY_CASE(kSqrt)
    FERRY_CASE(kRsqrt)
#undef FERRY_CASE
#define FERRY_CASE(name) \
  case Op::name:         \
    return &Binary<Type, Op::name>;
    FERRY_CASE(kAdd)
    FERRY_CASE(kSubtract)
    FERRY_CASE(kMultiply)
    FERRY_CASE(kDivide)
    FERRY_CASE(kMaximum)
    FERRY_CASE(kMinimum)
    FERRY_CASE(kRemainder)
#undef FERRY_CASE
    case Op::kFma:
      return &Fma<Type>;
    case Op::kClamp:
      return &Clamp<Type>;
    case Op::kIsFinite:
      return &IsFinite<Type>;
    default:
      return nullptr;
  }
}

template <typename Type>
TileKernel FindOfInteger(Op op) {
  switch (op) {
#define FERRY_CASE(name) \
  case Op::name:         \
    return &Binary<Type, Op::name>;
    FERRY_CASE(kAdd)
    FERRY_CASE(kSubtract)
    FERRY_CASE(kMultiply)
    FERRY_CASE(kDivide)
    FERRY_CASE(kMaximum)
    FERRY_CASE(kMinimum)
    FERRY_CASE(kRemainder)
    FERRY_CASE(kAnd)
    FERRY_CASE(kOr)
    FERRY_CASE(kXor)
    FERRY_CASE(kShiftLeft)
    FERRY_CASE(kShiftRightLogical)
    FERRY_CASE(kShiftRightArithmetic)
#undef FERRY_CASE
    case Op::kNot:
      return &Unary<Type, Op::kNot>;
    case Op::kNegate:
      return &Unary<Type, Op::kNegate>;
    case Op::kAbs:
      return &Unary<Type, Op::kAbs>;
    case Op::kSign:
      return &Unary<Type, Op::kSign>;
    case Op::kClamp:
      return &Clamp<Type>;
    default:
      return nullptr;
  }
}

struct FindElement {
  template <typename Type>
  static TileKernel Of(Op op) {
    if constexpr (std::is_same_v<Type, BoolElement>) {
      switch (op) {
        case Op::kAnd:
          return &Binary<IntegerElement<uint8_t>, Op::kAnd>;
        case Op::kOr:
          return &Binary<IntegerElement<uint8_t>, Op::kOr>;
        case Op::kXor:
          return &Binary<IntegerElement<uint8_t>, Op::kXor>;
        case Op::kNot:
          return &Unary<BoolElement, Op::kNot>;
        default:
          return nullptr;
      }
    } else if constexpr (Type::kFloating) {
      return FindOfFloat<Type>(op);
    } else {
      return FindOfInteger<Type>(op);
    }
  }
};

struct FindCompare {
  template <typename Type, bool total_order>
  static TileKernel In(Direction direction) {
    switch (direction) {
      case Direction::kEq:
        return &Compare<Type, Direction::kEq, total_order>;
      case Direction::kNe:
        return &Compare<Type, Direction::kNe, total_order>;
      case Direction::kLt:
        return &Compare<Type, Direction::kLt, total_order>;
      case Direction::kLe:
        return &Compare<Type, Direction::kLe, total_order>;
      case Direction::kGt:
        return &Compare<Type, Direction::kGt, total_order>;
      case Direction::kGe:
        return &Compare<Type, Direction::kGe, total_order>;
    }
    return nullptr;
  }

  template <typename Type>
  static TileKernel Of(Direction direction, bool total_order) {
    if constexpr (Type::kFloating) {
      if (total_order) return In<Type, true>(direction);
    }
    return In<Type, false>(direction);
  }
};

struct FindArgmax {
  template <typename Type>
  static ArgmaxKernel Of() {
    return &Argmax<Type>;
  }
};

struct FindLarger {
  template <typename Type>
  static LargerKernel Of() {
    return &Larger<Type>;
  }
};

// `Finder`::Of of the element type.
template <typename Finder, typename Kernel = TileKernel, typename... Arguments>
Kernel Dispatch(DType type, Arguments... arguments) {
  switch (type) {
    case DType::kF64:
      return Finder::template Of<DoubleElement>(arguments...);
    case DType::kF32:
      return Finder::template Of<FloatElement>(arguments...);
    case DType::kF16:
      return Finder::template Of<HalfElement<kF16Format>>(arguments...);
    case DType::kBF16:
      return Finder::template Of<HalfElement<kBF16Format>>(arguments...);
    case DType::kI64:
      return Finder::template Of<IntegerElement<int64_t>>(arguments...);
    case DType::kI32:
      return Finder::template Of<IntegerElement<int32_t>>(arguments...);
    case DType::kI16:
      return Finder::template Of<IntegerElement<int16_t>>(arguments...);
    case DType::kI8:
      return Finder::template Of<IntegerElement<int8_t>>(arguments...);
    case DType::kU64:
      return Finder::template Of<IntegerElement<uint64_t>>(arguments...);
    case DType::kU32:
      return Finder::template Of<IntegerElement<uint32_t>>(arguments...);
    case DType::kU16:
      return Finder::template Of<IntegerElement<uint16_t>>(arguments...);
    case DType::kU8:
      return Finder::template Of<IntegerElement<uint8_t>>(arguments...);
    case DType::kBool:
      return Finder::template Of<BoolElement>(arguments...);
    default:
      return nullptr;
  }
}

TileKernel FindKernel(Op op, DType type) { return Dispatch<FindElement>(type, op); }

TileKernel FindCompareKernel(Direction direction, bool total_order, DType type) {
  return Dispatch<FindCompare>(type, direction, total_order);
}

ArgmaxKernel FindArgmaxKernel(DType type) { return Dispatch<FindArgmax, ArgmaxKernel>(type); }

LargerKernel FindLargerKernel(DType type) { return Dispatch<FindLarger, LargerKernel>(type); }

TileKernel FindSelectKernel(size_t bytes) {
  return bytes == 8   ? &Select<uint64_t>
         : bytes == 4 ? &Select<uint32_t>
         : bytes == 2 ? &Select<uint16_t>
                      : &Select<uint8_t>;
}

TileKernel FindConvertKernel(DType from, DType to) {
  using F16 = HalfElement<kF16Format>;
  using BF16 = HalfElement<kBF16Format>;
  if (from == DType::kF32 && to == DType::kF16) return &ConvertBetween<FloatElement, F16>;
  if (from == DType::kF32 && to == DType::kBF16) return &ConvertBetween<FloatElement, BF16>;
  if (from == DType::kF16 && to == DType::kF32) return &ConvertBetween<F16, FloatElement>;
  if (from == DType::kBF16 && to == DType::kF32) return &ConvertBetween<BF16, FloatElement>;
  if (from == DType::kF16 && to == DType::kBF16) return &ConvertBetween<F16, BF16>;
  if (from == DType::kBF16 && to == DType::kF16) return &ConvertBetween<BF16, F16>;
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::compute {

HWY_EXPORT(FindKernel);
HWY_EXPORT(FindCompareKernel);
HWY_EXPORT(FindArgmaxKernel);
HWY_EXPORT(FindLargerKernel);
HWY_EXPORT(FindSelectKernel);
HWY_EXPORT(FindConvertKernel);

TileKernel KernelOf(Op op, DType type) {
  const TileKernel function = FunctionKernelOf(op, type);
  return function != nullptr ? function : HWY_DYNAMIC_DISPATCH(FindKernel)(op, type);
}

TileKernel CompareKernelOf(Direction direction, bool total_order, DType type) {
  return HWY_DYNAMIC_DISPATCH(FindCompareKernel)(direction, total_order, type);
}

ArgmaxKernel ArgmaxKernelOf(DType type) { return HWY_DYNAMIC_DISPATCH(FindArgmaxKernel)(type); }

LargerKernel LargerKernelOf(DType type) { return HWY_DYNAMIC_DISPATCH(FindLargerKernel)(type); }

TileKernel SelectKernelOf(size_t bytes) { return HWY_DYNAMIC_DISPATCH(FindSelectKernel)(bytes); }

TileKernel ConvertKernelOf(DType from, DType to) {
  return HWY_DYNAMIC_DISPATCH(FindConvertKernel)(from, to);
}

}  // namespace ferry::compute
#endif
