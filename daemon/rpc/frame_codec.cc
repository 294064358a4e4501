// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/frame_codec.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "daemon/rpc/peer_codec.h"

namespace ferry {
namespace {

// What is before a field: its number, all below 16, and how it is said.
constexpr char Varint(uint32_t field) { return static_cast<char>(field << 3); }
constexpr char Bytes(uint32_t field) { return static_cast<char>(field << 3 | 2); }

// Fields by their numbers in ferry/peer/v1/peer.proto and ferry/v1/types.proto.
constexpr uint32_t kPacketSequence = 1, kPacketFrame = 4;
constexpr uint32_t kFrameEvents = 2, kFrameFirstEvent = 3;
constexpr uint32_t kEventTransfer = 1, kEventOffer = 2, kEventDone = 6;
constexpr uint32_t kOfferDomain = 1, kOfferSource = 2, kOfferDestination = 3, kOfferKey = 4,
                   kOfferBytes = 5, kOfferDataType = 6, kOfferDims = 7, kOfferHasShape = 8,
                   kOfferRanges = 9, kOfferReady = 10, kOfferDeadline = 11, kOfferPriority = 12,
                   kOfferRoute = 13;
constexpr uint32_t kRangeArena = 1, kRangeOffset = 2, kRangeLength = 3;
constexpr uint32_t kDurationSeconds = 1, kDurationNanos = 2;
constexpr uint32_t kDoneRoute = 2;

// More dimensions than this no shape has, and more ranges no plain offer.
constexpr size_t kMostDims = 8;
constexpr size_t kMostRanges = 8;

// --- Writing, into room for the largest plain event. Zero is not said, as proto3 has it.

constexpr size_t kMostVarint = 1 + 10;  // with its tag
constexpr size_t kMostOffer = 2 + kMaxDomainBytes + 2 + kMaxKeyBytes + 10 * kMostVarint +
                              kMostDims * 10 + kMostRanges * (2 + 3 * kMostVarint);
constexpr size_t kMostEvent = kMostVarint + 3 + kMostOffer;

class Writer {
 public:
  explicit Writer(char* to) : at_(to) {}
  char* at() const { return at_; }
  void Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at_++ = static_cast<char>(value | 0x80);
    *at_++ = static_cast<char>(value);
  }
  void Number(uint32_t field, uint64_t value) {
    if (value == 0) return;
    *at_++ = Varint(field);
    Raw(value);
  }
  void Text(uint32_t field, absl::string_view text) {
    if (text.empty()) return;
    *at_++ = Bytes(field);
    Raw(text.size());
    at_ = std::copy(text.begin(), text.end(), at_);
  }
  // A message or list of less than 128 bytes, which `write` writes: so its length is one byte.
  template <typename Write>
  void Short(uint32_t field, Write write) {
    *at_++ = Bytes(field);
    char* const length = at_++;
    write();
    *length = static_cast<char>(at_ - length - 1);
  }

