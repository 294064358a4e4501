// SPDX-License-Identifier: Apache-2.0
// Who waits for long, and what there is instead of the other half.
//
// Where it is known: the destination has all receives, and the offers of every send to it. So a
// send learns by the Done that answers its Withdraw, and a receive looks here. Only sends of the
// source's daemon to others it cannot see: for these it asks (Seek), and waits for the answer for
// kAnswerTime.
//
// Posting costs nothing for it: who is kYoung, or when somebody looks, is found by going on from
// the last one in the order of posting, and only then gets a place among the near misses.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

constexpr absl::Duration kYoung = absl::Seconds(1);
// A wait is long after a quarter of the time until the deadline, not before kYoung; if there is no
// deadline, after this.
constexpr absl::Duration kLongWait = absl::Minutes(1);
constexpr absl::Duration kAnswerTime = absl::Milliseconds(100);
// Of a key that is told beside another, shorter.
constexpr size_t kShownKey = 32;

absl::Time LongWaitOf(const Posted& half) {
  if (half.spec.deadline == absl::InfiniteFuture()) return half.posted + kLongWait;
  return half.posted + std::max(kYoung, (half.spec.deadline - half.posted) / 4);
}

bool Waits(const Posted& half) {
  return !half.state.launched() && !half.armed_or_fires() && !half.is_ending();
}

// `key`, or where it begins to differ from `other`, which is told beside it.
std::string ShownKey(const std::string& key, const std::string& other) {
  if (key.size() <= kShownKey) return PrintableKey(key);
  const auto differ = std::mismatch(key.begin(), key.end(), other.begin(), other.end()).first;
  const size_t before = static_cast<size_t>(differ - key.begin());
  const size_t begin = std::min(before - std::min<size_t>(before, 8), key.size() - kShownKey);
  return absl::StrCat(begin > 0 ? "..." : "", PrintableKey(key.substr(begin, kShownKey)),
                      begin + kShownKey < key.size() ? "..." : "");
}

}  // namespace

void TransferEngine::Impl::Notice(Posted& half) {
  if (half.count() > 1) {
    half.convoy->noticed = true;
    if (!half.state.matched()) return SplitUp(half);
  }
  if (half.in_matcher) {
    half.searchable = true;
    near.Add(half.spec.side, half.spec.key);
  }
  if (Waits(half)) SetLook(half, LongWaitOf(half));
}

void TransferEngine::Impl::Notice(Offered& offered) {
  if (offered.count() > 1) return TakeApart(offered);
  offered.searchable = true;
  near.Add(Side::kSend, offered.offer.key);
}

void TransferEngine::Impl::NoticeOld(size_t most) {
  while (most > 0 && halves.young() != nullptr && halves.young()->posted + kYoung <= clock) {
    most -= std::min<size_t>(most, halves.young()->count());
    Notice(halves.PassYoung());
  }
  while (most > 0 && offers.young() != nullptr && offers.young()->came + kYoung <= clock) {
    most -= std::min<size_t>(most, offers.young()->count());
    Notice(offers.PassYoung());
  }
}

absl::Time TransferEngine::Impl::NextNotice() const {
  absl::Time next = absl::InfiniteFuture();
  if (halves.young() != nullptr) next = halves.young()->posted + kYoung;
  if (offers.young() != nullptr) next = std::min(next, offers.young()->came + kYoung);
  return next;
}

void TransferEngine::Impl::SetLook(Posted& half, absl::Time when) {
  StopLook(half);
  half.look_nanos = absl::ToUnixNanos(when);
  looks.Add({half.look_nanos, devices.self, half.id});
}

void TransferEngine::Impl::StopLook(Posted& half) {
  if (half.look_nanos == kNever) return;
  looks.Remove({std::exchange(half.look_nanos, kNever), devices.self, half.id});
}

