// SPDX-License-Identifier: Apache-2.0
// What an op says beside its operands. One table has all attributes: the name in the text form and
// on the wire, the kind of value, and its bounds. Plain values; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ferry::compute {

enum class AttributeKind : uint8_t {
  kInt,
  kInts,
  kWord,   // one of `words`, kept as its index
  kBytes,  // the text form shows them quoted
  kData,   // elements of the op's result type, kept as bytes; the text form shows numbers
};

struct AttributeInfo {
  absl::string_view name;
  AttributeKind kind = AttributeKind::kInt;
  int64_t least = 0;  // bound on an integer, on each of a list, or on the number of bytes
  int64_t most = std::numeric_limits<int64_t>::max();
  // 0 means the same as no attribute, and is not kept. An empty list is never kept.
  bool zero_is_default = false;
  absl::Span<const absl::string_view> words = {};
};

// In the order in which attributes are printed, sent and hashed.
enum class Attribute : uint8_t {
  kOffset,
  kSourceOffset,
  kBytes,
  kStrides,
  kSplat,
  kValues,
  kDimension,
  kDimensions,
  kPermutation,
  kStart,
  kLimit,
  kStep,
  kSizes,
  kLow,
  kHigh,
  kInterior,
  kDirection,
  kTotalOrder,
  kMode,
  kRounding,
  kBlock,
  kReduction,
  kAccumulate,
  kLhsBatch,
  kRhsBatch,
  kLhsContract,
  kRhsContract,
  kTrips,
  kDevice,
  kKey,
  kPeer,
  kParts,
};
inline constexpr size_t kAttributes = static_cast<size_t>(Attribute::kParts) + 1;

// The indices of words. For a conversion's mode and rounding they are Overflow and ScaleRounding of
// numerics/convert.h.
enum class Direction : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };
enum class Reduction : uint8_t { kSum, kProduct, kMax, kMin, kAny, kAll };

const AttributeInfo& InfoOf(Attribute attribute);
std::optional<Attribute> AttributeOf(absl::string_view name);
// The index of a word among those of `attribute`.
std::optional<int64_t> WordOf(Attribute attribute, absl::string_view word);

using AttributeValue = std::variant<int64_t, std::vector<int64_t>, std::string>;

// A set of attributes with values. A value that means the same as no attribute is not kept, so that
// sets of equal meaning are equal.
class Attributes {
 public:
  using Entry = std::pair<Attribute, AttributeValue>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) Set(entry.first, entry.second);
  }

  // The value must be of the attribute's kind.
  void Set(Attribute attribute, AttributeValue value);
  bool Has(Attribute attribute) const { return Find(attribute) != nullptr; }
  // 0, no elements, or no bytes if the set does not have the attribute.
  int64_t Int(Attribute attribute) const;
  absl::Span<const int64_t> Ints(Attribute attribute) const;
  absl::string_view Bytes(Attribute attribute) const;

  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attributes& other) const { return entries_ == other.entries_; }

 private:
  const AttributeValue* Find(Attribute attribute) const;

  std::vector<Entry> entries_;  // sorted by attribute, each once
};

// What is wrong with `value` by itself, its kind or its bounds; "" if nothing is.
std::string ProblemOf(Attribute attribute, const AttributeValue& value);

}  // namespace ferry::compute