 private:
  char* at_;
};

// How protobuf says numbers that have a sign.
constexpr uint64_t Signed(int64_t value) { return static_cast<uint64_t>(value); }

bool IsPlain(const Offer& offer) {
  return !offer.prepared && offer.slot == 0 && offer.layout.blocks() == nullptr &&
         offer.layout.extents().size() <= kMostRanges && offer.shape.dims.size() <= kMostDims &&
         offer.key.domain.size() <= kMaxDomainBytes && offer.key.key.size() <= kMaxKeyBytes;
}

size_t WriteOffer(const Offer& offer, char* to) {
  Writer out(to);
  out.Text(kOfferDomain, offer.key.domain);
  out.Number(kOfferSource, offer.key.source.value());
  out.Number(kOfferDestination, offer.key.destination.value());
  out.Text(kOfferKey, offer.key.key);
  out.Number(kOfferBytes, offer.bytes);
  out.Number(kOfferDataType, static_cast<uint64_t>(offer.data_type));
  if (!offer.shape.dims.empty()) {
    out.Short(kOfferDims, [&] {
      for (const int64_t dim : offer.shape.dims) out.Raw(Signed(dim));
    });
  }
  out.Number(kOfferHasShape, offer.shape.given ? 1 : 0);
  for (const Range& range : offer.layout.extents()) {
    out.Short(kOfferRanges, [&] {
      out.Number(kRangeArena, range.arena.value());
      out.Number(kRangeOffset, range.offset);
      out.Number(kRangeLength, range.length);
    });
  }
  out.Number(kOfferReady, offer.ready ? 1 : 0);
  if (offer.deadline != absl::InfiniteDuration()) {
    absl::Duration rest;
    const int64_t seconds = absl::IDivDuration(offer.deadline, absl::Seconds(1), &rest);
    out.Short(kOfferDeadline, [&] {
      out.Number(kDurationSeconds, Signed(seconds));
      out.Number(kDurationNanos, Signed(absl::ToInt64Nanoseconds(rest)));
    });
  }
  out.Number(kOfferPriority, Signed(offer.priority));
  out.Number(kOfferRoute, static_cast<uint64_t>(offer.route));
  return static_cast<size_t>(out.at() - to);
}

void AppendNumber(uint32_t field, uint64_t value, std::string& to) {
  std::array<char, kMostVarint> number;
  Writer out(number.data());
  out.Number(field, value);
  to.append(number.data(), static_cast<size_t>(out.at() - number.data()));
}

// What goes before a message of so many bytes.
void AppendHeader(uint32_t field, size_t size, std::string& to) {
  std::array<char, kMostVarint> header;
  Writer out(header.data());
  out.Raw(static_cast<unsigned char>(Bytes(field)));
  out.Raw(size);
  to.append(header.data(), static_cast<size_t>(out.at() - header.data()));
}

// Appends the event to a frame's bytes; false if it is not a plain one.
bool AppendPlain(const PeerMessage& message, std::string& frame) {
  std::array<char, kMostEvent> event;
  Writer out(event.data());
  if (const auto* offer = std::get_if<Offer>(&message)) {
    if (!IsPlain(*offer)) return false;
    std::array<char, kMostOffer> body;
    const size_t size = WriteOffer(*offer, body.data());
    out.Number(kEventTransfer, offer->transfer.value());
    out.Text(kEventOffer, {body.data(), size});
  } else if (const auto* done = std::get_if<Done>(&message)) {
    if (!done->status.ok()) return false;
    out.Number(kEventTransfer, done->transfer.value());
    out.Short(kEventDone, [&] { out.Number(kDoneRoute, static_cast<uint64_t>(done->route)); });
  } else {
    return false;
  }
  const auto size = static_cast<size_t>(out.at() - event.data());
  AppendHeader(kFrameEvents, size, frame);
  frame.append(event.data(), size);
  return true;
}

// --- Reading: what is said as above, its fields in their order. All else is left to protoc's code.

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}
  // Nothing was broken, and nothing is left.
  bool Finished() const { return good_ && at_ == end_; }
  bool AtEnd() const { return at_ == end_; }
  bool Says(char tag) const { return at_ != end_ && *at_ == tag; }
  uint64_t Raw() {
    uint64_t value = 0;
    for (int shift = 0; at_ != end_ && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at_++);
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return Broken();
  }
  // 0 if it is not said.
  uint64_t Number(uint32_t field) {
    if (!Says(Varint(field))) return 0;
    ++at_;
    return Raw();
  }
  // One of `count`, from 0.
  template <typename Enum>
  Enum OneOf(uint32_t field, uint64_t count) {
    const uint64_t value = Number(field);
    return static_cast<Enum>(value < count ? value : Broken());
  }
  bool Flag(uint32_t field) { return OneOf<uint8_t>(field, 2) != 0; }
  // Empty if it is not said.
  absl::string_view Text(uint32_t field) {
    if (!Says(Bytes(field))) return {};
    ++at_;
    const uint64_t size = Raw();
    if (size > static_cast<uint64_t>(end_ - at_)) {
      Broken();
      return {};
    }
    const absl::string_view text(at_, size);
    at_ += size;
    return text;
  }

 private:
  uint64_t Broken() {
    good_ = false;
    at_ = end_;
    return 0;
  }
  const char* at_;
  const char* const end_;
  bool good_ = true;
};

bool ReadDims(absl::string_view bytes, Shape& shape) {
  Reader in(bytes);
  while (!in.AtEnd()) {
    const auto dim = static_cast<int64_t>(in.Raw());
    if (dim < 0 || shape.dims.size() == kMostDims) return false;
    shape.dims.push_back(dim);
  }
  return in.Finished();
}

// Ranges that make up `bytes`.
bool ReadLayout(Reader& in, uint64_t bytes, Layout& layout) {
  std::vector<Range> ranges;
  while (in.Says(Bytes(kOfferRanges))) {
    if (ranges.size() == kMostRanges) return false;
    Reader part(in.Text(kOfferRanges));
    Range& range = ranges.emplace_back();
    range.arena = ArenaId(part.Number(kRangeArena));
    range.offset = part.Number(kRangeOffset);
    range.length = part.Number(kRangeLength);
    if (!part.Finished() || range.length > bytes) return false;
    bytes -= range.length;
  }
  layout = Layout(std::move(ranges));
  return bytes == 0;
}

