// SPDX-License-Identifier: Apache-2.0
// The daemon goes, and fork: nothing hangs, everything has a status, memory stays.
#include <dirent.h>

#include <thread>

#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

using LossTest = ClientTest;

TEST_F(LossTest, EveryWaitEnds) {
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  std::memset(arena->data(), 9, 4096);
  auto done = session.Send(0, {Keyed("echo")});
  auto failed = session.Send(0, {Keyed("fail")});
  auto mixed = session.Send(0, {Keyed("echo"), Keyed("never")});
  PostOptions other;
  other.over_timeline = 63;
  auto pending = session.Receive(0, {Keyed("a"), Keyed("b"), Keyed("c")}, other);
  std::thread batch_waiter([&] { EXPECT_EQ(pending->Wait().reason(), "DAEMON_LOST"); });
  std::thread word_waiter([&] {  // reaches its value, failures counted
    EXPECT_TRUE(session.WaitOver(63, pending->first_value() + 2).ok());
    EXPECT_EQ(session.OverFailures(63).count, 3u);
    EXPECT_EQ(session.OverFailures(63).first_failed, pending->first_value());
  });
  std::thread unposted_waiter([&] {  // nothing will ever reach this one
    EXPECT_EQ(session.WaitOver(5, 100).reason(), "DAEMON_LOST");
  });
  daemon_->Kill();
  batch_waiter.join();
  word_waiter.join();
  unposted_waiter.join();
  EXPECT_EQ(session.Health().code_name(), "UNAVAILABLE");
  EXPECT_EQ(session.Health().reason(), "DAEMON_LOST");
  // What had ended before ended as it did.
  ASSERT_OK(done->Wait());
  EXPECT_FALSE(failed->Wait().ok());
  ASSERT_OK(mixed->TransferStatus(0));
  EXPECT_EQ(mixed->TransferStatus(1).reason(), "DAEMON_LOST");
  EXPECT_EQ(static_cast<char*>(arena->data())[4095], 9);
  // And whatever is asked from here on says the same.
  EXPECT_EQ(session.Send(0, {Keyed("echo")}).status().reason(), "DAEMON_LOST");
  EXPECT_EQ(session.CreateArena(0, 4096).status().reason(), "DAEMON_LOST");
  EXPECT_EQ(session.ResetOver(0).reason(), "DAEMON_LOST");
  EXPECT_EQ(pending->Cancel().reason(), "DAEMON_LOST");
}

TEST_F(LossTest, APostInFlightEnds) {
  size_t hanging = 0;
  for (const Road road : kRoads) {
    Session session = Open();
    std::thread poster([&] {
      EXPECT_EQ(session.Send(0, {By(road, Keyed("hang"))}).status().reason(), "DAEMON_LOST");
    });
    daemon_->WaitForHanging(++hanging);
    daemon_->CloseAttach();  // gRPC stays open and silent
    poster.join();
  }
}

TEST_F(LossTest, FollowersOfAHangingPostEndToo) {
  size_t hanging = 0;
  for (const Road road : kRoads) {
    Session session = Open();
    std::vector<std::thread> posters;
    for (int i = 0; i < 4; ++i) {
      posters.emplace_back([&] {
        EXPECT_EQ(session.Send(0, {By(road, Keyed("hang"))}).status().reason(), "DAEMON_LOST");
      });
    }
    daemon_->WaitForHanging(++hanging);
    daemon_->CloseAttach();
    for (auto& poster : posters) poster.join();
    hanging = daemon_->hanging();
  }
}

TEST_F(LossTest, ALostRpcConnectionIsALostDaemon) {
  Session session = Open();
  auto pending = session.Receive(0, {By(Road::kCall, Keyed("never"))});
  ASSERT_OK(pending);
  daemon_->CloseRpc();
  EXPECT_EQ(session.Send(0, {By(Road::kCall, Keyed("echo"))}).status().reason(), "DAEMON_LOST");
  EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
  EXPECT_EQ(session.Health().reason(), "DAEMON_LOST");
}

TEST_F(LossTest, CallbacksComeAtLoss) {
  Session session = Open();
  std::promise<void> called;
  auto batch = session.Receive(0, {Keyed("never")});
  ASSERT_OK(batch->OnOver([&] { called.set_value(); }));
  auto future = std::move(*session.Receive(0, {Keyed("never2")})).Future();
  daemon_->Kill();
  EXPECT_EQ(called.get_future().wait_for(kSoon), std::future_status::ready);
  ASSERT_EQ(future.wait_for(kSoon), std::future_status::ready);
  EXPECT_EQ(future.get().reason(), "DAEMON_LOST");
}

