// SPDX-License-Identifier: Apache-2.0
// The daemon comes back: the session goes on with the same handles, memory, counters and watch.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ReattachTest : public ClientTest {
 protected:
  // Until the session knows that its daemon is gone. It may have the next one by now.
  static void AwaitLoss(Batch& outstanding) {
    EXPECT_EQ(outstanding.Wait(kSoon).reason(), "DAEMON_LOST");
  }
  // The same, where there is no next one.
  static void AwaitLossForGood(Session& session, Batch& outstanding) {
    AwaitLoss(outstanding);
    EXPECT_EQ(session.Health().reason(), "DAEMON_LOST");
  }
  // A transfer between two arenas of the session brings the bytes.
  static void ExpectCopies(Session& session, Arena& from, Arena& to, char byte) {
    std::memset(from.data(), byte, from.bytes());
    std::memset(to.data(), 0, to.bytes());
    auto receive = session.Receive(1, {Keyed("copy", {to.All()}, 0)});
    ASSERT_OK(receive);
    PostOptions options;
    options.over_timeline = 1;
    auto send = session.Send(0, {Keyed("copy", {from.All()})}, options);
    ASSERT_OK(send);
    ASSERT_OK(receive->Wait(kSoon));
    ASSERT_OK(send->Wait(kSoon));
    EXPECT_EQ(std::memcmp(from.data(), to.data(), to.bytes()), 0);
  }
};

