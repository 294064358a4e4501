// SPDX-License-Identifier: Apache-2.0
// Elements of constants. Numbers are written as such; what is not finite, and several of four bits,
// are the bytes themselves: x and two hexadecimal digits a byte, in memory's order.
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compute/numerics/convert.h"
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

// That `text` is none of `type`, and, if it is one that only `bytes` can say, how to write it.
std::string NoFiniteNumber(DType type, absl::string_view text, absl::string_view bytes) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  std::string how;
  if (!std::isfinite(number) && InfoOf(type).floating && !bytes.empty()) {
    how = absl::StrCat(": write the bytes, as in splat=", PrintElements(type, bytes, false));
  }
  return absl::StrCat("'", text, "' is no finite number of ", NameOf(type), how);
}

// A number of a type that C++ lacks: read as f64, and rounded once more. "" or what is wrong.
std::string ParseNarrow(DType type, absl::string_view text, uint32_t& code) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // Scales are powers of two of f32's range, which have short texts as f32 only.
  if (type == DType::kF8E8M0FNU) number = static_cast<float>(number);
  code = EncodeFloat(type, number);
  const float value = DecodeFloat(type, code);
  // What has no infinity may have no NaN either: then the largest number stands for what is beyond.
  const bool beyond = type == DType::kF4E2M1FN && std::abs(number) >= 7;
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number) ||
      !std::isfinite(value) || beyond) {
    const bool other = std::isnan(value) != std::isnan(number);  // without infinities
    const std::string bytes(reinterpret_cast<const char*>(&code), (InfoOf(type).bits + 7) / 8);
    return NoFiniteNumber(type, text, other ? "" : bytes);
  }
  if (type == DType::kF8E8M0FNU && value != number) {
    return absl::StrCat("'", text, "' is no power of two of f8e8m0fnu");
  }
  return "";
}

// The shortest text that reads back as the same number, of a type that C++ lacks as the same f32;
// nothing if there is none.
std::optional<std::string> NumberText(DType type, absl::string_view bytes) {
  if (type == DType::kBool) {
    if ((bytes[0] & 0xfe) != 0) return std::nullopt;
    return bytes[0] == 0 ? "false" : "true";
  }
  std::array<char, 64> buffer;
  std::optional<std::string> text;
  const bool known = Dispatch(type, [&](auto number) {
    std::memcpy(&number, bytes.data(), sizeof(number));
    if constexpr (std::is_floating_point_v<decltype(number)>) {
      if (!std::isfinite(number)) return;
    }
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
    text = std::string(buffer.data(), end);
  });
  if (known) return text;
  uint32_t code = 0;
  std::memcpy(&code, bytes.data(), bytes.size());
  if (type == DType::kF4E2M1FN && code > 0xf) return std::nullopt;
  const float value = DecodeFloat(type, code);
  if (!std::isfinite(value)) return std::nullopt;
  return std::string(buffer.data(),
                     std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

}  // namespace

std::string PrintElements(DType type, absl::string_view bytes, bool list) {
  const std::string hex = absl::StrCat("x", absl::BytesToHexString(bytes));
  const size_t each = (InfoOf(type).bits + 7) / 8;
  const bool packed = list && InfoOf(type).bits < 8;  // how many there are is not said
  if (packed || bytes.size() % each != 0 || (!list && bytes.size() != each)) return hex;
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += each) {
    const std::optional<std::string> number = NumberText(type, bytes.substr(at, each));
    if (!number) return hex;
    absl::StrAppend(&text, at == 0 ? "" : ",", *number);
  }
  return list ? absl::StrCat("[", text, "]") : text;
}

std::string ParseElement(DType type, absl::string_view text, size_t index, std::string& bytes) {
  if (type == DType::kBool) {
    if (text != "true" && text != "false") {
      return absl::StrCat("'", text, "' is neither true nor false");
    }
    bytes.push_back(text == "true" ? 1 : 0);
    return "";
  }
  bool parsed = false;
  const size_t before = bytes.size();
  const bool known = Dispatch(type, [&](auto number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    bool finite = true;
    if constexpr (std::is_floating_point_v<decltype(number)>) finite = std::isfinite(number);
    parsed = error == std::errc() && end == text.data() + text.size() && finite;
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  });
  if (known) {
    return parsed ? "" : NoFiniteNumber(type, text, absl::string_view(bytes).substr(before));
  }
  uint32_t code = 0;
  std::string wrong = ParseNarrow(type, text, code);
  const size_t bits = InfoOf(type).bits;
  if (bits == 4 && index % 2 == 1) {
    bytes.back() = static_cast<char>(bytes.back() | code << 4);
  } else {
    bytes.append(reinterpret_cast<const char*>(&code), (bits + 7) / 8);
  }
  return wrong;
}

}  // namespace ferry::compute
