// SPDX-License-Identifier: Apache-2.0
// Clients and surroundings that do harm: holes under a copy, scribbled timelines, no descriptors
// left.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HoleTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(HoleTest);

// Wrong bytes for the one who punches, a fault for nobody.
TEST_P(HoleTest, PunchedBeforeAndDuringTransfers) {
  constexpr uint64_t kBytes = 64 * kMiB;
  StartForRoute();
  End good_source = OpenSource(kMiB), good_destination = OpenDestination(kMiB);
  ClientProcess source(node(0).client_dir(), "puncher");
  ClientProcess destination(node(destination_node()).client_dir(), "puncher");
  ASSERT_EQ(source.Tell(absl::StrCat("import ", source_device(), " ", kBytes)), "OK 0");
  ASSERT_EQ(destination.Tell(absl::StrCat("import ", destination_device(), " ", kBytes)), "OK 0");
  for (int round = 0; round < 6; ++round) {
    ASSERT_EQ(source.Tell(absl::StrCat("fill 0 0 ", kBytes, " ", round)), "OK");
    if (round == 0) {
      ASSERT_EQ(source.Tell(absl::StrCat("punch 0 ", kMiB, " ", kMiB)), "OK");
      ASSERT_EQ(destination.Tell(absl::StrCat("punch 0 0 ", kBytes)), "OK");
    }
    const std::string what = absl::StrCat(" k 0 0 ", kBytes, route_option());
    ASSERT_EQ(destination.Tell(
                  absl::StrCat("receive ", destination_device(), " ", source_device(), what)),
              absl::StrCat("OK ", round));
    ASSERT_EQ(source.Tell(absl::StrCat("send ", source_device(), " ", destination_device(), what)),
              absl::StrCat("OK ", round));
    // While it runs, or right behind it.
    for (int i = 0; i < 16; ++i) {
      source.Order(absl::StrCat("punch 0 ", static_cast<uint64_t>(i) * 4 * kMiB, " ", 2 * kMiB));
      destination.Order(
          absl::StrCat("punch 0 ", static_cast<uint64_t>(i) * 4 * kMiB, " ", 2 * kMiB));
    }
    for (int i = 0; i < 16; ++i) {
      ASSERT_EQ(source.Answer(), "OK");
      ASSERT_EQ(destination.Answer(), "OK");
    }
    EXPECT_EQ(source.Tell(absl::StrCat("wait ", round, " 20000")), "OK");
    EXPECT_EQ(destination.Tell(absl::StrCat("wait ", round, " 20000")), "OK");
    ExpectTransfer(good_source, good_destination, absl::StrCat("other", round), options());
  }
  EXPECT_TRUE(node(0).running());
  EXPECT_TRUE(node(1).running());
}

class ScribbleTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(ScribbleTest);

// Random bytes over all of its timelines, with transfers waiting on them: only the scribbler is
// misled.
TEST_P(ScribbleTest, TimelinesFullOfNonsense) {
  StartForRoute();
  End good[2] = {OpenSource(kMiB), OpenDestination(kMiB)};
  for (int seed = 0; seed < 4; ++seed) {
    auto source = SpawnSource(kMiB);
    auto destination = SpawnDestination(kMiB);
    const std::string waits =
        absl::StrCat(" w 0 0 4096 count=64 defined=7:18446744073709551615", route_option());
    ASSERT_EQ(
        source->Tell(absl::StrCat("send ", source_device(), " ", destination_device(), waits)),
        "OK 0");
    ASSERT_EQ(destination->Tell(
                  absl::StrCat("receive ", destination_device(), " ", source_device(), waits)),
              "OK 0");
    ASSERT_EQ(source->Tell(absl::StrCat("scribble ", seed)), "OK");
    ASSERT_EQ(destination->Tell(absl::StrCat("scribble ", seed + 100)), "OK");
    ExpectTransfer(good[0], good[1], absl::StrCat("other", seed), options());
    // The daemon's own counts were not on those pages: it still knows how many are in flight.
    EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), GetParam().one_node ? 128u : 64u);
    source->Kill();
    destination->Kill();
    ASSERT_TRUE(Await([&] { return node(0).admin().Status().transfers_in_flight() == 0; }));
    ASSERT_TRUE(Await([&] { return node(1).admin().Status().transfers_in_flight() == 0; }));
  }
}

