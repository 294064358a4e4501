// SPDX-License-Identifier: Apache-2.0
// Elements of constants. Numbers of the types that C++ has are written as such; the others, and
// what is not finite, are the bytes themselves: x and two hexadecimal digits a byte, in memory's
// order.
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compute/program/text.h"

namespace ferry::compute {
namespace {

// Calls `with` with a zero of the C++ type of `type`; false if there is none.
template <typename With>
bool Dispatch(DType type, With with) {
  switch (type) {
    case DType::kF64:
      with(double{});
      return true;
    case DType::kF32:
      with(float{});
      return true;
    case DType::kI64:
      with(int64_t{});
      return true;
    case DType::kI32:
      with(int32_t{});
      return true;
    case DType::kI16:
      with(int16_t{});
      return true;
    case DType::kI8:
      with(int8_t{});
      return true;
    case DType::kU64:
      with(uint64_t{});
      return true;
    case DType::kU32:
      with(uint32_t{});
      return true;
    case DType::kU16:
      with(uint16_t{});
      return true;
    case DType::kU8:
      with(uint8_t{});
      return true;
    case DType::kBool:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
    case DType::kF4E2M1FN:
    case DType::kF8E8M0FNU:
      return false;
  }
  return false;
}

// The shortest text that reads back as the same number; nothing if there is none.
std::optional<std::string> NumberText(DType type, absl::string_view bytes) {
  if (type == DType::kBool) {
    if ((bytes[0] & 0xfe) != 0) return std::nullopt;
    return bytes[0] == 0 ? "false" : "true";
  }
  std::optional<std::string> text;
  Dispatch(type, [&](auto number) {
    std::memcpy(&number, bytes.data(), sizeof(number));
    if constexpr (std::is_floating_point_v<decltype(number)>) {
      if (!std::isfinite(number)) return;
    }
    std::array<char, 64> buffer;
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
    text = std::string(buffer.data(), end);
  });
  return text;
}

}  // namespace

std::string PrintElements(DType type, absl::string_view bytes, bool list) {
  const std::string hex = absl::StrCat("x", absl::BytesToHexString(bytes));
  const size_t each = InfoOf(type).bits / 8;
  if (each == 0 || bytes.size() % each != 0 || (!list && bytes.size() != each)) return hex;
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += each) {
    const std::optional<std::string> number = NumberText(type, bytes.substr(at, each));
    if (!number) return hex;
    absl::StrAppend(&text, at == 0 ? "" : ",", *number);
  }
  return list ? absl::StrCat("[", text, "]") : text;
}

std::string ParseElement(DType type, absl::string_view text, std::string& bytes) {
  if (type == DType::kBool) {
    if (text != "true" && text != "false") {
      return absl::StrCat("'", text, "' is neither true nor false");
    }
    bytes.push_back(text == "true" ? 1 : 0);
    return "";
  }
  bool parsed = false;
  const bool known = Dispatch(type, [&](auto number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    bool finite = true;
    if constexpr (std::is_floating_point_v<decltype(number)>) finite = std::isfinite(number);
    parsed = error == std::errc() && end == text.data() + text.size() && finite;
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  });
  if (!known) {
    return absl::StrCat("elements of ", NameOf(type), " are written as their bytes, such as x00");
  }
  return parsed ? "" : absl::StrCat("'", text, "' is no finite number of ", NameOf(type));
}

}  // namespace ferry::compute
