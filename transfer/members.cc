// SPDX-License-Identifier: Apache-2.0
#include "transfer/members.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

void Members::Desert(absl::Time now, const MemberPlace& where, Place& place,
                     absl::string_view last) {
  OfOwner& owner = owners_[place.owner];
  if (place.count > 0) {
    ++deserted_;
    --owner.populated;
  }
  place.count = 0;
  place.lost = false;
  place.last = std::string(last);
  place.left = now;
  owner.deserted.emplace_back(now, where);
  next_time_ = std::min(next_time_, now + kMemory);
  if (owner.deserted.size() > kMostDeserted) ForgetOldest(owner);
}

void Members::Populate(Place& place, uint32_t count) {
  if (place.count == 0) {
    --deserted_;
    ++owners_[place.owner].populated;
  }
  place.count = count;
  place.lost = false;
  place.last.clear();
}

void Members::ForgetOldest(OfOwner& owner) {
  const auto [left, where] = std::move(owner.deserted.front());
  owner.deserted.pop_front();
  const auto entry = places_.find(where);
  if (entry == places_.end() || entry->second.count > 0 || entry->second.left != left) return;
  --deserted_;
  places_.erase(entry);
}

absl::StatusOr<bool> Members::Join(SessionId session, const MemberPlace& where,
                                   absl::string_view name) {
  home_.Check();
  std::vector<MemberPlace>& joined = of_sessions_[session];
  if (absl::c_linear_search(joined, where)) {
    for (Member& member : places_.at(where).members) {
      if (member.session == session) member.name = std::string(name);
    }
    return false;
  }
  if (joined.size() >= kMostOfSession) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                 absl::StrCat("join: the session is a member on ", joined.size(),
                              " devices already, which is the most"));
  }
  joined.push_back(where);
  const auto [entry, first] = places_.try_emplace(where);
  Place& place = entry->second;
  if (first) {
    place.owner = self_;
    ++deserted_;  // until the next line
  }
  Populate(place, place.count + 1);
  place.members.push_back({session, std::string(name)});
  return true;
}

std::vector<MemberPlace> Members::Leave(absl::Time now, SessionId session) {
  home_.Check();
  const auto found = of_sessions_.find(session);
  if (found == of_sessions_.end()) return {};
  std::vector<MemberPlace> joined = std::move(found->second);
  of_sessions_.erase(found);
  for (const MemberPlace& where : joined) {
    Place& place = places_.at(where);
    const auto member = absl::c_find_if(
        place.members, [&](const Member& member) { return member.session == session; });
    FERRY_CHECK(member != place.members.end());
    const std::string name = std::move(member->name);
    place.members.erase(member);
    if (place.count > 1) {
      --place.count;
    } else {
      Desert(now, where, place, name);
    }
  }
  return joined;
}

bool Members::OnTold(absl::Time now, PeerId peer, const MemberPlace& where, uint32_t count,
                     absl::string_view last) {
  home_.Check();
  auto entry = places_.find(where);
  if (entry == places_.end()) {
    OfOwner& owner = owners_[peer];
    if (owner.populated >= kMostOfPeer) return false;
    entry = places_.try_emplace(where).first;
    entry->second.owner = peer;
    entry->second.count = 1;  // that somebody was there is what the message says at least
    ++owner.populated;
  }
  if (count == 0) {
    Desert(now, where, entry->second, last);
  } else {
    Populate(entry->second, count);
  }
  return true;
}

void Members::OnPeerLost(PeerId peer) {
  home_.Check();
  const auto owner = owners_.find(peer);
  if (owner == owners_.end()) return;
  owner->second.rejoin_until = absl::InfiniteFuture();
  if (owner->second.populated == 0) return;
  for (auto& [where, place] : places_) {
    if (place.owner == peer && place.count > 0) place.lost = true;
  }
}

void Members::OnPeerUp(absl::Time now, PeerId peer) {
  home_.Check();
  const auto owner = owners_.find(peer);
  if (owner != owners_.end() && owner->second.populated > 0) {
    owner->second.rejoin_until = now + kRejoin;
    next_time_ = std::min(next_time_, now + kRejoin);
  }
}

void Members::Forget(PeerId peer) {
  home_.Check();
  if (owners_.erase(peer) == 0) return;
  for (auto entry = places_.begin(); entry != places_.end();) {
    const auto here = entry++;
    if (here->second.owner != peer) continue;
    deserted_ -= here->second.count == 0 ? 1 : 0;
    entry = places_.erase(here);
  }
}

const Members::Place* Members::FindDeserted(const std::string& domain,
                                            GlobalDeviceId device) const {
  home_.Check();
  if (deserted_ == 0) return nullptr;
  const auto found = places_.find(MemberPlace{device, domain});
  return found == places_.end() || found->second.count > 0 ? nullptr : &found->second;
}

bool Members::DesertLost(absl::Time now, PeerId peer) {
  // Beforehand, since each that is deserted may have the oldest one forgotten.
  std::vector<MemberPlace> lost;
  for (const auto& [where, place] : places_) {
    if (place.owner == peer && place.lost) lost.push_back(where);
  }
  for (const MemberPlace& where : lost) Desert(now, where, places_.at(where), "");
  return !lost.empty();
}

bool Members::OnTime(absl::Time now) {
  home_.Check();
  if (now < next_time_) return false;
  bool any = false;
  next_time_ = absl::InfiniteFuture();
  for (auto& [peer, owner] : owners_) {
    while (!owner.deserted.empty() && owner.deserted.front().first + kMemory <= now) {
      ForgetOldest(owner);
    }
    if (owner.rejoin_until <= now) {
      owner.rejoin_until = absl::InfiniteFuture();
      any |= DesertLost(now, peer);
    }
    next_time_ = std::min(next_time_, owner.rejoin_until);
    if (!owner.deserted.empty()) {
      next_time_ = std::min(next_time_, owner.deserted.front().first + kMemory);
    }
  }
  return any;
}

}  // namespace ferry
