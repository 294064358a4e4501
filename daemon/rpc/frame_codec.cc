// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/frame_codec.h"

#include <array>
#include <protozero/buffer_fixed.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "daemon/rpc/peer_codec.h"

namespace ferry {
namespace {

using protozero::data_view;
using protozero::fixed_size_buffer_adaptor;
using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::pbf_writer;

// Fields are called by their numbers in ferry/peer/v1/peer.proto and ferry/v1/types.proto, as in
// client/codec; all are below 16.

// More dimensions than this no shape has, and more ranges no plain offer.
constexpr size_t kMostDims = 8;
constexpr size_t kMostRanges = 8;

// --- Writing. Zero is not said, as proto3 has it.

// Room for the largest plain event, protozero's own included: 50 bytes are more than a range, a
// deadline, a dimension or three numbers take.
constexpr size_t kMostPlain = kMaxDomainBytes + kMaxKeyBytes + 50 * (kMostDims + kMostRanges + 4);

using PlainWriter = protozero::basic_pbf_writer<fixed_size_buffer_adaptor>;

struct EventWriter : PlainWriter {
  explicit EventWriter(fixed_size_buffer_adaptor& to) : PlainWriter(to), out(to) {}
  EventWriter(EventWriter& parent, uint32_t field) : PlainWriter(parent, field), out(parent.out) {}
  template <typename T>
  void Number(uint32_t field, T value) {
    if (value != T{}) add_uint64(field, static_cast<uint64_t>(value));
  }
  void Text(uint32_t field, const std::string& text) {
    if (!text.empty()) add_bytes(field, text);
  }
  // A message; protozero leaves it out if it is empty, but it is said.
  template <typename Write>
  void Message(uint32_t field, Write write) {
    const size_t before = out.size();
    {
      EventWriter nested(*this, field);
      write(nested);
    }
    if (out.size() == before) add_message(field, "", 0);
  }

  fixed_size_buffer_adaptor& out;
};

bool IsPlain(const Offer& offer) {
  return !offer.prepared && offer.slot == 0 && offer.layout.blocks() == nullptr &&
         offer.layout.extents().size() <= kMostRanges && offer.shape.dims.size() <= kMostDims &&
         offer.key.domain.size() <= kMaxDomainBytes && offer.key.key.size() <= kMaxKeyBytes;
}

void WriteOffer(const Offer& offer, EventWriter& out) {
  out.Text(1, offer.key.domain);
  out.Number(2, offer.key.source.value());
  out.Number(3, offer.key.destination.value());
  out.Text(4, offer.key.key);
  out.Number(5, offer.bytes);
  out.Number(6, offer.data_type);
  out.add_packed_int64(7, offer.shape.dims.begin(), offer.shape.dims.end());
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
}

// `out` is one field of what `write` writes as a message, or several.
template <typename Write>
void AddPlain(pbf_writer& out, uint32_t field, Write write) {
  std::array<char, kMostPlain> room;
  fixed_size_buffer_adaptor buffer(room);
  EventWriter part(buffer);
  write(part);
  out.add_message(field, buffer.data(), buffer.size());
}

void WriteGroup(const Group& group, pbf_writer& frame) {
  std::string bytes;
  bytes.reserve(64 + group.chunks.size() * 32);
  pbf_writer out(bytes);
  AddPlain(out, 1, [&](EventWriter& name) {
    name.Message(1, [&](EventWriter& clique) {
      clique.Number(1, group.clique.low.value());
      clique.Number(2, group.clique.high.value());
    });
    name.Number(2, group.attempt);
    name.Number(3, group.number);
  });
  for (const Chunk& chunk : group.chunks) {
    AddPlain(out, 2, [&](EventWriter& part) {
      part.Number(1, chunk.pair.transfer.value());
      part.Number(2, chunk.pair.to_low);
      part.Number(3, chunk.offset);
      part.Number(4, chunk.bytes);
      part.Number(5, chunk.pair.slot);
    });
  }
  std::string event;
  pbf_writer(event).add_message(12, bytes);
  frame.add_message(2, event);
}

void WriteEvent(const PeerMessage& message, pbf_writer& frame) {
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
        step.Number(2, hand_over->direct);
      });
    });
  }
  if (const auto* group = std::get_if<Group>(&message)) return WriteGroup(*group, frame);
  peer::v1::PeerEvent proto;
  Encode(message, &proto);
  frame.add_message(2, proto.SerializeAsString());
}

