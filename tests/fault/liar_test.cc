// SPDX-License-Identifier: Apache-2.0
// A peer that has the secret, and lies: it moves what is its own, and harms nobody else.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/lying_peer.h"
#include "tests/support/raw_socket.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry::testing {
namespace {

constexpr uint64_t kLiarBytes = 4096;
constexpr char kLiarDomain[] = "a job's secret name";

class LiarTest : public ClusterTest {
 protected:
  // As node-a, whose daemon is down, to node-b.
  void StartWithLiar(const peer::v1::PeerHello& hello = HelloOf({0, 1}),
                     const std::string& transfer = "") {
    ClusterOptions options;
    options.secret = true;
    options.transfer = transfer;
    Start(options);
    node(0).Kill();
    liar_ = std::make_unique<LyingCaller>(absl::StrCat("127.0.0.1:", nodes().port(1)));
    peer::v1::PeerIntroduction introduction = IntroductionOf("node-a");
    introduction.set_boot_id("another host");
    ASSERT_TRUE(liar_->Prove(introduction, Cluster::kSecret, hello));
    ASSERT_TRUE(nodes().AwaitLink(1, 0));
  }
  void SayGo(uint64_t transfer, v1::Route route) {
    peer::v1::PeerEvent go;
    go.set_transfer(transfer);
    go.mutable_go()->set_attempt(1);
    go.mutable_go()->set_route(route);
    go.mutable_go()->set_tag(5);
    Say(go);
  }
  void Say(const peer::v1::PeerEvent& event) {
    peer::v1::Frame frame;
    frame.set_first_event(next_event_++);
    *frame.add_events() = event;
    ASSERT_TRUE(liar_->Say(frame));
  }
  // The next offer that node-b makes.
  std::optional<peer::v1::PeerEvent> HearOffer() {
    while (const std::optional<peer::v1::Frame> frame = liar_->Hear()) {
      for (const peer::v1::PeerEvent& event : frame->events()) {
        if (event.has_offer()) return event;
      }
    }
    return std::nullopt;
  }
  // node-b has heard all that was said: it answers a withdrawal of what it does not know by
  // nothing, but an offer of a device that is not its own at once.
  void AwaitHeard() {
    peer::v1::PeerEvent event;
    event.set_transfer(4711);
    event.mutable_offer()->set_key("k");
    event.mutable_offer()->set_dst_global_device_id(99);
    Say(event);
    while (const std::optional<peer::v1::Frame> frame = liar_->Hear()) {
      for (const peer::v1::PeerEvent& heard : frame->events()) {
        if (heard.has_done() && heard.transfer() == 4711) return;
      }
    }
    FAIL() << "the daemon has ended the link";
  }

  static PostOptions OfTheJob() {
    PostOptions options;
    options.domain = kLiarDomain;
    return options;
  }