// Whoever writes over its memory while it is sent or received into gets bytes of no one moment; all
// ends well, and others' bytes are right.
TEST_P(ScribbleTest, ArenasWhileTheyAreReadAndWritten) {
  constexpr uint64_t kBytes = 16 * kMiB;
  StartForRoute();
  End good[2] = {OpenSource(kMiB), OpenDestination(kMiB)};
  End bad[2] = {OpenSource(kBytes), OpenDestination(kBytes)};
  std::atomic<bool> stop = false;
  std::thread scribbler([&] {
    for (uint64_t seed = 0; !stop; ++seed) Fill(bad[seed % 2].arena, 0, kBytes, seed);
  });
  for (int round = 0; round < 8; ++round) {
    const std::string key = absl::StrCat("scribbled ", round);
    Batch receive = Receive(bad[1], bad[0], key, {bad[1].arena.All()}, options());
    Batch send = Send(bad[0], bad[1], key, {bad[0].arena.All()}, options());
    ExpectTransfer(good[0], good[1], absl::StrCat("other ", round), options());
    EXPECT_THAT(receive.Wait(kSoon), IsOk());
    EXPECT_THAT(send.Wait(kSoon), IsOk());
  }
  stop = true;
  scribbler.join();
  ExpectTransfer(bad[0], bad[1], "calm", options());
}

class ExhaustionTest : public ClusterTest {};

// Connections beyond the daemon's descriptors are closed at once; when some are free again, all is
// well.
TEST_F(ExhaustionTest, NoDescriptorsLeft) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan itself takes descriptors, to look at memory, and ends the daemon without";
#endif
  Start({.nodes = 1});
  End one = OpenEnd(0, 4096), two = OpenEnd(0, 4096, 1);
  ExpectTransfer(one, two, "before");
  const auto used = static_cast<rlim_t>(node(0).process().OpenFds());
  rlimit before{};
  ASSERT_EQ(prlimit(node(0).process().pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit low{used + 40, before.rlim_max};
  ASSERT_EQ(prlimit(node(0).process().pid(), RLIMIT_NOFILE, &low, nullptr), 0);
  for (const char* name : {"/client/attach.sock", "/client/client.sock", "/admin/admin.sock"}) {
    std::vector<std::unique_ptr<RawSocket>> hold;
    const int type = std::string(name) == "/client/attach.sock" ? SOCK_SEQPACKET : SOCK_STREAM;
    for (int i = 0; i < 200; ++i)
      hold.push_back(std::make_unique<RawSocket>(node(0).runtime_dir() + name, type));
    // The last ones are refused by being closed, not left to hang.
    EXPECT_TRUE(hold.back()->AwaitClosed()) << name;
    // Who has a session goes on, and is told if it asks for what takes a descriptor.
    ExpectTransfer(one, two, absl::StrCat("meanwhile ", name));
    if (type == SOCK_SEQPACKET) {  // of the others the daemon takes only so many
      // The last one's is free for a moment, until the door has it back.
      Status refused;
      EXPECT_TRUE(Await([&] {
        refused = one.session.CreateArena(0, 4096).status();
        return !refused.ok();
      }));
      EXPECT_THAT(refused, Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS", HasSubstr("no descriptors left")));
    }
    hold.clear();
    EXPECT_TRUE(Await([&] { return node(0).process().OpenFds() <= used + 4; })) << name;
    ASSERT_TRUE(Await([&] { return node(0).admin().Health("liveness") == "SERVING"; })) << name;
    ASSERT_TRUE(Await([&] {
      SessionOptions options;
      options.client_dir = node(0).client_dir();
      return Session::Open(options).ok();
    })) << name;
  }
  ASSERT_EQ(prlimit(node(0).process().pid(), RLIMIT_NOFILE, &before, nullptr), 0);
}

// A client that posts and never reads the answers, and one that opens and closes all the time.
TEST_F(ExhaustionTest, SessionsThatComeAndGo) {
  Start({.nodes = 1});
  End one = OpenEnd(0, 4096), two = OpenEnd(0, 4096, 1);
  ExpectTransfer(one, two, "before");
  for (End* end : {&one, &two}) AwaitCallConnection(end->session);
  const size_t fds = node(0).process().OpenFds();
  const size_t mappings = node(0).process().MemfdMappings();
  for (int i = 0; i < 200; ++i) {
    End brief = OpenEnd(0, 4096);
    Must(brief.session.Send(0, {Transfer(1, "never answered", {brief.arena.All()})}));
  }
  EXPECT_TRUE(Await([&] { return node(0).admin().Status().sessions() == 2; }));
  EXPECT_TRUE(Await([&] {
    return node(0).process().OpenFds() <= fds && node(0).process().MemfdMappings() <= mappings;
  })) << node(0).process().OpenFds()
      << " descriptors, before " << fds;
  ExpectTransfer(one, two, "after");
}

}  // namespace
}  // namespace ferry::testing