std::string EncodeFrame(const PeerFrame& frame) {
  if (frame.hello.has_value() || frame.introduction.has_value() || !frame.proof.empty() ||
      !frame.moved.empty()) {
    peer::v1::Frame proto;
    Encode(frame, &proto);
    return proto.SerializeAsString();
  }
  std::string bytes;
  // As a plain offer of a short key and domain has it, so that most are not moved as they grow.
  bytes.reserve(frame.messages.size() * 96);
  pbf_writer out(bytes);
  for (const PeerMessage& message : frame.messages) WriteEvent(message, out);
  for (const ArenaId arena : frame.arenas_gone) {
    peer::v1::PeerEvent event;
    event.mutable_arena_gone()->set_arena_id(arena.value());
    out.add_message(2, event.SerializeAsString());
  }
  if (frame.first_event != 0) out.add_uint64(3, frame.first_event);
  if (frame.more) out.add_bool(4, true);
  return bytes;
}

// --- Reading: what is said as above, its fields in their order. All else stays unread, or
// protozero throws at it, and is left to protoc's code.

// Whether `field` is next, its tag in the one byte that it needs. If so, its value is to be read.
bool Next(pbf_reader& in, uint32_t field, pbf_wire_type type) {
  const data_view rest = in.data();
  return !rest.empty() &&
         *rest.data() == static_cast<char>(field << 3 | static_cast<uint32_t>(type)) && in.next();
}

// 0 if it is not said.
uint64_t Number(pbf_reader& in, uint32_t field) {
  return Next(in, field, pbf_wire_type::varint) ? in.get_uint64() : 0;
}

// One of `count`, from 0.
template <typename T>
T OneOf(pbf_reader& in, uint32_t field, uint64_t count) {
  pbf_reader after = in;
  const uint64_t value = Number(after, field);
  if (value >= count) return T{};
  in = after;
  return static_cast<T>(value);
}

// If it is next, its length in no more bytes than it needs: of a longer one protozero takes 32
// bits.
std::optional<data_view> Bytes(pbf_reader& in, uint32_t field) {
  pbf_reader after = in;
  if (!Next(after, field, pbf_wire_type::length_delimited)) return std::nullopt;
  const data_view bytes = after.get_view();
  const auto header = bytes.data() - in.data().data();
  if (header != 1 + protozero::length_of_varint(bytes.size())) return std::nullopt;
  in = after;
  return bytes;
}

// Empty if it is not said.
std::string Text(pbf_reader& in, uint32_t field) {
  return Bytes(in, field).value_or(data_view("", 0)).to_string();
}

bool ReadDims(pbf_reader& in, Shape& shape) {
  const data_view bytes = Bytes(in, 7).value_or(data_view());
  const char* at = bytes.data();
  for (const char* const end = at + bytes.size(); at != end;) {
    const auto dim = static_cast<int64_t>(protozero::decode_varint(&at, end));
    if (dim < 0 || shape.dims.size() == kMostDims) return false;
    shape.dims.push_back(dim);
  }
  return true;
}

// Ranges that make up `bytes`.
bool ReadLayout(pbf_reader& in, uint64_t bytes, Layout& layout) {
  std::vector<Range> ranges;
  while (const std::optional<data_view> said = Bytes(in, 9)) {
    pbf_reader part(*said);
    Range& range = ranges.emplace_back();
    range.arena = ArenaId(Number(part, 1));
    range.offset = Number(part, 2);
    range.length = Number(part, 3);
    if (part || range.length > bytes || ranges.size() > kMostRanges) return false;
    bytes -= range.length;
  }
  layout = Layout::Merged(std::move(ranges));
  return bytes == 0;
}

bool ReadOffer(pbf_reader in, Offer& offer) {
  offer.key.domain = Text(in, 1);
  offer.key.source = GlobalDeviceId(Number(in, 2));
  offer.key.destination = GlobalDeviceId(Number(in, 3));
  offer.key.key = Text(in, 4);
  if (offer.key.domain.size() > kMaxDomainBytes || offer.key.key.empty() ||
      offer.key.key.size() > kMaxKeyBytes) {
    return false;
  }
  offer.bytes = Number(in, 5);
  offer.data_type = OneOf<DataType>(in, 6, kDataTypes);
  if (!ReadDims(in, offer.shape)) return false;
  offer.shape.given = OneOf<bool>(in, 8, 2);
  if (!ReadLayout(in, offer.bytes, offer.layout)) return false;
  offer.ready = OneOf<bool>(in, 10, 2);
  if (const std::optional<data_view> said = Bytes(in, 11)) {
    pbf_reader part(*said);
    const auto seconds = static_cast<int64_t>(Number(part, 1));
    const auto nanos = static_cast<int32_t>(Number(part, 2));
    if (part) return false;
    offer.deadline = absl::Seconds(seconds) + absl::Nanoseconds(nanos);
  }
  offer.priority = static_cast<int32_t>(Number(in, 12));
  offer.route = OneOf<Route>(in, 13, kRoutes);
  return !in && offer.priority >= -kMaxPriority && offer.priority <= kMaxPriority;
}

