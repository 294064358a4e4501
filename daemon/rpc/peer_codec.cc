// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/peer_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/peer/peer_proof.h"
#include "daemon/rpc/offer_codec.h"
#include "daemon/rpc/peer_hello_codec.h"
#include "daemon/rpc/status_proto.h"
#include "transfer/members.h"

namespace ferry {
namespace {

struct EventEncoder {
  peer::v1::PeerEvent& event;

  void operator()(const Offer& offer) {
    event.set_transfer(offer.transfer.value());
    EncodeOffer(offer, event.mutable_offer());
  }
  void operator()(const Split& split) {
    event.set_transfer(split.transfer.value());
    peer::v1::Split* out = event.mutable_split();
    if (!split.status.ok()) ToProto(split.status, {}, out->mutable_status());
  }
  void operator()(const Apart& apart) {
    event.set_transfer(apart.transfer.value());
    event.mutable_apart();
  }
  void operator()(const Matched& matched) {
    event.set_transfer(matched.transfer.value());
    event.mutable_matched();
  }
  void operator()(const Ready& ready) {
    event.set_transfer(ready.transfer.value());
    event.mutable_ready();
  }
  void operator()(const Go& go) {
    event.set_transfer(go.transfer.value());
    peer::v1::Go* out = event.mutable_go();
    out->set_attempt(go.attempt);
    out->set_route(static_cast<v1::Route>(go.route));
    out->set_tag(go.tag);
    out->set_priority(go.priority);
  }
  void operator()(const Done& done) {
    event.set_transfer(done.transfer.value());
    peer::v1::Done* out = event.mutable_done();
    if (!done.status.ok()) ToProto(done.status, {}, out->mutable_status());
    out->set_route(static_cast<v1::Route>(done.route));
    if (done.near) SetNear(*done.near, out->mutable_near());
  }
  void operator()(const Withdraw& withdraw) {
    event.set_transfer(withdraw.transfer.value());
    ToProto(withdraw.status, {}, event.mutable_withdraw()->mutable_status());
  }
  void operator()(const SendFailed& failed) {
    event.set_transfer(failed.transfer.value());
    event.mutable_send_failed()->set_attempt(failed.attempt);
    ToProto(failed.status, {}, event.mutable_send_failed()->mutable_status());
  }
  void operator()(const HandOver& hand_over) {
    event.set_transfer(hand_over.transfer.value());
    event.mutable_hand_over()->set_priority(hand_over.priority);
    event.mutable_hand_over()->set_unstaged(hand_over.unstaged);
  }
  void operator()(const TakeBack& take_back) {
    event.set_transfer(take_back.transfer.value());
    event.mutable_take_back();
  }
  void operator()(const Group& group) {
    peer::v1::Group* out = event.mutable_group();
    SetName(group, group.number, out->mutable_name());
    for (const Chunk& chunk : group.chunks) {
      peer::v1::Chunk* entry = out->add_chunks();
      entry->set_transfer(chunk.pair.transfer.value());
      entry->set_to_low(chunk.pair.to_low);
      entry->set_offset(chunk.offset);
      entry->set_bytes(chunk.bytes);
      entry->set_slot(chunk.pair.slot);
    }
  }
  void operator()(const Granted& granted) {
    SetName(granted, granted.number, event.mutable_granted()->mutable_name());
    for (const uint32_t index : granted.refused) event.mutable_granted()->add_refused(index);
  }
  void operator()(const GroupFailed& failed) {
    SetName(failed, failed.number, event.mutable_group_failed()->mutable_name());
    ToProto(failed.status, {}, event.mutable_group_failed()->mutable_status());
  }
  void operator()(const AttemptOver& over) {
    SetName(over, over.number, event.mutable_attempt_over()->mutable_name());
    if (!over.status.ok()) ToProto(over.status, {}, event.mutable_attempt_over()->mutable_status());
  }
  void operator()(const Evict& evict) {
    SetName(evict, 0, event.mutable_evict()->mutable_name());
    event.mutable_evict()->set_busy(evict.busy);
  }
  void operator()(const OpenComm& open) {
    SetName(open, 0, event.mutable_open_comm()->mutable_name());
    event.mutable_open_comm()->set_unique_id(open.unique_id);
  }
  void operator()(const Fire& fire) {
    peer::v1::Fire* out = event.mutable_fire();
    SetClique(fire.clique, out->mutable_clique());
    out->set_to_low(fire.bundle.to_low);
    out->set_batch(fire.bundle.transfer.value());
    out->set_slot(fire.bundle.slot);
    out->set_priority(fire.priority);
    out->set_unstaged(fire.unstaged);
  }
  void operator()(const Seek& seek) {
    event.set_transfer(seek.transfer.value());
    peer::v1::Seek* out = event.mutable_seek();
    out->set_domain(seek.key.domain);
    out->set_src_global_device_id(seek.key.source.value());
    out->set_dst_global_device_id(seek.key.destination.value());
    out->set_key(seek.key.key);
  }
  void operator()(const Sought& sought) {
    event.set_transfer(sought.transfer.value());
    event.mutable_sought();
    if (sought.near) SetNear(*sought.near, event.mutable_sought()->mutable_near());
  }
  void operator()(const Draining& draining) {
    peer::v1::Draining* out = event.mutable_draining();
    out->set_on(draining.on);
    out->set_empty(draining.empty);
    if (draining.left != absl::InfiniteDuration()) {
      SetDuration(std::max(draining.left, absl::ZeroDuration()), out->mutable_left());
    }
  }
  void operator()(const MembersTold& told) {
    peer::v1::Members* out = event.mutable_members();
    out->set_domain(told.domain);
    out->set_global_device_id(told.device.value());
    out->set_count(told.count);
    out->set_last(told.last);
  }
  void operator()(const WarmComm& warm) {
    SetClique(warm.clique, event.mutable_warm_comm()->mutable_name()->mutable_clique());
  }

