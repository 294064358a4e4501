// SPDX-License-Identifier: Apache-2.0
// What operators end of others, and what logs and scripts are told.
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class OperatorTest : public ClusterTest {
 protected:
  static std::vector<std::string> LinesWith(const std::string& log, const std::string& part) {
    std::vector<std::string> lines;
    for (absl::string_view line : absl::StrSplit(log, '\n')) {
      if (absl::StrContains(line, part)) lines.emplace_back(line);
    }
    return lines;
  }
  // Listens at `socket` and closes `count` connections, each as soon as it is there; then does what
  // it is to do `last`.
  static std::thread CloseConnections(const std::string& socket, int count,
                                      std::function<void()> last) {
    UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    FERRY_CHECK(socket.size() < sizeof(address.sun_path));
    memcpy(address.sun_path, socket.data(), socket.size());
    FERRY_CHECK(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                listen(listener.get(), 16) == 0);
    return std::thread([listener = std::move(listener), count, last = std::move(last)] {
      for (int i = 0; i < count; ++i) {
        const UniqueFd accepted(accept(listener.get(), nullptr, nullptr));
      }
      last();
    });
  }
};

TEST_F(OperatorTest, TransfersAreCancelledByTheirIds) {
  Start();
  Session one = nodes().Open(0), other = nodes().Open(0);
  Batch first = Must(one.Send(0, {Transfer(2, "a", {}), Transfer(2, "b", {})}));
  Batch second = Must(other.Receive(1, {Transfer(2, "c", {})}));
  const auto& rows = node(0).admin().Transfers();
  ASSERT_EQ(rows.transfers_size(), 3);
  const uint64_t session = rows.transfers(0).session_id();
  const uint64_t others = rows.transfers(2).session_id();
  ASSERT_EQ(rows.transfers(2).transfer_id(), rows.transfers(0).transfer_id());
  const uint64_t id = rows.transfers(0).transfer_id();
  EXPECT_THAT(Ferryctl(absl::StrCat("transfers cancel ", id), 1),
              HasSubstr(absl::StrCat("say which: ", session, "/", id, ", ", others, "/", id)));
  for (const std::string bad : {"3.4", "3/", "/4", "3/4/5", "three/4"}) {
    EXPECT_THAT(Ferryctl("transfers cancel " + bad, 1),
                HasSubstr("'" + bad +
                          "' is not an id, which is SESSION/ID, as 3/17: `ferryctl "
                          "transfers` shows both"));
  }
  EXPECT_THAT(Ferryctl("transfers cancel 4711", 3),
              AllOf(HasSubstr("TRANSFER_NOT_FOUND"), HasSubstr("an id is SESSION/ID, as 3/17")));
  // All or none.
  EXPECT_THAT(Ferryctl(absl::StrCat("transfers cancel ", session, "/", id, " 99/1"), 3),
              HasSubstr("there is no transfer 99/1"));
  EXPECT_EQ(node(0).admin().Transfers().transfers_size(), 3);
  EXPECT_EQ(Ferryctl(absl::StrCat("transfers cancel ", session, "/", id, " ", id + 1)),
            "2 asked to end\n");
  EXPECT_THAT(first.Wait(kSoon), Is("CANCELLED/CANCELLED", HasSubstr("cancelled by an operator")));
  EXPECT_FALSE(second.over());
  EXPECT_EQ(Ferryctl(absl::StrCat("--json transfers cancel ", session, "/", id)),
            "{\"requested\":0,\"over\":1}\n");
  EXPECT_EQ(Ferryctl(absl::StrCat("transfers cancel ", id)), "1 asked to end\n") << "the other's";
  EXPECT_THAT(second.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

TEST_F(OperatorTest, WhoNamesNothingOrNoIdIsToldWhatShowsThem) {
  Start({.nodes = 1});
  EXPECT_THAT(Ferryctl("transfers cancel", 2), HasSubstr("takes ids, SESSION/ID, as 3/17"));
  EXPECT_THAT(Ferryctl("sessions close", 2), HasSubstr("`ferryctl sessions` shows them"));
  EXPECT_THAT(Ferryctl("sessions close 3/17", 2), HasSubstr("`ferryctl sessions` shows them"));
  EXPECT_THAT(Ferryctl("sessions close 4711", 3), HasSubstr("ferryctl sessions lists them"));
  for (const char* command :
       {"devices release", "devices release gpu0", "route node-a node-b", "comms warm gpu0 gpu1",
        "send - --to node-b", "recv - --from node-a"}) {
    EXPECT_THAT(Ferryctl(command, 2), HasSubstr("`ferryctl devices` shows them")) << command;
  }
}

TEST_F(OperatorTest, AClosedSessionEndsAndIsNotResumed) {
  Start();
  SessionOptions options;
  options.client_dir = node(0).client_dir();
  options.reattach = true;
  Session session = Must(Session::Open(options));
  Arena arena = Must(session.CreateArena(0, 4096));
  Batch send = Must(session.Send(0, {Transfer(2, "k", {arena.All()})}));
  const uint64_t id = node(0).admin().Sessions().sessions(0).session_id();
  EXPECT_THAT(Ferryctl(absl::StrCat("sessions close ", id + 1), 3), HasSubstr("ID_STALE"));
  EXPECT_EQ(Ferryctl(absl::StrCat("sessions close ", id)),
            absl::StrCat("session ", id, " closed, with 1 in flight\n"));
  const std::string why =
      "an operator has closed this session (ferryctl sessions close); open another one";
  EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST", why)) << "the first error";
  EXPECT_THAT(session.Send(0, {Transfer(2, "k", {})}).status(), Is("UNAVAILABLE/DAEMON_LOST", why));
  EXPECT_THAT(session.WaitAttached(), Is("UNAVAILABLE/DAEMON_LOST", why))
      << "it is not re-attached";
  EXPECT_TRUE(node(0).AwaitIdle()) << "what it had is free";
  EXPECT_EQ(node(0).admin().Sessions().sessions_size(), 0);
  Session another = Must(Session::Open(options));  // the same process may come again
}

TEST_F(OperatorTest, ADrainTellsWhoHasNoPartnerAtOnce) {
  ClusterOptions options;
  options.more = "drain: { timeout: 1h }\n";
  Start(options);
  Session here = nodes().Open(0), there = nodes().Open(1);
  Batch sent = Must(here.Send(0, {Transfer(2, "alone", {})}));
  Batch received = Must(here.Receive(0, {Transfer(2, "alone too", {})}));
  Transfer later(1, "pair", {});
  later.defined_at = Transfer::DefinedAt{0, 1};
  Batch pair_receive = Must(here.Receive(1, {Transfer(0, "pair", {})}));
  Batch pair = Must(here.Send(0, {later}));
  node(0).Signal(SIGTERM);
  EXPECT_THAT(sent.Wait(kSoon),
              Is("UNAVAILABLE/DRAINING", HasSubstr("the other half has not come")));
  EXPECT_THAT(received.Wait(kSoon), Is("UNAVAILABLE/DRAINING"));
  EXPECT_FALSE(pair.over()) << "it may yet end";
  EXPECT_THAT(here.Define(0, 1), IsOk());
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0)) << "not after an hour";
}

