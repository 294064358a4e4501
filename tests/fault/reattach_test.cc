// SPDX-License-Identifier: Apache-2.0
// Daemons that are killed or stopped and come back under their clients, which go on.
#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ferry/program.hpp"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

// There is no daemon now, and the session knows it.
bool AwaitLoss(Session& session) {
  return Await([&] { return NameOf(session.Health()) == "UNAVAILABLE/DAEMON_LOST"; });
}

class ReattachTest : public ClusterTest {};

TEST_F(ReattachTest, IdleSessionsGoOnAfterAKillAndAfterAStop) {
  Start();
  End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
  ExpectTransfer(source, destination, "first");
  const uint64_t over = source.session.OverValue(0);
  for (int life = 0; life < 4; ++life) {
    const size_t victim = static_cast<size_t>(life % 2);
    End& end = victim == 0 ? source : destination;
    life < 2 ? node(victim).Kill() : node(victim).Stop();
    ASSERT_TRUE(AwaitLoss(end.session));
    ASSERT_TRUE(node(victim).Start());
    ASSERT_THAT(end.session.WaitAttached(kSoon), IsOk());
    EXPECT_EQ(node(victim).admin().Status().sessions(), 1u);
    EXPECT_EQ(node(victim).admin().ArenaBytes(), kMiB);
    ExpectTransfer(source, destination, absl::StrCat("life ", life));
  }
  EXPECT_EQ(source.session.OverValue(0), over + 4) << "one transfer in each life, none twice";
  source = End();
  destination = End();
}

TEST_F(ReattachTest, DevicesAndQuotasMayBeOthers) {
  ClusterOptions options;
  options.nodes = 1;
  Start(options);
  Session session = nodes().Open(0);
  Arena released = Must(session.CreateArena(0, 4096));
  Arena small = Must(session.CreateArena(0, 4096));
  Arena large = Must(session.CreateArena(0, kMiB));
  Arena elsewhere = Must(session.CreateArena(1, 4096));
  ASSERT_THAT(released.Release(), IsOk());
  Prepared refused = Must(session.PrepareReceive(1, {Transfer(0, "gone", {elsewhere.All()})}));
  Prepared to = Must(session.PrepareReceive(0, {Transfer(0, "p", {small.Range(0, 8)})}));
  Prepared from = Must(session.PrepareSend(0, {Transfer(0, "p", {small.Range(8, 8)})}));
  node(0).Kill();
  std::ofstream(node(0).config_file())
      << "node: { name: node-a, runtime_dir: " << node(0).runtime_dir()
      << " }\ndevices: { host: 1 }\nlimits: { session_bytes: 64KiB }\n";
  ASSERT_TRUE(AwaitLoss(session));
  ASSERT_TRUE(node(0).Start());
  ASSERT_THAT(session.WaitAttached(kSoon), IsOk());
  EXPECT_EQ(session.devices().size(), 1u);
  EXPECT_EQ(session.limits().bytes, 64u << 10);
  const auto post = [&](uint64_t device, const Arena& arena) {
    Result<Batch> batch = session.Receive(device, {Transfer(0, "k", {arena.All()})});
    return batch.ok() ? Status() : std::move(batch).status();
  };
  EXPECT_THAT(post(1, elsewhere), Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("came back")));
  EXPECT_THAT(post(0, large), Is("RESOURCE_EXHAUSTED/QUOTA_BYTES"));
  // Arena ids start again with the daemon: an old one must not mean another arena.
  EXPECT_THAT(post(0, released), Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(post(0, small), IsOk());
  // What was prepared goes on, or says why not; the words of one are not read for the other.
  ASSERT_THAT(from.Fire(), IsOk());
  ASSERT_THAT(to.Fire(), IsOk());
  EXPECT_THAT(to.Wait(kSoon), IsOk());
  EXPECT_THAT(from.Wait(kSoon), IsOk());
  for (const Status& status : {refused.Health(), refused.Fire(), refused.Wait(1, kSoon)}) {
    EXPECT_THAT(status, Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("came back")));
  }
  EXPECT_EQ(refused.over(), 0u);
  EXPECT_THAT(refused.Release(), IsOk());
  session.Close();
}

