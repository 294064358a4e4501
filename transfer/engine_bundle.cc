// SPDX-License-Identifier: Apache-2.0
// Prepared transfers on route nccl. They are armed at both ends, like those on mapped, and fired in
// groups, like others on nccl: the lanes see the words of their ends (OnFiringWanted), the follower
// of the clique says so to its leader (Fire), and the leader hands a firing that both ends want to
// the batcher as if it were one transfer. So the order of lanes is decided as for all groups, and a
// firing of a thousand transfers is a few messages.
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {

Bundle* TransferEngine::Impl::FindBundle(uint64_t number) {
  const auto entry = bundles.find(number);
  return entry == bundles.end() ? nullptr : &entry->second;
}

bool TransferEngine::Impl::MayJoinBundle(const Posted& send, TransferId batch) const {
  const Clique clique = CliqueOf(send.spec.key);
  if (send.bundle != 0 || !routes.MakesGroups(send.peer, clique)) return false;
  const PairName name{send.spec.key.destination == clique.low, batch, send.slot};
  const auto known = bundle_names.find(std::make_pair(clique, name));
  if (known == bundle_names.end()) return true;
  const Bundle& bundle = bundles.at(known->second);
  return !bundle.begun && !bundle.wanted && !bundle.handed;
}

Bundle& TransferEngine::Impl::JoinBundle(Posted& half, TransferId batch, uint32_t slot) {
  const Clique clique = CliqueOf(half.spec.key);
  const PairName name{half.spec.key.destination == clique.low, batch, slot};
  const auto [known, first] = bundle_names.try_emplace(std::make_pair(clique, name), next_bundle);
  half.bundle = known->second;
  Bundle& bundle = bundles[half.bundle];
  if (first) {
    ++next_bundle;
    bundle.clique = clique;
    bundle.name = name;
    bundle.peer = half.peer;
    bundle.batch = half.batch;
    bundle.batch_size = half.batch_size;
    bundle.sends = half.spec.side == Side::kSend;
    bundle.leads = Leads(devices.self, clique, half.peer);
    if (bundle.leads) {  // a first firing does not wait for the communicator
      ranks[clique];
      leader.Warm(clique);
    }
  }
  ++bundle.halves;
  bundle.bytes += half.spec.bytes;
  return bundle;
}

void TransferEngine::Impl::LeaveBundle(Posted& half) {
  const auto entry = bundles.find(std::exchange(half.bundle, 0));
  if (entry == bundles.end()) return;
  Bundle& bundle = entry->second;
  BreakBundle(bundle);
  if (--bundle.halves > 0) return;
  FERRY_CHECK(bundle.chunks_out == 0);
  bundle_names.erase(std::make_pair(bundle.clique, bundle.name));
  bundles.erase(entry);
}

void TransferEngine::Impl::BreakBundle(Bundle& bundle) {
  if (std::exchange(bundle.broken, true)) return;
  if (bundle.leads) leader.Remove(bundle.clique, bundle.name);
}

void TransferEngine::Impl::OrderAbort(Posted& half, absl::Status why) {
  if (Bundle* bundle = FindBundle(half.bundle); bundle != nullptr && half.route == Route::kNccl) {
    BreakBundle(*bundle);
    if (bundle->chunks_out > 0) {
      bundle->leaving.emplace_back(half.id, std::move(why));
      return;
    }
  }
  out.aborts.emplace_back(half.id, std::move(why));
}

// --- Firings.

void TransferEngine::Impl::OnFiringWanted(uint64_t number) {
  Bundle* const bundle = FindBundle(number);
  if (bundle == nullptr || bundle->broken || bundle->wanted) return;
  bundle->wanted = true;
  if (bundle->leads) return TryFire(*bundle);
  Send(bundle->peer, Fire{bundle->clique, bundle->name, bundle->priority, bundle->direct});
}

bool TransferEngine::Impl::OnFire(PeerId peer, const Fire& message) {
  if (!Leads(devices.self, message.clique, peer)) return false;
  const auto known = bundle_names.find(std::make_pair(message.clique, message.bundle));
  if (known == bundle_names.end()) return false;
  Bundle& bundle = bundles.at(known->second);
  if (bundle.broken || bundle.other_wants) return false;
  bundle.other_wants = true;
  if (bundle.sends) {
    bundle.priority = message.priority;
    bundle.direct = message.direct;
  }
  TryFire(bundle);
  return true;
}

void TransferEngine::Impl::TryFire(Bundle& bundle) {
  if (!bundle.wanted || !bundle.other_wants || bundle.handed || bundle.broken) return;
  bundle.wanted = bundle.other_wants = false;
  bundle.handed = true;
  leader.Add(clock, bundle.clique, bundle.name, bundle.bytes, bundle.priority, bundle.direct);
}

uint64_t TransferEngine::Impl::BundleFor(const GroupRecord& group, const Chunk& chunk) {
  const auto known = bundle_names.find(std::make_pair(group.clique, chunk.pair));
  if (known == bundle_names.end()) return 0;
  const Bundle& bundle = bundles.at(known->second);
  const bool agreed = bundle.leads ? bundle.handed : bundle.wanted;
  const bool next = chunk.offset == bundle.cut && chunk.bytes <= bundle.bytes - bundle.cut &&
                    (chunk.bytes > 0 || bundle.chunks_out == 0);
  return agreed && next && !bundle.broken && bundle.peer == group.peer ? known->second : 0;
}

void TransferEngine::Impl::PinBundle(GroupRecord& group, uint64_t number, const Chunk& chunk) {
  Bundle& bundle = bundles.at(number);
  bundle.begun = true;
  bundle.cut += chunk.bytes;
  ++bundle.chunks_out;
  group.parts.push_back({{}, number, chunk});
  group.bytes += chunk.bytes;
}

void TransferEngine::Impl::OrderAhead(uint64_t id, const GroupRecord& group) {
  const bool gathers =
      std::any_of(group.parts.begin(), group.parts.end(), [&](const GroupRecord::Part& part) {
        const Bundle* const bundle = FindBundle(part.bundle);
        return bundle != nullptr && bundle->sends && !bundle->direct;
      });
  if (!gathers || lanes.Head(group.clique.low)) return;  // a lane that is busy is in no hurry
  FlightRecorder::Get().Record("group.ahead", group.number, group.peer.value(), group.attempt);
  out.groups.emplace_back(GroupAhead{id, group.clique, group.attempt, ChunksOf(group)});
}

void TransferEngine::Impl::SettleBundle(uint64_t number) {
  Bundle& bundle = bundles.at(number);
  if (bundle.chunks_out > 0) return;
  if (bundle.broken) {
    for (auto& abort : std::exchange(bundle.leaving, {})) out.aborts.push_back(std::move(abort));
  } else if (!bundle.why.ok()) {
    FailBundle(number, absl::Status(bundle.why));
  } else if (bundle.moved == bundle.bytes) {  // the lane has told our end
    bundle.cut = bundle.moved = 0;
    if (!bundle.leads) bundle.wanted = false;
    bundle.handed = false;
    TryFire(bundle);
  }
}

// --- Endings.

void TransferEngine::Impl::FailBundle(uint64_t number, const absl::Status& why) {
  Bundle& bundle = bundles.at(number);
  const bool elsewhere = !bundle.begun && HasReason(why, Reason::kRouteUnavailable);
  const TransferId first = bundle.batch;
  const uint32_t count = bundle.batch_size;
  for (uint32_t i = 0; i < count; ++i) {
    Posted* const half = Find(MakeTransferId(SessionOf(first), SequenceOf(first) + i));
    if (half == nullptr || half->bundle != number || half->outcome || half->aborted) continue;
    if (bundle.sends) {  // the destination ends it, and with it the others
      Send(half->peer, SendFailed{half->id, half->attempt, why});
      return BreakBundle(bundle);
    }
    if (elsewhere) {
      Abort(*half, why);
    } else {
      Disarm(*half, why, why);
    }
  }
}

void TransferEngine::Impl::FailBundlesOf(const Clique& clique, const absl::Status& why) {
  std::vector<uint64_t> waiting;
  for (const auto& [number, bundle] : bundles) {
    const bool waits = !bundle.begun || bundle.wanted || bundle.handed;
    if (bundle.clique == clique && !bundle.sends && !bundle.broken && waits) {
      waiting.push_back(number);
    }
  }
  for (uint64_t number : waiting) FailBundle(number, why);
}

}  // namespace ferry