TEST_F(OperatorTest, ACleanStopIsNoWarningAtEitherEnd) {
  Start();
  {
    End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
    ExpectTransfer(source, destination, "up");
  }
  node(1).Stop();
  ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") == "lost"; }));
  ASSERT_TRUE(node(1).Start());
  ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") == "up"; }));
  node(0).Stop();  // the one that dials
  ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") == "lost"; }));
  for (size_t i : {0, 1}) {
    EXPECT_THAT(node(i).Log(), Not(HasSubstr(" W "))) << i;
    EXPECT_THAT(node(i).Log(), HasSubstr(" I peer.lost: ")) << i;
  }
  EXPECT_THAT(node(0).Log(), HasSubstr("node-b stops"));
  EXPECT_THAT(node(1).Log(), HasSubstr("node-a stops"));
  ASSERT_TRUE(node(0).Start());
}

TEST_F(OperatorTest, ADeadPeerIsOneWarningHoweverOftenItIsTried) {
  Start();
  {
    End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
    ExpectTransfer(source, destination, "up");
  }
  node(1).Kill();
  ASSERT_TRUE(Await([&] { return LinesWith(node(0).admin().Dump(), " peer.lost").size() >= 4; }));
  const std::vector<std::string> lines = LinesWith(node(0).Log(), " peer.lost: ");
  ASSERT_EQ(lines.size(), 1u) << node(0).Log();
  EXPECT_THAT(lines[0], HasSubstr(" W "));
  ASSERT_TRUE(node(1).Start());
  ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") == "up"; }));
  EXPECT_THAT(node(0).Log(), ContainsRegex("peer.up: after [0-9]+ s and [0-9]+ attempts, mapped"));
}

