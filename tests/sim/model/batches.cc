// SPDX-License-Identifier: Apache-2.0
// What clients post in batches that can go as convoys, cut alike at both ends or not.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/model/simulation.h"

namespace ferry {

void Simulation::PostBatches() {
  TransferSpec spec;
  spec.key = {"sim", RandomDevice(), RandomDevice(), ""};
  while (OwnerOf(spec.key.destination) == OwnerOf(spec.key.source) && Chance(profile_.apart)) {
    spec.key.destination = RandomDevice();
  }
  const int source = OwnerOf(spec.key.source);
  const int destination = OwnerOf(spec.key.destination);
  spec.bytes = uint64_t{1} << Random(18);
  spec.uid = static_cast<uint32_t>(Random(3));
  if (Chance(30)) spec.shape = {true, {static_cast<int64_t>(spec.bytes)}};
  const bool mismatch = Chance(10);
  const uint64_t count = 8 + Random(30);
  std::vector<std::pair<uint64_t, TransferSpec>> sends, receives;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t index = scenarios_.size();
    scenarios_.emplace_back();
    Scenario& scenario = scenarios_.back();
    scenario.mismatch = mismatch;
    if (source != destination) {
      scenario.losses = LinkOf(source, destination).losses;
      if (LinkOf(source, destination).unaware > 0) scenario.disturbed = true;
    }
    spec.key.key = absl::StrCat("key-", index);
    spec.side = Side::kSend;
    sends.emplace_back(index, spec);
    spec.side = Side::kReceive;
    receives.emplace_back(index, spec);
    if (mismatch) {
      receives.back().second.bytes += 1;
      receives.back().second.shape.given = false;
    }
  }
  for (auto* batch : {&sends, &receives}) {
    const uint64_t what = Random(10);
    if (what == 0) batch->erase(batch->begin() + Random(count));                 // one is missing
    if (what == 1) std::swap((*batch)[Random(count)], (*batch)[Random(count)]);  // another order
    std::vector<std::pair<uint64_t, TransferSpec>> rest;
    if (what == 2) {  // two batches
      const auto half = batch->begin() + Random(count);
      rest.assign(half, batch->end());
      batch->erase(half, batch->end());
    }
    for (auto* part : {batch, &rest}) {
      After(Delay(30), [this, part = std::move(*part)] { PostBatch(part); });
    }
  }
}

void Simulation::PostBatch(std::vector<std::pair<uint64_t, TransferSpec>> batch) {
  std::erase_if(batch, [&](const auto& half) { return !MayPost(half.first, half.second); });
  if (batch.empty()) return;
  const TransferSpec& any = batch.front().second;
  const int owner = OwnerOf(any.side == Side::kSend ? any.key.source : any.key.destination);
  Node& node = nodes_[owner];
  const uint64_t first = halves_.size();
  const uint64_t stride = any.bytes + (Chance(50) ? 0 : 1 + Random(100));
  const absl::Time deadline =
      now_ + (Chance(80) ? absl::Seconds(10) : absl::Milliseconds(20) + Delay(130));
  const uint32_t session = node.sessions[Random(node.sessions.size())];
  const uint64_t sequence = node.sequences[session];
  std::vector<TransferSpec> specs;
  for (size_t i = 0; i < batch.size(); ++i) {
    TransferSpec spec = batch[i].second;
    spec.layout = Layout({Range{ArenaId(first), i * stride, spec.bytes}});
    spec.deadline = deadline;
    spec.over_timeline = 1;
    spec.over_value = sequence + i + 1;
    specs.push_back(spec);
  }
  if (!node.engine->Check(specs).empty()) {  // the other node is off this one's list
    for (const auto& [scenario, spec] : batch) scenarios_[scenario].disturbed = true;
    return;
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint64_t scenario = batch[i].first;
    HalfModel half;
    half.node = owner;
    half.id = MakeTransferId(SessionId(session), node.sequences[session]++);
    half.spec = specs[i];
    half.scenario = scenario;
    half.defined = true;
    half.posted_at = now_;
    half.linked = Linked(half.spec.key);
    half.stride = stride;
    by_id_[{owner, half.id.value()}] = halves_.size();
    const bool send = half.spec.side == Side::kSend;
    (send ? scenarios_[scenario].send : scenarios_[scenario].receive) = halves_.size();
    halves_.push_back(half);
    ++node.open;
    ++count_.posted;
    Say(absl::StrCat("post ", NameOf(half), ", of a batch"));
  }
  node.engine->Post(now_, SessionId(session), sequence, absl::MakeSpan(specs));
  Touched(owner);
}

}  // namespace ferry
