// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/top_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ferry::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `seconds` after its start, two devices, one route, one peer, one session.
Activity ActivityAt(int seconds, uint64_t received, uint64_t sent) {
  Activity activity;
  activity.set_node("node-a");
  activity.set_incarnation(7);
  activity.mutable_uptime()->set_seconds(seconds);
  for (const uint64_t id : {10, 2}) {
    auto* device = activity.add_devices();
    device->mutable_device()->set_global_device_id(id);
    device->mutable_device()->set_kind(ferry::v1::Device::KIND_HOST);
    device->mutable_device()->set_name("host");
    device->mutable_moved()->set_received_bytes(id == 2 ? received : 0);
    device->mutable_moved()->set_sent_bytes(id == 2 ? sent : 0);
    device->mutable_moved()->set_received(received / 1000);
    device->mutable_lane_cpu()->set_nanos(id == 2 ? seconds * 1'000'000 : 0);
  }
  auto* route = activity.add_routes();
  route->set_route(ferry::v1::ROUTE_TCP);
  route->mutable_moved()->set_received_bytes(received);
  auto* session = activity.add_sessions();
  session->set_session_id(3);
  session->set_name("trainer");
  session->mutable_moved()->set_sent_bytes(sent);
  return activity;
}

DaemonSample SampleOf(Activity before, Activity now) {
  DaemonSample sample;
  sample.runtime_dir = "/run/ferry";
  sample.node = now.node();
  sample.before = std::move(before);
  sample.now = std::move(now);
  return sample;
}

const TopTable& Table(const std::vector<TopTable>& tables, TopPart part) {
  return tables[static_cast<size_t>(part)];
}

// What a table shows in the column of this title.
std::vector<std::string> Column(const TopTable& table, const std::string& title) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].title != title) continue;
    std::vector<std::string> texts;
    for (const auto& row : table.rows) texts.push_back(row[c].text);
    return texts;
  }
  return {"no such column"};
}

TEST(TopTablesTest, RatesAreTheDifferenceOfTwoAnswers) {
  const auto tables = TopTables(
      {SampleOf(ActivityAt(10, 5'000'000'000, 0), ActivityAt(12, 8'000'000'000, 500'000'000))});
  const TopTable& devices = Table(tables, TopPart::kDevices);
  EXPECT_THAT(Column(devices, "DEVICE"), ElementsAre("2", "10")) << "as numbers";
  EXPECT_THAT(Column(devices, "IN GB/S"), ElementsAre("1.500", "0"));
  EXPECT_THAT(Column(devices, "OUT GB/S"), ElementsAre("0.250", "0"));
  EXPECT_THAT(Column(devices, "LANE CPU"), ElementsAre("0 %", "0 %")) << "2 ms in 2 s";
  EXPECT_THAT(Column(Table(tables, TopPart::kRoutes), "ROUTE"), ElementsAre("tcp"));
  EXPECT_THAT(Column(Table(tables, TopPart::kRoutes), "IN GB/S"), ElementsAre("1.500"));
  EXPECT_THAT(Column(Table(tables, TopPart::kSessions), "OUT GB/S"), ElementsAre("0.250"));
  EXPECT_THAT(Column(Table(tables, TopPart::kDaemons), "IN GB/S"), ElementsAre("1.500"));
  EXPECT_THAT(Column(Table(tables, TopPart::kDaemons), "STATE"), ElementsAre("serving"));
}

TEST(TopTablesTest, WithoutAnAnswerBeforeThereAreNoRates) {
  DaemonSample sample = SampleOf(Activity(), ActivityAt(10, 5000, 5000));
  sample.before.reset();
  const auto tables = TopTables({sample});
  EXPECT_THAT(Column(Table(tables, TopPart::kDevices), "IN GB/S"), ElementsAre("-", "-"));
  const auto json = nlohmann::json::parse(TopJson(tables));
  EXPECT_FALSE(json["devices"][0].contains("received_bytes_per_second"));
  EXPECT_EQ(json["devices"][0]["device"], 2);
}

