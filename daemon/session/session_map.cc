// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/session_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ferry {

Session& SessionMap::Add(std::unique_ptr<Session> session) {
  home_.Check();
  Session& added = *session;
  sessions_[added.id()] = std::move(session);
  return added;
}

void SessionMap::Erase(SessionId id) {
  home_.Check();
  const auto entry = sessions_.find(id);
  past_firings_ += entry->second->prepared().firings();
  sessions_.erase(entry);
}

Session* SessionMap::Find(SessionId id) const {
  home_.Check();
  const auto entry = sessions_.find(id);
  return entry == sessions_.end() ? nullptr : entry->second.get();
}

std::vector<Session*> SessionMap::List() const {
  home_.Check();
  std::vector<Session*> all;
  for (const auto& [id, session] : sessions_) all.push_back(session.get());
  return all;
}

size_t SessionMap::CountOf(uid_t uid) const {
  home_.Check();
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [uid](const auto& entry) { return entry.second->credentials().uid == uid; }));
}

std::string SessionMap::LargestHolders(const LocalDevice* device) const {
  home_.Check();
  std::vector<std::pair<uint64_t, const Session*>> all;
  for (const auto& [id, session] : sessions_) {
    uint64_t bytes = session->use().bytes;
    if (device != nullptr) {
      bytes = 0;
      for (const Arena* arena : session->arenas().List()) {
        if (arena->device == device->id) bytes += arena->held;
      }
    }
    if (bytes > 0) all.emplace_back(bytes, session.get());
  }
  if (all.empty()) return "no session of this daemon";
  const size_t shown = std::min<size_t>(5, all.size());
  std::partial_sort(all.begin(), all.begin() + shown, all.end(), [](const auto& a, const auto& b) {
    return std::make_pair(b.first, a.second->id()) < std::make_pair(a.first, b.second->id());
  });
  all.resize(shown);
  return absl::StrJoin(all, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second->id().ToString(), " (", entry.second->name(), ") ",
                    entry.first, " bytes");
  });
}

size_t SessionMap::prepared_armed() const {
  home_.Check();
  size_t armed = 0;
  for (const auto& [id, session] : sessions_) armed += session->prepared().armed();
  return armed;
}

uint64_t SessionMap::prepared_firings() const {
  home_.Check();
  uint64_t firings = past_firings_;
  for (const auto& [id, session] : sessions_) firings += session->prepared().firings();
  return firings;
}

std::vector<TransferId> SessionMap::IdlePrepared() const {
  home_.Check();
  std::vector<TransferId> batches;
  for (const auto& [id, session] : sessions_) session->prepared().ListIdle(batches);
  return batches;
}

}  // namespace ferry
