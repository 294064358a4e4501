// SPDX-License-Identifier: Apache-2.0
// Limits of sessions that change while there are some.
#include <variant>

#include "daemon/fullest.h"
#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using testing::Is;
using testing::SessionTableRig;

TEST(SessionLimits, OtherLimitsHoldForWhoAttachesNext) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  SessionTableRig rig(options);
  const Session* const before = rig.Open(1);
  const uint64_t bytes = before->limits().quota.bytes;
  options.sessions = 2;
  options.quota.bytes = bytes / 2;
  options.node = "somebody else";
  rig.table.SetLimits(options);
  EXPECT_EQ(before->limits().quota.bytes, bytes);
  const Session* const after = rig.Open(2);
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(after->limits().quota.bytes, bytes / 2);
  EXPECT_EQ(std::get<AttachWelcome>(rig.sent.back().reply.body).node, "node-a")
      << "who the daemon is stays";
  rig.table.OnConnected(3, {});
  EXPECT_THAT(rig.Command(3, rig.Hello()).error,
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "2 of 2 sessions are open"));
  options.sessions = 3;
  rig.table.SetLimits(options);
  EXPECT_NE(rig.Open(4), nullptr);
}

TEST(SessionLimits, WhatAUidKeepsIsBoundedAnewForSessionsThatAreThere) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.uid_kept_bytes = 1 << 20;
  SessionTableRig rig(options);
  Session* const session = rig.Open(1);
  EXPECT_EQ(session->CheckPlaces(1, 4096, absl::UnixEpoch()), std::nullopt);
  options.uid_kept_bytes = 1024;
  rig.table.SetLimits(options);
  EXPECT_TRUE(session->CheckPlaces(1, 4096, absl::UnixEpoch()).has_value());
}

TEST(SessionLimits, WhoIsNearestToThemIsKnown) {
  SessionTableRig rig;
  Fullest fullest = FullestOf(rig.table);
  EXPECT_EQ(fullest.bytes.used, 0u);
  EXPECT_EQ(fullest.sessions_of_uid, 0u);
  Session* const first = rig.Open(testing::kConnection);
  rig.Open(2);
  rig.Open(3, testing::kBob);
  const ArenaId arena = rig.RegisterGood(testing::kConnection, 8192);
  const Ended ended = SessionTableRig::Start(*first, arena);
  fullest = FullestOf(rig.table);
  EXPECT_EQ(fullest.bytes.used, 8192u);
  EXPECT_EQ(fullest.arenas.used, 1u);
  EXPECT_EQ(fullest.transfers_in_flight.used, 1u);
  EXPECT_EQ(fullest.record_bytes.used, first->record_bytes());
  EXPECT_EQ(fullest.record_bytes_of_uid, first->record_bytes());
  EXPECT_EQ(fullest.sessions_of_uid, 2u) << "of Alice";
  first->OnEnded(ended);
  EXPECT_EQ(FullestOf(rig.table).transfers_in_flight.used, 0u);
}

// A session keeps the limits that it was opened with, so its use is compared with those.
TEST(SessionLimits, WhoIsNearestIsFoundByItsOwnLimit) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.quota.bytes = 16384;
  SessionTableRig rig(options);
  rig.Open(1);
  rig.RegisterGood(1, 12288);
  options.quota.bytes = 4096;
  rig.table.SetLimits(options);
  rig.Open(2);
  LimitUse nearest = FullestOf(rig.table).bytes;
  EXPECT_EQ(nearest.used, 12288u);
  EXPECT_EQ(nearest.limit, 16384u) << "its own, not the smaller one of now";
  rig.RegisterGood(2, 4096);
  nearest = FullestOf(rig.table).bytes;
  EXPECT_EQ(nearest.used, 4096u) << "all of it, though the other one has more";
  EXPECT_EQ(nearest.limit, 4096u);
}

}  // namespace
}  // namespace ferry
