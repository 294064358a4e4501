// SPDX-License-Identifier: Apache-2.0
// What AdminService.GetActivity and the metrics say of what moved, on every route.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/grpc_channel.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

class ActivityTest : public RouteTest {
 protected:
  admin::v1::GetActivityResponse Activity(size_t i, uint32_t limit = 0) {
    grpc::ClientContext context;
    SetDeadline(context);
    admin::v1::GetActivityRequest request;
    request.set_limit(limit);
    admin::v1::GetActivityResponse response;
    const grpc::Status status =
        node(i).admin().stubs().admin->GetActivity(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  static admin::v1::Moved OfDevice(const admin::v1::GetActivityResponse& activity, uint64_t id) {
    for (const auto& row : activity.devices()) {
      if (row.device().global_device_id() == id) return row.moved();
    }
    ADD_FAILURE() << "no device " << id << " in " << activity.DebugString();
    return {};
  }
  admin::v1::Moved OfRoute(const admin::v1::GetActivityResponse& activity) {
    for (const auto& row : activity.routes()) {
      if (static_cast<int>(row.route()) == GetParam().route) return row.moved();
    }
    ADD_FAILURE() << "no such route in " << activity.DebugString();
    return {};
  }
  static admin::v1::Moved OfSession(const admin::v1::GetActivityResponse& activity,
                                    const std::string& name) {
    for (const auto& row : activity.sessions()) {
      if (row.name() == name) return row.moved();
    }
    ADD_FAILURE() << "no session " << name << " in " << activity.DebugString();
    return {};
  }
  admin::v1::GetActivityResponse AtSource() { return Activity(source_node()); }
  admin::v1::GetActivityResponse AtDestination() { return Activity(destination_node()); }
  // Once both ends have counted so much; the daemons hear of a firing's end after their clients.
  void AwaitMoved(uint64_t bytes, uint64_t transfers) {
    EXPECT_TRUE(Await([&] {
      const auto sent = OfDevice(AtSource(), source_device());
      const auto received = OfDevice(AtDestination(), destination_device());
      return sent.sent_bytes() == bytes && received.received_bytes() == bytes &&
             sent.sent() == transfers && received.received() == transfers;
    })) << AtSource().DebugString()
        << AtDestination().DebugString();
  }
};
INSTANTIATE_ALL_ROUTES(ActivityTest);

TEST_P(ActivityTest, WhatMovedIsCountedForAllItConcerns) {
  StartForRoute();
  End source = OpenSource(10'000), destination = OpenDestination(10'000);
  for (int i = 0; i < 3; ++i) {
    ExpectTransfer(source, destination, absl::StrCat("k", i), options());
  }
  AwaitMoved(30'000, 3);
  EXPECT_EQ(OfRoute(AtSource()).sent_bytes(), 30'000u);
  EXPECT_EQ(OfRoute(AtDestination()).received_bytes(), 30'000u);
  EXPECT_EQ(OfSession(AtSource(), "source").sent_bytes(), 30'000u);
  EXPECT_EQ(OfSession(AtSource(), "source").received_bytes(), 0u);
  EXPECT_EQ(OfSession(AtDestination(), "destination").received(), 3u);
  EXPECT_EQ(OfDevice(AtSource(), source_device()).failed(), 0u);
  if (GetParam().one_node) return;
  ASSERT_EQ(AtSource().peers_size(), 1);
  EXPECT_EQ(AtSource().peers(0).peer().node(), "node-b");
  EXPECT_EQ(AtSource().peers(0).moved().sent_bytes(), 30'000u);
  EXPECT_EQ(AtDestination().peers(0).moved().received_bytes(), 30'000u);
  EXPECT_EQ(AtDestination().peers(0).moved().sent_bytes(), 0u);
}

TEST_P(ActivityTest, EveryFiringCountsWhileItsBatchLivesAndAfterwards) {
  StartForRoute();
  End source = OpenSource(4096), destination = OpenDestination(4096);
  Prepared receive = Must(destination.session.PrepareReceive(
      destination.device, {Transfer(source.device, "k", {destination.arena.All()})}, options()));
  Prepared send = Must(source.session.PrepareSend(
      source.device, {Transfer(destination.device, "k", {source.arena.All()})}, options()));
  for (int i = 0; i < 7; ++i) {
    ASSERT_THAT(receive.Fire(), IsOk());
    ASSERT_THAT(send.Fire(), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
  }
  const auto expect_counted = [&] {
    AwaitMoved(7 * 4096, 7);
    EXPECT_EQ(OfRoute(AtSource()).sent_bytes(), 7u * 4096);
    EXPECT_EQ(OfSession(AtDestination(), "destination").received_bytes(), 7u * 4096);
    EXPECT_THAT(HttpGet(node(destination_node()).runtime_dir() + "/admin/metrics.sock", "/metrics"),
                HasSubstr(absl::StrCat("ferry_prepared_bytes_total{route=\"",
                                       GetParam().one_node                      ? "local"
                                       : GetParam().route == FERRY_ROUTE_MAPPED ? "mapped"
                                       : GetParam().route == FERRY_ROUTE_TCP    ? "tcp"
                                                                                : "ucx",
                                       "\",direction=\"recv\"} ", 7 * 4096, "\n")));
  };
  expect_counted();
  EXPECT_EQ(AtSource().transfers_size(), 0) << "what waits to be fired is not what is slow";
  send = Prepared();
  receive = Prepared();
  ASSERT_TRUE(Await([&] {
    return AtSource().transfers_in_flight() == 0 && AtDestination().transfers_in_flight() == 0;
  }));
  expect_counted();
}

TEST_P(ActivityTest, FailuresCountAndTheOldestAreListed) {
  StartForRoute();
  End source = OpenSource(4096), destination = OpenDestination(4096);
  Batch first = Send(source, destination, "first", {source.arena.All()}, options());
  Batch second = Send(source, destination, "second", {source.arena.All()}, options());
  ASSERT_TRUE(Await([&] { return AtSource().transfers_size() == 2; }));
  const auto one = Activity(source_node(), 1);
  ASSERT_EQ(one.transfers_size(), 1);
  EXPECT_EQ(one.transfers(0).key(), "'first'");
  EXPECT_EQ(one.transfers_in_flight(), 2u);
  ASSERT_THAT(first.Cancel(), IsOk());
  ASSERT_THAT(second.Cancel(), IsOk());
  EXPECT_TRUE(Await([&] {
    return OfDevice(AtSource(), source_device()).failed() == 2 &&
           OfSession(AtSource(), "source").failed() == 2;
  }));
  const auto activity = AtSource();
  ASSERT_GT(activity.routes_size(), 0);
  EXPECT_EQ(activity.routes(0).route(), v1::ROUTE_UNSPECIFIED) << "no route was launched";
  EXPECT_EQ(activity.routes(0).moved().failed(), 2u);
}

class LostLinkTest : public ActivityTest {};
INSTANTIATE_ROUTES(LostLinkTest, kTcpRoute);

TEST_P(LostLinkTest, ALostLinkIsCountedByItsPeer) {
  StartForRoute();
  const auto metric = [&] {
    return HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics");
  };
  EXPECT_THAT(metric(), HasSubstr("ferry_peer_links_lost_total{peer=\"node-b\"} 0\n"));
  {
    End source = OpenSource(4096), destination = OpenDestination(4096);
    ExpectTransfer(source, destination, "k", options());
  }
  node(1).Stop();
  ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") != "up"; }));
  EXPECT_THAT(metric(), HasSubstr("ferry_peer_links_lost_total{peer=\"node-b\"} 1\n"));
  EXPECT_EQ(Activity(0).peers(0).links_lost(), 1u);
  ASSERT_TRUE(node(1).Start());
}

}  // namespace
}  // namespace ferry::testing
