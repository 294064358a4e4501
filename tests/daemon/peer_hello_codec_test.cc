// SPDX-License-Identifier: Apache-2.0
// What daemons say of themselves, as it goes over the wire, and its bounds.
#include <functional>
#include <string>
#include <utility>

#include "daemon/rpc/peer_codec.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What arrives when `frame` goes over the wire.
absl::StatusOr<PeerFrame> SayOverTheWire(const PeerFrame& frame) {
  peer::v1::Frame sent;
  Encode(frame, &sent);
  peer::v1::Frame received;
  EXPECT_TRUE(received.ParseFromString(sent.SerializeAsString()));
  return Decode(received);
}

PeerHello SomeHello() {
  PeerHello hello;
  hello.protocol = {1, 3};
  hello.node = "node-b";
  hello.incarnation = Incarnation(~uint64_t{0});
  hello.boot_id = "boot";
  hello.uid = 1000;
  hello.peer_socket = "/run/ferry/peer/peer.sock";
  hello.nonce = std::string(30, 'n') + std::string("\0\xff", 2);
  hello.devices = {{GlobalDeviceId(2), {{"net", std::string("\0\1", 2)}, {"shm", "x"}}},
                   {GlobalDeviceId(3), {}, true, "", std::string(16, 'u'), "gpu0", 16}};
  hello.ucx_version = "1.22";
  hello.nccl_version = "2.28.9";
  hello.daemon_version = "0.1";
  hello.tcp = true;
  return hello;
}

TEST(PeerHelloCodec, AddressesThatHaveChangedArriveAsTheyWereSent) {
  PeerFrame before;
  before.moved = {{GlobalDeviceId(2), {{"net", std::string("\0\1", 2), {{GlobalDeviceId(7), 3}}}}},
                  {GlobalDeviceId(3), {}}};
  EXPECT_FALSE(before.empty());
  EXPECT_FALSE(Follows(before, peer::v1::Frame()));
  const absl::StatusOr<PeerFrame> frame = SayOverTheWire(before);
  ASSERT_THAT(frame, Is("OK"));
  ASSERT_THAT(frame->moved, SizeIs(2));
  EXPECT_EQ(frame->moved[0].id, GlobalDeviceId(2));
  ASSERT_THAT(frame->moved[0].ucx_addresses, SizeIs(1));
  EXPECT_EQ(frame->moved[0].ucx_addresses[0].address, std::string("\0\1", 2));
  EXPECT_THAT(frame->moved[0].ucx_addresses[0].closings,
              ElementsAre(std::pair(GlobalDeviceId(7), uint64_t{3})));
  EXPECT_THAT(frame->moved[1].ucx_addresses, IsEmpty());
  EXPECT_FALSE(frame->hello.has_value());
}

TEST(PeerHelloCodec, AHelloArrivesAsItWasSent) {
  const PeerHello before = SomeHello();
  const absl::StatusOr<PeerFrame> frame = SayOverTheWire({{}, before});
  ASSERT_THAT(frame, Is("OK"));
  ASSERT_TRUE(frame->hello.has_value());
  const PeerHello& after = *frame->hello;
  EXPECT_TRUE(after.tcp);
  ASSERT_THAT(after.devices, SizeIs(2));
  EXPECT_EQ(after.devices[0].id, GlobalDeviceId(2));
  ASSERT_THAT(after.devices[0].ucx_addresses, SizeIs(2));
  EXPECT_EQ(after.devices[0].ucx_addresses[0].kind, "net");
  EXPECT_EQ(after.devices[0].ucx_addresses[0].address, std::string("\0\1", 2));
  EXPECT_EQ(after.devices[0].ucx_addresses[1].kind, "shm");
  EXPECT_THAT(after.devices[1].ucx_addresses, IsEmpty());
  EXPECT_TRUE(after.devices[1].gpu && !after.devices[0].gpu);
  EXPECT_EQ(after.devices[1].uuid, std::string(16, 'u'));
  EXPECT_EQ(after.devices[1].name, "gpu0");
  EXPECT_EQ(after.devices[1].max_ctas, 16);
  EXPECT_EQ(after.devices[0].max_ctas, 0);
  EXPECT_EQ(after.ucx_version, before.ucx_version);
  EXPECT_EQ(after.nccl_version, before.nccl_version);
  EXPECT_EQ(after.daemon_version, before.daemon_version);
}