struct Watched {
  void operator()(uint64_t id, const ferry_status* status) {
    std::lock_guard lock(mutex);
    ended.emplace_back(id, ferry_status_reason(status));
    changed.notify_all();
  }
  bool WaitFor(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kSoon, [&] { return ended.size() >= count; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<uint64_t, std::string>> ended;
};

TEST_F(ReattachTest, HandlesMemoryCountersAndIdsGoOn) {
  Session session = Open();
  auto from = session.CreateArena(0, 8192);
  auto to = session.CreateArena(1, 8192);
  const int memfd = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(memfd, 8192), 0);
  ASSERT_EQ(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  auto imported = session.ImportArena(0, memfd, 8192);
  close(memfd);
  ASSERT_OK(imported);
  ExpectCopies(session, *from, *to, 1);
  auto failed = session.Send(0, {Keyed("fail")});
  auto pending = session.Receive(0, {Keyed("a"), Keyed("b")});
  ASSERT_OK(pending);
  ASSERT_OK(session.Define(7, 70));
  const uint32_t line = pending->timeline();
  const void* const memory = from->data();
  const uint64_t over = pending->first_value() + 1;

  daemon_.reset();
  AwaitLossForGood(session, *pending);
  EXPECT_EQ(session.OverValue(line), over);
  EXPECT_EQ(session.OverFailures(line).count, 3u);
  EXPECT_THAT(std::string(session.Health().message()), HasSubstr("being re-attached"));
  EXPECT_EQ(session.Send(0, {Keyed("echo")}).status().code_name(), "UNAVAILABLE");
  EXPECT_EQ(session.WaitAttached(std::chrono::milliseconds(1)).code_name(), "DEADLINE_EXCEEDED");

  daemon_ = std::make_unique<FakeDaemon>(dir_);
  ASSERT_OK(session.WaitAttached(kSoon));
  ASSERT_OK(session.Health());
  EXPECT_EQ(daemon_->arenas(), 3u);
  EXPECT_EQ(from->data(), memory);
  EXPECT_NE(from->id(), 0u);
  EXPECT_EQ(session.DefinedValue(7), 70u);
  EXPECT_EQ(session.OverValue(line), over);
  EXPECT_EQ(session.OverFailures(line).count, 3u);
  const v1::Resume resumed = daemon_->last_hello().resume();
  ASSERT_EQ(resumed.over_size(), static_cast<int>(line) + 1);
  EXPECT_EQ(resumed.over(static_cast<int>(line)).value(), over);
  EXPECT_EQ(resumed.over(static_cast<int>(line)).failures(), 3u);
  EXPECT_EQ(resumed.over(static_cast<int>(line)).first_failed(), failed->first_value());
  EXPECT_EQ(resumed.next_transfer_id(), pending->first_id() + 2);
  EXPECT_EQ(resumed.incarnation(), 7u);

  auto next = session.Send(0, {Keyed("echo")});
  ASSERT_OK(next);
  EXPECT_EQ(next->first_value(), over + 1);
  EXPECT_EQ(next->first_id(), pending->first_id() + 2);
  ASSERT_OK(next->Wait(kSoon));
  ExpectCopies(session, *from, *to, 2);
  ExpectCopies(session, *imported, *to, 3);
  // What was of the first daemon is still told as that left it.
  EXPECT_EQ(pending->Wait().reason(), "DAEMON_LOST");
  EXPECT_EQ(pending->TransferStatus(1).reason(), "DAEMON_LOST");
  EXPECT_EQ(pending->Cancel().reason(), "DAEMON_LOST");
  // It failed, and nobody asked why.
  EXPECT_EQ(failed->Wait().reason(), "DAEMON_LOST");
  EXPECT_THAT(std::string(failed->Wait().message()), ::testing::HasSubstr("is not known"));
  // And what fails now has its own reason, whatever failed before.
  auto fails = session.Send(0, {Keyed("echo"), Keyed("fail"), Keyed("echo")});
  EXPECT_EQ(fails->Wait(kSoon).reason(), "TRANSFER_MISMATCH");
  ASSERT_OK(fails->TransferStatus(2));
  EXPECT_EQ(session.OverFailures(line).count, 4u);
  ASSERT_OK(session.ResetOver(line));
  EXPECT_EQ(session.OverFailures(line).count, 0u);
  ASSERT_OK(session.Send(0, {Keyed("echo")})->Wait(kSoon));
}

TEST_F(ReattachTest, OldFailuresDoNotBlurWhatEndedWellAtTheNextDaemon) {
  Session session = Open();
  auto pending = session.Receive(0, {Keyed("never")});
  Restart();
  AwaitLoss(*pending);
  ASSERT_OK(session.WaitAttached(kSoon));
  auto well = session.Send(0, {Keyed("echo"), Keyed("echo")});
  auto lost = session.Receive(0, {Keyed("never")});
  Restart();
  AwaitLoss(*lost);
  ASSERT_OK(well->Wait());  // asked only now
  ASSERT_OK(well->TransferStatus(1));
}

TEST_F(ReattachTest, EveryWayOfPostingGoesOn) {
  for (const Road road : kRoads) {
    Session session = Open();
    auto pending = session.Receive(0, {By(road, Keyed("never"))});
    Restart();
    AwaitLoss(*pending);
    ASSERT_OK(session.WaitAttached(kSoon));
    auto batch = session.Send(0, {By(road, Keyed("echo")), Keyed("echo")});
    ASSERT_OK(batch);
    EXPECT_EQ(batch->first_id(), pending->first_id() + 1);
    ASSERT_OK(batch->Wait(kSoon));
  }
}

TEST_F(ReattachTest, WaitersCallbacksAndUnpostedValuesEndOnceAndGoOn) {
  Session session = Open();
  auto pending = session.Receive(0, {Keyed("never")});
  std::promise<void> called, called_again;
  ASSERT_OK(pending->OnOver([&] { called.set_value(); }));
  std::thread unposted([&] { EXPECT_EQ(session.WaitOver(9, 100).reason(), "DAEMON_LOST"); });
  Restart();
  unposted.join();
  ASSERT_EQ(called.get_future().wait_for(kSoon), std::future_status::ready);
  AwaitLoss(*pending);
  ASSERT_OK(session.WaitAttached(kSoon));
  EXPECT_EQ(session.WaitOver(9, 100, Duration{1}).code_name(), "DEADLINE_EXCEEDED");
  auto receive = session.Receive(1, {Keyed("k", {}, 0)});
  ASSERT_OK(receive->OnOver([&] { called_again.set_value(); }));
  PostOptions options;
  options.over_timeline = 1;
  Transfer later = Keyed("k");
  later.defined_at = Transfer::DefinedAt{3, 30};
  auto send = session.Send(0, {later}, options);
  ASSERT_OK(send);
  ASSERT_OK(session.Define(3, 30));  // rings the new daemon
  ASSERT_OK(receive->Wait(kSoon));
  EXPECT_EQ(called_again.get_future().wait_for(kSoon), std::future_status::ready);
}

TEST_F(ReattachTest, TheWatchTellsEveryTransferOnceOverAllLives) {
  Watched watched;
  Session session = Open();
  auto before = session.Receive(0, {Keyed("never"), Keyed("echo"), Keyed("never")});  // 1, 2, 3
  ASSERT_OK(session.Watch(&watched));
  ASSERT_OK(session.Send(0, {Keyed("fail")}));  // 4
  EXPECT_TRUE(watched.WaitFor(2));
  Restart();
  EXPECT_TRUE(watched.WaitFor(4));
  ASSERT_OK(session.WaitAttached(kSoon));
  ASSERT_OK(session.Send(0, {Keyed("echo")}));       // 5
  auto last = session.Receive(0, {Keyed("never")});  // 6
  EXPECT_TRUE(watched.WaitFor(5));
  Restart();
  EXPECT_TRUE(watched.WaitFor(6));
  ASSERT_OK(session.WaitAttached(kSoon));
  auto at_close = session.Receive(0, {Keyed("never")});  // 7: the last call stands for it
  session.Close();
  EXPECT_THAT(watched.ended,
              ElementsAre(Pair(2, ""), Pair(4, "TRANSFER_MISMATCH"), Pair(1, "DAEMON_LOST"),
                          Pair(3, "DAEMON_LOST"), Pair(5, ""), Pair(6, "DAEMON_LOST"),
                          Pair(0, "CANCELLED")));
}

TEST_F(ReattachTest, AWatcherMayWaitForTheDaemonInItsCallback) {
  Session session = Open();
  std::promise<uint64_t> posted;
  auto watcher = [&](uint64_t id, const ferry_status* status) {
    if (id != 1 || status == nullptr) return;
    EXPECT_TRUE(session.WaitAttached(kSoon).ok());
    auto again = session.Send(0, {Keyed("echo")});
    posted.set_value(again.ok() ? again->first_id() : 0);
  };
  ASSERT_OK(session.Watch(&watcher));
  ASSERT_OK(session.Receive(0, {Keyed("never")}));
  Restart();
  auto future = posted.get_future();
  ASSERT_EQ(future.wait_for(kSoon), std::future_status::ready);
  EXPECT_EQ(future.get(), 2u);
  session.Close();
}

TEST_F(ReattachTest, LossesInQuickSuccession) {
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  uint64_t last_id = 0;
  for (int life = 0; life < 8; ++life) {
    auto pending = session.Receive(0, {Keyed("never")});
    if (pending.ok()) {  // else it is being attached again just now
      EXPECT_GT(pending->first_id(), last_id);
      last_id = pending->first_id();
    }
    Restart();
    if (life % 2 == 0) Restart();
    daemon_->CloseAttach();  // in the middle of whatever it is at
    if (pending.ok()) {
      EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
    }
    if (life % 3 == 0) {
      ASSERT_OK(session.WaitAttached(kSoon));
    }
  }
  ASSERT_OK(session.WaitAttached(kSoon));
  daemon_->WaitForSessions(1);
  auto batch = session.Send(0, {Keyed("echo")});
  ASSERT_OK(batch);
  EXPECT_GT(batch->first_id(), last_id);
  ASSERT_OK(batch->Wait(kSoon));
  EXPECT_EQ(daemon_->arenas(), 1u);
}

TEST_F(ReattachTest, AnAnswerThatIsLostMeansLost) {
  Session session = Open();
  std::thread poster(
      [&] { EXPECT_EQ(session.Send(0, {Keyed("hang")}).status().reason(), "DAEMON_LOST"); });
  daemon_->WaitForHanging(1);
  Restart();
  poster.join();
  ASSERT_OK(session.WaitAttached(kSoon));
  ASSERT_OK(session.Send(0, {Keyed("echo")})->Wait(kSoon));
}

TEST_F(ReattachTest, ALostRpcConnectionIsReplacedToo) {
  Session session = Open();
  auto pending = session.Receive(0, {By(Road::kCall, Keyed("never"))});
  daemon_->CloseRpc();
  EXPECT_EQ(session.Send(0, {By(Road::kCall, Keyed("echo"))}).status().reason(), "DAEMON_LOST");
  EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
  Restart();
  ASSERT_OK(session.WaitAttached(kSoon));
  ASSERT_OK(session.Send(0, {By(Road::kCall, Keyed("echo"))})->Wait(kSoon));
}

TEST_F(ReattachTest, ArenasOfADeviceThatIsGoneSaySo) {
  Session session = Open();
  auto stays = session.CreateArena(0, 4096);
  auto goes = session.CreateArena(1, 4096);
  auto pending = session.Receive(0, {Keyed("never")});
  FakeDaemon::Behaviour one_device;
  one_device.devices = 1;
  Restart(one_device);
  AwaitLoss(*pending);
  ASSERT_OK(session.WaitAttached(kSoon));
  EXPECT_EQ(session.devices().size(), 1u);
  EXPECT_EQ(goes->id(), 0u);
  const auto refused = session.Send(1, {Keyed("echo", {goes->All()})});
  EXPECT_EQ(refused.status().code_name(), "NOT_FOUND");
  EXPECT_EQ(refused.status().reason(), "DEVICE_UNKNOWN");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("came back"));
  ASSERT_OK(session.Send(0, {Keyed("echo", {stays->All()})})->Wait(kSoon));
  // The next daemon has it again.
  auto waits = session.Receive(0, {Keyed("never")});
  Restart();
  AwaitLoss(*waits);
  ASSERT_OK(session.WaitAttached(kSoon));
  EXPECT_NE(goes->id(), 0u);
  ASSERT_OK(session.Send(1, {Keyed("echo", {goes->All()})}));
  // Without one it can be given back all the same.
  auto waits_too = session.Receive(0, {Keyed("never")});
  Restart(one_device);
  AwaitLoss(*waits_too);
  ASSERT_OK(session.WaitAttached(kSoon));
  ASSERT_OK(goes->Release());
  EXPECT_EQ(goes->Release().reason(), "DEVICE_UNKNOWN");
}

TEST_F(ReattachTest, ArenasThatWereReleasedOrFreedDoNotComeBack) {
  Session session = Open();
  auto kept = session.CreateArena(0, 4096);
  auto released = session.CreateArena(0, 4096);
  auto freed = session.CreateArena(0, 4096);
  auto freed_meanwhile = session.CreateArena(0, 4096);
  ASSERT_OK(released->Release());
  *freed = Arena();
  auto pending = session.Receive(0, {Keyed("never")});
  daemon_.reset();
  AwaitLossForGood(session, *pending);
  *freed_meanwhile = Arena();
  EXPECT_EQ(session.CreateArena(0, 4096).status().reason(), "DAEMON_LOST");
  EXPECT_EQ(kept->Release().reason(), "DAEMON_LOST");  // and so it stays
  daemon_ = std::make_unique<FakeDaemon>(dir_);
  ASSERT_OK(session.WaitAttached(kSoon));
  EXPECT_EQ(daemon_->arenas(), 1u);
  EXPECT_EQ(session.Send(0, {Keyed("echo", {released->All()})}).status().reason(), "ID_STALE");
  EXPECT_EQ(released->Release().reason(), "ID_STALE");
  ASSERT_OK(kept->Release());
  EXPECT_EQ(daemon_->arenas(), 0u);
}

TEST_F(ReattachTest, ArenasComeAndGoWhileDaemonsDo) {
  Session session = Open();
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i) {
    users.emplace_back([&] {
      while (!stop) {
        auto arena = session.CreateArena(0, 4096);
        if (!arena.ok()) {
          EXPECT_EQ(arena.status().reason(), "DAEMON_LOST");
          EXPECT_TRUE(session.WaitAttached(kSoon).ok());
          continue;
        }
        auto batch = session.Send(0, {Keyed("echo", {arena->All()})});
        if (batch.ok()) {
          const Status status = batch->Wait(kSoon);
          EXPECT_TRUE(status.ok() || status.reason() == "DAEMON_LOST") << status.ToString();
        }
      }
    });
  }
  for (int life = 0; life < 10; ++life) {
    ASSERT_OK(session.WaitAttached(kSoon));
    Restart();
  }
  stop = true;
  for (auto& user : users) user.join();
  ASSERT_OK(session.WaitAttached(kSoon));
  EXPECT_EQ(daemon_->arenas(), 0u);
}