// False also for what does not fit: protoc's code takes its lower half.
bool ReadNumber(pbf_reader& in, uint32_t field, uint32_t& number) {
  const uint64_t value = Number(in, field);
  number = static_cast<uint32_t>(value);
  return value == number;
}

bool ReadGroup(pbf_reader in, Group& group) {
  const std::optional<data_view> said = Bytes(in, 1);
  if (!said.has_value()) return false;
  pbf_reader name(*said);
  const std::optional<data_view> devices = Bytes(name, 1);
  if (!devices.has_value()) return false;
  pbf_reader clique(*devices);
  group.clique.low = GlobalDeviceId(Number(clique, 1));
  group.clique.high = GlobalDeviceId(Number(clique, 2));
  if (clique || !ReadNumber(name, 2, group.attempt)) return false;
  group.number = Number(name, 3);
  if (name) return false;
  while (const std::optional<data_view> chunk = Bytes(in, 2)) {
    if (group.chunks.size() == kMaxGroupChunks) return false;
    pbf_reader part(*chunk);
    Chunk& to = group.chunks.emplace_back();
    to.pair.transfer = TransferId(Number(part, 1));
    to.pair.to_low = OneOf<bool>(part, 2, 2);
    to.offset = Number(part, 3);
    to.bytes = Number(part, 4);
    if (!ReadNumber(part, 5, to.pair.slot) || part) return false;
  }
  return !in;
}

// Whether the event is a plain one; if not, `message` is anything.
bool ReadPlain(data_view bytes, PeerMessage& message) try {
  pbf_reader event(bytes);
  const TransferId transfer(Number(event, 1));
  if (const std::optional<data_view> said = Bytes(event, 2)) {
    auto& offer = message.emplace<Offer>();
    offer.transfer = transfer;
    return ReadOffer(pbf_reader(*said), offer) && !event;
  }
  if (const std::optional<data_view> said = Bytes(event, 6)) {
    pbf_reader step(*said);
    message = Done{transfer, absl::OkStatus(), OneOf<Route>(step, 2, kRoutes)};
    return !step && !event;
  }
  if (const std::optional<data_view> said = Bytes(event, 10)) {
    pbf_reader step(*said);
    HandOver& hand_over = message.emplace<HandOver>();
    hand_over.transfer = transfer;
    hand_over.priority = static_cast<int32_t>(Number(step, 1));
    hand_over.direct = OneOf<bool>(step, 2, 2);
    return !step && !event && hand_over.priority >= -kMaxPriority &&
           hand_over.priority <= kMaxPriority;
  }
  const std::optional<data_view> said = Bytes(event, 12);
  return transfer == TransferId() && said.has_value() && !event &&
         ReadGroup(pbf_reader(*said), message.emplace<Group>());
} catch (const protozero::exception&) {
  return false;
}

// Whether the frame is said as above.
bool ReadFrame(absl::string_view bytes, std::vector<data_view>& events, PeerFrame& frame) try {
  pbf_reader in(bytes.data(), bytes.size());
  while (const std::optional<data_view> event = Bytes(in, 2)) events.push_back(*event);
  frame.first_event = Number(in, 3);
  frame.more = OneOf<bool>(in, 4, 2);
  return !in && !events.empty();
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
  pbf_reader in(packet.data(), packet.size());
  const uint64_t sequence = Number(in, 1);
  const std::optional<data_view> frame = Bytes(in, 4);
  if (sequence == 0 || !frame.has_value() || in) return std::nullopt;
  return FramePacket{sequence, {frame->data(), frame->size()}};
} catch (const protozero::exception&) {
  return std::nullopt;
}

absl::StatusOr<PeerFrame> DecodeFrame(absl::string_view bytes) {
  std::vector<data_view> events;
  PeerFrame frame;
  if (!ReadFrame(bytes, events, frame)) {
    peer::v1::Frame proto;
    if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return NotAFrame();
    return Decode(proto);
  }
  frame.messages.reserve(events.size());
  for (const data_view event : events) {
    if (ReadPlain(event, frame.messages.emplace_back())) continue;
    frame.messages.pop_back();
    peer::v1::PeerEvent proto;
    if (!proto.ParseFromArray(event.data(), static_cast<int>(event.size()))) return NotAFrame();
    RETURN_IF_ERROR(Decode(proto, frame));
  }
  return frame;
}

}  // namespace ferry