void TransferEngine::Impl::OnLooks(size_t most) {
  for (; most > 0; --most) {
    const std::optional<Due> due = looks.TakeDue(absl::ToUnixNanos(clock));
    if (!due) return;
    Posted& half = *halves.Find(due->transfer);
    half.look_nanos = kNever;
    if (half.state.Is<HalfState::Asking>()) {  // the answer has not come
      EndAsked(half, std::nullopt);
    } else if (Waits(half) && clock < half.spec.deadline) {
      out.long_waits.push_back(half.id);
    }
  }
}

bool TransferEngine::Impl::MayLook() {
  if (!near.TakeSearch(clock)) return false;
  const auto may_add = [&](uint32_t count) {
    while (count > 1 && near.TakeAddition()) --count;
    return count == 1 && near.TakeAddition();
  };
  while (halves.young() != nullptr && may_add(halves.young()->count())) {
    Notice(halves.PassYoung());
  }
  while (offers.young() != nullptr && may_add(offers.young()->count())) {
    Notice(offers.PassYoung());
  }
  return true;
}

NearTexts TransferEngine::Impl::LookNear(Side side, const MatchKey& key,
                                         const NearMisses::Counts& counts) const {
  NearTexts texts;
  for (const NearMisses::Miss& miss : near.Find(clock, side, key, counts)) {
    texts.push_back(NearText(side, key, miss));
  }
  return texts;
}

std::string TransferEngine::Impl::NearText(Side side, const MatchKey& wanted,
                                           const NearMisses::Miss& miss) const {
  const bool send = side == Side::kSend;
  const std::string& node =
      context.NodeName(OwnerOf(send ? miss.key.source : miss.key.destination));
  std::string waits = absl::StrCat(" waits at ", node);
  if (miss.ended) {
    const absl::Duration ago = absl::Trunc(clock - *miss.ended, absl::Milliseconds(1));
    waits =
        absl::StrCat(" waited at ", node, " until ",
                     ago > absl::ZeroDuration() ? absl::StrCat(DurationText(ago), " ago") : "now");
  }
  const std::string a = send ? "a send" : "a receive";
  switch (miss.kind) {
    case NearMisses::Kind::kNothing:
      return absl::StrCat(a, " of this key", waits);
    case NearMisses::Kind::kDevices:
      return absl::StrCat(a, " of this key from device ", miss.key.source.value(), " to device ",
                          miss.key.destination.value(), waits);
    case NearMisses::Kind::kDomain:
      return absl::StrCat(a, " of this key", waits, " in another domain");
    case NearMisses::Kind::kKey:
      return absl::StrCat(a, " of key ", ShownKey(miss.key.key, wanted.key), waits);
    case NearMisses::Kind::kOtherKeys:
      if (miss.others == 1 && !miss.at_least) return absl::StrCat(a, " of another key", waits);
      return absl::StrCat(miss.at_least ? "at least " : "", miss.others,
                          send ? " sends" : " receives", " of other keys wait at ", node);
  }
  return "";
}

void TransferEngine::Impl::EndAlone(Posted& half, absl::Status why) {
  LeaveMatcher(half);
  near.Remember(clock, half.spec.side, half.spec.key);
  LeaveTombstone(half.spec.side, half.peer, half.spec.key, why);
  const bool send = half.spec.side == Side::kSend;
  std::optional<NearTexts> ours;
  if (MayLook()) ours = LookNear(send ? Side::kReceive : Side::kSend, half.spec.key);
  if (!ours || context.Ours(half) || !peers[half.peer.value()].features.seeks) {
    return End(half, WithNear(half, why, std::move(ours), std::nullopt));
  }
  StopWatching(half);
  half.state.Ask(*std::move(ours), std::move(why));
  SetLook(half, clock + kAnswerTime);
  Send(half.peer, Seek{half.id, half.spec.key});
}

std::optional<NearTexts> TransferEngine::Impl::NearOffer(const Offered& offered,
                                                         const absl::Status& why) {
  if (!HasReason(why, Reason::kWaitingForPeer) || !MayLook()) return std::nullopt;
  return LookNear(Side::kReceive, offered.offer.key);
}

