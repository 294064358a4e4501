// SPDX-License-Identifier: Apache-2.0
// Nodes that come and leave by a reload of the others' configuration, under transfers that are no
// business of theirs.
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Transfers from one node to another, one after the other, by a thread of its own; until one fails.
class Traffic {
 public:
  Traffic(End source, End destination)
      : source_(std::move(source)),
        destination_(std::move(destination)),
        thread_([this] { Run(); }) {}
  ~Traffic() { Stop(); }
  // So many more have gone well from now on.
  bool Goes(uint64_t more = 20) {
    const uint64_t goal = done_ + more;
    return Await([&] { return done_ >= goal || over_; }) && done_ >= goal;
  }
  bool AwaitEnd() {
    return Await([&] { return over_.load(); });
  }
  // How the first one that failed did at both ends; OK if none has. Once it is over.
  const Status& sent() const { return sent_; }
  const Status& received() const { return received_; }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    while (!stop_ && sent_.ok() && received_.ok()) {
      const std::string key = absl::StrCat("traffic ", done_.load());
      Result<Batch> receive = destination_.session.Receive(
          destination_.device, {Transfer(source_.device, key, {destination_.arena.All()})});
      Result<Batch> send = source_.session.Send(
          source_.device, {Transfer(destination_.device, key, {source_.arena.All()})});
      if (!send.ok() && receive.ok()) static_cast<void>(receive->Cancel());
      received_ = receive.ok() ? receive->Wait(kSoon) : std::move(receive).status();
      // Posted when its daemon knew already that the link is lost, it waits for another one.
      if (!received_.ok() && send.ok()) static_cast<void>(send->Cancel());
      sent_ = send.ok() ? send->Wait(kSoon) : std::move(send).status();
      if (sent_.ok() && received_.ok()) ++done_;
    }
    over_ = true;
  }

  End source_, destination_;
  std::atomic<uint64_t> done_ = 0;
  std::atomic<bool> stop_ = false, over_ = false;
  Status sent_, received_;
  std::thread thread_;
};

// node-a, node-b and node-c, of which the first two do not know the third one at their start.
class NodesTest : public ClusterTest {
 protected:
  void StartWithoutC(const std::string& transfer) {
    ClusterOptions options;
    options.nodes = 3;
    options.transfer = transfer;
    cluster_ = std::make_unique<Cluster>(options);
    for (const size_t i : {0, 1}) {
      whole_[i] = ReadFile(node(i).config_file());
      WriteFile(node(i).config_file(), WithoutC(whole_[i]));
    }
    ASSERT_TRUE(nodes().Start());
  }
  static std::string WithoutC(const std::string& config) {
    const size_t begin = config.find("    - { name: node-c");
    return absl::StrCat(config.substr(0, begin), config.substr(config.find('\n', begin) + 1));
  }
  std::string Reload(size_t i, bool with_c) {
    WriteFile(node(i).config_file(), with_c ? whole_[i] : WithoutC(whole_[i]));
    return Ferryctl("reload --wait", 0, i);
  }
  std::unique_ptr<Traffic> Start(size_t from, size_t to) {
    return std::make_unique<Traffic>(OpenEnd(from, 4096, 0, "from"), OpenEnd(to, 4096, 1, "to"));
  }
  Status PostToC() {
    Session session = nodes().Open(0);
    return session.Send(0, {Transfer(nodes().Device(2), "k", {})}).status();
  }
  bool StatusSays(size_t i, const std::string& words) {
    return Await([&] { return absl::StrContains(Ferryctl("status", 0, i), words); });
  }

  std::string whole_[2];
};

