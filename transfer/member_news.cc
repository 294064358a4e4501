// SPDX-License-Identifier: Apache-2.0
#include "transfer/member_news.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr absl::Duration kSweepEvery = absl::Milliseconds(100);

}  // namespace

absl::Status MemberNews::Join(SessionId session, const MemberPlace& where, absl::string_view name) {
  home_.Check();
  ASSIGN_OR_RETURN(const bool more, members_.Join(session, where, name));
  if (!more) return absl::OkStatus();
  FlightRecorder::Get().Record("member.join", session.value(), where.device.value());
  SayMembers(where);
  return absl::OkStatus();
}

void MemberNews::LeaveAll(SessionId session) {
  home_.Check();
  for (const MemberPlace& where : members_.Leave(context_.now, session)) {
    const bool deserted = members_.FindDeserted(where.domain, where.device) != nullptr;
    FlightRecorder::Get().Record(deserted ? "member.last" : "member.leave", session.value(),
                                 where.device.value());
    SayMembers(where);
    if (deserted) WantSweep();
  }
}

void MemberNews::OnPeerUp(PeerId peer) {
  home_.Check();
  members_.OnPeerUp(context_.now, peer);
  for (const auto& [where, place] : members_.places()) {
    if (place.owner == context_.devices.self) SayMembers(peer, where, place);
  }
}

void MemberNews::SayMembers(const MemberPlace& where) {
  const auto entry = members_.places().find(where);
  if (entry == members_.places().end()) return;
  for (size_t peer = 0; peer < context_.peers.size(); ++peer) {
    const PeerId id(static_cast<uint32_t>(peer));
    if (context_.peers[peer].up) SayMembers(id, where, entry->second);
  }
}

void MemberNews::SayMembers(PeerId peer, const MemberPlace& where, const Members::Place& place) {
  context_.Send(peer, MembersTold{where.device, where.domain, place.count, place.last});
}

bool MemberNews::OnTold(PeerId peer, const MembersTold& message) {
  home_.Check();
  if (context_.owners.Find(message.device) != peer || message.last.size() > Members::kMostName) {
    return false;
  }
  if (!members_.OnTold(context_.now, peer, {message.device, message.domain}, message.count,
                       message.last)) {
    return false;
  }
  FlightRecorder::Get().Record("member.told", message.device.value(), message.count);
  if (message.count == 0) WantSweep();
  return true;
}

const Members::Place* MemberNews::Deserted(Side side, const MatchKey& key) const {
  return members_.FindDeserted(key.domain, side == Side::kSend ? key.destination : key.source);
}

absl::Status MemberNews::WhyInVain(const Posted& half) const {
  home_.Check();
  const Side side = half.spec.side;
  const Members::Place* const place = Deserted(side, half.spec.key);
  if (place == nullptr) return absl::OkStatus();
  std::string who =
      "what was a member of its domain there has not joined again since the daemon "
      "came back";
  if (!place->last.empty()) {
    const absl::Duration ago = absl::Trunc(context_.now - place->left, absl::Milliseconds(1));
    who = absl::StrCat("the last member of its domain there, ", PrintableKey(place->last),
                       ", is gone");
    if (ago > absl::ZeroDuration()) absl::StrAppend(&who, " since ", DurationText(ago));
  }
  const Side other = side == Side::kSend ? Side::kReceive : Side::kSend;
  return Error(absl::StatusCode::kAborted, Reason::kPeerClientGone,
               absl::StrCat(NameOf(half), ": nobody is left to post ",
                            context_.PlaceOf(other, half.spec.key), ": ", who,
                            "; post again when it is back"));
}

void MemberNews::WantSweep() {
  sweep_at_ = std::min(sweep_at_, std::max(context_.now, last_sweep_ + kSweepEvery));
}

bool MemberNews::TakeSweep(bool under_way) {
  home_.Check();
  if (members_.OnTime(context_.now)) sweep_at_ = context_.now;
  if (under_way || sweep_at_ > context_.now) return false;
  sweep_at_ = absl::InfiniteFuture();
  last_sweep_ = context_.now;
  return true;
}

absl::Time MemberNews::NextSweep() const {
  home_.Check();
  return std::min(sweep_at_, members_.NextTime());
}

}  // namespace ferry
