// SPDX-License-Identifier: Apache-2.0
// What transfers have to do with groups: how a pair of route nccl, or a prepared half, is handed to
// the cliques (transfer/clique/cliques.h), and how it goes on when no group carries it any more.
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {

// --- Pairs.

Load TransferEngine::Impl::MakeLoad(const Posted& half) {
  const MatchKey& key = half.spec.key;
  Load load;
  load.half = half.id;
  load.clique = CliqueOf(key);
  load.receives = half.spec.side == Side::kReceive;
  load.name = {key.destination == load.clique.low, load.receives ? half.partner : half.id};
  load.peer = half.peer;
  load.bytes = half.spec.bytes;
  load.layout = &half.spec.layout;
  return load;
}

void TransferEngine::Impl::HandOverPair(Posted& receive) {
  FERRY_CHECK(receive.load == nullptr);  // a route is tried once
  receive.state.HandOver();
  receive.route = Route::kNccl;
  receive.role = LaunchRole::kCopy;
  receive.why = absl::OkStatus();
  BeginEstimate(receive, Route::kNccl);
  const SourceHalf source = SourceOf(receive);
  const bool direct = InOnePiece(*source.layout) && InOnePiece(receive.spec.layout);
  receive.load = std::make_unique<Load>(MakeLoad(receive));
  cliques.Carry(*receive.load, PriorityOf(receive, source), direct);
}

bool TransferEngine::Impl::OnHandOver(PeerId peer, const HandOver& message) {
  Posted* send = FindSendTo(peer, message.transfer);
  if (send == nullptr || !send->spec.defined || send->spec.prepared || send->outstanding ||
      send->load != nullptr || send->route == Route::kNccl ||
      !send->state.May(HalfState::Step::kHandOver)) {
    return false;
  }
  if (!clique_context.LedByUs(peer, CliqueOf(send->spec.key))) return false;
  LeaveMatcher(*send);
  send->state.HandOver();
  send->load = std::make_unique<Load>(MakeLoad(*send));
  return cliques.Carry(*send->load, message.priority, message.direct);
}

bool TransferEngine::Impl::OnTakeBack(PeerId peer, const TakeBack& message) {
  Posted* send = FindSendTo(peer, message.transfer);
  // Its last chunk may have been cut meanwhile.
  if (send == nullptr || (!send->handed() && !send->pinned())) return false;
  cliques.TakeRest(*send->load);
  return true;
}

Load* TransferEngine::Impl::LoadOf(PeerId peer, const Clique& clique, const PairName& name,
                                   bool receives) {
  Posted* half = nullptr;
  if (receives) {
    const Offered* offered = offers.Find(peer, name.transfer);
    half = offered == nullptr ? nullptr : halves.Find(offered->receive);
    if (half == nullptr || half->load == nullptr) return nullptr;
  } else {
    half = FindSendTo(peer, name.transfer);
    if (half == nullptr || !half->spec.defined || half->spec.prepared || half->outstanding) {
      return nullptr;
    }
  }
  if (!half->state.May(HalfState::Step::kEnterGroup) || CliqueOf(half->spec.key) != clique) {
    return nullptr;
  }
  // A follower's send is not handed over: its first chunk is how its daemon learns of it.
  if (half->load == nullptr) half->load = std::make_unique<Load>(MakeLoad(*half));
  return half->load.get();
}

void TransferEngine::Impl::DropRest(Posted& receive, absl::Status why) {
  if (receive.load == nullptr || !cliques.Drop(*receive.load, std::move(why))) return;
  Settle(receive.id);
}

void TransferEngine::Impl::Settle(TransferId id) {
  Posted* half = halves.Find(id);
  if (half == nullptr || half->under_way()) return;
  if (HalfState::Leaving* const leaving = half->state.As<HalfState::Leaving>()) {
    return End(*half, std::move(leaving->outcome));
  }
  if (half->spec.side == Side::kSend) {
    if (half->next_go == nullptr) return;  // the destination tells how it ends
    const std::unique_ptr<Go> go = std::move(half->next_go);
    return LaunchSend(*half, *go);
  }
  const Load& load = *half->load;
  if (load.moved == load.bytes && (load.why.ok() || load.bytes > 0)) {
    OnReceiveDone(*half, absl::OkStatus());
  } else if (!load.why.ok()) {
    OnReceiveDone(*half, absl::Status(load.why));
  }
}

// --- What the cliques tell.

void TransferEngine::Impl::OnCliqueEvents(std::vector<TransferId>* left) {
  struct Visitor {
    Impl& impl;
    std::vector<TransferId>* left;
    void operator()(const LoadPinned& event) {
      Posted& half = *impl.halves.Find(event.half);
      impl.LeaveMatcher(half);
      half.state.EnterGroup();
      half.route = Route::kNccl;
    }
    void operator()(const LoadSettled& event) {
      if (left != nullptr) {
        left->push_back(event.half);
      } else {
        impl.Settle(event.half);
      }
    }
    void operator()(const FiringSettled& event) { impl.SettleBundle(event.bundle); }
    void operator()(const CliqueUnavailable& event) {
      impl.OnCliqueUnavailable(event.clique, event.why);
    }
  };
  for (const CliqueEvent& event : cliques.TakeEvents()) std::visit(Visitor{*this, left}, event);
}

void TransferEngine::Impl::OnGroupDone(uint64_t id, const absl::Status& status,
                                       std::vector<TransferId>* left) {
  const std::optional<Clique> clique = cliques.OnGroupDone(id, status);
  OnCliqueEvents(left);
  if (clique) cliques.CloseQuiet(*clique);
}

void TransferEngine::Impl::OnCliqueUnavailable(const Clique& clique, const absl::Status& why) {
  for (Posted* half : halves.Sorted([&](const Posted& half) {
         return half.handed() && half.load->receives && half.load->clique == clique;
       })) {
    DropRest(*half, why);
  }
  for (const uint64_t bundle : cliques.bundles().Waiting(clique)) FailBundle(bundle, why);
}

// --- Bundles.

PairName TransferEngine::Impl::BundleName(const Posted& half, TransferId batch, uint32_t slot) {
  const MatchKey& key = half.spec.key;
  return {key.destination == CliqueOf(key).low, batch, slot};
}

bool TransferEngine::Impl::MayJoinBundle(const Posted& send, TransferId batch) const {
  return send.bundle == 0 && cliques.bundles().MayJoin(send.peer, CliqueOf(send.spec.key),
                                                       BundleName(send, batch, send.slot));
}

Bundle& TransferEngine::Impl::JoinBundle(Posted& half, TransferId batch, uint32_t slot) {
  Load part = MakeLoad(half);
  part.name = BundleName(half, batch, slot);
  part.layout = nullptr;
  half.bundle = cliques.bundles().Join(part, half.batch, half.batch_size);
  return *cliques.bundles().Find(half.bundle);
}

void TransferEngine::Impl::OrderAbort(Posted& half, absl::Status why) {
  if (half.route == Route::kNccl && cliques.bundles().LeavesLater(half.bundle, half.id, why)) {
    return;
  }
  out.aborts.emplace_back(half.id, std::move(why));
}

void TransferEngine::Impl::SettleBundle(uint64_t number) {
  Bundle* const bundle = cliques.bundles().Find(number);
  if (bundle == nullptr) return;
  const absl::Status failed = cliques.bundles().Settle(*bundle);
  if (!failed.ok()) FailBundle(number, failed);
}

void TransferEngine::Impl::FailBundle(uint64_t number, const absl::Status& why) {
  Bundle* const bundle = cliques.bundles().Find(number);
  if (bundle == nullptr) return;
  const bool elsewhere = !bundle->begun && HasReason(why, Reason::kRouteUnavailable);
  const TransferId first = bundle->batch;
  const uint32_t count = bundle->batch_size;
  const bool receives = bundle->load.receives;
  for (uint32_t i = 0; i < count; ++i) {
    Posted* const half = halves.Find(MakeTransferId(SessionOf(first), SequenceOf(first) + i));
    if (half == nullptr || half->bundle != number || half->state.Is<HalfState::Leaving>() ||
        half->aborted) {
      continue;
    }
    if (!receives) {  // the destination ends it, and with it the others
      Send(half->peer, SendFailed{half->id, half->attempt, why});
      return cliques.bundles().Break(*bundle);
    }
    if (elsewhere) {
      Abort(*half, why);
    } else {
      Disarm(*half, why, why);
    }
  }
}

}  // namespace ferry
