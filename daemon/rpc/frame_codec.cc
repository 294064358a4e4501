// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/frame_codec.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <protozero/exception.hpp>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "daemon/rpc/field_reader.h"
#include "daemon/rpc/peer_codec.h"

namespace ferry {
namespace {

using protozero::pbf_wire_type;
using protozero::pbf_writer;

// Fields are named by their numbers in ferry/peer/v1/peer.proto and ferry/v1/types.proto, as in
// client/codec. All numbers except that of an offer's uid are below 16, so a tag has one byte.

// No shape has more dimensions than this, and no plain offer more ranges.
constexpr size_t kMostDims = 8;
constexpr size_t kMostRanges = 8;

// --- Writing. Zeros are left out, as proto3 has it.

// Room for the largest plain event: no range, deadline, dimension or group of three numbers takes
// more than 50 bytes.
constexpr size_t kMostPlain = kMaxDomainBytes + kMaxKeyBytes + 50 * (kMostDims + kMostRanges + 4);
// The bytes before an event: its tag and its length.
constexpr size_t kMostHeader = 1 + protozero::max_varint_length;

// Writes fields one after the other into memory that has room for them. Written by hand, because
// with protozero's functions half of the cost of a batch would be here.
class EventWriter {
 public:
  explicit EventWriter(char* to) : at_(to) {}

  char* at() const { return at_; }
  void Varint(uint64_t value) { at_ += protozero::add_varint_to_buffer(at_, value); }
  template <typename T>
  void Number(uint32_t field, T value) {
    if (value == T{}) return;
    Tag(field, pbf_wire_type::varint);
    Varint(static_cast<uint64_t>(value));
  }
  void Text(uint32_t field, const std::string& text) {
    if (text.empty()) return;
    Tag(field, pbf_wire_type::length_delimited);
    Varint(text.size());
    at_ = std::copy(text.begin(), text.end(), at_);
  }
  // Writes a message, even if it is empty.
  template <typename Write>
  void Message(uint32_t field, Write write) {
    Tag(field, pbf_wire_type::length_delimited);
    char* const length = at_++;  // for most messages one byte is enough
    write(*this);
    const auto size = static_cast<size_t>(at_ - length - 1);
    const auto more = static_cast<size_t>(protozero::length_of_varint(size)) - 1;
    if (more > 0) memmove(length + 1 + more, length + 1, size);
    protozero::add_varint_to_buffer(length, size);
    at_ += more;
  }

 private:
  void Tag(uint32_t field, pbf_wire_type type) {
    const uint32_t tag = field << 3 | static_cast<uint32_t>(type);
    if (field >= 16) return Varint(tag);
    *at_++ = static_cast<char>(tag);
  }