TEST_F(ReattachTest, ADrainingDaemonIsAskedAgain) {
  Session session = Open();
  FakeDaemon::Behaviour draining;
  draining.draining_hellos = 3;
  auto pending = session.Receive(0, {Keyed("never")});
  Restart(draining);
  daemon_->WaitForHellos(4);
  AwaitLoss(*pending);
  ASSERT_OK(session.WaitAttached(kSoon));
}

TEST_F(ReattachTest, ADaemonOfAnotherVersionEndsTheSession) {
  Watched watched;
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  ASSERT_OK(session.Watch(&watched));
  auto pending = session.Receive(0, {Keyed("never")});
  FakeDaemon::Behaviour old;
  old.protocol = 1;
  Restart(old);
  const Status lost = session.WaitAttached(kSoon);
  if (lost.ok()) AwaitLoss(*pending);  // not even lost yet
  EXPECT_TRUE(watched.WaitFor(2));
  EXPECT_EQ(session.WaitAttached(kSoon).reason(), "DAEMON_LOST");
  EXPECT_THAT(std::string(session.Health().message()),
              HasSubstr("the daemon speaks version 1 of the protocol with clients"));
  EXPECT_EQ(pending->Wait().reason(), "DAEMON_LOST");
  EXPECT_THAT(watched.ended, ElementsAre(Pair(1, "DAEMON_LOST"), Pair(0, "DAEMON_LOST")));
  daemon_->WaitForSessions(0);
}

