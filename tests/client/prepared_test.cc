// SPDX-License-Identifier: Apache-2.0
// Prepared batches, while daemons come and go: firings count from 1 with each, and no wait for one
// outlives the daemon that it was for.
#include <thread>

#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

class PreparedTest : public ClientTest {
 protected:
  static Prepared Prepare(Session& session, const std::string& key) {
    auto prepared = session.PrepareSend(0, {Keyed(key)});
    EXPECT_TRUE(prepared.ok()) << prepared.status().ToString();
    return std::move(*prepared);
  }
  // The next `times` firings, the first of which is number `first`.
  static void FireFrom(Prepared& prepared, uint64_t first, uint64_t times) {
    for (uint64_t n = first; n < first + times; ++n) {
      uint64_t firing = 0;
      ASSERT_OK(prepared.Fire(&firing));
      EXPECT_EQ(firing, n);
      ASSERT_OK(prepared.Wait(firing, kSoon));
      EXPECT_EQ(prepared.over(), n);
      EXPECT_EQ(prepared.fired(), n);
    }
  }
  // The session knows that its daemon is gone, and may have the next one.
  void Lose(Session& session, FakeDaemon::Behaviour next = {}) {
    auto pending = session.Receive(0, {Keyed("never")});
    ASSERT_OK(pending);
    Restart(std::move(next));
    EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
  }
  void NextDaemon(Session& session) {
    Lose(session);
    ASSERT_OK(session.WaitAttached(kSoon));
  }
};

TEST_F(PreparedTest, FiringsCountFromOneWithEachDaemonAndTheWordsGoOn) {
  Session session = Open();
  Prepared echo = Prepare(session, "echo"), never = Prepare(session, "never");
  FireFrom(echo, 1, 5);
  ASSERT_OK(never.Fire());
  NextDaemon(session);
  EXPECT_EQ(daemon_->last_hello().resume().prepared_from(), 5u);
  EXPECT_EQ(echo.fired(), 0u);
  EXPECT_EQ(echo.over(), 0u);
  FireFrom(echo, 1, 3);
  EXPECT_EQ(never.Wait(1, std::chrono::milliseconds(1)).code_name(), "DEADLINE_EXCEEDED");
  ASSERT_OK(never.Fire());
  const Status early = never.Fire();
  EXPECT_EQ(early.code_name(), "FAILED_PRECONDITION") << "it is not over";
  ASSERT_EQ(early.violations().size(), 1u);
  EXPECT_EQ(early.violations()[0].field, "prepared");
  NextDaemon(session);
  EXPECT_EQ(daemon_->last_hello().resume().prepared_from(), 8u);
  FireFrom(echo, 1, 2);
  // What is prepared later has the numbers of others, and their words.
  Prepared later = Prepare(session, "echo");
  FireFrom(later, 1, 2);
}

TEST_F(PreparedTest, WhetherItHasEndedIsKnownWithoutTheDaemon) {
  Session session = Open();
  Prepared released = Prepare(session, "echo"), closed = Prepare(session, "echo");
  FireFrom(released, 1, 2);
  EXPECT_FALSE(released.ended());
  ASSERT_OK(released.Release());
  EXPECT_TRUE(released.ended());
  EXPECT_FALSE(closed.ended());
  session = Session();
  EXPECT_TRUE(closed.ended());
}

TEST_F(PreparedTest, WaitsEndWithADaemonThatGoesWhileItIsTold) {
  Session session = Open();
  Prepared first = Prepare(session, "never"), second = Prepare(session, "later");
  ASSERT_OK(first.Fire());
  FakeDaemon::Behaviour half;
  half.hangs = "later";
  Lose(session, half);
  daemon_->WaitForHanging(1);  // the first one is prepared again, the second is not
  ASSERT_OK(first.Fire());
  std::thread waits([&] { EXPECT_EQ(first.Wait(1).reason(), "DAEMON_LOST"); });
  while (daemon_->prepared_waiters() == 0) std::this_thread::yield();
  Restart();
  waits.join();
  ASSERT_OK(session.WaitAttached(kSoon));
  EXPECT_EQ(daemon_->last_hello().resume().prepared_from(), 2u);
  ASSERT_OK(second.Fire());
}

}  // namespace
}  // namespace ferry::testing
