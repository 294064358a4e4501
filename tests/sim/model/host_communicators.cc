// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/model/host_communicators.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace ferry {
namespace {

std::string Describe(const HostCommunicators::Key& key) {
  return absl::StrCat("attempt ", key.attempt, " of ", Describe(key.clique));
}

}  // namespace

void HostCommunicators::Open(const Key& key, bool low, int node, std::string* error) {
  const auto [entry, fresh] = ranks_.try_emplace({key, low});
  if (!fresh) *error = absl::StrCat(Describe(key), " is opened twice");
  entry->second.node = node;
}

bool HostCommunicators::Meet(const Key& key, bool low) {
  ranks_.at({key, low}).meets = true;
  const auto other = ranks_.find({key, !low});
  return other != ranks_.end() && other->second.meets;
}

bool HostCommunicators::OnOpened(const Key& key, bool low) {
  Rank& rank = ranks_.at({key, low});
  rank.open = !rank.ended;
  return rank.open;
}

HostCommunicators::CallId HostCommunicators::Launch(Call call, std::string* error) {
  const auto [entry, unopened] = ranks_.try_emplace({call.key, call.low});
  Rank& rank = entry->second;
  if (unopened) *error = absl::StrCat("a launch on ", Describe(call.key), ", which nobody opened");
  if (rank.ended || rank.closing) {
    *error = absl::StrCat("a launch on ", Describe(call.key), ", which has ended, or will");
  }
  call.position = rank.calls.size();
  auto other = ranks_.find({call.key, !call.low});
  if (other != ranks_.end() && call.position < other->second.history.size() &&
      other->second.history[call.position] != call.ops) {
    *error = absl::StrCat("launch ", call.position, " of ", Describe(call.key),
                          " is not the same list at both ends");
  }
  const CallId id = next_++;
  rank.calls.push_back(id);
  rank.history.push_back(call.ops);
  lanes_[call.device()].push_back(id);
  calls_.emplace(id, std::move(call));
  return id;
}

HostCommunicators::Call* HostCommunicators::Find(CallId id) {
  auto entry = calls_.find(id);
  return entry == calls_.end() ? nullptr : &entry->second;
}

std::optional<HostCommunicators::CallId> HostCommunicators::ToStart(GlobalDeviceId device) {
  const auto& lane = lanes_[device];
  if (lane.empty()) return std::nullopt;
  Call& call = calls_.at(lane.front());
  if (call.started || call.aborted || !ranks_.at({call.key, call.low}).open) return std::nullopt;
  call.started = true;
  return lane.front();
}

const HostCommunicators::Call* HostCommunicators::PartnerOf(const Call& call) const {
  auto rank = ranks_.find({call.key, !call.low});
  if (rank == ranks_.end() || call.position >= rank->second.calls.size()) return nullptr;
  auto partner = calls_.find(rank->second.calls[call.position]);
  return partner == calls_.end() ? nullptr : &partner->second;
}

std::vector<HostCommunicators::CallId> HostCommunicators::Arrive(CallId id) {
  Call& call = calls_.at(id);
  call.arrived = true;
  const Call* partner = PartnerOf(call);
  if (partner == nullptr || !partner->arrived || partner->aborted || call.aborted) return {};
  return {id, ranks_.at({call.key, !call.low}).calls[call.position]};
}

void HostCommunicators::Answer(CallId id) {
  auto call = calls_.find(id);
  std::erase(lanes_[call->second.device()], id);
  calls_.erase(call);
}

void HostCommunicators::Closing(const Key& key, bool low, std::string* error) {
  const auto entry = ranks_.find({key, low});
  if (entry == ranks_.end() || entry->second.ended || entry->second.closing) {
    *error = absl::StrCat(Describe(key), " is not open");
  } else {
    entry->second.closing = true;
  }
}

std::vector<HostCommunicators::CallId> HostCommunicators::End(const Key& key, bool low, bool abort,
                                                              std::string* error) {
  auto entry = ranks_.find({key, low});
  if (entry == ranks_.end() || entry->second.aborted || (entry->second.ended && !abort)) {
    *error = absl::StrCat("the end of ", Describe(key), " that is not open");
    return {};
  }
  // NCCL may need a rank until the other one has done what was launched on both, or aborts it.
  for (const bool rank : {true, false}) {
    const auto end = ranks_.find({key, rank});
    if (abort || end == ranks_.end()) continue;
    const auto& on_it = end->second.calls;
    if (std::any_of(on_it.begin(), on_it.end(), [&](CallId id) {
          const Call* call = Find(id);
          return call != nullptr && !call->aborted;
        })) {
      *error = absl::StrCat(Describe(key), " is closed while groups are on it");
    }
  }
  if (!abort && !entry->second.closing) {
    *error = absl::StrCat(Describe(key), " is closed unannounced");
  }
  entry->second.ended = true;
  entry->second.aborted = abort;
  std::vector<CallId> calls;
  for (CallId id : entry->second.calls) {
    Call* call = Find(id);
    if (call == nullptr || !abort) continue;
    call->aborted = true;
    calls.push_back(id);
  }
  return calls;
}

void HostCommunicators::Crash(int node) {
  std::vector<CallId> gone;
  for (const auto& [id, call] : calls_) {
    if (call.node == node) gone.push_back(id);
  }
  for (CallId id : gone) Answer(id);
  for (auto& [name, rank] : ranks_) {
    if (rank.node == node) rank.ended = rank.aborted = true;
  }
}

bool HostCommunicators::LockedUp(GlobalDeviceId device) const {
  std::set<GlobalDeviceId> seen;
  for (GlobalDeviceId at = device; seen.insert(at).second;) {
    auto lane = lanes_.find(at);
    if (lane == lanes_.end() || lane->second.empty()) return false;
    const Call& first = calls_.at(lane->second.front());
    const Call* partner = PartnerOf(first);
    // Alone it waits for messages; aborted or hanging ones are somebody else's fault.
    if (partner == nullptr || first.aborted || partner->aborted || first.hangs) return false;
    at = partner->device();
    if (&calls_.at(lanes_.at(at).front()) == partner) return false;  // they meet
  }
  return true;
}

size_t HostCommunicators::QueueOf(GlobalDeviceId device) const {
  auto lane = lanes_.find(device);
  return lane == lanes_.end() ? 0 : lane->second.size();
}

std::vector<Clique> HostCommunicators::OpenAt(int node) const {
  std::vector<Clique> open;
  for (const auto& [name, rank] : ranks_) {
    if (rank.node == node && !rank.ended) open.push_back(name.first.clique);
  }
  return open;
}

}  // namespace ferry
