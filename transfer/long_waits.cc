// SPDX-License-Identifier: Apache-2.0
#include "transfer/long_waits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/duration.h"
#include "base/nearest.h"
#include "base/status.h"
#include "transfer/engine_view.h"

namespace ferry {
namespace {

constexpr absl::Duration kYoung = absl::Seconds(1);
// A wait is long after a quarter of the time until the deadline, not before kYoung; if there is no
// deadline, after this.
constexpr absl::Duration kLongWait = absl::Minutes(1);
// Of a key that is told beside another, shorter.
constexpr size_t kShownKey = 32;

absl::Time LongWaitOf(const Posted& half) {
  if (half.spec.deadline == absl::InfiniteFuture()) return half.posted + kLongWait;
  return half.posted + std::max(kYoung, (half.spec.deadline - half.posted) / 4);
}

bool Waits(const Posted& half) {
  return !half.state.launched() && !half.armed_or_fires() && !half.state.is_ending();
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

void LongWaits::Notice(Posted& half) {
  home_.Check();
  if (half.count() > 1) {
    half.convoy->noticed = true;
    if (!half.state.matched()) return hooks_.split_up(half);
  }
  if (half.in_matcher) {
    half.searchable = true;
    near_.Add(half.spec.side, half.spec.key);
  }
  if (Waits(half)) SetLook(half, LongWaitOf(half));
}

void LongWaits::Notice(Offered& offered) {
  home_.Check();
  if (offered.count() > 1) return hooks_.take_apart(offered);
  offered.searchable = true;
  near_.Add(Side::kSend, offered.offer.key);
}

void LongWaits::NoticeOld(size_t most) {
  home_.Check();
  while (most > 0 && halves_.young() != nullptr &&
         halves_.young()->posted + kYoung <= context_.now) {
    most -= std::min<size_t>(most, halves_.young()->count());
    Notice(halves_.PassYoung());
  }
  while (most > 0 && offers_.young() != nullptr && offers_.young()->came + kYoung <= context_.now) {
    most -= std::min<size_t>(most, offers_.young()->count());
    Notice(offers_.PassYoung());
  }
}

absl::Time LongWaits::NextNotice() const {
  home_.Check();
  absl::Time next = absl::InfiniteFuture();
  if (halves_.young() != nullptr) next = halves_.young()->posted + kYoung;
  if (offers_.young() != nullptr) next = std::min(next, offers_.young()->came + kYoung);
  return next;
}

void LongWaits::SetLook(Posted& half, absl::Time when) {
  home_.Check();
  StopLook(half);
  half.look_nanos = absl::ToUnixNanos(when);
  looks_.Add({half.look_nanos, context_.devices.self, half.id});
}

void LongWaits::StopLook(Posted& half) {
  home_.Check();
  if (half.look_nanos == Deadlines::kNever) return;
  looks_.Remove(
      {std::exchange(half.look_nanos, Deadlines::kNever), context_.devices.self, half.id});
}

Posted* LongWaits::TakeLook() {
  home_.Check();
  const std::optional<Due> due = looks_.TakeDue(absl::ToUnixNanos(context_.now));
  if (!due) return nullptr;
  Posted& half = *halves_.Find(due->transfer);
  half.look_nanos = Deadlines::kNever;
  return &half;
}

bool LongWaits::HasWaitedLong(const Posted& half) const {
  home_.Check();
  return Waits(half) && context_.now < half.spec.deadline;
}

void LongWaits::OnMatcherLeft(Posted& half) {
  home_.Check();
  if (!half.searchable) return;
  half.searchable = false;
  near_.Remove(half.spec.side, half.spec.key);
}

void LongWaits::OnMatcherLeft(Offered& offered) {
  home_.Check();
  if (!offered.searchable) return;
  offered.searchable = false;
  near_.Remove(Side::kSend, offered.offer.key);
}

bool LongWaits::MayLook() {
  if (!near_.TakeSearch(context_.now)) return false;
  const auto may_add = [&](uint32_t count) {
    while (count > 1 && near_.TakeAddition()) --count;
    return count == 1 && near_.TakeAddition();
  };
  while (halves_.young() != nullptr && may_add(halves_.young()->count())) {
    Notice(halves_.PassYoung());
  }
  while (offers_.young() != nullptr && may_add(offers_.young()->count())) {
    Notice(offers_.PassYoung());
  }
  return true;
}

std::optional<NearTexts> LongWaits::Look(Side side, const MatchKey& key,
                                         const NearMisses::Counts& counts) {
  home_.Check();
  if (!MayLook()) return std::nullopt;
  NearTexts texts;
  for (const NearMisses::Miss& miss : near_.Find(context_.now, side, key, counts)) {
    texts.push_back(NearText(side, key, miss));
  }
  return texts;
}

std::string LongWaits::NearText(Side side, const MatchKey& wanted,
                                const NearMisses::Miss& miss) const {
  const bool both = miss.kind == NearMisses::Kind::kSameSide;
  const bool send = (side == Side::kSend) != both;
  const std::string& node =
      context_.NodeName(context_.OwnerOf(send ? miss.key.source : miss.key.destination));
  std::string waits = absl::StrCat(" waits at ", node);
  if (miss.ended) {
    const absl::Duration ago = absl::Trunc(context_.now - *miss.ended, absl::Milliseconds(1));
    waits =
        absl::StrCat(" waited at ", node, " until ",
                     ago > absl::ZeroDuration() ? absl::StrCat(DurationText(ago), " ago") : "now");
  }
  const std::string a = send ? "a send" : "a receive";
  switch (miss.kind) {
    case NearMisses::Kind::kNothing:
      return absl::StrCat(a, " of this key", waits);
    case NearMisses::Kind::kSameSide:
    case NearMisses::Kind::kDevices:
      return absl::StrCat(a, " of this key from device ", miss.key.source.value(), " to device ",
                          miss.key.destination.value(), waits,
                          !both  ? ""
                          : send ? ": both ends send"
                                 : ": both ends receive");
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

absl::Status LongWaits::WithNear(const Posted& half, const absl::Status& why,
                                 std::optional<NearTexts> ours,
                                 std::optional<NearTexts> theirs) const {
  home_.Check();
  const bool send = half.spec.side == Side::kSend;
  const bool all_known = ours.has_value() && (context_.Ours(half) || theirs.has_value());
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
  if (!context_.Ours(half)) {
    const GlobalDeviceId device = send ? half.spec.key.destination : half.spec.key.source;
    texts.insert(texts.begin(),
                 absl::StrCat(context_.NodeName(half.peer), " has device ", device.value()));
    texts.push_back("see `ferryctl flight diff`");
  }
  texts.insert(texts.begin(), std::string(why.message()));
  return WithText(why, absl::StrJoin(texts, "; "));
}

bool LongWaits::OnSeek(PeerId peer, const Seek& seek) {
  home_.Check();
  const MatchKey& wanted = seek.key;
  if (context_.owners.Find(wanted.source) != context_.devices.self ||
      context_.owners.Find(wanted.destination) != peer) {
    return false;
  }
  const auto counts = [&](const MatchKey& key) {
    return key.key == wanted.key && key.domain == wanted.domain &&
           (key == wanted || context_.OwnerOf(key.destination) != peer);
  };
  context_.Send(peer, Sought{seek.transfer, Look(Side::kSend, wanted, counts)});
  return true;
}

std::string LongWaits::WaitText(const Posted& half) {
  home_.Check();
  std::string text =
      absl::StrCat(NameOf(half), " has waited ",
                   DurationText(absl::Trunc(context_.now - half.posted, absl::Milliseconds(1))));
  if (half.spec.deadline != absl::InfiniteFuture()) {
    absl::StrAppend(&text, " of ", DurationText(half.spec.deadline - half.posted));
  }
  absl::StrAppend(&text, " for ", WaitsFor(context_, half));
  if (half.state.matched()) return text;
  const Side other = half.spec.side == Side::kSend ? Side::kReceive : Side::kSend;
  for (const std::string& near_text : Look(other, half.spec.key).value_or(NearTexts())) {
    absl::StrAppend(&text, "; ", near_text);
  }
  return text;
}

}  // namespace ferry
