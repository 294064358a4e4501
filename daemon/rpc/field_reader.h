// SPDX-License-Identifier: Apache-2.0
// Reads a serialized message field by field, in the form in which protoc's code writes it: fields
// in the order of their numbers, zeros left out, numbers in no more bytes than they need. Anything
// in another form stays unread; the caller then leaves the whole message to protoc's code. A value
// that refers to the bytes. protozero throws at a malformed varint.
#pragma once

#include <cstdint>
#include <optional>
#include <protozero/types.hpp>
#include <protozero/varint.hpp>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace ferry {

// Each method reads a field if that field is next and its tag has the one or two bytes that it
// needs.
class FieldReader {
 public:
  explicit FieldReader(absl::string_view bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  bool AtEnd() const { return at_ == end_; }
  // 0 if the field is absent.
  uint64_t Number(uint32_t field) {
    return Next(field, protozero::pbf_wire_type::varint) ? protozero::decode_varint(&at_, end_) : 0;
  }
  // A value from 0 to count - 1; a larger one stays unread.
  template <typename T>
  T OneOf(uint32_t field, uint64_t count) {
    const char* const before = at_;
    const uint64_t value = Number(field);
    if (value < count) return static_cast<T>(value);
    at_ = before;
    return T{};
  }
  // False also if the value does not fit 32 bits: protoc's code would take its lower half.
  bool Number32(uint32_t field, uint32_t& number) {
    const uint64_t value = Number(field);
    number = static_cast<uint32_t>(value);
    return value == number;
  }
  // Only if the length is written in no more bytes than it needs, and lies within the message.
  std::optional<absl::string_view> Bytes(uint32_t field) {
    const char* const before = at_;
    if (!Next(field, protozero::pbf_wire_type::length_delimited)) return std::nullopt;
    const char* const length = at_;
    const uint64_t size = protozero::decode_varint(&at_, end_);
    if (at_ - length != protozero::length_of_varint(size) ||
        size > static_cast<uint64_t>(end_ - at_)) {
      at_ = before;
      return std::nullopt;
    }
    return absl::string_view(std::exchange(at_, at_ + size), size);
  }
  // Empty if the field is absent.
  std::string Text(uint32_t field) {
    return std::string(Bytes(field).value_or(absl::string_view()));
  }

 private:
  bool Next(uint32_t field, protozero::pbf_wire_type type) {
    const uint32_t tag = field << 3 | static_cast<uint32_t>(type);
    if (field >= 16) {
      const char bytes[] = {static_cast<char>(tag | 0x80), static_cast<char>(tag >> 7)};
      if (end_ - at_ < 2 || at_[0] != bytes[0] || at_[1] != bytes[1]) return false;
      at_ += 2;
      return true;
    }
    if (at_ == end_ || *at_ != static_cast<char>(tag)) return false;
    ++at_;
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace ferry
