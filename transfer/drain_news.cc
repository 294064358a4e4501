// SPDX-License-Identifier: Apache-2.0
#include "transfer/drain_news.h"

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {

absl::Status DrainNews::WhyNot(const std::string& what, PeerId node, absl::Time until) const {
  std::string text = absl::StrCat(what, ": ", context_.NodeName(node), " drains");
  if (until != absl::InfiniteFuture() && until > context_.now) {
    const absl::Duration left = until - context_.now;
    const absl::Duration unit = left > absl::Seconds(10) ? absl::Seconds(1) : absl::Milliseconds(1);
    absl::StrAppend(&text, ", for at most ", DurationText(absl::Ceil(left, unit)), " more");
  }
  return Error(absl::StatusCode::kUnavailable, Reason::kDraining,
               absl::StrCat(text,
                            ", and takes nothing new; post again when it serves: after its "
                            "next start, or `ferryctl undrain` there"));
}

absl::Status DrainNews::WhyRefused(const Offered& offered) const {
  home_.Check();
  return WhyNot(absl::StrCat("offer of ", Describe(offered.offer.key)), context_.devices.self,
                *until_);
}

absl::Status DrainNews::WhyEnds(const Posted& receive) const {
  home_.Check();
  return WhyNot(NameOf(receive), receive.peer, *context_.PeerOf(receive.peer).drains_until);
}

void DrainNews::Set(std::optional<absl::Time> until) {
  home_.Check();
  until_ = until;
  empty_ = halves_.empty();
  for (size_t peer = 0; peer < context_.peers.size(); ++peer) {
    if (context_.peers[peer].up) Say(PeerId(static_cast<uint32_t>(peer)));
  }
}

bool DrainNews::SetAgainIfEmpty() {
  home_.Check();
  if (!on() || empty_ || !halves_.empty()) return false;
  Set(until_);
  return true;
}

void DrainNews::OnPeerUp(PeerId peer) {
  home_.Check();
  if (on()) Say(peer);
}

void DrainNews::Say(PeerId peer) {
  context_.Send(
      peer, Draining{on(), on() ? *until_ - context_.now : absl::ZeroDuration(), on() && empty_});
}

void DrainNews::OnTold(PeerId id, const Draining& message) {
  home_.Check();
  Peer& peer = context_.PeerOf(id);
  FlightRecorder::Get().Record("peer.drains", id.value(), message.on);
  peer.drains_until = message.on ? std::optional<absl::Time>(context_.now + message.left)
                                 : std::optional<absl::Time>();
  peer.drained = message.on && message.empty;
}

bool DrainNews::MayBeReceived(const Offered& offered) const {
  home_.Check();
  return offered.offer.continues && !empty_ && context_.now < *until_;
}

bool DrainNews::Continues(const Posted& half) const {
  home_.Check();
  return half.spec.continues != TransferId() && halves_.Holding(half.spec.continues) != nullptr;
}

bool DrainNews::MayBeSent(const Posted& receive) const {
  home_.Check();
  return Continues(receive) && !context_.PeerOf(receive.peer).drained;
}

}  // namespace ferry