TEST(TopTablesTest, WhatIsNewHasBegunAtNothing) {
  Activity before = ActivityAt(10, 0, 0);
  before.clear_sessions();
  const auto tables = TopTables({SampleOf(before, ActivityAt(11, 0, 3'000'000'000))});
  EXPECT_THAT(Column(Table(tables, TopPart::kSessions), "OUT GB/S"), ElementsAre("3.000"));
}

TEST(TopTablesTest, OfSeveralDaemonsEachRowSaysWhose) {
  DaemonSample other = SampleOf(ActivityAt(1, 0, 0), ActivityAt(2, 0, 0));
  other.node = "node-b";
  const auto tables = TopTables({SampleOf(ActivityAt(1, 0, 0), ActivityAt(2, 9, 9)), other});
  EXPECT_THAT(Column(Table(tables, TopPart::kDevices), "NODE"),
              ElementsAre("node-a", "node-b", "node-a", "node-b"));
  EXPECT_THAT(Column(Table(tables, TopPart::kDevices), "DEVICE"),
              ElementsAre("2", "2", "10", "10"));
  EXPECT_THAT(Column(Table(TopTables({other}), TopPart::kDevices), "NODE"),
              ElementsAre("no such column"));
}

TEST(TopTablesTest, ADaemonThatIsGoneHasARowAndNothingElse) {
  DaemonSample gone;
  gone.runtime_dir = "/run/ferry";
  gone.node = "node-b";
  gone.trouble = "no daemon listens there";
  gone.unheard = absl::Seconds(12);
  auto tables = TopTables({SampleOf(ActivityAt(1, 0, 0), ActivityAt(2, 9, 9)), gone});
  EXPECT_THAT(Column(Table(tables, TopPart::kDaemons), "STATE"),
              ElementsAre("serving", "gone for 12 s: no daemon listens there"));
  EXPECT_THAT(Column(Table(tables, TopPart::kDevices), "NODE"), ElementsAre("node-a", "node-a"));
  gone.trouble.clear();
  tables = TopTables({gone});
  EXPECT_THAT(Column(Table(tables, TopPart::kDaemons), "STATE"), ElementsAre("no answer for 12 s"));
}

TEST(TopTablesTest, AnotherLifeIsSaid) {
  DaemonSample sample = SampleOf(ActivityAt(1, 0, 0), ActivityAt(2, 0, 0));
  sample.begun_anew = true;
  sample.now->set_draining(true);
  EXPECT_THAT(Column(Table(TopTables({sample}), TopPart::kDaemons), "STATE"),
              ElementsAre("draining, began anew 2 s ago"));
}

TEST(TopTablesTest, ASilentLaneIsSaid) {
  DaemonSample sample = SampleOf(ActivityAt(1, 0, 0), ActivityAt(2, 0, 0));
  sample.now->mutable_devices(0)->mutable_lane_silent()->set_seconds(4);
  sample.now->mutable_devices(1)->mutable_lane_silent()->set_nanos(1000);
  EXPECT_THAT(Column(Table(TopTables({sample}), TopPart::kDevices), "LANE"),
              ElementsAre("goes on", "silent for 4 s"));
}

TEST(TopTablesTest, TheOldestTransfersAreFirst) {
  DaemonSample sample = SampleOf(ActivityAt(1, 0, 0), ActivityAt(2, 0, 0));
  for (const int age : {5, 100, 30}) {
    auto* transfer = sample.now->add_transfers();
    transfer->set_session_id(1);
    transfer->set_transfer_id(static_cast<uint64_t>(age));
    transfer->mutable_age()->set_seconds(age);
  }
  EXPECT_THAT(Column(Table(TopTables({sample}), TopPart::kTransfers), "ID"),
              ElementsAre("1/100", "1/30", "1/5"));
}

TEST(TopTablesTest, JsonHasNumbersThatAreNotRounded) {
  const std::string json =
      TopJson(TopTables({SampleOf(ActivityAt(0, 0, 0), ActivityAt(3, 1'000'000'000, 0))}));
  EXPECT_EQ(json.find('\n'), json.npos);
  const auto parsed = nlohmann::json::parse(json);
  EXPECT_DOUBLE_EQ(parsed["routes"][0]["received_bytes_per_second"], 1e9 / 3);
  EXPECT_EQ(parsed["sessions"][0]["name"], "trainer");
  EXPECT_THAT(json, HasSubstr("\"session\":3,"));
}

}  // namespace
}  // namespace ferry::tools