TEST_F(OperatorTest, FailuresAreCountedAndOneLineASecond) {
  Start({.nodes = 1});
  Session session = nodes().Open(0);
  std::vector<Transfer> many;
  for (int i = 0; i < 100; ++i) many.emplace_back(1, absl::StrCat(i), std::vector<Range>{});
  PostOptions soon;
  soon.deadline = std::chrono::milliseconds(1);
  EXPECT_THAT(Must(session.Send(0, many, soon)).Wait(kSoon),
              Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  ASSERT_TRUE(Await([&] { return LinesWith(node(0).Log(), "transfer.failed").size() == 2; }));
  const std::vector<std::string> lines = LinesWith(node(0).Log(), "transfer.failed");
  EXPECT_THAT(lines[0], HasSubstr("send: DEADLINE_EXCEEDED WAITING_FOR_PEER: "));
  EXPECT_THAT(lines[1], HasSubstr("(and 98 more since the last line)"));
  EXPECT_THAT(
      HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics"),
      HasSubstr("ferry_transfer_failures_total{reason=\"WAITING_FOR_PEER\",route=\"none\"} 100\n"));
}

TEST(OtherUcxTest, ADaemonWithoutItsOwnSaysWhichItTook) {
  TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "bin");
  std::filesystem::copy(FerrydProgram(), directory / "bin/ferryd");
  ReservedPort port;
  WriteFile(directory / "config.yaml",
            absl::StrCat("node: { name: a, runtime_dir: ", directory / "run",
                         " }\nmembership: { nodes: [ { name: a, address: \"127.0.0.1:", port.port(),
                         "\", ids: [0] }, { name: b, address: \"127.0.0.1:1\", ids: [1] } ] }\n",
                         "peer: { listen: \"127.0.0.1:", port.port(), "\" }\n",
                         "transfer: { ucx: { net_tls: tcp, open_to: tests } }\n"));
  SpawnOptions spawn;
  spawn.arguments = {directory / "bin/ferryd", "--config", directory / "config.yaml"};
  spawn.output = directory / "log";
  Process daemon(spawn);
  ASSERT_TRUE(Await([&] { return absl::StrContains(ReadFile(spawn.output), "daemon.start"); }))
      << ReadFile(spawn.output);
  EXPECT_THAT(ReadFile(spawn.output),
              ContainsRegex(" W ucx.other: [0-9.]+ of the host is taken, not Ferry's own: there is "
                            "no .*/lib/ferry/ucx/libucp.so.0"));
}

TEST_F(OperatorTest, ScriptsTellFailuresApart) {
  Start({.nodes = 1});
  node(0).Signal(SIGSTOP);
  EXPECT_THAT(Ferryctl("status --timeout 100ms", 7), HasSubstr("DEADLINE_EXCEEDED"));
  node(0).Signal(SIGCONT);
  EXPECT_THAT(Ferryctl("--json status"), ContainsRegex("\"sessions\":0,.*\"pid\":[1-9]"));
  // A socket that a daemon has left, and none: for a user the same.
  node(0).Kill();
  ASSERT_TRUE(std::filesystem::exists(node(0).runtime_dir() + "/admin/admin.sock"));
  for (const char* command : {"status", "health", "health --wait 50ms", "transfers"}) {
    const std::string left = Ferryctl(command, 4);
    std::filesystem::rename(node(0).runtime_dir() + "/admin/admin.sock",
                            node(0).runtime_dir() + "/admin/other");
    EXPECT_EQ(Ferryctl(command, 4), left);
    EXPECT_THAT(left, HasSubstr("no daemon listens there (is ferryd running?"));
    std::filesystem::rename(node(0).runtime_dir() + "/admin/other",
                            node(0).runtime_dir() + "/admin/admin.sock");
  }
}

// As when systemd restarts the daemon: the old one closes a connection that it has accepted, then
// the next one answers at the same socket.
TEST_F(OperatorTest, ADaemonThatEndsHasTheNextOneAsked) {
  Start({.nodes = 1});
  const std::string socket = node(0).runtime_dir() + "/admin/admin.sock";
  for (const char* command : {"status", "health"}) {
    std::filesystem::rename(socket, socket + ".next");
    std::thread ending =
        CloseConnections(socket, 3, [&] { std::filesystem::rename(socket + ".next", socket); });
    Ferryctl(command, 0);
    ending.join();
  }
  std::filesystem::remove(socket);
  std::thread ending = CloseConnections(socket, 3, [] {});
  EXPECT_THAT(Ferryctl("status", 4), HasSubstr("no daemon listens there (is ferryd running?"));
  ending.join();
}

}  // namespace
}  // namespace ferry::testing
