// SPDX-License-Identifier: Apache-2.0
// Sessions that come and go for ever.
#include <vector>

#include "base/log.h"
#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using testing::Is;
using testing::kAlice;
using testing::kBob;
using testing::kConnection;
using testing::SessionTableRig;

TEST(SessionIds, TheyBeginAgainAndPassByThoseInUse) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.first_session = kMostSessionIds - 1;
  SessionTableRig rig(options);
  std::vector<uint32_t> ids;
  for (Door::ConnectionId connection = 1; connection <= 3; ++connection) {
    Session* const session = rig.Open(connection);
    ASSERT_NE(session, nullptr);
    ids.push_back(session->id().value());
  }
  EXPECT_EQ(ids, (std::vector<uint32_t>{kMostSessionIds - 1, kMostSessionIds, 1}));
  for (const uint32_t id : ids) {
    EXPECT_EQ(SessionOf(MakeTransferId(SessionId(id), 7)), SessionId(id));
  }

  SessionTable::Options again = SessionTableRig::DefaultOptions();
  again.first_session = kMostSessionIds;
  SessionTableRig other(again);
  ASSERT_NE(other.Open(1), nullptr);
  Session* const kept = other.Open(2);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->id(), SessionId(1));
}

TEST(SessionLog, WhoComesAndGoesAllTheTimeFillsNoDisk) {
  SessionTableRig rig;
  const auto lines = [] { return LogMessages(spdlog::level::info); };
  const auto come_and_go = [&](const Credentials& who, int times) {
    const uint64_t before = lines();
    for (int i = 0; i < times; ++i) {
      EXPECT_NE(rig.Open(kConnection, who), nullptr);
      rig.table.OnClosed(kConnection);
      rig.Settle();
    }
    return lines() - before;
  };
  EXPECT_EQ(come_and_go(kAlice, 512), 1024u);
  EXPECT_EQ(come_and_go(kAlice, 500), 0u);
  EXPECT_EQ(come_and_go(kBob, 10), 20u) << "others' are there";
  rig.control.Advance(absl::Seconds(10));
  EXPECT_EQ(come_and_go(kAlice, 20), 20u) << "ten more sessions";
}

}  // namespace
}  // namespace ferry
