// SPDX-License-Identifier: Apache-2.0
#include "transfer/half_book.h"

#include <iterator>

#include "base/check.h"
#include "transfer/convoy.h"

namespace ferry {

void HalfBook::Expect(SessionId session, size_t transfers) {
  home_.Check();
  sessions_[session].transfers += transfers;
}

Posted& HalfBook::Insert(absl::Time posted, TransferId id, TransferSpec spec, PeerId peer) {
  auto half = std::make_unique<Posted>();
  Posted& added = *half;
  added.id = id;
  added.posted = posted;
  added.spec = std::move(spec);
  added.peer = peer;
  const bool is_new = halves_.Of(id).try_emplace(id, std::move(half)).second;
  FERRY_CHECK(is_new);
  return added;
}

Posted& HalfBook::Add(absl::Time now, TransferId id, TransferSpec spec, PeerId peer) {
  home_.Check();
  Posted& added = Insert(now, id, std::move(spec), peer);
  in_order_.Add(added);
  if (young_ == nullptr) young_ = &added;
  sessions_.find(SessionOf(id))->second.halves.Add(added);
  return added;
}

Posted& HalfBook::AddConvoy(absl::Time now, TransferId first, absl::Span<TransferSpec> specs,
                            PeerId peer) {
  home_.Check();
  Posted& convoy = Add(now, first, MakeConvoy(specs), peer);
  convoy.convoy = std::make_unique<Convoy>();
  convoy.convoy->members.assign(std::make_move_iterator(specs.begin()),
                                std::make_move_iterator(specs.end()));
  convoys_.emplace(first, &convoy);
  in_convoys_ += convoy.count() - 1;
  return convoy;
}

std::vector<TransferId> HalfBook::Replace(Posted& convoy) {
  home_.Check();
  FERRY_CHECK(!convoy.state.matched() && !convoy.under_way());
  OfSession& session = sessions_.find(SessionOf(convoy.id))->second;
  const std::unique_ptr<Posted> owned = Extract(convoy.id);
  std::vector<TransferId> ids;
  for (TransferSpec& spec : convoy.convoy->members) {
    const TransferId id(convoy.id.value() + ids.size());
    Posted& added = Insert(convoy.posted, id, std::move(spec), convoy.peer);
    if (convoy.state.Is<HalfState::Offered>()) added.state.Offer();
    in_order_.AddBefore(convoy, added);
    session.halves.AddBefore(convoy, added);
    for (Posted** const next : {&young_, &swept_, &session.ending}) {
      if (*next == &convoy) *next = &added;
    }
    ids.push_back(id);
  }
  Unlist(convoy);
  return ids;
}

std::unique_ptr<Posted> HalfBook::Take(Posted& half) {
  home_.Check();
  Unlist(half);
  const auto session = sessions_.find(SessionOf(half.id));
  session->second.transfers -= half.count();
  if (session->second.transfers == 0) sessions_.erase(session);
  return Extract(half.id);
}

void HalfBook::Unlist(Posted& half) {
  if (young_ == &half) young_ = Next(half);
  if (swept_ == &half) swept_ = Next(half);
  in_order_.Remove(half);
  OfSession& session = sessions_.find(SessionOf(half.id))->second;
  if (session.ending == &half) session.ending = session.halves.Next(half);
  session.halves.Remove(half);
  if (half.convoy == nullptr) return;
  convoys_.erase(half.id);
  in_convoys_ -= half.count() - 1;
}

std::unique_ptr<Posted> HalfBook::Extract(TransferId id) {
  return std::move(halves_.Of(id).extract(id).mapped());
}

Posted* HalfBook::Find(TransferId id) const {
  home_.Check();
  const auto& some = halves_.Of(id);
  const auto entry = some.find(id);
  return entry == some.end() ? nullptr : entry->second.get();
}

Posted* HalfBook::Holding(TransferId transfer) const {
  home_.Check();
  if (!convoys_.empty()) {
    auto after = convoys_.upper_bound(transfer);
    if (after != convoys_.begin()) {
      Posted* const convoy = std::prev(after)->second;
      if (transfer.value() - convoy->id.value() < convoy->count()) return convoy;
    }
  }
  return Find(transfer);
}

size_t HalfBook::transfers(SessionId session) const {
  home_.Check();
  const auto entry = sessions_.find(session);
  return entry == sessions_.end() ? 0 : entry->second.transfers;
}

bool HalfBook::EndLater(SessionId session, absl::string_view why) {
  home_.Check();
  const auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return false;
  entry->second.ending = entry->second.halves.first();
  ending_.emplace_back(session, why);
  return true;
}

Posted* HalfBook::ToEnd() {
  home_.Check();
  for (; !ending_.empty(); ending_.pop_front()) {
    const auto entry = sessions_.find(ending_.front().first);
    if (entry != sessions_.end() && entry->second.ending != nullptr) return entry->second.ending;
  }
  return nullptr;
}

void HalfBook::PassToEnd() {
  home_.Check();
  Posted*& next = sessions_.find(ending_.front().first)->second.ending;
  next = PlacedList<Posted, &Posted::position_in_session>::Next(*next);
}

}  // namespace ferry
