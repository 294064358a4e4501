// SPDX-License-Identifier: Apache-2.0
// What sessions of one uid make the daemon keep, together.
#include <optional>
#include <vector>

#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using testing::Is;
using testing::kBob;
using testing::kConnection;
using testing::SessionTableRig;

TEST(SessionKept, WhatAllSessionsOfAUidKeepIsLimitedTogether) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.uid_kept_bytes = 4096;
  SessionTableRig rig(options);
  Session* const first = rig.Open(kConnection);
  const ArenaId arena = rig.RegisterGood(kConnection, 4096);
  std::vector<Ended> posted;
  for (int i = 0; i < 3; ++i) posted.push_back(SessionTableRig::Start(*first, arena));
  Session* const second = rig.Open(kConnection + 1);
  Session* const other = rig.Open(kConnection + 2, kBob);
  EXPECT_EQ(second->CheckPlaces(1, 512, absl::UnixEpoch()), std::nullopt);
  const std::optional<absl::Status> full = second->CheckPlaces(1, 2048, absl::UnixEpoch());
  ASSERT_TRUE(full.has_value());
  EXPECT_THAT(*full, Is("RESOURCE_EXHAUSTED/QUEUE_FULL", "uid 1000 has "));
  EXPECT_EQ(other->CheckPlaces(1, 2048, absl::UnixEpoch()), std::nullopt);
  rig.table.OnClosed(kConnection);
  EXPECT_NE(second->CheckPlaces(1, 2048, absl::UnixEpoch()), std::nullopt) << "they are not over";
  for (const Ended& ended : posted) first->OnEnded(ended);
  rig.table.OnIdle(*first);
  EXPECT_EQ(second->CheckPlaces(1, 2048, absl::UnixEpoch()), std::nullopt);
}

}  // namespace
}  // namespace ferry
