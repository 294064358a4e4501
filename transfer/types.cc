// SPDX-License-Identifier: Apache-2.0
#include "transfer/types.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "transfer/convoy.h"

namespace ferry {
namespace {

struct NamedType {
  absl::string_view name;
  int bits;
};
constexpr NamedType kTypes[] = {
    {"unspecified", 0}, {"PRED", 8},     {"S8", 8},     {"S16", 16},      {"S32", 32},
    {"S64", 64},        {"U8", 8},       {"U16", 16},   {"U32", 32},      {"U64", 64},
    {"F16", 16},        {"BF16", 16},    {"F32", 32},   {"F64", 64},      {"C64", 64},
    {"C128", 128},      {"F8E4M3FN", 8}, {"F8E5M2", 8}, {"F8E8M0FNU", 8}, {"F4E2M1FN", 4},
};
static_assert(std::size(kTypes) == kDataTypes);

// FNV-1a and a finalizer: equal on every daemon and in every version, unlike absl::Hash.
constexpr uint64_t kHashSeed = 0xcbf29ce484222325;
uint64_t HashBytes(uint64_t hash, absl::string_view bytes) {
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}
uint64_t Finalize(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  return hash ^ (hash >> 33);
}

}  // namespace

absl::string_view DataTypeName(DataType type) {
  FERRY_CHECK(static_cast<int>(type) < kDataTypes);
  return kTypes[static_cast<int>(type)].name;
}

int DataTypeBits(DataType type) {
  FERRY_CHECK(static_cast<int>(type) < kDataTypes);
  return kTypes[static_cast<int>(type)].bits;
}

std::string Shape::ToString() const {
  if (!given) return "unspecified";
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

absl::string_view RouteName(Route route) {
  FERRY_CHECK(static_cast<int>(route) < kRoutes);
  return TraitsOf(route).name;
}

std::string PrintableKey(absl::string_view key) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (printable) return absl::StrCat("'", key, "'");
  if (key.size() == 8) {
    uint64_t value = 0;
    for (char c : key) value = value << 8 | static_cast<unsigned char>(c);
    return absl::StrCat(value);
  }
  return absl::StrCat("0x", absl::BytesToHexString(key));
}

std::string DescribeKey(const MatchKey& key) {
  if (key.count == 1) return absl::StrCat("key ", PrintableKey(key.key));
  const std::vector<absl::string_view> keys = KeysOf(key);
  if (keys.empty()) return absl::StrCat(key.count, " keys");
  return absl::StrCat(key.count, " keys, ", PrintableKey(keys.front()), " to ",
                      PrintableKey(keys.back()), ",");
}

std::string Describe(const MatchKey& key) {
  return absl::StrCat(DescribeKey(key), " from device ", key.source.value(), " to device ",
                      key.destination.value());
}

std::string DomainFingerprint(absl::string_view domain) {
  return absl::StrFormat("%016x", Finalize(HashBytes(kHashSeed, domain)));
}

uint64_t MatchFingerprint(const MatchKey& key) {
  uint64_t hash = HashBytes(kHashSeed, key.domain);
  for (const uint64_t number :
       {uint64_t{key.domain.size()}, key.source.value(), key.destination.value()}) {
    hash = Finalize(hash ^ number);
  }
  hash = Finalize(HashBytes(hash, key.key));
  return hash == 0 ? 1 : hash;
}

}  // namespace ferry