// A handle is the application's also while its batch is prepared again: what is released then, or
// prepared, is there once or not at all.
TEST_F(ReattachTest, WhatIsReleasedOrPreparedMeanwhileIsThereOnceOrNotAtAll) {
  constexpr size_t kBatches = 100;
  ClusterOptions options;
  options.nodes = 1;
  Start(options);
  Session session = nodes().Open(0);
  Arena arena = Must(session.CreateArena(0, 4096));
  const auto prepare = [&](const std::string& key) {
    return session.PrepareReceive(0, {Transfer(1, key, {arena.Range(0, 8)})});
  };
  for (int life = 0; life < 5; ++life) {
    std::vector<Prepared> batches;
    for (size_t i = 0; i < kBatches; ++i) batches.push_back(Must(prepare(absl::StrCat(i))));
    node(0).Kill();
    ASSERT_TRUE(AwaitLoss(session));
    std::vector<Prepared> made;
    // From the last one to the first, once that is there again: it meets the thread that prepares
    // them.
    std::thread application([&] {
      for (size_t tried = 0; !batches.empty(); ++tried) {
        Result<Prepared> one = prepare(absl::StrCat("new-", tried));
        if (one.ok()) made.push_back(*std::move(one));
        if (batches.size() < kBatches || batches[0].Health().ok()) batches.pop_back();
      }
    });
    EXPECT_TRUE(node(0).Start());
    application.join();
    ASSERT_THAT(session.WaitAttached(kSoon), IsOk());
    EXPECT_EQ(node(0).admin().Transfers(1000).transfers_size(), static_cast<int>(made.size()));
    for (Prepared& one : made) EXPECT_THAT(one.Health(), IsOk());
  }
}