class NodesOnRoute : public NodesTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(NodesOnRoute, OneComesLeavesAndComesAgainUnderTransfers) {
  StartWithoutC(GetParam());
  const auto between = Start(0, 1);
  ASSERT_TRUE(between->Goes());
  EXPECT_THAT(PostToC(), Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("no node has device 4")));
  EXPECT_THAT(Ferryctl("devices"), Not(HasSubstr("node-c")));

  // It comes; for a while to one of the two only.
  EXPECT_THAT(Reload(0, true), AllOf(HasSubstr("configuration 2:"),
                                     HasSubstr("membership.nodes[node-c]: none, now { address: "),
                                     HasSubstr("ids: [4, 5] }")));
  auto from_c = Start(2, 0);
  EXPECT_TRUE(from_c->Goes());
  EXPECT_EQ(node(0).admin().PeerState("node-c"), "up");
  EXPECT_EQ(node(1).admin().PeerState("node-c"), "");
  Reload(1, true);
  const auto to_b = Start(2, 1);
  EXPECT_TRUE(to_b->Goes());
  EXPECT_THAT(Ferryctl("devices"), HasSubstr("node-c"));
  Ferryctl("route 0 4");

  // It leaves one of the two, with what waits and what is under way.
  End waiting = OpenEnd(0, 4096), there = OpenEnd(2, 4096);
  Batch send = Send(waiting, there, "nobody receives this", {waiting.arena.All()});
  Batch receive = Receive(there, waiting, "nobody sends this", {there.arena.All()});
  EXPECT_TRUE(from_c->Goes());
  EXPECT_THAT(Reload(0, false),
              AllOf(HasSubstr("configuration 3:"),
                    HasSubstr("membership.nodes[node-c]: { address: "), HasSubstr(", now none")));
  const std::string words =
      "link between node-a and node-c: node-c is no longer among membership.nodes of node-a";
  EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE", HasSubstr(words)));
  EXPECT_THAT(receive.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE", HasSubstr(words)));
  ASSERT_TRUE(from_c->AwaitEnd());
  EXPECT_FALSE(from_c->sent().ok() && from_c->received().ok());
  for (const Status* const end : {&from_c->sent(), &from_c->received()}) {
    if (end->ok()) continue;
    EXPECT_THAT(std::string(end->reason()),
                ::testing::AnyOf("PEER_UNREACHABLE", "DEVICE_UNKNOWN", "CANCELLED"))
        << end->ToString();
  }
  EXPECT_THAT(PostToC(), Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("no node has device 4")));
  EXPECT_THAT(Ferryctl("devices"), Not(HasSubstr("node-c")));
  EXPECT_TRUE(StatusSays(2, "'node-c' is not among membership.nodes of node-a"));
  EXPECT_TRUE(StatusSays(0, "'node-c' is not among membership.nodes of node-a"));

  // And comes again.
  Reload(0, true);
  EXPECT_THAT(Ferryctl("status"), Not(HasSubstr("is not among")));
  from_c = Start(2, 0);
  EXPECT_TRUE(from_c->Goes());
  ExpectTransfer(waiting, there, "again");
  for (Traffic* traffic : {between.get(), to_b.get(), from_c.get()}) {
    EXPECT_TRUE(traffic->Goes());
    traffic->Stop();
    EXPECT_THAT(traffic->sent(), IsOk());
    EXPECT_THAT(traffic->received(), IsOk());
  }
  EXPECT_THAT(node(1).Log(), Not(HasSubstr("peer.lost")));
}

INSTANTIATE_TEST_SUITE_P(Routes, NodesOnRoute,
                         ::testing::Values("order: [local, mapped, tcp]", "order: [local, tcp]",
                                           "order: [local, ucx], ucx: { net_tls: \"tcp,self\", "
                                           "open_to: \"this test\" }"),
                         [](const auto& info) {
                           return info.index == 0 ? "mapped" : info.index == 1 ? "tcp" : "ucx";
                         });

