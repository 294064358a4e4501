// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/bundle_book.h"

#include "base/check.h"

namespace ferry {

Bundle* BundleBook::Find(uint64_t number) const {
  home_.Check();
  const auto entry = bundles_.find(number);
  return entry == bundles_.end() ? nullptr : entry->second.get();
}

Bundle* BundleBook::Named(const Clique& clique, const PairName& name) const {
  const auto entry = by_name_.find(std::make_pair(clique, name));
  return entry == by_name_.end() ? nullptr : entry->second;
}

bool BundleBook::MayJoin(PeerId peer, const Clique& clique, const PairName& name) const {
  home_.Check();
  if (!context_.routes.MakesGroups(peer, clique)) return false;
  const Bundle* const bundle = Named(clique, name);
  return bundle == nullptr || (!bundle->begun && !bundle->wanted && !bundle->handed);
}

uint64_t BundleBook::Join(const Load& half, TransferId batch, uint32_t batch_size) {
  home_.Check();
  Bundle* bundle = Named(half.clique, half.name);
  if (bundle == nullptr) {
    const uint64_t number = next_number_++;
    bundle = bundles_.emplace(number, std::make_unique<Bundle>()).first->second.get();
    by_name_.emplace(std::make_pair(half.clique, half.name), bundle);
    bundle->load = half;
    bundle->load.half = TransferId();
    bundle->load.bundle = number;
    bundle->load.bytes = 0;
    bundle->batch = batch;
    bundle->batch_size = batch_size;
    bundle->leads = context_.Leads(context_.devices.self, half.clique, half.peer);
    if (bundle->leads) {  // a first firing does not wait for the communicator
      comms_.Of(half.clique);
      leader_.Warm(half.clique);
    }
  }
  ++bundle->halves;
  bundle->load.bytes += half.bytes;
  return bundle->load.bundle;
}

void BundleBook::Leave(uint64_t number) {
  home_.Check();
  const auto entry = bundles_.find(number);
  if (entry == bundles_.end()) return;
  Bundle& bundle = *entry->second;
  Break(bundle);
  if (--bundle.halves > 0) return;
  FERRY_CHECK(!bundle.load.pinned());
  by_name_.erase(std::make_pair(bundle.load.clique, bundle.load.name));
  bundles_.erase(entry);
}

void BundleBook::Break(Bundle& bundle) {
  home_.Check();
  if (std::exchange(bundle.broken, true)) return;
  if (bundle.leads) leader_.Remove(bundle.load.clique, bundle.load.name);
}

bool BundleBook::LeavesLater(uint64_t number, TransferId half, const absl::Status& why) {
  home_.Check();
  Bundle* const bundle = Find(number);
  if (bundle == nullptr) return false;
  Break(*bundle);
  if (!bundle->load.pinned()) return false;
  bundle->leaving.emplace_back(half, why);
  return true;
}

// --- Firings.

bool BundleBook::IsUnstaged(const Bundle& bundle) const {
  return bundle.unstaged &&
         bundle.load.bytes / bundle.halves >= context_.options.cutting.chunk_bytes;
}

void BundleBook::OnWanted(uint64_t number) {
  home_.Check();
  Bundle* const bundle = Find(number);
  if (bundle == nullptr || bundle->broken || bundle->wanted) return;
  bundle->wanted = true;
  if (bundle->leads) return TryFire(*bundle);
  const Load& load = bundle->load;
  context_.Send(load.peer, Fire{load.clique, load.name, bundle->priority, IsUnstaged(*bundle)});
}

bool BundleBook::OnFire(PeerId peer, const Fire& message) {
  home_.Check();
  if (!context_.Leads(context_.devices.self, message.clique, peer)) return false;
  Bundle* const bundle = Named(message.clique, message.bundle);
  if (bundle == nullptr || bundle->broken || bundle->other_wants) return false;
  bundle->other_wants = true;
  if (!bundle->load.receives) {
    bundle->priority = message.priority;
    bundle->unstaged = message.unstaged;
  }
  TryFire(*bundle);
  return true;
}

void BundleBook::TryFire(Bundle& bundle) {
  if (!bundle.wanted || !bundle.other_wants || bundle.handed || bundle.broken) return;
  bundle.wanted = bundle.other_wants = false;
  bundle.handed = true;
  leader_.Add(context_.now, bundle.load.clique, bundle.load.name, bundle.load.bytes,
              bundle.priority, IsUnstaged(bundle));
}

Load* BundleBook::ToCarry(PeerId peer, const Clique& clique, const Chunk& chunk) const {
  home_.Check();
  Bundle* const bundle = Named(clique, chunk.pair);
  if (bundle == nullptr) return nullptr;
  const Load& load = bundle->load;
  const bool agreed = bundle->leads ? bundle->handed : bundle->wanted;
  const bool next = chunk.offset == load.cut && chunk.bytes <= load.bytes - load.cut &&
                    (chunk.bytes > 0 || !load.pinned());
  return agreed && next && !bundle->broken && load.peer == peer ? &bundle->load : nullptr;
}

absl::Status BundleBook::Settle(Bundle& bundle) {
  home_.Check();
  Load& load = bundle.load;
  if (load.pinned()) return absl::OkStatus();
  if (bundle.broken) {
    for (auto& abort : std::exchange(bundle.leaving, {})) {
      context_.out.aborts.push_back(std::move(abort));
    }
  } else if (!load.why.ok()) {
    return load.why;
  } else if (load.moved == load.bytes) {  // the lane has told our end
    load.cut = load.moved = 0;
    if (!bundle.leads) bundle.wanted = false;
    bundle.handed = false;
    TryFire(bundle);
  }
  return absl::OkStatus();
}

// --- Endings.

void BundleBook::OnPeerLost(PeerId peer) {
  home_.Check();
  for (const auto& [number, bundle] : bundles_) {
    if (bundle->load.peer == peer) Break(*bundle);
  }
}

std::vector<uint64_t> BundleBook::Waiting(const Clique& clique) const {
  home_.Check();
  std::vector<uint64_t> waiting;
  for (const auto& [number, bundle] : bundles_) {
    const bool waits = !bundle->begun || bundle->wanted || bundle->handed;
    if (bundle->load.clique == clique && bundle->load.receives && !bundle->broken && waits) {
      waiting.push_back(number);
    }
  }
  return waiting;
}

bool BundleBook::Gathers(const Load& load) const {
  home_.Check();
  const Bundle* const bundle = Find(load.bundle);
  return bundle != nullptr && !load.receives && !IsUnstaged(*bundle);
}

}  // namespace ferry
