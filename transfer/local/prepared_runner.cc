// SPDX-License-Identifier: Apache-2.0
#include "transfer/local/prepared_runner.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/fair_queue.h"
#include "transfer/mapped/link_page.h"

namespace ferry {
namespace {

uint64_t Load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_SEQ_CST); }

Trigger::Words WordsOf(const PreparedEnds& ends, bool sends) {
  Trigger::Words words{ends.own, ends.source, nullptr, std::nullopt};
  if (ends.page == nullptr) return words;
  words.doorbell = ends.page->doorbell();
  if (!sends && ends.source == nullptr) words.other = &ends.page->slot(ends.slot).fired;
  return words;
}

}  // namespace

PreparedRunner::Bundle::Bundle(Lane& lane, const TransportOp& op, Flow& flow)
    : flow(flow),
      ends(*op.prepared),
      sends(op.role == LaunchRole::kSend),
      cut(!sends),
      trigger(lane, WordsOf(ends, sends)) {}

PreparedRunner::PreparedRunner(Lane& lane, std::unique_ptr<Copier> copier, OpSink sink)
    : lane_(lane), copier_(std::move(copier)), answers_(lane, std::move(sink)) {}

PreparedRunner::~PreparedRunner() {
  lane_.RunAndWait([this] {
    while (!ops_.empty()) {
      const auto [transfer, attempt] = ops_.begin()->first;
      Abort(transfer, attempt,
            Error(absl::StatusCode::kAborted, Reason::kDraining,
                  absl::StrCat("prepared ", transfer.ToString(), ": its lane is taken down")));
    }
    while (!steps_.empty()) Collect();
    if (polled_) lane_.RemovePoller(this);
    answers_.Flush();
  });
  // A task that was posted before finds nothing to do; it must have run before the members go.
  lane_.RunAndWait([] {});
}

void PreparedRunner::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(lane_.IsCurrent());
  if (!std::exchange(polled_, true)) {
    lane_.AddPoller(this);
    pieces_.reserve(copier_->limits().pieces);
  }
  for (TransportOp& op : ops) {
    Bundle& bundle = BundleOf(op);
    FERRY_CHECK(ops_.try_emplace({op.transfer, op.attempt}, &bundle).second);
    bundle.members.push_back({op.transfer, op.attempt,
                              op.copy ? std::make_unique<CopyPlan>(*std::move(op.copy)) : nullptr});
    if (const auto& copy = bundle.members.back().copy; copy != nullptr) {
      bundle.bytes += copy->bytes();
    }
    if (bundle.cut) CutLast(bundle);
    bundle.trigger.Arm();
  }
}

PreparedRunner::Bundle& PreparedRunner::BundleOf(const TransportOp& op) {
  const bool sends = op.role == LaunchRole::kSend;
  // A batch's transfers come together: the last bundle is mostly the one.
  const auto found = std::find_if(bundles_.rbegin(), bundles_.rend(), [&](const auto& bundle) {
    return bundle->sends == sends && bundle->ends == *op.prepared;
  });
  if (found != bundles_.rend()) return **found;
  Flow& flow = FlowOf(SessionOf(op.transfer));
  ++flow.bundles;
  bundles_.push_back(std::make_unique<Bundle>(lane_, op, flow));
  bundles_.back()->order = ++orders_;
  waiting_.reserve(bundles_.size());
  if (op.prepared->silent) ++silent_;
  return *bundles_.back();
}

PreparedRunner::Flow& PreparedRunner::FlowOf(SessionId session) {
  const auto found = std::find_if(flows_.begin(), flows_.end(),
                                  [&](const auto& flow) { return flow->session == session; });
  if (found != flows_.end()) return **found;
  flows_.push_back(std::make_unique<Flow>(Flow{session}));
  return *flows_.back();
}

void PreparedRunner::CutLast(Bundle& bundle) {
  const Copier::Limits& limits = copier_->limits();
  CopyPlan& plan = *bundle.members.back().copy;
  bundle.cut = bundle.bytes <= limits.bytes;
  while (bundle.cut && !plan.AtEnd()) {
    AddPiece(bundle.whole, plan.Next());
    bundle.cut = bundle.whole.size() <= limits.pieces;
  }
  plan.Rewind();
  if (!bundle.cut) bundle.whole = {};
}

void PreparedRunner::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(lane_.IsCurrent());
  const auto found = ops_.find({transfer, attempt});
  if (found == ops_.end()) return;
  Bundle& bundle = *found->second;
  ops_.erase(found);
  // The destination has let go before: what it has done by then counts at this end too.
  if (bundle.sends && bundle.trigger.begun()) Advance(bundle);
  bundle.leaving.push_back({transfer, attempt, why});
  LetLeave(bundle);
}

void PreparedRunner::LetLeave(Bundle& bundle) {
  if (bundle.steps > 0) return;
  // The last to leave takes the bundle along.
  for (OpResult& result : std::exchange(bundle.leaving, {})) {
    const TransferId transfer = result.transfer;
    answers_.Add(std::move(result));
    Remove(bundle, transfer);
  }
}

void PreparedRunner::Remove(Bundle& bundle, TransferId transfer) {
  bundle.trigger.Disarm();
  if (!bundle.sends && bundle.trigger.TakeBack()) {
    std::erase(waiting_, &bundle);
    bundle.next = 0;
    for (Member& member : bundle.members) member.copy->Rewind();
  }
  bundle.cut = false;
  bundle.whole = {};
  const auto member =
      std::find_if(bundle.members.begin(), bundle.members.end(),
                   [&](const Member& member) { return member.transfer == transfer; });
  std::swap(*member, bundle.members.back());
  bundle.members.pop_back();
  if (!bundle.members.empty()) return;
  if (bundle.sends) {
    LinkPage::Slot& slot = bundle.ends.page->slot(bundle.ends.slot);
    __atomic_store_n(&slot.fired, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot.carried, 0, __ATOMIC_SEQ_CST);
  }
  if (bundle.ends.silent) --silent_;
  if (--bundle.flow.bundles == 0) {
    std::erase_if(flows_, [&](const auto& flow) { return flow.get() == &bundle.flow; });
  }
  std::erase_if(bundles_, [&](const auto& entry) { return entry.get() == &bundle; });
}

