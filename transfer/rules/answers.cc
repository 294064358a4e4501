// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/answers.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "base/status.h"
#include "transfer/clique/bundle.h"

namespace ferry {

void Answers::OnLaunchDone(TransferId id, uint32_t attempt, const absl::Status& status) {
  home_.Check();
  Posted* half = books_.halves.Find(id);
  if (half == nullptr || !half->at_lane || half->attempt != attempt) return;
  const LaneLaunch launch = *std::exchange(half->at_lane, std::nullopt);
  if (ByGroups(half->route)) books_.cliques.bundles().Leave(std::exchange(half->bundle, 0));
  if (RouteEstimate* const estimate = std::exchange(half->estimate, nullptr)) {
    estimate->OnDone(context_.now, half->spec.bytes, status.ok());
  }
  if (launch.aborted) {  // an abort that was not taken yet must not hit the next launch
    std::erase_if(context_.out.aborts, [&](const auto& abort) { return abort.first == id; });
  }
  if (HalfState::Leaving* const leaving = half->state.As<HalfState::Leaving>()) {
    if (leaving->arrived) launches_.CountFiring(*half);  // before it was ended
    ends_.End(*half, std::move(leaving->outcome));
  } else if (half->spec.side == Side::kSend) {
    source_.OnSendDone(*half, status);
  } else {
    destination_.OnReceiveDone(*half, status, launch);
  }
}

Load* Answers::LoadOf(PeerId peer, const Clique& clique, const PairName& name, bool receives) {
  home_.Check();
  Posted* half = nullptr;
  if (receives) {
    const Offered* offered = books_.offers.Find(peer, name.transfer);
    half = offered == nullptr ? nullptr : books_.halves.Find(offered->receive);
    if (half == nullptr || half->load == nullptr) return nullptr;
  } else {
    half = source_.FindSendTo(peer, name.transfer);
    if (half == nullptr || !half->spec.defined || half->spec.prepared || half->at_lane) {
      return nullptr;
    }
  }
  if (!half->state.May(HalfState::Step::kEnterGroup) || CliqueOf(half->spec.key) != clique) {
    return nullptr;
  }
  // A follower's send is not handed over: its first chunk is how its daemon learns of it.
  if (half->load == nullptr) half->load = std::make_unique<Load>(launches_.MakeLoad(*half));
  return half->load.get();
}

void Answers::GoOn(TransferId id) {
  home_.Check();
  Posted* half = books_.halves.Find(id);
  if (half == nullptr) return;
  if (half->spec.side == Side::kSend) {
    source_.GoOn(*half);
  } else {
    destination_.GoOn(*half);
  }
}

void Answers::OnCliqueEvents(std::vector<TransferId>* left) {
  home_.Check();
  struct Visitor {
    Answers& answers;
    std::vector<TransferId>* left;
    void operator()(const LoadPinned& event) { answers.OnPinned(event.half); }
    void operator()(const LoadSettled& event) {
      if (left != nullptr) {
        left->push_back(event.half);
      } else {
        answers.GoOn(event.half);
      }
    }
    void operator()(const FiringSettled& event) { answers.SettleBundle(event.bundle); }
    void operator()(const CliqueUnavailable& event) {
      answers.OnCliqueUnavailable(event.clique, event.why);
    }
  };
  for (const CliqueEvent& event : books_.cliques.TakeEvents()) {
    std::visit(Visitor{*this, left}, event);
  }
}

void Answers::OnPinned(TransferId id) {
  Posted& half = *books_.halves.Find(id);
  books_.tables.LeaveMatcher(half);
  half.state.EnterGroup();
  half.route = Route::kNccl;
}

void Answers::OnGroupDone(uint64_t id, const absl::Status& status, std::vector<TransferId>* left) {
  home_.Check();
  const std::optional<Clique> clique = books_.cliques.OnGroupDone(id, status);
  OnCliqueEvents(left);
  if (clique) books_.cliques.attempt_ends().CloseQuiet(*clique);
}

void Answers::OnCliqueUnavailable(const Clique& clique, const absl::Status& why) {
  for (Posted* half : books_.halves.Sorted([&](const Posted& half) {
         return half.waits_for_group() && half.load->receives && half.load->clique == clique;
       })) {
    destination_.DropRest(*half, why);
  }
  for (const uint64_t bundle : books_.cliques.bundles().Waiting(clique)) FailBundle(bundle, why);
}

void Answers::SettleBundle(uint64_t number) {
  Bundle* const bundle = books_.cliques.bundles().Find(number);
  if (bundle == nullptr) return;
  const absl::Status failed = books_.cliques.bundles().Settle(*bundle);
  if (!failed.ok()) FailBundle(number, failed);
}

void Answers::FailBundle(uint64_t number, const absl::Status& why) {
  Bundle* const bundle = books_.cliques.bundles().Find(number);
  if (bundle == nullptr) return;
  const bool elsewhere = !bundle->begun && HasReason(why, Reason::kRouteUnavailable);
  const TransferId first = bundle->batch;
  const uint32_t count = bundle->batch_size;
  const bool receives = bundle->load.receives;
  for (uint32_t i = 0; i < count; ++i) {
    Posted* const half =
        books_.halves.Find(MakeTransferId(SessionOf(first), SequenceOf(first) + i));
    if (half == nullptr || half->bundle != number || half->state.Is<HalfState::Leaving>() ||
        half->aborted()) {
      continue;
    }
    if (!receives) {  // the destination ends it, and with it the others
      context_.Send(half->peer, SendFailed{half->id, half->attempt, why});
      return books_.cliques.bundles().Break(*bundle);
    }
    if (elsewhere) {
      launches_.Abort(*half, why);
    } else {
      launches_.Disarm(*half, why, why);
    }
  }
}

}  // namespace ferry
