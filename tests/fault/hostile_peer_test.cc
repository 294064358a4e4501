// SPDX-License-Identifier: Apache-2.0
// Who says on a peer port, a peer.sock or a port where a daemon should be that it is a daemon, and
// is not: it hears nothing that is not for everybody, moves nothing, and no link is lost by it.
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/lingering.h"
#include "tests/support/lying_peer.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kBytes = 4096;
constexpr char kDomain[] = "a job's secret name";

class HostilePeerTest : public ClusterTest {
 protected:
  void StartWith(bool secret, const std::string& transfer = "") {
    ClusterOptions options;
    options.secret = secret;
    options.transfer = transfer;
    Start(options);
  }
  std::string AddressOf(size_t i) { return absl::StrCat("127.0.0.1:", nodes().port(i)); }
  // The number of times that `what` is in the log of node i.
  size_t Logged(size_t i, const std::string& what) {
    const std::string log = node(i).Log();
    size_t count = 0;
    for (size_t at = log.find(what); at != std::string::npos; at = log.find(what, at + 1)) ++count;
    return count;
  }
  static PostOptions OfTheJob() {
    PostOptions options;
    options.domain = kDomain;
    return options;
  }
};

peer::v1::Frame Introduction(const std::string& name) {
  peer::v1::Frame frame;
  *frame.mutable_introduction() = IntroductionOf(name);
  return frame;
}

peer::v1::Frame HelloWithOffer() {
  peer::v1::Frame frame;
  frame.set_proof(std::string(32, 'p'));
  for (const uint64_t id : {0, 1}) frame.mutable_hello()->add_devices()->set_global_device_id(id);
  frame.set_first_event(1);
  peer::v1::PeerEvent* event = frame.add_events();
  event->set_transfer(1);
  event->mutable_offer()->set_domain(kDomain);
  event->mutable_offer()->set_src_global_device_id(0);
  event->mutable_offer()->set_dst_global_device_id(2);
  event->mutable_offer()->set_key("k");
  event->mutable_offer()->set_bytes(kBytes);
  event->mutable_offer()->set_ready(true);
  event->mutable_offer()->add_ranges()->set_length(kBytes);
  return frame;
}

class StrangerTest : public HostilePeerTest, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(, StrangerTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "WithASecret" : "WithoutOne";
});

TEST_P(StrangerTest, DoesNotTouchTheLinkOfWhomItNames) {
  StartWith(GetParam());
  End source = OpenEnd(0, kBytes), destination = OpenEnd(1, kBytes);
  ExpectTransfer(source, destination, "before");
  for (const char* name : {"node-b", "node-c", "", "node-z\nnode-a"}) {
    LyingCaller caller(AddressOf(1));
    caller.Say(Introduction(name));
    EXPECT_EQ(caller.AwaitEnd(), "PERMISSION_DENIED/NOT_ALLOWED") << name;
  }
  int heard = 0;
  for (int i = 0; i < 20; ++i) {  // the door takes only so many of one address at once
    LyingCaller caller(AddressOf(1));
    caller.Say(Introduction("node-a"));
    const std::optional<peer::v1::Frame> answer = caller.Hear();
    if (!answer.has_value()) continue;
    ++heard;
    EXPECT_FALSE(answer->has_hello());
    EXPECT_EQ(answer->introduction().node(), "node-b");
    caller.Say(HelloWithOffer());
    EXPECT_EQ(caller.AwaitEnd(), "PERMISSION_DENIED/NOT_ALLOWED");
    ExpectTransfer(source, destination, absl::StrCat("beside ", i));
  }
  EXPECT_GT(heard, 0);
  EXPECT_EQ(Logged(0, "peer.lost") + Logged(1, "peer.lost"), 0u);
  EXPECT_EQ(Logged(1, "peer.up"), 1u);
}