  static void SetNear(const NearTexts& texts, peer::v1::NearMisses* out) {
    for (const std::string& text : texts) out->add_texts(BoundedText(text, kMostNearBytes));
  }
  static void SetClique(const Clique& clique, peer::v1::Clique* out) {
    out->set_low_device_id(clique.low.value());
    out->set_high_device_id(clique.high.value());
  }
  template <typename Message>
  static void SetName(const Message& message, uint64_t number, peer::v1::GroupName* out) {
    SetClique(message.clique, out->mutable_clique());
    out->set_attempt(message.attempt);
    out->set_number(number);
  }
};

// Of NCCL's, and place for its successors.
constexpr size_t kMaxUniqueIdBytes = 1024;

absl::StatusOr<NearTexts> NearFrom(const peer::v1::NearMisses& near) {
  if (static_cast<size_t>(near.texts_size()) > kMostNearTexts)
    return Broken("too many near misses");
  NearTexts texts;
  for (const std::string& text : near.texts()) texts.push_back(BoundedText(text, kMostNearBytes));
  return texts;
}

Draining DrainingFrom(const peer::v1::Draining& in) {
  Draining draining{in.on(), absl::InfiniteDuration(), in.empty()};
  if (in.has_left()) {
    draining.left = absl::Seconds(in.left().seconds()) + absl::Nanoseconds(in.left().nanos());
  }
  return draining;
}

absl::StatusOr<MembersTold> DecodeMembers(const peer::v1::Members& in) {
  if (in.domain().size() > kMaxDomainBytes || in.last().size() > Members::kMostName) {
    return Broken("members out of bounds");
  }
  return MembersTold{GlobalDeviceId(in.global_device_id()), in.domain(), in.count(), in.last()};
}

absl::StatusOr<Seek> DecodeSeek(const peer::v1::PeerEvent& event) {
  const peer::v1::Seek& in = event.seek();
  if (in.key().empty() || in.key().size() > kMaxKeyBytes || in.domain().size() > kMaxDomainBytes) {
    return Broken("a seek out of bounds");
  }
  return Seek{TransferId(event.transfer()),
              {in.domain(), GlobalDeviceId(in.src_global_device_id()),
               GlobalDeviceId(in.dst_global_device_id()), in.key()}};
}

// A failure must carry one: a peer that forgets it must not turn it into success.
absl::Status FailureFrom(const google::rpc::Status& proto) {
  absl::Status status = FromProto(proto);
  return status.ok() ? Broken("a failure without a status") : status;
}

Clique CliqueFrom(const peer::v1::Clique& clique) {
  return {GlobalDeviceId(clique.low_device_id()), GlobalDeviceId(clique.high_device_id())};
}
Clique CliqueFrom(const peer::v1::GroupName& name) { return CliqueFrom(name.clique()); }

absl::StatusOr<Group> DecodeGroup(const peer::v1::Group& in) {
  if (static_cast<size_t>(in.chunks_size()) > kMaxGroupChunks) return Broken("a group too large");
  Group group{CliqueFrom(in.name()), in.name().attempt(), in.name().number(), {}};
  group.chunks.reserve(in.chunks_size());
  for (const peer::v1::Chunk& chunk : in.chunks()) {
    group.chunks.push_back({{chunk.to_low(), TransferId(chunk.transfer()), chunk.slot()},
                            chunk.offset(),
                            chunk.bytes()});
  }
  return group;
}

absl::StatusOr<Go> DecodeGo(const peer::v1::PeerEvent& event) {
  const peer::v1::Go& in = event.go();
  if (in.route() <= 0 || in.route() >= kRoutes) return Broken("a go out of bounds");
  return Go{TransferId(event.transfer()), in.attempt(), static_cast<Route>(in.route()), in.tag(),
            PriorityFrom(in.priority())};
}

absl::StatusOr<Done> DecodeDone(const peer::v1::PeerEvent& event) {
  const peer::v1::Done& in = event.done();
  if (in.route() < 0 || in.route() >= kRoutes) return Broken("a done out of bounds");
  Done done{TransferId(event.transfer()),
            in.has_status() ? FailureFrom(in.status()) : absl::OkStatus(),
            static_cast<Route>(in.route())};
  if (in.has_near()) {
    ASSIGN_OR_RETURN(done.near, NearFrom(in.near()));
  }
  return done;
}

absl::StatusOr<Sought> DecodeSought(const peer::v1::PeerEvent& event) {
  Sought sought{TransferId(event.transfer()), std::nullopt};
  if (event.sought().has_near()) {
    ASSIGN_OR_RETURN(sought.near, NearFrom(event.sought().near()));
  }
  return sought;
}

absl::StatusOr<Granted> DecodeGranted(const peer::v1::Granted& in) {
  if (static_cast<size_t>(in.refused_size()) > kMaxGroupChunks) {
    return Broken("a grant out of bounds");
  }
  return Granted{CliqueFrom(in.name()),
                 in.name().attempt(),
                 in.name().number(),
                 {in.refused().begin(), in.refused().end()}};
}

GroupFailed GroupFailedFrom(const peer::v1::GroupFailed& in) {
  return {CliqueFrom(in.name()), in.name().attempt(), in.name().number(), FailureFrom(in.status())};
}

AttemptOver AttemptOverFrom(const peer::v1::AttemptOver& in) {
  return {CliqueFrom(in.name()), in.name().attempt(), in.name().number(),
          in.has_status() ? FailureFrom(in.status()) : absl::OkStatus()};
}

Evict EvictFrom(const peer::v1::Evict& in) {
  return {CliqueFrom(in.name()), in.name().attempt(), in.busy()};
}

absl::StatusOr<OpenComm> DecodeOpenComm(const peer::v1::OpenComm& in) {
  if (in.unique_id().size() > kMaxUniqueIdBytes) return Broken("an open out of bounds");
  return OpenComm{CliqueFrom(in.name()), in.name().attempt(), in.unique_id()};
}

Fire FireFrom(const peer::v1::Fire& in) {
  return {CliqueFrom(in.clique()),
          {in.to_low(), TransferId(in.batch()), in.slot()},
          PriorityFrom(in.priority()),
          in.unstaged()};
}

template <typename Message>
absl::Status AppendDecoded(absl::StatusOr<Message> decoded, PeerFrame& frame) {
  if (!decoded.ok()) return std::move(decoded).status();
  frame.messages.push_back(*std::move(decoded));
  return absl::OkStatus();
}

}  // namespace

bool Follows(const PeerFrame& frame, const peer::v1::Frame& last) {
  return !frame.hello.has_value() && !frame.introduction.has_value() && frame.proof.empty() &&
         frame.moved.empty() && !frame.goodbye && !frame.refusal.has_value() &&
         (frame.events() == 0 || last.events_size() == 0 ||
          last.first_event() + static_cast<uint64_t>(last.events_size()) == frame.first_event);
}

void Encode(const PeerMessage& message, peer::v1::PeerEvent* out) {
  std::visit(EventEncoder{*out}, message);
}

void Encode(const PeerFrame& frame, peer::v1::Frame* out) {
  if (frame.hello.has_value()) EncodeHello(*frame.hello, out->mutable_hello());
  if (frame.introduction.has_value()) {
    EncodeIntroduction(*frame.introduction, out->mutable_introduction());
  }
  if (!frame.proof.empty()) out->set_proof(frame.proof);
  for (const PeerDeviceInfo& device : frame.moved) EncodeDevice(device, out->add_moved());
  if (frame.goodbye) out->set_goodbye(true);
  if (frame.refusal.has_value()) ToProto(*frame.refusal, {}, out->mutable_refusal());
  if (out->events_size() == 0) out->set_first_event(frame.first_event);
  out->set_more(frame.more);  // as the last one says of those that are merged
  for (const PeerMessage& message : frame.messages) Encode(message, out->add_events());
  for (const ArenaId arena : frame.arenas_gone) {
    out->add_events()->mutable_arena_gone()->set_arena_id(arena.value());
  }
}

// Of a step that says no more than the transfer, and perhaps how it ends.
std::optional<PeerMessage> BareMessage(const peer::v1::PeerEvent& event) {
  const TransferId transfer(event.transfer());
  if (event.has_matched()) return Matched{transfer};
  if (event.has_ready()) return Ready{transfer};
  if (event.has_take_back()) return TakeBack{transfer};
  if (event.has_split() && !event.split().has_status()) return Split{transfer};
  if (event.has_split()) return Split{transfer, FailureFrom(event.split().status())};
  if (event.has_apart()) return Apart{transfer};
  return std::nullopt;
}

absl::Status Decode(const peer::v1::PeerEvent& event, PeerFrame& frame) {
  const TransferId transfer(event.transfer());
  if (auto bare = BareMessage(event)) {
    frame.messages.push_back(*std::move(bare));
    return absl::OkStatus();
  }
  switch (event.step_case()) {
    case peer::v1::PeerEvent::kOffer:
      return AppendDecoded(DecodeOffer(event), frame);
    case peer::v1::PeerEvent::kGo:
      return AppendDecoded(DecodeGo(event), frame);
    case peer::v1::PeerEvent::kDone:
      return AppendDecoded(DecodeDone(event), frame);
    case peer::v1::PeerEvent::kWithdraw:
      frame.messages.push_back(Withdraw{transfer, FailureFrom(event.withdraw().status())});
      break;
    case peer::v1::PeerEvent::kSendFailed:
      frame.messages.push_back(SendFailed{transfer, event.send_failed().attempt(),
                                          FailureFrom(event.send_failed().status())});
      break;
    case peer::v1::PeerEvent::kArenaGone:
      frame.arenas_gone.push_back(ArenaId(event.arena_gone().arena_id()));
      break;
    case peer::v1::PeerEvent::kHandOver:
      frame.messages.push_back(HandOver{transfer, PriorityFrom(event.hand_over().priority()),
                                        event.hand_over().unstaged()});
      break;
    case peer::v1::PeerEvent::kGroup:
      return AppendDecoded(DecodeGroup(event.group()), frame);
    case peer::v1::PeerEvent::kGranted:
      return AppendDecoded(DecodeGranted(event.granted()), frame);
    case peer::v1::PeerEvent::kGroupFailed:
      frame.messages.push_back(GroupFailedFrom(event.group_failed()));
      break;
    case peer::v1::PeerEvent::kAttemptOver:
      frame.messages.push_back(AttemptOverFrom(event.attempt_over()));
      break;
    case peer::v1::PeerEvent::kEvict:
      frame.messages.push_back(EvictFrom(event.evict()));
      break;
    case peer::v1::PeerEvent::kOpenComm:
      return AppendDecoded(DecodeOpenComm(event.open_comm()), frame);
    case peer::v1::PeerEvent::kWarmComm:
      frame.messages.push_back(WarmComm{CliqueFrom(event.warm_comm().name())});
      break;
    case peer::v1::PeerEvent::kFire:
      frame.messages.push_back(FireFrom(event.fire()));
      break;
    case peer::v1::PeerEvent::kSeek:
      return AppendDecoded(DecodeSeek(event), frame);
    case peer::v1::PeerEvent::kSought:
      return AppendDecoded(DecodeSought(event), frame);
    case peer::v1::PeerEvent::kDraining:
      frame.messages.push_back(DrainingFrom(event.draining()));
      break;
    case peer::v1::PeerEvent::kMembers:
      return AppendDecoded(DecodeMembers(event.members()), frame);
    case peer::v1::PeerEvent::kMatched:
    case peer::v1::PeerEvent::kReady:
    case peer::v1::PeerEvent::kTakeBack:
    case peer::v1::PeerEvent::kSplit:
    case peer::v1::PeerEvent::kApart:
    case peer::v1::PeerEvent::STEP_NOT_SET:
      return Broken("an event without a step");
  }
  return absl::OkStatus();
}

absl::StatusOr<PeerFrame> Decode(const peer::v1::Frame& in) {
  PeerFrame frame;
  if (in.has_hello()) {
    ASSIGN_OR_RETURN(frame.hello, DecodeHello(in.hello()));
  }
  if (in.has_introduction()) {
    ASSIGN_OR_RETURN(frame.introduction, DecodeIntroduction(in.introduction()));
  }
  if (in.proof().size() > kPeerSecretBytes) return Broken("a proof out of bounds");
  frame.proof = in.proof();
  if (in.moved_size() > kMaxDevices) return Broken("more devices than a hello may have");
  for (const peer::v1::PeerDevice& device : in.moved()) {
    ASSIGN_OR_RETURN(frame.moved.emplace_back(), DecodeDevice(device));
  }
  frame.goodbye = in.goodbye();
  if (in.has_refusal()) frame.refusal = FailureFrom(in.refusal());
  if (in.events_size() > 0) frame.first_event = in.first_event();
  frame.more = in.more();
  frame.messages.reserve(in.events_size());
  for (const peer::v1::PeerEvent& event : in.events()) RETURN_IF_ERROR(Decode(event, frame));
  return frame;
}

}  // namespace ferry
