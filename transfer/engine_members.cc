// SPDX-License-Identifier: Apache-2.0
// Members of domains: a half that waits for its other half from a device that the last member of
// the domain has left will wait in vain. Each daemon ends its own halves: of its devices it knows
// the members, of a peer's devices the peer has told it (MembersTold).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/engine_state.h"

namespace ferry {
namespace {

constexpr absl::Duration kSweepEvery = absl::Milliseconds(100);

}  // namespace

absl::Status TransferEngine::Impl::Join(SessionId session, const MemberPlace& where,
                                        absl::string_view name) {
  ASSIGN_OR_RETURN(const bool more, members.Join(session, where, name));
  if (!more) return absl::OkStatus();
  FlightRecorder::Get().Record("member.join", session.value(), where.device.value());
  SayMembers(where);
  return absl::OkStatus();
}

void TransferEngine::Impl::LeaveAll(SessionId session) {
  for (const MemberPlace& where : members.Leave(clock, session)) {
    const bool deserted = members.FindDeserted(where.domain, where.device) != nullptr;
    FlightRecorder::Get().Record(deserted ? "member.last" : "member.leave", session.value(),
                                 where.device.value());
    SayMembers(where);
    if (deserted) sweep_at = std::min(sweep_at, std::max(clock, last_sweep + kSweepEvery));
  }
}

void TransferEngine::Impl::SayMembers(const MemberPlace& where) {
  const auto entry = members.places().find(where);
  if (entry == members.places().end()) return;
  for (size_t peer = 0; peer < peers.size(); ++peer) {
    const PeerId id(static_cast<uint32_t>(peer));
    if (peers[peer].up) SayMembers(id, where, entry->second);
  }
}

void TransferEngine::Impl::SayMembers(PeerId peer, const MemberPlace& where,
                                      const Members::Place& place) {
  if (!peers[peer.value()].features.members) return;
  Send(peer, MembersTold{where.device, where.domain, place.count, place.last});
}

void TransferEngine::Impl::SayAllMembers(PeerId peer) {
  for (const auto& [where, place] : members.places()) {
    if (place.owner == devices.self) SayMembers(peer, where, place);
  }
}

bool TransferEngine::Impl::OnMembers(PeerId peer, const MembersTold& message) {
  if (owners.Find(message.device) != peer || message.last.size() > Members::kMostName) return false;
  if (!members.OnTold(clock, peer, {message.device, message.domain}, message.count, message.last)) {
    return false;
  }
  FlightRecorder::Get().Record("member.told", message.device.value(), message.count);
  if (message.count == 0) sweep_at = std::min(sweep_at, std::max(clock, last_sweep + kSweepEvery));
  return true;
}

const Members::Place* TransferEngine::Impl::DesertedFor(const Posted& half) const {
  if (!half.in_matcher || half.is_ending()) return nullptr;
  const MatchKey& key = half.spec.key;
  return members.FindDeserted(key.domain,
                              half.spec.side == Side::kSend ? key.destination : key.source);
}

bool TransferEngine::Impl::EndIfDeserted(Posted& half) {
  const Members::Place* const place = DesertedFor(half);
  if (place == nullptr) return false;
  const bool send = half.spec.side == Side::kSend;
  std::string who =
      "what was a member of its domain there has not joined again since the daemon "
      "came back";
  if (!place->last.empty()) {
    const absl::Duration ago = absl::Trunc(clock - place->left, absl::Milliseconds(1));
    who = absl::StrCat("the last member of its domain there, ", PrintableKey(place->last),
                       ", is gone");
    if (ago > absl::ZeroDuration()) absl::StrAppend(&who, " since ", DurationText(ago));
  }
  CancelHalf(half, Error(absl::StatusCode::kAborted, Reason::kPeerClientGone,
                         absl::StrCat(NameOf(half), ": nobody is left to post ",
                                      PlaceOf(send ? Side::kReceive : Side::kSend, half.spec.key),
                                      ": ", who, "; post again when it is back")));
  return true;
}

void TransferEngine::Impl::SweepDeserted(size_t most) {
  if (members.OnTime(clock)) sweep_at = clock;
  if (swept == nullptr && sweep_at <= clock) {
    sweep_at = absl::InfiniteFuture();
    last_sweep = clock;
    swept = in_order.first();
  }
  while (most > 0 && swept != nullptr) {
    most -= std::min<size_t>(most, swept->count());
    Posted& half = *std::exchange(swept, in_order.Next(*swept));
    EndIfDeserted(half);
  }
}

absl::Time TransferEngine::Impl::NextMembers() const {
  if (swept != nullptr) return absl::InfinitePast();
  return std::min(sweep_at, members.NextTime());
}

absl::Status TransferEngine::Join(absl::Time now, SessionId session, const std::string& domain,
                                  GlobalDeviceId device, absl::string_view name) {
  impl_->clock = now;
  FERRY_CHECK(impl_->owners.Find(device) == impl_->devices.self);
  return impl_->Join(session, {device, domain}, name);
}

const Members& TransferEngine::members() const { return impl_->members; }

}  // namespace ferry
