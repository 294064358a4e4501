// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/message_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ferry/admin/v1/admin.pb.h"

namespace ferry::tools {
namespace {

using ::testing::HasSubstr;

TEST(MessageJsonTest, NumbersAreNumbers) {
  admin::v1::GetStatusResponse status;
  status.set_incarnation(0xabcdef0123456789);
  status.set_sessions(std::numeric_limits<uint64_t>::max());
  status.set_transfers_ok(1234567890123);
  status.mutable_uptime()->set_seconds(61);
  status.set_node("17");
  admin::v1::Peer* const peer = status.add_peers();
  peer->set_incarnation(1);
  peer->add_global_device_ids(5);
  const std::string json = MessageJson(status);
  EXPECT_THAT(json, HasSubstr("\"sessions\":18446744073709551615,"));
  EXPECT_THAT(json, HasSubstr("\"transfers_ok\":1234567890123,"));
  EXPECT_THAT(json, HasSubstr("\"global_device_ids\":[5]"));
  EXPECT_THAT(json, HasSubstr("\"incarnation\":\"abcdef0123456789\""));
  EXPECT_THAT(json, HasSubstr("\"incarnation\":\"0000000000000001\""));
  EXPECT_THAT(json, HasSubstr("\"uptime\":\"61s\""));
  EXPECT_THAT(json, HasSubstr("\"node\":\"17\""));
  admin::v1::GetStatusResponse again;
  ASSERT_TRUE(FromMessageJson(json, &again, "status").ok());
  EXPECT_EQ(again.SerializeAsString(), status.SerializeAsString());
  // As earlier versions wrote them.
  ASSERT_TRUE(FromMessageJson(R"({"sessions": "12"})", &again, "status").ok());
  EXPECT_EQ(again.sessions(), 12u);
}

TEST(MessageJsonTest, FingerprintsAreHexadecimalWhateverTheirType) {
  admin::v1::ListTransfersResponse transfers;
  transfers.add_transfers()->set_fingerprint("0123456789abcdef");  // a text already
  EXPECT_THAT(MessageJson(transfers), HasSubstr("\"fingerprint\":\"0123456789abcdef\""));
  admin::v1::ListJobsResponse jobs;
  jobs.add_jobs()->set_fingerprint(std::string("\x01\xff", 2));
  EXPECT_THAT(MessageJson(jobs), HasSubstr("\"fingerprint\":\"01ff\""));
  admin::v1::ListJobsResponse again;
  ASSERT_TRUE(FromMessageJson(MessageJson(jobs), &again, "jobs").ok());
  EXPECT_EQ(again.jobs(0).fingerprint(), jobs.jobs(0).fingerprint());
}

TEST(MessageJsonTest, WhatIsNotKnownIsNull) {
  admin::v1::ListTransfersResponse transfers;
  transfers.add_transfers();
  transfers.add_transfers()->set_route(v1::ROUTE_TCP);
  const std::string json = MessageJson(transfers);
  EXPECT_THAT(json, HasSubstr("\"route\":null"));
  EXPECT_THAT(json, HasSubstr("\"route\":\"ROUTE_TCP\""));
  admin::v1::ListTransfersResponse again;
  ASSERT_TRUE(FromMessageJson(json, &again, "transfers").ok());
  EXPECT_EQ(again.SerializeAsString(), transfers.SerializeAsString());
}

}  // namespace
}  // namespace ferry::tools