TEST_F(ReattachTest, ASessionMayWantToEndWithItsDaemon) {
  Watched watched;
  SessionOptions options;
  options.reattach = false;
  Session session = OpenWith(std::move(options));
  auto pending = session.Receive(0, {Keyed("never")});
  ASSERT_OK(session.Watch(&watched));
  Restart();
  AwaitLoss(*pending);
  EXPECT_EQ(session.WaitAttached(kSoon).reason(), "DAEMON_LOST");
  EXPECT_TRUE(watched.WaitFor(1));
  EXPECT_THAT(watched.ended, ElementsAre(Pair(0, "DAEMON_LOST")));  // stands for all
  EXPECT_EQ(daemon_->sessions(), 0u);
}

TEST_F(ReattachTest, ThereIsATimeToGiveUp) {
  SessionOptions options;
  options.reattach_timeout = std::chrono::milliseconds(1);
  Session session = OpenWith(std::move(options));
  auto pending = session.Receive(0, {Keyed("never")});
  daemon_.reset();
  AwaitLossForGood(session, *pending);
  EXPECT_EQ(session.WaitAttached(kSoon).reason(), "DAEMON_LOST");
  EXPECT_THAT(std::string(session.Health().message()), HasSubstr("not re-attached"));
}

TEST_F(ReattachTest, CloseDoesNotWaitForADaemon) {
  Session without = Open();
  Session with = Open();
  auto arena = with.CreateArena(0, 4096);
  auto pending = without.Receive(0, {Keyed("never")});
  auto pending_too = with.Receive(0, {Keyed("never")});
  daemon_.reset();
  AwaitLossForGood(without, *pending);
  AwaitLossForGood(with, *pending_too);
  without.Close();
  // Something that takes the connection, and does not say a word.
  const std::string path = dir_ + "/attach.sock";
  unlink(path.c_str());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  const int silent = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ASSERT_GE(silent, 0);
  with.Close();
  EXPECT_EQ(pending_too->Wait().reason(), "DAEMON_LOST");
  close(silent);
  close(listener);
}