void TransferEngine::Impl::EndAsked(Posted& receive, std::optional<NearTexts> theirs) {
  HalfState::Asking& asking = *receive.state.As<HalfState::Asking>();
  End(receive, WithNear(receive, asking.why, std::move(asking.here), std::move(theirs)));
}

absl::Status TransferEngine::Impl::WithNear(const Posted& half, const absl::Status& why,
                                            std::optional<NearTexts> ours,
                                            std::optional<NearTexts> theirs) const {
  const bool send = half.spec.side == Side::kSend;
  const bool all_known = ours.has_value() && (context.Ours(half) || theirs.has_value());
  NearTexts texts;
  const auto add = [&texts](NearTexts more) {
    for (std::string& text : more) {
      const bool known = std::find(texts.begin(), texts.end(), text) != texts.end();
      if (!known && texts.size() < kMostNearTexts) texts.push_back(std::move(text));
    }
  };
  // Another device is the likeliest: the source knows what names none of the destination's.
  if (!send) std::swap(ours, theirs);
  if (ours) add(*std::move(ours));
  if (theirs) add(*std::move(theirs));
  if (texts.empty() && all_known) texts.push_back("nothing like it waits there");
  if (!context.Ours(half)) {
    const GlobalDeviceId device = send ? half.spec.key.destination : half.spec.key.source;
    texts.insert(texts.begin(),
                 absl::StrCat(context.NodeName(half.peer), " has device ", device.value()));
    texts.push_back("see `ferryctl flight diff`");
  }
  texts.insert(texts.begin(), std::string(why.message()));
  return WithText(why, absl::StrJoin(texts, "; "));
}

bool TransferEngine::Impl::OnSeek(PeerId peer, const Seek& seek) {
  const MatchKey& wanted = seek.key;
  if (owners.Find(wanted.source) != devices.self || owners.Find(wanted.destination) != peer) {
    return false;
  }
  Sought answer{seek.transfer, std::nullopt};
  if (MayLook()) {
    answer.near = LookNear(Side::kSend, wanted, [&](const MatchKey& key) {
      return key.key == wanted.key && key.domain == wanted.domain &&
             (key == wanted || OwnerOf(key.destination) != peer);
    });
  }
  Send(peer, std::move(answer));
  return true;
}

bool TransferEngine::Impl::OnSought(PeerId peer, Sought sought) {
  Posted* const half = halves.Find(sought.transfer);
  if (half == nullptr || half->spec.side != Side::kReceive || half->peer != peer) return false;
  if (auto told = to_tell.extract(half->id); !told.empty()) {
    End(*half, std::move(told.mapped()));
    return true;
  }
  if (!half->state.Is<HalfState::Asking>()) return false;
  EndAsked(*half, std::move(sought.near));
  return true;
}

std::string TransferEngine::Impl::WaitText(TransferId id) {
  const Posted* const half = halves.Find(id);
  if (half == nullptr) return "";
  std::string text =
      absl::StrCat(NameOf(*half), " has waited ",
                   DurationText(absl::Trunc(clock - half->posted, absl::Milliseconds(1))));
  if (half->spec.deadline != absl::InfiniteFuture()) {
    absl::StrAppend(&text, " of ", DurationText(half->spec.deadline - half->posted));
  }
  absl::StrAppend(&text, " for ", view.WaitsFor(*half));
  if (half->state.matched() || !MayLook()) return text;
  const Side other = half->spec.side == Side::kSend ? Side::kReceive : Side::kSend;
  for (const std::string& near_text : LookNear(other, half->spec.key)) {
    absl::StrAppend(&text, "; ", near_text);
  }
  return text;
}

std::string TransferEngine::WaitText(absl::Time now, TransferId transfer) {
  impl_->clock = now;
  return impl_->WaitText(transfer);
}

}  // namespace ferry