PreparedRunner::Bundle* PreparedRunner::Next() const {
  const auto place = [](const Bundle& bundle) {
    const bool small = bundle.bytes <= FairQueue::kSmallBytes;
    return std::tuple(bundle.flow.turn, bundle.flow.session.value(), small == bundle.flow.small,
                      bundle.look, bundle.order);
  };
  Bundle* next = nullptr;
  for (Bundle* const bundle : waiting_) {
    if (!bundle->leaving.empty()) continue;
    if (next == nullptr || place(*bundle) < place(*next)) next = bundle;
  }
  return next;
}

bool PreparedRunner::StartSteps() {
  bool started = false;
  while (HasRoom()) {
    Bundle* const bundle = Next();
    if (bundle == nullptr) break;
    StartStep(*bundle);
    if (bundle->next == bundle->members.size()) std::erase(waiting_, bundle);
    started = true;
  }
  return started;
}

bool PreparedRunner::Ready(const Bundle& bundle) const {
  if (!bundle.leaving.empty()) return false;
  const Trigger& trigger = bundle.trigger;
  if (!trigger.begun()) return trigger.Ready();
  if (!bundle.sends) return false;
  const PreparedEnds& ends = bundle.ends;
  return ends.own->armed() &&
         Load(ends.page->slot(ends.slot).carried) >= trigger.next() * bundle.members.size();
}

bool PreparedRunner::Advance(Bundle& bundle) {
  if (!Ready(bundle)) return false;
  const bool begins = !bundle.trigger.begun();
  if (begins) bundle.trigger.Begin();
  if (!bundle.sends) {
    if (!begins) return false;
    bundle.look = looks_;
    waiting_.push_back(&bundle);
    return true;
  }
  const uint64_t n = bundle.trigger.next();
  if (begins) {
    const PreparedEnds& ends = bundle.ends;
    __atomic_store_n(&ends.page->slot(ends.slot).fired, n, __ATOMIC_SEQ_CST);
    ends.page->Ring();
  } else {
    const size_t all = bundle.members.size();
    bundle.trigger.Over(n, static_cast<uint32_t>(all), all);
  }
  return true;
}

void PreparedRunner::EndFiring(Bundle& bundle) {
  const PreparedEnds& ends = bundle.ends;
  bundle.next = 0;
  if (ends.page != nullptr && ends.page->Revoked()) return bundle.trigger.Stop();
  const auto count = static_cast<uint32_t>(bundle.members.size());
  bundle.trigger.Over(bundle.trigger.next(), count, count);
  if (ends.source != nullptr) return;
  __atomic_fetch_add(&ends.page->slot(ends.slot).carried, count, __ATOMIC_SEQ_CST);
  ends.page->Ring();
}

void PreparedRunner::StartStep(Bundle& bundle) {
  ++bundle.steps;
  bundle.flow.turn = ++turns_;
  bundle.flow.small = bundle.bytes <= FairQueue::kSmallBytes;
  steps_.push_back(&bundle);
  if (bundle.cut) {
    bundle.next = bundle.members.size();
    return copier_->Start(bundle.whole);
  }
  pieces_.clear();
  const Copier::Limits& limits = copier_->limits();
  size_t room = limits.bytes;
  while (bundle.next < bundle.members.size() && pieces_.size() < limits.pieces) {
    CopyPlan& plan = *bundle.members[bundle.next].copy;
    if (plan.AtEnd()) {
      plan.Rewind();
      ++bundle.next;
      continue;
    }
    if (room == 0) break;
    const CopyPiece piece = plan.Next(room);
    AddPiece(pieces_, piece);
    room -= piece.size;
  }
  copier_->Start(pieces_);
}

bool PreparedRunner::Collect() {
  bool progress = copier_->limits().by_asking;
  while (std::optional<absl::Status> over = copier_->TakeOver()) {
    progress = true;
    Bundle& bundle = *steps_.front();
    steps_.erase(steps_.begin());
    --bundle.steps;
    if (!over->ok()) {
      // A transfer that cannot be carried out ends, and its batch with it.
      for (const Member& member : bundle.members) {
        if (ops_.erase({member.transfer, member.attempt}) == 0) continue;
        bundle.leaving.push_back({member.transfer, member.attempt, *over});
      }
    }
    if (!bundle.leaving.empty()) {
      LetLeave(bundle);
    } else if (bundle.steps == 0 && bundle.next == bundle.members.size()) {
      EndFiring(bundle);
    }
  }
  return progress;
}

bool PreparedRunner::Look() {
  bool progress = false;
  for (const auto& bundle : bundles_) progress |= Advance(*bundle);
  return progress;
}

bool PreparedRunner::Poll() {
  ++looks_;
  bool progress = Look();
  // Again: for a firing that came before one that was found, and after the look at its place.
  if (progress) Look();
  progress |= StartSteps();
  while (!steps_.empty()) {
    const size_t before = steps_.size();
    progress |= Collect();
    if (steps_.size() == before || !StartSteps()) break;
  }
  return progress;
}

bool PreparedRunner::PrepareToPark() {
  return (!HasRoom() || Next() == nullptr) &&
         std::none_of(bundles_.begin(), bundles_.end(),
                      [this](const auto& bundle) { return Ready(*bundle); });
}

}  // namespace ferry
