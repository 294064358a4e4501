// SPDX-License-Identifier: Apache-2.0
// The element types of programs. Names are StableHLO's in lower case, but u8 for ui8 and bool for
// i1. Elements are dense. Two elements of the 4-bit type share a byte, the first one in the low
// half. Constants only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ferry::compute {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3FN,
  kF8E5M2,
  kF4E2M1FN,   // two a byte
  kF8E8M0FNU,  // a power of two: has neither sign nor zero
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,  // one byte, 0 or 1
};
inline constexpr size_t kDTypes = 17;

struct DTypeInfo {
  absl::string_view name;
  int bits = 0;  // that an element takes in memory
  bool floating = false;
  bool is_signed = false;
};

// By DType.
inline constexpr std::array<DTypeInfo, kDTypes> kDTypeInfo = {{
    {"f64", 64, true, true},
    {"f32", 32, true, true},
    {"f16", 16, true, true},
    {"bf16", 16, true, true},
    {"f8e4m3fn", 8, true, true},
    {"f8e5m2", 8, true, true},
    {"f4e2m1fn", 4, true, true},
    {"f8e8m0fnu", 8, true, false},
    {"i64", 64, false, true},
    {"i32", 32, false, true},
    {"i16", 16, false, true},
    {"i8", 8, false, true},
    {"u64", 64, false, false},
    {"u32", 32, false, false},
    {"u16", 16, false, false},
    {"u8", 8, false, false},
    {"bool", 8, false, false},
}};

constexpr const DTypeInfo& InfoOf(DType type) { return kDTypeInfo[static_cast<size_t>(type)]; }
constexpr absl::string_view NameOf(DType type) { return InfoOf(type).name; }

constexpr std::optional<DType> DTypeOf(absl::string_view name) {
  for (size_t i = 0; i < kDTypes; ++i) {
    if (NameOf(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// Bytes of `count` consecutive elements.
constexpr uint64_t BytesOf(DType type, uint64_t count) {
  return type == DType::kF4E2M1FN ? (count + 1) / 2 : count * (InfoOf(type).bits / 8);
}

}  // namespace ferry::compute