  char* at_;
};

bool IsPlain(const Offer& offer) {
  return offer.key.count == 1 && !offer.prepared && offer.slot == 0 && !offer.continues &&
         offer.layout.blocks() == nullptr && offer.layout.extents().size() <= kMostRanges &&
         offer.shape.dims.size() <= kMostDims && offer.key.domain.size() <= kMaxDomainBytes &&
         offer.key.key.size() <= kMaxKeyBytes;
}

void WriteOffer(const Offer& offer, EventWriter& out) {
  out.Text(1, offer.key.domain);
  out.Number(2, offer.key.source.value());
  out.Number(3, offer.key.destination.value());
  out.Text(4, offer.key.key);
  out.Number(5, offer.bytes);
  out.Number(6, offer.data_type);
  if (!offer.shape.dims.empty()) {
    out.Message(7, [&](EventWriter& part) {
      for (const int64_t dim : offer.shape.dims) part.Varint(static_cast<uint64_t>(dim));
    });
  }
  out.Number(8, offer.shape.given);
  for (const Range& range : offer.layout.extents()) {
    out.Message(9, [&](EventWriter& part) {
      part.Number(1, range.arena.value());
      part.Number(2, range.offset);
      part.Number(3, range.length);
    });
  }
  out.Number(10, offer.ready);
  if (offer.deadline != absl::InfiniteDuration()) {
    out.Message(11, [&](EventWriter& part) {
      absl::Duration rest;
      part.Number(1, absl::IDivDuration(offer.deadline, absl::Seconds(1), &rest));
      part.Number(2, absl::ToInt64Nanoseconds(rest));
    });
  }
  out.Number(12, offer.priority);
  out.Number(13, offer.route);
  out.Number(18, offer.uid);
}

// Appends a message whose fields `write` writes.
template <typename Write>
void AddPlain(std::string& out, uint32_t field, Write write) {
  std::array<char, kMostHeader + kMostPlain> room;
  EventWriter part(room.data() + kMostHeader);
  write(part);
  const auto size = static_cast<size_t>(part.at() - room.data()) - kMostHeader;
  const auto header = 1 + static_cast<size_t>(protozero::length_of_varint(size));
  char* const begin = room.data() + kMostHeader - header;
  *begin = static_cast<char>(field << 3 | static_cast<uint32_t>(pbf_wire_type::length_delimited));
  protozero::add_varint_to_buffer(begin + 1, size);
  out.append(begin, header + size);
}

void WriteGroup(const Group& group, std::string& frame) {
  std::string bytes;
  bytes.reserve(64 + group.chunks.size() * 32);
  AddPlain(bytes, 1, [&](EventWriter& name) {
    name.Message(1, [&](EventWriter& clique) {
      clique.Number(1, group.clique.low.value());
      clique.Number(2, group.clique.high.value());
    });
    name.Number(2, group.attempt);
    name.Number(3, group.number);
  });
  for (const Chunk& chunk : group.chunks) {
    AddPlain(bytes, 2, [&](EventWriter& part) {
      part.Number(1, chunk.pair.transfer.value());
      part.Number(2, chunk.pair.to_low);
      part.Number(3, chunk.offset);
      part.Number(4, chunk.bytes);
      part.Number(5, chunk.pair.slot);
    });
  }
  std::string event;
  pbf_writer(event).add_message(12, bytes);
  pbf_writer(frame).add_message(2, event);
}

void WriteEvent(const PeerMessage& message, std::string& frame) {
  const auto* offer = std::get_if<Offer>(&message);
  const auto* done = std::get_if<Done>(&message);
  if (offer != nullptr && IsPlain(*offer)) {
    return AddPlain(frame, 2, [&](EventWriter& event) {
      event.Number(1, offer->transfer.value());
      event.Message(2, [&](EventWriter& step) { WriteOffer(*offer, step); });
    });
  }
  if (done != nullptr && done->status.ok()) {
    return AddPlain(frame, 2, [&](EventWriter& event) {
      event.Number(1, done->transfer.value());
      event.Message(6, [&](EventWriter& step) { step.Number(2, done->route); });
    });
  }
  if (const auto* hand_over = std::get_if<HandOver>(&message)) {
    return AddPlain(frame, 2, [&](EventWriter& event) {
      event.Number(1, hand_over->transfer.value());
      event.Message(10, [&](EventWriter& step) {
        step.Number(1, hand_over->priority);
        step.Number(2, hand_over->unstaged);
      });
    });
  }
  if (const auto* group = std::get_if<Group>(&message)) return WriteGroup(*group, frame);
  peer::v1::PeerEvent proto;
  Encode(message, &proto);
  pbf_writer(frame).add_message(2, proto.SerializeAsString());
}

std::string EncodeFrame(const PeerFrame& frame) {
  if (frame.hello.has_value() || frame.introduction.has_value() || !frame.proof.empty() ||
      !frame.moved.empty()) {
    peer::v1::Frame proto;
    Encode(frame, &proto);
    return proto.SerializeAsString();
  }
  std::string bytes;
  // The size of a plain offer with a short key and domain, so that most events are not moved as
  // they grow.
  bytes.reserve(frame.messages.size() * 96);
  for (const PeerMessage& message : frame.messages) WriteEvent(message, bytes);
  pbf_writer out(bytes);
  for (const ArenaId arena : frame.arenas_gone) {
    peer::v1::PeerEvent event;
    event.mutable_arena_gone()->set_arena_id(arena.value());
    out.add_message(2, event.SerializeAsString());
  }
  if (frame.first_event != 0) out.add_uint64(3, frame.first_event);
  if (frame.more) out.add_bool(4, true);
  return bytes;
}

// --- Reading. Only the form above is read, with its fields in order. Anything else stays unread,
// or protozero throws at it, and is left to protoc's code.

bool ReadDims(FieldReader& in, Shape& shape) {
  const absl::string_view bytes = in.Bytes(7).value_or(absl::string_view());
  const char* at = bytes.data();
  for (const char* const end = at + bytes.size(); at != end;) {
    const auto dim = static_cast<int64_t>(protozero::decode_varint(&at, end));
    if (dim < 0 || shape.dims.size() == kMostDims) return false;
    shape.dims.push_back(dim);
  }
  return true;
}

// Reads ranges that together have `bytes` bytes.
bool ReadLayout(FieldReader& in, uint64_t bytes, Layout& layout) {
  std::vector<Range> ranges;
  while (const std::optional<absl::string_view> said = in.Bytes(9)) {
    FieldReader part(*said);
    Range& range = ranges.emplace_back();
    range.arena = ArenaId(part.Number(1));
    range.offset = part.Number(2);
    range.length = part.Number(3);
    if (!part.AtEnd() || range.length > bytes || ranges.size() > kMostRanges) return false;
    bytes -= range.length;
  }
  layout = Layout::Merged(std::move(ranges));
  return bytes == 0;
}

bool ReadOffer(FieldReader in, Offer& offer) {
  offer.key.domain = in.Text(1);
  offer.key.source = GlobalDeviceId(in.Number(2));
  offer.key.destination = GlobalDeviceId(in.Number(3));
  offer.key.key = in.Text(4);
  if (offer.key.domain.size() > kMaxDomainBytes || offer.key.key.empty() ||
      offer.key.key.size() > kMaxKeyBytes) {
    return false;
  }
  offer.bytes = in.Number(5);
  offer.data_type = in.OneOf<DataType>(6, kDataTypes);
  if (!ReadDims(in, offer.shape)) return false;
  offer.shape.given = in.OneOf<bool>(8, 2);
  if (!ReadLayout(in, offer.bytes, offer.layout)) return false;
  offer.ready = in.OneOf<bool>(10, 2);
  if (const std::optional<absl::string_view> said = in.Bytes(11)) {
    FieldReader part(*said);
    const auto seconds = static_cast<int64_t>(part.Number(1));
    const auto nanos = static_cast<int32_t>(part.Number(2));
    if (!part.AtEnd()) return false;
    offer.deadline = absl::Seconds(seconds) + absl::Nanoseconds(nanos);
  }
  offer.priority = static_cast<int32_t>(in.Number(12));
  offer.route = in.OneOf<Route>(13, kRoutes);
  return in.Number32(18, offer.uid) && in.AtEnd() && offer.priority >= -kMaxPriority &&
         offer.priority <= kMaxPriority;
}

bool ReadGroup(FieldReader in, Group& group) {
  const std::optional<absl::string_view> said = in.Bytes(1);
  if (!said.has_value()) return false;
  FieldReader name(*said);
  const std::optional<absl::string_view> devices = name.Bytes(1);
  if (!devices.has_value()) return false;
  FieldReader clique(*devices);
  group.clique.low = GlobalDeviceId(clique.Number(1));
  group.clique.high = GlobalDeviceId(clique.Number(2));
  if (!clique.AtEnd() || !name.Number32(2, group.attempt)) return false;
  group.number = name.Number(3);
  if (!name.AtEnd()) return false;
  while (const std::optional<absl::string_view> chunk = in.Bytes(2)) {
    if (group.chunks.size() == kMaxGroupChunks) return false;
    FieldReader part(*chunk);
    Chunk& to = group.chunks.emplace_back();
    to.pair.transfer = TransferId(part.Number(1));
    to.pair.to_low = part.OneOf<bool>(2, 2);
    to.offset = part.Number(3);
    to.bytes = part.Number(4);
    if (!part.Number32(5, to.pair.slot) || !part.AtEnd()) return false;
  }
  return in.AtEnd();
}

// Whether the event is a plain one. If not, `message` may have any value.
bool ReadPlain(absl::string_view bytes, PeerMessage& message) try {
  FieldReader event(bytes);
  const TransferId transfer(event.Number(1));
  if (const std::optional<absl::string_view> said = event.Bytes(2)) {
    auto& offer = message.emplace<Offer>();
    offer.transfer = transfer;
    return ReadOffer(FieldReader(*said), offer) && event.AtEnd();
  }
  if (const std::optional<absl::string_view> said = event.Bytes(6)) {
    FieldReader step(*said);
    message = Done{transfer, absl::OkStatus(), step.OneOf<Route>(2, kRoutes)};
    return step.AtEnd() && event.AtEnd();
  }
  if (const std::optional<absl::string_view> said = event.Bytes(10)) {
    FieldReader step(*said);
    HandOver& hand_over = message.emplace<HandOver>();
    hand_over.transfer = transfer;
    hand_over.priority = static_cast<int32_t>(step.Number(1));
    hand_over.unstaged = step.OneOf<bool>(2, 2);
    return step.AtEnd() && event.AtEnd() && hand_over.priority >= -kMaxPriority &&
           hand_over.priority <= kMaxPriority;
  }
  const std::optional<absl::string_view> said = event.Bytes(12);
  return transfer == TransferId() && said.has_value() && event.AtEnd() &&
         ReadGroup(FieldReader(*said), message.emplace<Group>());
} catch (const protozero::exception&) {
  return false;
}

// Whether the frame has the form above.
bool ReadFrame(absl::string_view bytes, std::vector<absl::string_view>& events,
               PeerFrame& frame) try {
  FieldReader in(bytes);
  while (const std::optional<absl::string_view> event = in.Bytes(2)) events.push_back(*event);
  frame.first_event = in.Number(3);
  frame.more = in.OneOf<bool>(4, 2);
  return in.AtEnd() && !events.empty();
} catch (const protozero::exception&) {
  return false;
}

absl::Status NotAFrame() {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
               "peer link: what came is not a frame");
}

}  // namespace