bool ReadOffer(absl::string_view bytes, Offer& offer) {
  Reader in(bytes);
  const absl::string_view domain = in.Text(kOfferDomain);
  offer.key.source = GlobalDeviceId(in.Number(kOfferSource));
  offer.key.destination = GlobalDeviceId(in.Number(kOfferDestination));
  const absl::string_view key = in.Text(kOfferKey);
  if (domain.size() > kMaxDomainBytes || key.empty() || key.size() > kMaxKeyBytes) return false;
  offer.key.domain.assign(domain.data(), domain.size());
  offer.key.key.assign(key.data(), key.size());
  offer.bytes = in.Number(kOfferBytes);
  offer.data_type = in.OneOf<DataType>(kOfferDataType, kDataTypes);
  if (!ReadDims(in.Text(kOfferDims), offer.shape)) return false;
  offer.shape.given = in.Flag(kOfferHasShape);
  if (!ReadLayout(in, offer.bytes, offer.layout)) return false;
  offer.ready = in.Flag(kOfferReady);
  if (in.Says(Bytes(kOfferDeadline))) {
    Reader part(in.Text(kOfferDeadline));
    const auto seconds = static_cast<int64_t>(part.Number(kDurationSeconds));
    const auto nanos = static_cast<int32_t>(part.Number(kDurationNanos));
    if (!part.Finished()) return false;
    offer.deadline = absl::Seconds(seconds) + absl::Nanoseconds(nanos);
  }
  offer.priority = static_cast<int32_t>(in.Number(kOfferPriority));
  offer.route = in.OneOf<Route>(kOfferRoute, kRoutes);
  return in.Finished() && offer.priority >= -kMaxPriority && offer.priority <= kMaxPriority;
}

// Appends the event if it is a plain one.
bool ReadPlain(absl::string_view event, std::vector<PeerMessage>& messages) {
  Reader in(event);
  const TransferId transfer(in.Number(kEventTransfer));
  if (in.Says(Bytes(kEventOffer))) {
    const absl::string_view bytes = in.Text(kEventOffer);
    auto& offer = std::get<Offer>(messages.emplace_back(std::in_place_type<Offer>));
    offer.transfer = transfer;
    if (in.Finished() && ReadOffer(bytes, offer)) return true;
    messages.pop_back();
  } else if (in.Says(Bytes(kEventDone))) {
    Reader step(in.Text(kEventDone));
    const auto route = step.OneOf<Route>(kDoneRoute, kRoutes);
    if (!in.Finished() || !step.Finished()) return false;
    messages.push_back(Done{transfer, absl::OkStatus(), route});
    return true;
  }
  return false;
}

// As the serialized ferry.peer.v1.Frame.
std::string EncodeFrame(const PeerFrame& frame) {
  std::string bytes;
  if (frame.hello.has_value()) {
    peer::v1::Frame proto;
    Encode(frame, &proto);
    return proto.SerializeAsString();
  }
  // As a plain offer of a short key and domain has it, so that most frames are not moved as they
  // grow.
  bytes.reserve(frame.messages.size() * 96);
  const auto append = [&](const peer::v1::PeerEvent& event) {
    AppendHeader(kFrameEvents, event.ByteSizeLong(), bytes);
    event.AppendToString(&bytes);
  };
  for (const PeerMessage& message : frame.messages) {
    if (AppendPlain(message, bytes)) continue;
    peer::v1::PeerEvent event;
    Encode(message, &event);
    append(event);
  }
  for (const ArenaId arena : frame.arenas_gone) {
    peer::v1::PeerEvent event;
    event.mutable_arena_gone()->set_arena_id(arena.value());
    append(event);
  }
  AppendNumber(kFrameFirstEvent, frame.first_event, bytes);
  return bytes;
}

absl::Status NotAFrame() {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
               "peer link: what came is not a frame");
}

}  // namespace

std::string EncodeFramePacket(uint64_t sequence, const PeerFrame& frame) {
  const std::string bytes = EncodeFrame(frame);
  std::string packet;
  packet.reserve(2 * kMostVarint + bytes.size());
  AppendNumber(kPacketSequence, sequence, packet);
  AppendHeader(kPacketFrame, bytes.size(), packet);
  packet.append(bytes);
  return packet;
}

std::optional<FramePacket> FindFrame(absl::string_view packet) {
  Reader in(packet);
  FramePacket found;
  found.sequence = in.Number(kPacketSequence);
  if (found.sequence == 0 || !in.Says(Bytes(kPacketFrame))) return std::nullopt;
  found.frame = in.Text(kPacketFrame);
  if (!in.Finished()) return std::nullopt;
  return found;
}

absl::StatusOr<PeerFrame> DecodeFrame(absl::string_view bytes) {
  Reader in(bytes);
  std::vector<absl::string_view> events;
  while (in.Says(Bytes(kFrameEvents))) events.push_back(in.Text(kFrameEvents));
  PeerFrame frame;
  frame.first_event = in.Number(kFrameFirstEvent);
  if (!in.Finished() || events.empty()) {
    peer::v1::Frame proto;
    if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return NotAFrame();
    return Decode(proto);
  }
  frame.messages.reserve(events.size());
  for (const absl::string_view event : events) {
    if (ReadPlain(event, frame.messages)) continue;
    peer::v1::PeerEvent proto;
    if (!proto.ParseFromArray(event.data(), static_cast<int>(event.size()))) return NotAFrame();
    RETURN_IF_ERROR(Decode(proto, frame));
  }
  return frame;
}

}  // namespace ferry
