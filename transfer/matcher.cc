// SPDX-License-Identifier: Apache-2.0
#include "transfer/matcher.h"

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "transfer/convoy.h"

namespace ferry {
namespace {

// The same for the keys of a convoy and for a key by itself, which share all but the key.
class MemberHash {
 public:
  explicit MemberHash(const MatchKey& shared)
      : shared_(absl::HashOf(shared.domain, shared.source, shared.destination)) {}
  uint64_t Of(absl::string_view key) const { return absl::HashOf(shared_, key); }

 private:
  size_t shared_;
};

}  // namespace

TransferMatcher::Result TransferMatcher::Add(const HashedKey& key, Half half) {
  home_.Check();
  if (key.key().count > 1) return AddConvoy(key, half);
  if (const Member* const member = FindMember(key.key())) {
    const bool in_use = member->half.side == half.side;
    return {in_use ? Outcome::kKeyInUse : Outcome::kApart, member->half};
  }
  auto& waiting = waiting_.Of(key);
  auto [entry, added] = waiting.try_emplace(key, half);
  if (added) {
    ++singles_;
    return {Outcome::kWaiting, {}};
  }
  const Half other = entry->second;
  if (other.side == half.side) return {Outcome::kKeyInUse, other};
  waiting.erase(entry);
  --singles_;
  return {Outcome::kMatched, other};
}

TransferMatcher::Result TransferMatcher::AddConvoy(const HashedKey& key, Half half) {
  const MatchKey& convoy = key.key();
  auto& waiting = waiting_.Of(key);
  if (const auto entry = waiting.find(key); entry != waiting.end()) {
    const Half other = entry->second;
    if (other.side == half.side) return {Outcome::kApart, other};
    RemoveMembers(convoy, convoy.key.size());
    waiting.erase(entry);
    --convoys_;
    return {Outcome::kMatched, other};
  }
  if (singles_ > 0) {
    MatchKey single = convoy;
    single.count = 1;
    for (PackedKeys keys(convoy); !keys.AtEnd(); keys.Next()) {
      single.key.assign(keys.key().data(), keys.key().size());
      if (const auto other = Find(single)) return {Outcome::kApart, *other};
    }
  }
  const MemberHash hash(convoy);
  for (PackedKeys keys(convoy); !keys.AtEnd(); keys.Next()) {
    const uint64_t code = hash.Of(keys.key());
    const Member member{&convoy, static_cast<uint32_t>(keys.at()), half};
    const auto [entry, added] = members_.Of(code).try_emplace(code, member);
    if (added) continue;
    const Half other = entry->second.half;
    RemoveMembers(convoy, keys.at());
    return {Outcome::kApart, other};
  }
  waiting.try_emplace(key, half);
  ++convoys_;
  return {Outcome::kWaiting, {}};
}

void TransferMatcher::RemoveMembers(const MatchKey& convoy, size_t end) {
  const MemberHash hash(convoy);
  for (PackedKeys keys(convoy); keys.at() < end; keys.Next()) {
    const uint64_t code = hash.Of(keys.key());
    members_.Of(code).erase(code);
  }
}

const TransferMatcher::Member* TransferMatcher::FindMember(const MatchKey& key) const {
  if (convoys_ == 0) return nullptr;
  const uint64_t code = MemberHash(key).Of(key.key);
  const auto& members = members_.Of(code);
  const auto entry = members.find(code);
  if (entry == members.end()) return nullptr;
  const Member& member = entry->second;
  const MatchKey& convoy = *member.convoy;
  const bool same = convoy.domain == key.domain && convoy.source == key.source &&
                    convoy.destination == key.destination &&
                    PackedKeys::KeyAt(convoy.key, member.at) == key.key;
  return same ? &member : nullptr;
}

std::optional<Half> TransferMatcher::Find(const HashedKey& key) const {
  home_.Check();
  const auto& waiting = waiting_.Of(key);
  auto entry = waiting.find(key);
  if (entry != waiting.end()) return entry->second;
  const Member* const member = key.key().count == 1 ? FindMember(key.key()) : nullptr;
  if (member == nullptr) return std::nullopt;
  return member->half;
}

bool TransferMatcher::Remove(const HashedKey& key, Half half) {
  home_.Check();
  auto& waiting = waiting_.Of(key);
  auto entry = waiting.find(key);
  if (entry == waiting.end() || !(entry->second == half)) return false;
  waiting.erase(entry);
  if (key.key().count > 1) {
    RemoveMembers(key.key(), key.key().key.size());
    --convoys_;
  } else {
    --singles_;
  }
  return true;
}

}  // namespace ferry
