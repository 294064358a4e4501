// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/frame_codec.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/rpc/peer_codec.h"
#include "ferry/peer/v1/peer_socket.pb.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;

using Random = std::mt19937_64;

std::string BytesByProtoc(const PeerFrame& frame) {
  peer::v1::Frame proto;
  Encode(frame, &proto);
  return proto.SerializeAsString();
}

absl::StatusOr<PeerFrame> ReadByProtoc(const std::string& bytes) {
  peer::v1::Frame proto;
  if (!proto.ParseFromString(bytes)) return absl::InvalidArgumentError("not a frame");
  return Decode(proto);
}

std::string FrameOf(const std::string& packet) {
  const std::optional<FramePacket> found = FindFrame(packet);
  return found.has_value() ? std::string(found->frame) : "no frame";
}

// Of any length in bits, so that all lengths of a number on the wire come.
uint64_t Number(Random& random) { return random() >> random() % 64 >> random() % 2; }

std::string Text(Random& random, size_t least, size_t most) {
  std::string text(least + random() % (most - least + 1), '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

Offer RandomOffer(Random& random) {
  Offer offer;
  offer.transfer = TransferId(Number(random) | 1);
  offer.key = {Text(random, 0, kMaxDomainBytes), GlobalDeviceId(Number(random)),
               GlobalDeviceId(Number(random)), Text(random, 1, kMaxKeyBytes)};
  offer.data_type = static_cast<DataType>(random() % kDataTypes);
  offer.shape.given = random() % 2 == 0;
  for (uint64_t i = offer.shape.given ? random() % 9 : 0; i > 0; --i) {
    offer.shape.dims.push_back(static_cast<int64_t>(Number(random) >> 1));
  }
  std::vector<Range> ranges(random() % 10);  // up to one more than a plain offer has
  for (Range& range : ranges) {
    range = {ArenaId(Number(random)), Number(random), (Number(random) >> 4) + 1};
    offer.bytes += range.length;
  }
  offer.layout = Layout(std::move(ranges));
  if (random() % 16 == 0) {
    offer.layout = *Layout::Strided(ArenaId(4), 5, 2, 7, 3);
    offer.bytes = 6;
  }
  offer.ready = random() % 2 == 0;
  if (random() % 4 != 0) {
    offer.deadline =
        absl::Nanoseconds(static_cast<int64_t>(Number(random) >> 1)) * (random() % 8 == 0 ? -1 : 1);
  }
  offer.priority = static_cast<int32_t>(random() % 201) - kMaxPriority;
  offer.route = static_cast<Route>(random() % kRoutes);
  if (random() % 16 == 0) {
    offer.prepared = true;
    offer.slot = static_cast<uint32_t>(random() % (kPreparedSlots + 1));
  }
  offer.continues = random() % 16 == 0;
  if (random() % 4 != 0) offer.uid = static_cast<uint32_t>(Number(random));
  return offer;
}

Group RandomGroup(Random& random) {
  Group group{{GlobalDeviceId(Number(random)), GlobalDeviceId(Number(random))},
              static_cast<uint32_t>(Number(random)),
              Number(random),
              {}};
  for (uint64_t i = random() % 4; i > 0; --i) {
    Chunk& chunk = group.chunks.emplace_back();
    chunk.pair = {random() % 2 == 0, TransferId(Number(random)), 0};
    if (random() % 4 == 0) chunk.pair.slot = static_cast<uint32_t>(Number(random));
    chunk.offset = Number(random);
    chunk.bytes = Number(random);
  }
  return group;
}

PeerFrame RandomFrame(Random& random) {
  PeerFrame frame;
  frame.first_event = Number(random) | 1;
  frame.more = random() % 4 == 0;
  for (uint64_t i = random() % 6; i > 0; --i) {
    switch (random() % 12) {
      case 8:
        frame.messages.push_back(
            HandOver{TransferId(Number(random)),
                     static_cast<int32_t>(random() % (2 * kMaxPriority + 1)) - kMaxPriority,
                     random() % 2 == 0});
        break;
      case 9:
        frame.messages.push_back(RandomGroup(random));
        break;
      case 0:
        frame.messages.push_back(
            Done{TransferId(Number(random)),
                 Error(absl::StatusCode::kAborted, Reason::kPoisoned, Text(random, 0, 8)),
                 static_cast<Route>(random() % kRoutes)});
        break;
      case 1:
        frame.messages.push_back(Ready{TransferId(Number(random))});
        break;
      case 2:
      case 3:
        frame.messages.push_back(Done{TransferId(Number(random)), absl::OkStatus(),
                                      static_cast<Route>(random() % kRoutes)});
        break;
      default:
        frame.messages.push_back(RandomOffer(random));
    }
  }
  if (random() % 4 == 0) frame.arenas_gone.push_back(ArenaId(Number(random)));
  return frame;
}

TEST(FrameCodec, BytesAreThoseOfProtocsCodeAndAreReadAsByIt) {
  Random random(11);
  for (int i = 0; i < 5000; ++i) {
    const PeerFrame frame = RandomFrame(random);
    const std::string expected = BytesByProtoc(frame);
    ASSERT_EQ(FrameOf(EncodeFramePacket(1, frame)), expected) << i;
    const absl::StatusOr<PeerFrame> read = DecodeFrame(expected);
    ASSERT_THAT(read, Is("OK")) << i;
    if (frame.events() == 0) continue;  // whose number means nothing
    ASSERT_EQ(BytesByProtoc(*read), expected) << i;
  }
}

// Of what is broken anywhere: the same is refused, and what is not is read alike.
TEST(FrameCodec, BrokenBytesAreJudgedAsByProtocsCode) {
  Random random(12);
  int refused = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string bytes = BytesByProtoc(RandomFrame(random));
    for (uint64_t changes = random() % 3; changes > 0 && !bytes.empty(); --changes) {
      const size_t where = random() % bytes.size();
      switch (random() % 5) {
        case 0:
          bytes.erase(where, 1);
          break;
        case 4:  // one byte as a number of several: the same, or of more than 32 bits
          bytes[where] = static_cast<char>(bytes[where] | 0x80);
          bytes.insert(where + 1,
                       std::string(random() % 4, '\x80') + (random() % 2 ? '\0' : '\x10'));
          break;
        case 1:
          bytes.insert(where, 1, static_cast<char>(random()));
          break;
        case 2:
          bytes.resize(where);
          break;
        default:
          bytes[where] = static_cast<char>(bytes[where] ^ 1 << random() % 8);
      }
    }
    const absl::StatusOr<PeerFrame> expected = ReadByProtoc(bytes);
    const absl::StatusOr<PeerFrame> read = DecodeFrame(bytes);
    ASSERT_EQ(read.ok(), expected.ok()) << i << ": " << read.status() << expected.status();
    if (!read.ok()) {
      EXPECT_THAT(read, Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
      ++refused;
      continue;
    }
    ASSERT_EQ(BytesByProtoc(*read), BytesByProtoc(*expected)) << i;
  }
  EXPECT_GT(refused, 1000);
}

TEST(FrameCodec, PacketsAreThoseOfProtocsCode) {
  Random random(13);
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{300}, ~uint64_t{0}}) {
    const PeerFrame frame = RandomFrame(random);
    peer::v1::PeerSocketRequest proto;
    proto.set_sequence(sequence);
    Encode(frame, proto.mutable_frame());
    const std::string packet = EncodeFramePacket(sequence, frame);
    EXPECT_EQ(packet, proto.SerializeAsString());
    const std::optional<FramePacket> found = FindFrame(packet);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->sequence, sequence);
    EXPECT_FALSE(FindFrame(packet.substr(0, packet.size() - 1)).has_value());
    EXPECT_FALSE(FindFrame(absl::StrCat(packet, "x")).has_value());
  }
}

TEST(FrameCodec, FramesWithAHelloAreProtocs) {
  PeerFrame frame{{{Ready{TransferId(5)}}, {}}};
  frame.first_event = 1;
  frame.hello.emplace();
  const std::string bytes = FrameOf(EncodeFramePacket(1, frame));
  EXPECT_EQ(bytes, BytesByProtoc(frame));
  const absl::StatusOr<PeerFrame> read = DecodeFrame(bytes);
  ASSERT_THAT(read, Is("OK"));
  EXPECT_TRUE(read->hello.has_value());
}

}  // namespace
}  // namespace ferry