TEST_F(ReattachTest, AChildOfForkNeitherAttachesNorKeepsAnything) {
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  auto pending = session.Receive(0, {Keyed("never")});
  daemon_.reset();
  AwaitLossForGood(session, *pending);
  const pid_t child = Fork([&] {
    close(gate[1]);
    int bad = session.Health().reason() != "FORKED";
    bad += session.WaitAttached().reason() != "FORKED";
    *arena = Arena();
    session.Close();
    char byte;
    return read(gate[0], &byte, 1) == 0 ? bad : 100;  // lives until the parent says so
  });
  daemon_ = std::make_unique<FakeDaemon>(dir_);
  ASSERT_OK(session.WaitAttached(kSoon));
  ASSERT_OK(session.Send(0, {Keyed("echo", {arena->All()})})->Wait(kSoon));
  EXPECT_EQ(daemon_->sessions(), 1u);
  const pid_t second = Fork([&] { return session.Health().reason() == "FORKED" ? 0 : 1; });
  EXPECT_EQ(ExitStatus(second), 0);
  session.Close();
  daemon_->WaitForSessions(0);  // though a child is there
  close(gate[1]);
  close(gate[0]);
  EXPECT_EQ(ExitStatus(child), 0);
}

}  // namespace
}  // namespace ferry::testing