// The next daemon does not know what the run is to be after: the application hears what it hears of
// that.
TEST_F(ReattachTest, ARunAfterTransfersOfALostDaemonIsToldOfTheLoss) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  constexpr char kText[] =
      "program 1\nbuffer @x read 16\nbuffer @y write 16\n%x = input @x : f32[4]\n"
      "%y = add %x, %x\nstore @y, %y\n";
  const Program program = Must(Program::Compile(end.session, 0, kText));
  Batch lost = Must(end.session.Receive(0, {Transfer(1, "k", {end.arena.Range(0, 16)})}));
  node(0).Kill();
  ASSERT_TRUE(AwaitLoss(end.session));
  ASSERT_TRUE(node(0).Start());
  ASSERT_THAT(end.session.WaitAttached(kSoon), IsOk());
  const auto run = [&](const Batch* after, const Batch* feeds) {
    ProgramRun run = program.Run({{"x", end.arena.Range(0, 16)}, {"y", end.arena.Range(64, 16)}});
    run.after = after;
    run.feeds = feeds;
    Result<Batch> batch = RunPrograms(end.session, 0, {run});
    return batch.ok() ? batch->Wait(kSoon) : std::move(batch).status();
  };
  EXPECT_THAT(run(&lost, nullptr), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(run(nullptr, &lost), Is("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(run(nullptr, nullptr), IsOk());
}

// Some of what was over had failed, and nobody had asked which: nobody can say so now.
TEST_F(ReattachTest, WhatWasOverAndNotAskedForIsToldAsTheLoss) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  std::vector<Batch> batches;
  for (const char* key : {"a", "b", "c"}) {
    batches.push_back(Must(end.session.Receive(0, {Transfer(1, key, {end.arena.Range(0, 16)})})));
  }
  for (Batch& batch : batches) EXPECT_THAT(batch.Cancel(), IsOk());
  ASSERT_TRUE(Await([&] { return batches[2].over(); }));
  node(0).Kill();
  ASSERT_TRUE(AwaitLoss(end.session));
  ASSERT_TRUE(node(0).Start());
  ASSERT_THAT(end.session.WaitAttached(kSoon), IsOk());
  for (Batch& batch : batches) {
    EXPECT_THAT(batch.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST", HasSubstr("is not known")));
  }
}

class ReattachLoadTest : public RouteTest {
 protected:
  // Transfers over and over, whatever happens to the daemons, until `stop`; counts those that went
  // well, whose bytes must be right.
  void Transfers(size_t pair, std::atomic<bool>* stop, std::atomic<uint64_t>* well) {
    constexpr uint64_t kBytes = 300'000;
    const std::string name = absl::StrCat("pair", pair);
    End source = OpenEnd(0, kBytes, 0, name);
    End destination = OpenEnd(1, kBytes, 0, name);
    PostOptions options = RouteTest::options();
    options.domain = name;
    options.deadline = std::chrono::seconds(2);
    uint64_t last_id = 0;
    for (uint64_t round = 0; !*stop; ++round) {
      Fill(source.arena, 0, kBytes, round);
      const std::string key = absl::StrCat(round);
      Result<Batch> receive =
          destination.session.Receive(2, {Transfer(0, key, {destination.arena.All()})}, options);
      Result<Batch> send =
          source.session.Send(0, {Transfer(2, key, {source.arena.All()})}, options);
      const auto outcome = [&](Result<Batch>& batch) {
        return batch.ok() ? batch->Wait(kSoon) : std::move(batch).status();
      };
      if (send.ok()) {
        EXPECT_GT(send->first_id(), last_id);
        last_id = send->first_id();
      }
      const Status received = outcome(receive), sent = outcome(send);
      if (received.ok()) {
        EXPECT_TRUE(Has(destination.arena, 0, kBytes, round)) << key;
        ++*well;
      }
      for (const Status* status : {&received, &sent}) {
        EXPECT_THAT(
            NameOf(*status),
            ::testing::AnyOf("OK", "UNAVAILABLE/DAEMON_LOST", "UNAVAILABLE/PEER_UNREACHABLE",
                             "ABORTED/COMM_ABORTED", "ABORTED/PEER_CLIENT_GONE",
                             "ABORTED/PEER_UNREACHABLE", "DEADLINE_EXCEEDED/WAITING_FOR_PEER",
                             "DEADLINE_EXCEEDED/EXECUTING"))
            << status->ToString();
      }
      for (Session* session : {&source.session, &destination.session}) {
        EXPECT_THAT(session->WaitAttached(kSoon), IsOk());
      }
    }
  }
};
INSTANTIATE_PEER_ROUTES(ReattachLoadTest);

TEST_P(ReattachLoadTest, ClientsGoOnWhileTheirDaemonsAreKilledInTurn) {
  StartForRoute();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> well[2] = {};
  std::vector<std::thread> pairs;
  for (size_t i = 0; i < 2; ++i) {
    pairs.emplace_back([this, i, &stop, &well] { Transfers(i, &stop, &well[i]); });
  }
  const auto await_progress = [&] {
    const uint64_t before[2] = {well[0], well[1]};
    return Await([&] { return well[0] > before[0] + 2 && well[1] > before[1] + 2; });
  };
  EXPECT_TRUE(await_progress());
  for (const size_t victim : {0, 1, 0, 0, 1}) {
    node(victim).Kill();
    EXPECT_TRUE(node(victim).Start());
    EXPECT_TRUE(await_progress());
  }
  // Both at once.
  node(0).Kill();
  node(1).Kill();
  EXPECT_TRUE(node(1).Start());
  EXPECT_TRUE(node(0).Start());
  EXPECT_TRUE(await_progress());
  stop = true;
  for (std::thread& pair : pairs) pair.join();
}

}  // namespace
}  // namespace ferry::testing