TEST_F(LossTest, OpeningAndLosingManyTimes) {
  for (int i = 0; i < 30; ++i) {
    Session session = Open();
    auto batch = session.Receive(0, {Keyed("never")});
    std::thread waiter([&] { EXPECT_FALSE(batch->Wait().ok()); });
    if (i % 2 == 0) {
      daemon_->CloseAttach();
    } else {
      session.Close();
    }
    waiter.join();
  }
}

using ForkTest = ClientTest;

TEST_F(ForkTest, TheChildIsToldAndTheParentGoesOn) {
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  std::memset(arena->data(), 5, 4096);
  auto batch = session.Receive(1, {Keyed("k", {}, 0)});
  ASSERT_OK(batch->OnOver([] {}));
  const pid_t child = Fork([&] {
    int bad = 0;
    const auto forked = [&](const Status& status) {
      bad +=
          status.reason() != "FORKED" ||
          status.message().find("process " + std::to_string(getpid()) + ": ") == std::string::npos;
    };
    const std::string owner = "session " + std::to_string(session.id()) + " in process " +
                              std::to_string(getpid()) + ": it belongs to process " +
                              std::to_string(getppid());
    bad += session.Health().message().find(owner) == std::string::npos;
    forked(session.Health());
    forked(session.CreateArena(0, 4096).status());
    forked(session.Send(0, {Keyed("echo")}).status());
    forked(session.ReceiveNew(0, {Keyed("echo")}, {8}).status());
    forked(session.ResetOver(0));
    forked(session.WaitOver(0, 99));
    forked(batch->Wait());
    forked(batch->TransferStatus(0));
    forked(batch->Cancel());
    forked(batch->Poison("x"));
    forked(arena->Release());
    SessionOptions options;
    options.client_dir = dir_;
    forked(Session::Open(options).status());
    forked(session.Define(0, 1000));
    forked(batch->OnOver([] {}));
    bad += static_cast<char*>(arena->data())[0] != 5;  // memory is readable
    *arena = Arena();                                  // these leak, and do not crash
    *batch = Batch();
    session.Close();
    return bad;
  });
  EXPECT_EQ(ExitStatus(child), 0);
  EXPECT_EQ(session.DefinedValue(0), 0u);
  ASSERT_OK(session.Health());
  PostOptions options;
  options.over_timeline = 1;
  ASSERT_OK(session.Send(0, {Keyed("k")}, options));
  ASSERT_OK(batch->Wait(kSoon));
  EXPECT_EQ(daemon_->arenas(), 1u);
}

TEST_F(ForkTest, TheChildDoesNotKeepTheSessionAlive) {
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  Session session = Open();
  ASSERT_OK(session.Send(0, {Keyed("echo")}));
  const pid_t child = Fork([&] {
    close(gate[1]);
    char byte;
    return read(gate[0], &byte, 1) == 0 ? 0 : 1;  // lives until the parent says so
  });
  session.Close();
  daemon_->WaitForSessions(0);  // though the child is there
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0);
  close(gate[1]);
  close(gate[0]);
  EXPECT_EQ(ExitStatus(child), 0);
}

TEST_F(ForkTest, ForksWhileOthersPost) {
  Session session = Open();
  std::atomic<bool> stop{false};
  std::thread poster([&] {
    while (!stop) {
      auto batch = session.Send(0, {Keyed("echo")});
      EXPECT_TRUE(batch.ok() && batch->Wait(kSoon).ok());
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = Fork([&] { return session.Health().reason() == "FORKED" ? 0 : 1; });
    EXPECT_EQ(ExitStatus(child), 0);
  }
  stop = true;
  poster.join();
}

TEST(ForkFirstTest, AChildOpensItsOwnIfItsParentHadNone) {
  // In a process of its own: gRPC must not have run here before the fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const pid_t child = fork();
        if (child == 0) {
          char pattern[] = "/tmp/ferry-client-XXXXXX";
          const std::string dir = mkdtemp(pattern);
          int status = 1;
          {
            FakeDaemon daemon(dir);
            SessionOptions options;
            options.client_dir = dir;
            auto session = Session::Open(options);
            if (session.ok()) {
              auto batch = session->Send(0, {Keyed("echo")});
              status = batch.ok() && batch->Wait(kSoon).ok() ? 0 : 2;
            }
          }
          std::filesystem::remove_all(dir);
          _exit(status);
        }
        int status = 0;
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 9);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ferry::testing
