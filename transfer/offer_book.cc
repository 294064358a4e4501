// SPDX-License-Identifier: Apache-2.0
#include "transfer/offer_book.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

absl::Status OfferError(const Offer& offer, absl::StatusCode code, Reason reason,
                        absl::string_view cause) {
  return Error(code, reason, absl::StrCat("offer of ", Describe(offer.key), ": ", cause));
}

OfferBook::OfferBook(const Bounds& bounds, size_t peers) : bounds_(bounds) {
  while (peers_.size() < peers) AddPeer();
}

void OfferBook::AddPeer() {
  home_.Check();
  peers_.emplace_back(bounds_.peer_kept_bytes);
}

void OfferBook::SetBounds(const Bounds& bounds) {
  home_.Check();
  bounds_ = bounds;
  for (OfPeer& peer : peers_) peer.records.SetMost(bounds.peer_kept_bytes);
}

Offered* OfferBook::Find(PeerId peer, TransferId transfer) const {
  home_.Check();
  const auto entry = offers_.find(std::make_pair(peer, transfer));
  return entry == offers_.end() ? nullptr : entry->second.get();
}

std::vector<Offered*> OfferBook::Of(PeerId peer) const {
  home_.Check();
  std::vector<Offered*> found;
  for (const auto& [id, offered] : offers_) {
    if (id.first == peer) found.push_back(offered.get());
  }
  return found;
}

std::vector<Offered*> OfferBook::Waiting() const {
  home_.Check();
  std::vector<Offered*> found;
  found.reserve(waiting_transfers_);
  for (const auto& [id, offered] : offers_) {
    if (offered->in_matcher) found.push_back(offered.get());
  }
  return found;
}

absl::Status OfferBook::RoomFor(absl::Time now, PeerId peer, const Offer& offer,
                                absl::string_view node) const {
  home_.Check();
  const RecordBytes& records = peers_[peer.value()].records;
  const uint64_t bytes = RecordBytesOf(offer.key, offer.layout);
  if (records.Fits(bytes)) return absl::OkStatus();
  return records.Full(now, bytes, absl::StrCat("offer of ", Describe(offer.key)), node,
                      "limits.peer_kept_bytes");
}

Offered* OfferBook::Add(absl::Time now, PeerId peer, Offer&& offer) {
  home_.Check();
  auto owned = std::make_unique<Offered>();
  const auto [entry, added] =
      offers_.try_emplace(std::make_pair(peer, offer.transfer), std::move(owned));
  if (!added) return nullptr;
  Offered& offered = *entry->second;
  offered.peer = peer;
  offered.deadline_nanos = absl::ToUnixNanos(now + offer.deadline + kOfferGrace);
  offered.offer = std::move(offer);
  Keep(now, offered, RecordBytesOf(offered.offer.key, offered.offer.layout));
  return &offered;
}

void OfferBook::Keep(absl::Time now, Offered& offered, uint64_t bytes) {
  RecordBytes& records = peers_[offered.peer.value()].records;
  records.Give(std::exchange(offered.record_bytes, bytes));
  records.Take(bytes);
  records.Settle(now);
}

void OfferBook::Erase(absl::Time now, Offered& offered) {
  home_.Check();
  FERRY_CHECK(!offered.in_matcher);
  Keep(now, offered, 0);
  offers_.erase(std::make_pair(offered.peer, offered.offer.transfer));
}

// --- Those that wait.

bool OfferBook::MayWait(PeerId peer, const Offer& offer) const {
  home_.Check();
  return peers_[peer.value()].waiting.Fits(bounds_.offers_per_peer, offer.uid,
                                           SessionOf(offer.transfer), offer.key.count);
}

absl::Status OfferBook::WhyNotWait(absl::Time now, const Offered& offered,
                                   absl::string_view node) const {
  home_.Check();
  const OfferShares& shares = peers_[offered.peer.value()].waiting;
  const size_t most = bounds_.offers_per_peer;
  const uint32_t uid = offered.offer.uid;
  const SessionId session = SessionOf(offered.offer.transfer);
  absl::Status full = OfferError(
      offered.offer, absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
      absl::StrCat(shares.all(), " offers of ", node, " wait here already, ", shares.OfUser(uid),
                   " of them of uid ", uid, ", ", shares.OfSession(uid, session),
                   " of these of the session; limits.offers_per_peer is ", most));
  const std::optional<absl::Duration> after =
      shares.RetryAfterFor(now, most, uid, session, offered.count());
  return after ? WithRetryAfter(std::move(full), *after) : full;
}

void OfferBook::Wait(absl::Time now, Offered& offered) {
  home_.Check();
  const Offer& offer = offered.offer;
  FERRY_CHECK(MayWait(offered.peer, offer));
  offered.in_matcher = true;
  offered.came = now;
  waiting_.Add(offered);
  if (young_ == nullptr) young_ = &offered;
  waiting_transfers_ += offered.count();
  peers_[offered.peer.value()].waiting.Take(offer.uid, SessionOf(offer.transfer),
                                            now + offer.deadline, offered.count());
}

void OfferBook::WaitNoMore(absl::Time now, Offered& offered) {
  home_.Check();
  const Offer& offer = offered.offer;
  offered.in_matcher = false;
  peers_[offered.peer.value()].waiting.Give(now, offer.uid, SessionOf(offer.transfer),
                                            offered.count());
  waiting_transfers_ -= offered.count();
  if (young_ == &offered) young_ = NextWaiting(offered);
  waiting_.Remove(offered);
}

}  // namespace ferry