std::string EncodeFramePacket(uint64_t sequence, const PeerFrame& frame) {
  const std::string bytes = EncodeFrame(frame);
  std::string packet;
  packet.reserve(32 + bytes.size());
  pbf_writer out(packet);
  if (sequence != 0) out.add_uint64(1, sequence);
  out.add_message(4, bytes);
  return packet;
}

std::optional<FramePacket> FindFrame(absl::string_view packet) try {
  FieldReader in(packet);
  const uint64_t sequence = in.Number(1);
  const std::optional<absl::string_view> frame = in.Bytes(4);
  if (sequence == 0 || !frame.has_value() || !in.AtEnd()) return std::nullopt;
  return FramePacket{sequence, *frame};
} catch (const protozero::exception&) {
  return std::nullopt;
}

absl::StatusOr<PeerFrame> DecodeFrame(absl::string_view bytes) {
  std::vector<absl::string_view> events;
  PeerFrame frame;
  if (!ReadFrame(bytes, events, frame)) {
    peer::v1::Frame proto;
    if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return NotAFrame();
    return Decode(proto);
  }
  frame.messages.reserve(events.size());
  for (const absl::string_view event : events) {
    if (ReadPlain(event, frame.messages.emplace_back())) continue;
    frame.messages.pop_back();
    peer::v1::PeerEvent proto;
    if (!proto.ParseFromArray(event.data(), static_cast<int>(event.size()))) return NotAFrame();
    RETURN_IF_ERROR(Decode(proto, frame));
  }
  return frame;
}

}  // namespace ferry
