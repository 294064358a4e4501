// SPDX-License-Identifier: Apache-2.0
#include "compute/program/attribute.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "compute/dtype.h"
#include "compute/program/limits.h"

namespace ferry::compute {
namespace {

constexpr absl::string_view kDirections[] = {"eq", "ne", "lt", "le", "gt", "ge"};
constexpr absl::string_view kModes[] = {"nan_or_inf", "saturate"};
constexpr absl::string_view kRoundings[] = {"ceil", "floor", "nearest_half_up"};
constexpr absl::string_view kReductions[] = {"sum", "product", "max", "min", "any", "all"};

constexpr std::array<absl::string_view, kDTypes> AllDTypeNames() {
  std::array<absl::string_view, kDTypes> names;
  for (size_t i = 0; i < kDTypes; ++i) names[i] = NameOf(static_cast<DType>(i));
  return names;
}
constexpr std::array<absl::string_view, kDTypes> kDTypeNames = AllDTypeNames();

constexpr int64_t kFar = int64_t{1} << 62;  // sums of two do not overflow

constexpr AttributeInfo kTable[] = {
    {"offset", AttributeKind::kInt, 0, kFar, true},
    {"source_offset", AttributeKind::kInt, 0, kFar, true},
    {"bytes", AttributeKind::kInt, 0, kFar},
    {"strides", AttributeKind::kInts, 0, kFar},
    {"splat", AttributeKind::kData, 1, kMaxInlineBytes},
    {"values", AttributeKind::kData, 0, kMaxInlineBytes},
    {"dimension", AttributeKind::kInt, 0, kMaxRank - 1},
    {"dimensions", AttributeKind::kInts, 0, kMaxRank - 1},
    {"permutation", AttributeKind::kInts, 0, kMaxRank - 1},
    {"start", AttributeKind::kInts, 0, kFar},
    {"limit", AttributeKind::kInts, 0, kFar},
    {"step", AttributeKind::kInts, 1, kFar},
    {"sizes", AttributeKind::kInts, 0, kFar},
    {"low", AttributeKind::kInts, 0, kFar},
    {"high", AttributeKind::kInts, 0, kFar},
    {"interior", AttributeKind::kInts, 0, kFar},
    {"direction", AttributeKind::kWord, 0, 0, false, kDirections},
    {"total_order", AttributeKind::kInt, 0, 1, true},
    {"mode", AttributeKind::kWord, 0, 0, true, kModes},
    {"rounding", AttributeKind::kWord, 0, 0, true, kRoundings},
    {"block", AttributeKind::kInt, 1, 1 << 20},
    {"reduction", AttributeKind::kWord, 0, 0, false, kReductions},
    {"accumulate", AttributeKind::kWord, 0, 0, false, kDTypeNames},
    {"lhs_batch", AttributeKind::kInts, 0, kMaxRank - 1},
    {"rhs_batch", AttributeKind::kInts, 0, kMaxRank - 1},
    {"lhs_contract", AttributeKind::kInts, 0, kMaxRank - 1},
    {"rhs_contract", AttributeKind::kInts, 0, kMaxRank - 1},
    {"trips", AttributeKind::kInt, 0, kMaxTrips},
    {"device", AttributeKind::kInt, 0, std::numeric_limits<int64_t>::max()},
    {"key", AttributeKind::kBytes, 0, kMaxKeyBytes},
    {"peer", AttributeKind::kBytes, 1, kMaxPeerBytes},
    {"parts", AttributeKind::kInt, 2, kMaxParts},
};
static_assert(std::size(kTable) == kAttributes);

}  // namespace

const AttributeInfo& InfoOf(Attribute attribute) { return kTable[static_cast<size_t>(attribute)]; }

std::optional<Attribute> AttributeOf(absl::string_view name) {
  for (size_t i = 0; i < kAttributes; ++i) {
    if (kTable[i].name == name) return static_cast<Attribute>(i);
  }
  return std::nullopt;
}

std::optional<int64_t> WordOf(Attribute attribute, absl::string_view word) {
  const auto words = InfoOf(attribute).words;
  const auto at = std::find(words.begin(), words.end(), word);
  if (at == words.end()) return std::nullopt;
  return at - words.begin();
}

void Attributes::Set(Attribute attribute, AttributeValue value) {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), attribute,
                       [](const Entry& entry, Attribute wanted) { return entry.first < wanted; });
  const bool there = at != entries_.end() && at->first == attribute;
  const auto* number = std::get_if<int64_t>(&value);
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  const bool is_default =
      (number != nullptr && *number == 0 && InfoOf(attribute).zero_is_default) ||
      (list != nullptr && list->empty());
  if (is_default) {
    if (there) entries_.erase(at);
  } else if (there) {
    at->second = std::move(value);
  } else {
    entries_.insert(at, {attribute, std::move(value)});
  }
}

const AttributeValue* Attributes::Find(Attribute attribute) const {
  for (const Entry& entry : entries_) {
    if (entry.first == attribute) return &entry.second;
  }
  return nullptr;
}

int64_t Attributes::Int(Attribute attribute) const {
  const AttributeValue* value = Find(attribute);
  return value != nullptr ? std::get<int64_t>(*value) : 0;
}

absl::Span<const int64_t> Attributes::Ints(Attribute attribute) const {
  const AttributeValue* value = Find(attribute);
  if (value == nullptr) return {};
  return std::get<std::vector<int64_t>>(*value);
}

absl::string_view Attributes::Bytes(Attribute attribute) const {
  const AttributeValue* value = Find(attribute);
  return value != nullptr ? absl::string_view(std::get<std::string>(*value)) : absl::string_view();
}

std::string ProblemOf(Attribute attribute, const AttributeValue& value) {
  const AttributeInfo& info = InfoOf(attribute);
  const bool is_list = info.kind == AttributeKind::kInts;
  const bool is_bytes = info.kind == AttributeKind::kBytes || info.kind == AttributeKind::kData;
  if (value.index() != (is_bytes ? 2 : is_list ? 1 : 0)) {
    return absl::StrCat(info.name, " is ", is_bytes ? "bytes" : is_list ? "a list" : "a number");
  }
  if (is_bytes) {
    const auto bytes = static_cast<int64_t>(std::get<std::string>(value).size());
    if (bytes >= info.least && bytes <= info.most) return "";
    return absl::StrCat(info.name, " has ", info.least, " to ", info.most, " bytes, not ", bytes);
  }
  if (is_list && std::get<std::vector<int64_t>>(value).size() > static_cast<size_t>(kMaxRank)) {
    return absl::StrCat(info.name, " has at most ", kMaxRank, " numbers");
  }
  const int64_t most =
      info.kind == AttributeKind::kWord ? static_cast<int64_t>(info.words.size()) - 1 : info.most;
  for (const int64_t number : is_list ? absl::MakeConstSpan(std::get<std::vector<int64_t>>(value))
                                      : absl::MakeConstSpan(&std::get<int64_t>(value), 1)) {
    if (number < info.least || number > most) {
      return absl::StrCat(info.name, " is ", info.least, " to ", most, ", not ", number);
    }
  }
  return "";
}

}  // namespace ferry::compute
