// SPDX-License-Identifier: Apache-2.0
// The driver launches and aborts by whatever transport a device was given for a route: here by the
// example of docs/how-to-add.md, in the place of a route that the test has no library for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/contract/relay_transport.h"
#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using testing::kNodeC;
using testing::PeerRig;

constexpr uint64_t kRelayBytes = 600'000;
constexpr uint64_t kRelayOffer = 9;  // node-c's transfer

class RelayRouteTest : public ::testing::Test {
 protected:
  RelayRouteTest() {
    LocalDevice& device = *rig_.devices.table.Find(GlobalDeviceId(2));
    device.Add({Route::kUcx}, LocalDevice::Serves::kPosted,
               std::make_unique<RelayTransport>(
                   relay_, 0, *device.lane, [this](std::vector<OpResult> results) {
                     rig_.control.Post([this, results = std::move(results)]() mutable {
                       rig_.driver->OnResults(std::move(results));
                     });
                   }));
    stream_ = rig_.NodeCUpElsewhere();
    // The table of the rig knows no route that works: the driver is told of one.
    rig_.driver->OnPeerLost(kNodeC, absl::UnavailableError("the test begins anew"), true);
    RouteTable routes(kRoutes);
    routes[static_cast<size_t>(Route::kUcx)].available = true;
    rig_.driver->OnPeerUp(kNodeC, std::move(routes));
    arena_ = rig_.Register(kRelayBytes);
  }
  // A receive of node-b is matched with a send of node-c, and launched.
  Go Launched() {
    transfer_ = MakeTransferId(rig_.session().id(), rig_.PostReceive(arena_, kRelayBytes, "key"));
    rig_.driver->OnPeerMessages(
        kNodeC, {PeerRig::OfferOfNodeC(kRelayOffer, ArenaId(77), kRelayBytes, "key")});
    rig_.Turn();
    return Said<Go>();
  }
  // The last message of this kind that node-b has said.
  template <typename Message>
  Message Said() {
    for (auto frame = stream_->sent.rbegin(); frame != stream_->sent.rend(); ++frame) {
      for (const PeerMessage& message : frame->messages) {
        if (const auto* said = std::get_if<Message>(&message)) return *said;
      }
    }
    ADD_FAILURE() << "not said";
    return {};
  }
  bool InFlight() { return rig_.driver->engine().view().Find(transfer_).has_value(); }

  RelayTransport::Relay relay_;  // first: it outlives both ends
  PeerRig rig_;
  std::shared_ptr<testing::StreamRecord> stream_;
  ArenaId arena_;
  TransferId transfer_;
};

TEST_F(RelayRouteTest, ATransferIsLaunchedByTheTransportOfItsRoute) {
  const Go go = Launched();
  ASSERT_EQ(go.transfer, TransferId(kRelayOffer));
  EXPECT_EQ(go.route, Route::kUcx);
  EXPECT_TRUE(InFlight());

  std::vector<std::byte> bytes(kRelayBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  Lane lane("node-c", absl::ZeroDuration());
  absl::Notification sent;
  RelayTransport theirs(relay_, 1, lane, [&](const std::vector<OpResult>& results) {
    EXPECT_TRUE(results[0].status.ok()) << results[0].status;
    sent.Notify();
  });
  TransportOp op;
  op.transfer = go.transfer;
  op.attempt = go.attempt;
  op.role = LaunchRole::kSend;
  op.tag = go.tag;
  op.layout = Layout{{ArenaId(77), 0, kRelayBytes}};
  op.extents = {bytes.data()};
  std::vector<TransportOp> ops;
  ops.push_back(std::move(op));
  lane.RunAndWait([&] { theirs.Launch(std::move(ops)); });
  sent.WaitForNotification();
  rig_.Turn();

  EXPECT_FALSE(InFlight());
  EXPECT_TRUE(Said<Done>().status.ok());
  EXPECT_EQ(Said<Done>().route, Route::kUcx);
  EXPECT_EQ(memcmp(rig_.sessions->FindArena(arena_)->mapping->data(), bytes.data(), kRelayBytes),
            0);
}

TEST_F(RelayRouteTest, ALaunchIsAbortedByTheTransportThatHasIt) {
  const Go go = Launched();
  rig_.driver->OnPeerMessages(
      kNodeC, {SendFailed{go.transfer, go.attempt,
                          Error(absl::StatusCode::kAborted, Reason::kCommAborted, "a test")}});
  rig_.Turn();
  EXPECT_FALSE(InFlight());
  EXPECT_FALSE(Said<Done>().status.ok());
}

}  // namespace
}  // namespace ferry