// Also where the one that leaves is who dials, or who must wait for the others' dial.
TEST_F(NodesTest, WhoeverDialsTheOnesThatStayGoOn) {
  ClusterOptions options;
  options.nodes = 3;
  cluster_ = std::make_unique<Cluster>(options);
  ASSERT_TRUE(nodes().Start());
  const auto stays = Start(1, 2);
  End a = OpenEnd(0, 4096), b = OpenEnd(1, 4096);
  ExpectTransfer(a, b, "before");
  const std::string whole = ReadFile(node(1).config_file());
  const size_t begin = whole.find("    - { name: node-a");
  WriteFile(node(1).config_file(),
            absl::StrCat(whole.substr(0, begin), whole.substr(whole.find('\n', begin) + 1)));
  Batch waits = Send(a, b, "nobody receives this", {a.arena.All()});
  Ferryctl("reload --wait", 0, 1);
  EXPECT_THAT(waits.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE",
                                    HasSubstr("node-a is no longer among membership.nodes")));
  Batch again = Send(a, b, "when it comes again", {a.arena.All()});
  EXPECT_TRUE(StatusSays(0, "'node-a' is not among membership.nodes of node-b"));
  WriteFile(node(1).config_file(), whole);
  Ferryctl("reload --wait", 0, 1);
  Batch receive = Receive(b, a, "when it comes again", {b.arena.All()});
  EXPECT_THAT(again.Wait(kSoon), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_TRUE(stays->Goes());
}

TEST_F(NodesTest, WhatWaitsForAWrongAddressGoesToTheRightOne) {
  StartWithoutC("order: [local, tcp]");
  const std::string good = ReadFile(node(0).config_file());
  // By neither end's list the other one is found.
  for (const size_t i : {0, 1}) {
    const std::string address = absl::StrCat("127.0.0.1:", nodes().port(1 - i));
    WriteFile(node(i).config_file(),
              absl::StrReplaceAll(ReadFile(node(i).config_file()), {{address, "127.0.0.1:1"}}));
    EXPECT_THAT(Ferryctl("reload --wait", 0, i), HasSubstr("now { address: \"127.0.0.1:1\""));
  }
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  Batch send = Send(source, destination, "k", {source.arena.All()});
  Batch receive = Receive(destination, source, "k", {destination.arena.All()});
  EXPECT_TRUE(StatusSays(0, "127.0.0.1:1"));
  WriteFile(node(0).config_file(), good);
  Ferryctl("reload --wait");
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  // A link that there is, is opened anew, and what is posted on it ends.
  Batch lost = Send(source, destination, "nobody receives this", {source.arena.All()});
  WriteFile(node(0).config_file(),
            absl::StrReplaceAll(good, {{absl::StrCat("127.0.0.1:", nodes().port(1)),
                                        absl::StrCat("localhost:", nodes().port(1))}}));
  Ferryctl("reload --wait");
  EXPECT_THAT(lost.Wait(kSoon),
              Is("UNAVAILABLE/PEER_UNREACHABLE", HasSubstr("node-b is at localhost:")));
  ExpectTransfer(source, destination, "after");
  EXPECT_THAT(Ferryctl("status"), HasSubstr(absl::StrCat("localhost:", nodes().port(1))));
}

TEST_F(NodesTest, ItsOwnEntryTakesARestartAndNothingIsHalfDone) {
  StartWithoutC("order: [local, tcp]");
  const std::string address = absl::StrCat("127.0.0.1:", nodes().port(0));
  WriteFile(node(0).config_file(), absl::StrReplaceAll(whole_[0], {{address, "127.0.0.1:1"}}));
  EXPECT_THAT(Ferryctl("reload --wait", 1),
              AllOf(HasSubstr("FAILED_PRECONDITION CONFIG_INVALID"), HasSubstr("only a restart"),
                    HasSubstr("membership.nodes[node-a]: "), Not(HasSubstr("node-c"))));
  EXPECT_EQ(node(0).admin().PeerState("node-c"), "");
  EXPECT_THAT(PostToC(), Is("NOT_FOUND/DEVICE_UNKNOWN"));
  EXPECT_THAT(Reload(0, true), HasSubstr("configuration 2:"));
  EXPECT_EQ(node(0).admin().PeerState("node-c"), "idle");
}

}  // namespace
}  // namespace ferry::testing