// A daemon is down; somebody says it is that one. What waits for the true one is not told, and ends
// as if nobody had come.
TEST_P(StrangerTest, HearsNothingOfWhatWaitsForWhomItNames) {
  StartWith(GetParam());
  End source = OpenEnd(0, kBytes), destination = OpenEnd(1, kBytes);
  ExpectTransfer(source, destination, "before");
  source = End{};
  node(0).Kill();
  ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") != "up"; }));
  PostOptions soon = OfTheJob();
  soon.deadline = milliseconds(1500);
  Batch send = Must(destination.session.Send(
      2, {Transfer(0, "secret key", {destination.arena.Range(0, kBytes)})}, soon));
  LyingCaller caller(AddressOf(1));
  ASSERT_TRUE(caller.Say(Introduction("node-a")));
  ASSERT_TRUE(caller.Hear().has_value());
  caller.Say(HelloWithOffer());
  while (const std::optional<peer::v1::Frame> frame = caller.Hear()) {
    EXPECT_THAT(frame->SerializeAsString(), Not(HasSubstr("secret")));
    EXPECT_FALSE(frame->has_hello());
    EXPECT_EQ(frame->events_size(), 0);
  }
  EXPECT_EQ(caller.AwaitEnd(), "PERMISSION_DENIED/NOT_ALLOWED");
  EXPECT_THAT(send.Wait(), Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

// The port of a daemon that is down is taken by somebody else.
TEST_P(StrangerTest, WhereADaemonShouldBeIsNotBelieved) {
  StartWith(GetParam());
  End source = OpenEnd(0, kBytes);
  node(1).Kill();
  peer::v1::Frame answer = Introduction("node-b");
  answer.set_proof(std::string(32, 'p'));
  LyingListener liar(nodes().port(1), answer);
  PostOptions soon = OfTheJob();
  soon.deadline = milliseconds(1500);
  Batch send = Must(
      source.session.Send(0, {Transfer(2, "secret key", {source.arena.Range(0, kBytes)})}, soon));
  EXPECT_THAT(send.Wait(), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_GE(liar.callers(), 1u);
  for (const peer::v1::Frame& frame : liar.heard()) {
    EXPECT_FALSE(frame.has_hello());
    EXPECT_EQ(frame.events_size(), 0);
    EXPECT_EQ(frame.proof(), "");
  }
  EXPECT_NE(node(0).admin().PeerState("node-b"), "up");
}

TEST_P(StrangerTest, MayKnockAndNobodyIsHarmed) {
  StartWith(GetParam());
  node(1).Kill();  // whom node-a dials
  EXPECT_EQ(KnockAt(AddressOf(0), "node-b"), "OK");
  EXPECT_EQ(KnockAt(AddressOf(0), "node-a"), "PERMISSION_DENIED/NOT_ALLOWED");
  EXPECT_EQ(KnockAt(AddressOf(0), "x\ny"), "PERMISSION_DENIED/NOT_ALLOWED");
  // The door takes only so many of one address at once.
  for (int i = 0; i < 200; ++i) KnockAt(AddressOf(0), "node-b");
  EXPECT_THAT(node(0).Log(), Not(HasSubstr("x\ny")));
  // The knocks took a while; a dial a second is what they may cause.
  EXPECT_LE(Logged(0, "peer.lost"), 100u);
}

// A SEQPACKET listener of user `uid` at `path`: the kernel tells who listens, not who accepts.
UniqueFd ListenAs(uid_t uid, const std::string& path) {
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const pid_t child = fork();
  if (child == 0) {
    _exit(setresuid(uid, uid, uid) == 0 && listen(listener.get(), 16) == 0 ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return listener;
}

// Without a secret the proof is who listens at the path that is said: another user's socket is
// none.
TEST_F(HostilePeerTest, APeerSockOfAnotherUserProvesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
  StartWith(/*secret=*/false);
  End source = OpenEnd(0, kBytes);
  node(1).Kill();
  const std::string path = nodes().directory() / "liar.sock";
  const UniqueFd listener = ListenAs(1234, path);
  peer::v1::Frame answer = Introduction("node-b");
  answer.mutable_introduction()->set_peer_socket(path);
  LyingListener liar(nodes().port(1), answer);
  PostOptions soon;
  soon.deadline = milliseconds(1500);
  Batch send =
      Must(source.session.Send(0, {Transfer(2, "k", {source.arena.Range(0, kBytes)})}, soon));
  EXPECT_THAT(send.Wait(), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(node(0).Log(), HasSubstr("uid 1234 listens there"));
  EXPECT_NE(node(0).admin().PeerState("node-b"), "up");
}

// What it sends the moment it is connected to is in the queue of what the daemon then closes.
TEST_F(HostilePeerTest, APeerSockOfAnotherUserCannotMakeTheDaemonWait) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
  StartWith(/*secret=*/false);
  End source = OpenEnd(0, kBytes), destination = OpenEnd(0, kBytes, 1);
  node(1).Kill();
  const std::string path = nodes().directory() / "liar.sock";
  const UniqueFd listener = ListenAs(1234, path);
  std::deque<Lingering> lingering(64);
  std::atomic<bool> stop = false;
  std::atomic<size_t> dialled = 0;
  std::thread sender([&] {
    std::vector<RawSocket> sockets;
    while (!stop && dialled < lingering.size()) {
      pollfd state{listener.get(), POLLIN, 0};
      if (poll(&state, 1, 0) != 1) continue;
      sockets.emplace_back(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      Lingering& next = lingering[dialled];
      // If the daemon was quicker, ours is the only copy.
      if (!sockets.back().Send("x", {next.fd.get()})) next.reader.Reset();
      next.fd.Reset();
      ++dialled;
    }
  });
  peer::v1::Frame answer = Introduction("node-b");
  answer.mutable_introduction()->set_peer_socket(path);
  LyingListener liar(nodes().port(1), answer);
  PostOptions soon;
  soon.deadline = milliseconds(3000);
  Batch send =
      Must(source.session.Send(0, {Transfer(2, "k", {source.arena.Range(0, kBytes)})}, soon));
  EXPECT_TRUE(Await([&] { return dialled > 0; }));
  ExpectTransfer(source, destination, "meanwhile");
  EXPECT_THAT(send.Wait(), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  stop = true;
  sender.join();
}

// Two daemons were given one name. The first stays, and the log says so once.
TEST_F(HostilePeerTest, ASecondDaemonOfANameIsRefusedWhileTheFirstLives) {
  StartWith(/*secret=*/true);
  End source = OpenEnd(0, kBytes), destination = OpenEnd(1, kBytes);
  ExpectTransfer(source, destination, "before");
  std::string config = ReadFile(node(0).config_file());
  const std::string directory = nodes().directory() / "twin";
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos);
    config.replace(at, from.size(), to);
  };
  replace("runtime_dir: " + node(0).runtime_dir(), "runtime_dir: " + directory);
  ReservedPort port;
  replace(absl::StrCat("listen: \"127.0.0.1:", nodes().port(0)),
          absl::StrCat("listen: \"127.0.0.1:", port.port()));
  SpawnOptions spawn;
  Node twin("node-a", directory, config, spawn);
  ASSERT_TRUE(twin.Start());
  {
    SessionOptions options;
    options.client_dir = twin.client_dir();
    Session session = Must(Session::Open(options));
    Batch wanted = Must(session.Receive(0, {Transfer(2, "k", {})}));
    // It dials, and is told; again and again, which its log says once.
    ASSERT_TRUE(Await([&] {
      const std::string dump = twin.admin().Dump();
      const size_t first = dump.find(" peer.lost");
      return first != std::string::npos && dump.find(" peer.lost", first + 1) != std::string::npos;
    }));
    EXPECT_THAT(twin.Log(), HasSubstr("two daemons have one node.name"));
    ExpectTransfer(source, destination, "beside it");
  }
  EXPECT_EQ(Logged(1, "peer.second"), 1u);
  EXPECT_EQ(Logged(1, "peer.lost") + Logged(0, "peer.lost"), 0u);
  twin.Stop();
}

// The next life of a daemon is let in as soon as its last one is gone.
TEST_P(StrangerTest, ADaemonThatIsStartedAgainIsNoStranger) {
  StartWith(GetParam());
  End source = OpenEnd(0, kBytes), destination = OpenEnd(1, kBytes);
  ExpectTransfer(source, destination, "before");
  source = End{};
  node(0).Kill();
  ASSERT_TRUE(node(0).Start());
  source = OpenEnd(0, kBytes);
  ExpectTransfer(source, destination, "after");
  EXPECT_EQ(Logged(1, "peer.second"), 0u);
}

TEST(SecretFileTest, MustBeGoodOrTheDaemonDoesNotStart) {
  struct Case {
    const char* what;
    std::function<void(const std::string&)> edit;
    const char* text;
  };
  const Case cases[] = {
      {"missing", [](const std::string& file) { unlink(file.c_str()); }, "No such file"},
      {"for all to read", [](const std::string& file) { chmod(file.c_str(), 0644); }, "chmod 0600"},
      {"short", [](const std::string& file) { WriteFile(file, "15 bytes of it."); }, "15 bytes"},
      {"long", [](const std::string& file) { WriteFile(file, std::string(4097, 'x')); },
       "more than 4096 bytes"},
      {"a pipe",
       [](const std::string& file) {
         unlink(file.c_str());
         mkfifo(file.c_str(), 0600);
       },
       "not a plain file"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Cluster cluster({.secret = true});
    c.edit(cluster[0].runtime_dir() + ".secret");
    const Finished refused = RunProgram({FerrydProgram(), "--config", cluster[0].config_file()});
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.output, HasSubstr("peer.secret_file"));
    EXPECT_THAT(refused.output, HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace ferry::testing