  std::unique_ptr<LyingCaller> liar_;
  uint64_t next_event_ = 1;
};

TEST_F(LiarTest, ToldToGoByNcclADaemonWithoutItDoesNot) {
  StartWithLiar();
  End end = OpenEnd(1, kLiarBytes);
  Prepared prepared = Must(
      end.session.PrepareSend(2, {Transfer(0, "k", {end.arena.Range(0, kLiarBytes)})}, OfTheJob()));
  const std::optional<peer::v1::PeerEvent> offer = HearOffer();
  ASSERT_TRUE(offer.has_value());
  EXPECT_EQ(offer->offer().domain().size(), 15u);
  EXPECT_EQ(offer->SerializeAsString().find(kLiarDomain), std::string::npos) << "it never travels";
  for (const v1::Route route : {v1::ROUTE_NCCL, v1::ROUTE_UCX, v1::ROUTE_LOCAL}) {
    SayGo(offer->transfer(), route);
  }
  for (const uint64_t high : {2, 3}) {
    peer::v1::GroupName name;
    name.mutable_clique()->set_low_device_id(0);
    name.mutable_clique()->set_high_device_id(high);
    peer::v1::PeerEvent open, group, over, warm;
    *open.mutable_open_comm()->mutable_name() = name;
    open.mutable_open_comm()->set_unique_id("unique");
    *group.mutable_group()->mutable_name() = name;
    group.mutable_group()->add_chunks()->set_transfer(offer->transfer());
    *over.mutable_attempt_over()->mutable_name() = name;
    *warm.mutable_warm_comm()->mutable_name() = name;
    for (const auto& event : {open, group, over, warm}) Say(event);
  }
  AwaitHeard();
  EXPECT_TRUE(node(1).running());
  liar_.reset();
  EXPECT_THAT(prepared.Wait(uint64_t{1}), Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

// What the daemon at `port` answers to who begins a data connection so; nothing if it closes it.
std::string AnswerTo(const std::string& preamble, int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(port));
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_EQ(send(fd.get(), preamble.data(), preamble.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(preamble.size()));
  std::string answer(kHmacBytes, '\0');
  const ssize_t got = recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL);
  answer.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return answer;
}

// To one that knows the key of the link, and only for devices of the two ends.
TEST_F(LiarTest, DataConnectionsAreForWhoKnowsTheKeyOfTheLink) {
  peer::v1::PeerHello hello = HelloOf({0, 1});
  hello.set_tcp(true);
  StartWithLiar(hello);
  const std::string& key = liar_->key();
  TcpPreamble preamble;
  preamble.link_id = TcpLinkId(key);
  preamble.from = GlobalDeviceId(0);
  preamble.to = GlobalDeviceId(2);
  preamble.serial = 1;
  preamble.count = 2;
  const std::string good = EncodeTcpPreamble(preamble, key);
  const int port = nodes().port(1);
  EXPECT_EQ(AnswerTo(EncodeTcpPreamble(preamble, "a guess"), port), "");
  EXPECT_EQ(AnswerTo(good.substr(0, good.size() - 1) + static_cast<char>(good.back() ^ 1), port),
            "");
  std::string another = good;
  another[another.size() - kHmacBytes - 1] ^= 1;  // what was proven is not what is said
  EXPECT_EQ(AnswerTo(another, port), "");
  EXPECT_EQ(AnswerTo(std::string(kTcpPreambleBytes, 'F'), port), "");
  TcpPreamble wrong = preamble;
  wrong.to = GlobalDeviceId(1);  // not node-b's
  EXPECT_EQ(AnswerTo(EncodeTcpPreamble(wrong, key), port), "");
  wrong = preamble;
  wrong.from = GlobalDeviceId(3);  // not node-a's
  EXPECT_EQ(AnswerTo(EncodeTcpPreamble(wrong, key), port), "");
  EXPECT_EQ(AnswerTo(good, port), TcpAnswer(good, key));
  AwaitHeard();
  liar_.reset();
  ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") != "up"; }));
  EXPECT_EQ(AnswerTo(good, port), "") << "the link is over";
}

// UCX ends its process for most addresses that it has not made.
peer::v1::PeerDevice DeviceAtNoAddress(uint64_t id) {
  peer::v1::PeerDevice device;
  device.set_global_device_id(id);
  for (const char* kind : {"net", "shm"}) {
    for (const std::string& address : {std::string(200, '\xff'), std::string(1, '\0')}) {
      peer::v1::UcxAddress* const there = device.add_ucx_addresses();
      there->set_kind(kind);
      there->set_address(address);
    }
  }
  return device;
}

class LiarsUcxTest : public LiarTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(, LiarsUcxTest, ::testing::Values("", "0.1.0"), [](const auto& info) {
  return *info.param == 0 ? "WithoutAVersion" : "OfAnotherVersion";
});

TEST_P(LiarsUcxTest, ItsAddressesAreNotGivenToOurs) {
  peer::v1::PeerHello hello = HelloOf({});
  hello.set_ucx_version(GetParam());
  for (const uint64_t id : {0, 1}) *hello.add_devices() = DeviceAtNoAddress(id);
  StartWithLiar(hello, kUcxTcpRoute.transfer);
  End end = OpenEnd(1, kLiarBytes);
  for (const bool moved : {false, true}) {
    peer::v1::Frame frame;
    if (moved) {
      for (const uint64_t id : {0, 1}) *frame.add_moved() = DeviceAtNoAddress(id);
      ASSERT_TRUE(liar_->Say(frame));
    }
    AwaitHeard();
    const admin::v1::ExplainRouteResponse explained = node(1).admin().Explain(2, 0);
    for (const admin::v1::RouteOption& option : explained.options()) {
      EXPECT_FALSE(option.route() == v1::ROUTE_UCX && option.available());
    }
    Batch send = Must(end.session.Send(
        2, {Transfer(0, moved ? "moved" : "k", {end.arena.Range(0, kLiarBytes)})}, OfTheJob()));
    const std::optional<peer::v1::PeerEvent> offer = HearOffer();
    ASSERT_TRUE(offer.has_value());
    SayGo(offer->transfer(), v1::ROUTE_UCX);
    AwaitHeard();
    ASSERT_TRUE(node(1).running());
    EXPECT_THAT(send.Cancel(), IsOk());
  }
  liar_.reset();
}

}  // namespace
}  // namespace ferry::testing
