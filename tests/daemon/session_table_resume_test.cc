// SPDX-License-Identifier: Apache-2.0
// A session that its client gave up while the daemon was stopped, and resumes at the same daemon.
#include <fcntl.h>

#include <utility>
#include <variant>
#include <vector>

#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;
using testing::Is;
using testing::kAlice;
using testing::kConnection;
using testing::SessionTableRig;

TEST(SessionTableResume, WhatIsStillUnderWayIsNotOvertaken) {
  SessionTableRig rig;
  Session* before = rig.Open(kConnection);
  const UniqueFd pages(fcntl(before->timelines().memfd(), F_DUPFD_CLOEXEC, 0));
  const ArenaId arena = rig.RegisterGood(kConnection, 4096);
  const Ended ended = SessionTableRig::Start(*before, arena);
  Door::ConnectionId connection = kConnection;
  const auto resume = [&] {
    AttachHello hello = SessionTableRig::Hello();
    hello.resume = AttachResume{{}, 500, SessionTableRig::DefaultOptions().incarnation};
    std::vector<UniqueFd> fds;
    fds.emplace_back(fcntl(pages.get(), F_DUPFD_CLOEXEC, 0));
    rig.table.OnConnected(++connection, {});
    return rig.Command(connection, std::move(hello), kAlice, std::move(fds));
  };
  EXPECT_THAT(resume().error, Is("UNAVAILABLE/NOT_READY"));  // we have not seen its end yet
  rig.table.OnClosed(kConnection);
  const AttachReply refused = resume();
  EXPECT_THAT(refused.error, Is("UNAVAILABLE/NOT_READY"));
  EXPECT_THAT(std::string(refused.error.message()), HasSubstr("1 transfers that are not over"));
  before->OnEnded(ended);
  rig.table.OnIdle(*before);
  rig.Settle();
  EXPECT_THAT(resume().error, Is("OK"));
  EXPECT_EQ(rig.table.size(), 1u);
}

}  // namespace
}  // namespace ferry
