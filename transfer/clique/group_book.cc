// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/group_book.h"

#include <optional>

#include "base/check.h"

namespace ferry {

GroupRecord& GroupBook::Add(const Clique& clique, PeerId peer, bool leads) {
  home_.Check();
  auto group = std::make_unique<GroupRecord>();
  group->id = next_id_++;
  group->clique = clique;
  group->peer = peer;
  group->leads = leads;
  return *groups_.emplace(group->id, std::move(group)).first->second;
}

std::vector<GroupRecord*> GroupBook::TakeGranted() {
  home_.Check();
  std::vector<GroupRecord*> granted;
  for (const uint64_t id : lanes_.TakeGranted()) {
    GroupRecord* const group = Find(id);
    FERRY_CHECK(group != nullptr);
    granted.push_back(group);
  }
  return granted;
}

void GroupBook::Launch(GroupRecord& group) {
  home_.Check();
  StopTimer(group);
  group.state = GroupRecord::State::kLaunched;
  lanes_.Commit(group.lane(), group.id);
  if (lanes_.Head(group.lane()) == group.id) Begin(group);
}

void GroupBook::Begin(GroupRecord& group) {
  group.began = context_.now;
  SetTimer(group, context_.options.group_deadline);
}

std::unique_ptr<GroupRecord> GroupBook::Erase(uint64_t id) {
  home_.Check();
  const auto entry = groups_.find(id);
  FERRY_CHECK(entry != groups_.end());
  std::unique_ptr<GroupRecord> group = std::move(entry->second);
  StopTimer(*group);
  groups_.erase(entry);
  lanes_.Release(group->lane(), id);
  if (const std::optional<uint64_t> head = lanes_.Head(group->lane())) {
    GroupRecord& next = *Find(*head);
    if (next.timer == Deadlines::kNever && next.why.ok() && !next.late) Begin(next);
  }
  return group;
}

GroupRecord* GroupBook::Find(uint64_t id) const {
  home_.Check();
  const auto entry = groups_.find(id);
  return entry == groups_.end() ? nullptr : entry->second.get();
}

GroupRecord* GroupBook::FindLed(PeerId follower, const Clique& clique, uint64_t number,
                                GroupRecord::State state) const {
  home_.Check();
  for (const auto& [id, group] : groups_) {
    if (group->peer == follower && group->leads && group->state == state &&
        group->clique == clique && group->number == number) {
      return group.get();
    }
  }
  return nullptr;
}

void GroupBook::SetTimer(GroupRecord& group, absl::Duration after) {
  home_.Check();
  group.timer = absl::ToUnixNanos(context_.now + after);
  timers_.emplace(group.timer, group.id);
}

void GroupBook::StopTimer(GroupRecord& group) {
  home_.Check();
  if (group.timer == Deadlines::kNever) return;
  timers_.erase({group.timer, group.id});
  group.timer = Deadlines::kNever;
}

GroupRecord* GroupBook::TakeLate() {
  home_.Check();
  if (timers_.empty() || timers_.begin()->first > absl::ToUnixNanos(context_.now)) return nullptr;
  GroupRecord& group = *Find(timers_.begin()->second);
  StopTimer(group);
  return &group;
}

int64_t GroupBook::NextTimer() const {
  home_.Check();
  return timers_.empty() ? Deadlines::kNever : timers_.begin()->first;
}

}  // namespace ferry