TEST(PeerHelloCodec, AnIntroductionArrivesAsItWasSent) {
  const PeerIntroduction before = SomeHello();
  PeerFrame sent;
  sent.introduction = before;
  sent.proof = std::string(31, 'p') + std::string("\0", 1);
  const absl::StatusOr<PeerFrame> frame = SayOverTheWire(sent);
  ASSERT_THAT(frame, Is("OK"));
  ASSERT_TRUE(frame->introduction.has_value());
  EXPECT_FALSE(frame->hello.has_value());
  const PeerIntroduction& after = *frame->introduction;
  EXPECT_EQ(after.protocol.oldest, before.protocol.oldest);
  EXPECT_EQ(after.protocol.newest, before.protocol.newest);
  EXPECT_EQ(after.node, before.node);
  EXPECT_EQ(after.incarnation, before.incarnation);
  EXPECT_EQ(after.boot_id, before.boot_id);
  EXPECT_EQ(after.uid, before.uid);
  EXPECT_EQ(after.peer_socket, before.peer_socket);
  EXPECT_EQ(after.nonce, before.nonce);
  EXPECT_EQ(after.in_reverse, before.in_reverse);
  EXPECT_EQ(after.visiting, before.visiting);
  EXPECT_EQ(frame->proof, sent.proof);
}

TEST(PeerHelloCodec, WhatADaemonSaysOfItselfHasBounds) {
  const std::string long_text(257, 'x');
  const std::function<void(PeerIntroduction&)> introductions[] = {
      [](PeerIntroduction& one) { one.nonce.pop_back(); },
      [](PeerIntroduction& one) { one.nonce += 'n'; },
      [](PeerIntroduction& one) { one.nonce.clear(); },
      [&](PeerIntroduction& one) { one.node = long_text; },
      [&](PeerIntroduction& one) { one.boot_id = long_text; },
      [&](PeerIntroduction& one) { one.peer_socket = long_text; },
  };
  for (const auto& edit : introductions) {
    PeerFrame frame;
    frame.introduction = SomeHello();
    EXPECT_THAT(SayOverTheWire(frame), Is("OK"));
    edit(*frame.introduction);
    EXPECT_THAT(SayOverTheWire(frame), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "introduction"));
  }
  const std::function<void(PeerHello&)> hellos[] = {
      [&](PeerHello& hello) { hello.daemon_version = long_text; },
      [&](PeerHello& hello) { hello.ucx_version = long_text; },
      [&](PeerHello& hello) { hello.nccl_version = long_text; },
      [&](PeerHello& hello) { hello.devices[0].name = long_text; },
      [&](PeerHello& hello) { hello.devices[0].ucx_way = long_text; },
      [&](PeerHello& hello) { hello.devices[0].uuid = std::string(17, 'u'); },
      [&](PeerHello& hello) { hello.devices[0].ucx_addresses.resize(9); },
      [&](PeerHello& hello) { hello.devices[0].ucx_addresses[0].kind = long_text; },
      [](PeerHello& hello) {
        hello.devices[0].ucx_addresses[0].address = std::string((64 << 10) + 1, 'a');
      },
      [](PeerHello& hello) { hello.devices.resize(65'537); },
  };
  for (const auto& edit : hellos) {
    PeerHello hello = SomeHello();
    edit(hello);
    EXPECT_THAT(SayOverTheWire({{}, hello}),
                Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "out of bounds"));
  }
  PeerFrame frame;
  frame.proof = std::string(33, 'p');
  EXPECT_THAT(SayOverTheWire(frame), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "proof"));
}

}  // namespace
}  // namespace ferry
