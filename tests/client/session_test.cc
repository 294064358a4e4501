// SPDX-License-Identifier: Apache-2.0
// Opening and closing, and what is told when it does not work.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>
#include <thread>

#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

class SessionTest : public ClientTest {
 protected:
  // A session whose handle is the test's to close; null, and a failure, if it cannot be opened.
  ferry_session* OpenByC() {
    ferry_session_options options{};
    options.struct_size = sizeof(options);
    options.client_dir = dir_.c_str();
    ferry_session* session = nullptr;
    EXPECT_EQ(ferry_session_open(&options, &session), nullptr);
    return session;
  }
};

TEST_F(SessionTest, OpensAndShowsWhatTheDaemonSaid) {
  Session session = Open("trainer-7");
  EXPECT_EQ(session.id(), 1u);
  EXPECT_EQ(session.node(), "node-a");
  ASSERT_EQ(session.devices().size(), 2u);
  EXPECT_EQ(session.devices()[1].global_device_id, 1u);
  EXPECT_EQ(session.devices()[1].kind, 1);
  EXPECT_STREQ(session.devices()[1].name, "host1");
  EXPECT_EQ(session.limits().batch_transfers, 4096u);
  EXPECT_EQ(session.limits().bytes, 1ull << 36);
  ASSERT_OK(session.Health());
  const v1::Hello hello = daemon_->last_hello();
  EXPECT_EQ(hello.name(), "trainer-7");
  EXPECT_EQ(hello.client_version(), ferry_version());
  EXPECT_EQ(hello.protocol_min(), 2u);
  EXPECT_EQ(hello.protocol_max(), 2u);
  session.Close();
  daemon_->WaitForSessions(0);
}

TEST_F(SessionTest, ADaemonOfAnotherVersionIsToldWithBothVersionsAndWhichEndIsOlder) {
  const std::string ours = "of the protocol with clients, this libferry (" +
                           std::string(ferry_version()) + ") speaks version 2; ";
  const std::pair<uint32_t, std::string> cases[] = {
      {1, "the daemon is the older one: update ferryd"},
      {9, "the library is the older one: update libferry, or the program that has its own"}};
  for (const auto& [theirs, what] : cases) {
    FakeDaemon::Behaviour behaviour;
    behaviour.protocol = theirs;
    Restart(behaviour);
    SessionOptions options;
    options.client_dir = dir_;
    const Status refused = Session::Open(options).status();
    EXPECT_EQ(refused.code(), 9);  // FAILED_PRECONDITION
    EXPECT_EQ(refused.reason(), "PROTOCOL_VERSION");
    EXPECT_THAT(std::string(refused.message()),
                ::testing::HasSubstr("the daemon speaks version " + std::to_string(theirs) + " " +
                                     ours + what));
    daemon_->WaitForSessions(0);
  }
}

// With nothing else that holds the session, such as an arena.
TEST_F(SessionTest, ACallThatWaitsInAnotherThreadEndsWithTheSession) {
  ferry_session* const session = OpenByC();
  ASSERT_NE(session, nullptr);
  std::thread joins([session] {
    const Status status(ferry_domain_join(session, "d", 1, 0, "hang"));
    EXPECT_EQ(status.code_name(), "CANCELLED") << status.ToString();
  });
  daemon_->WaitForHanging(1);
  ferry_session_close(session);
  joins.join();
}

TEST_F(SessionTest, TheNameIsTheProgramsByDefault) {
  ferry_session* const session = OpenByC();
  ASSERT_NE(session, nullptr);
  std::string comm;
  std::ifstream("/proc/self/comm") >> comm;
  EXPECT_EQ(daemon_->last_hello().name(), comm);
  ferry_session_close(session);
}

TEST_F(SessionTest, TheClustersDevicesAreListed) {
  Session session = Open();
  Result<std::vector<ClusterDevice>> all = session.ClusterDevices();
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].name, "host0");
  EXPECT_EQ((*all)[0].kind, 1);
  EXPECT_TRUE((*all)[0].local);
  EXPECT_EQ((*all)[1].global_device_id, 9u);
  EXPECT_EQ((*all)[1].node, "node-b");
  EXPECT_EQ((*all)[1].name, "");
  EXPECT_EQ((*all)[1].kind, 0);
  EXPECT_FALSE((*all)[1].local);
}

TEST_F(SessionTest, TheEnvironmentSaysWhereTheDaemonIs) {
  std::filesystem::create_directory(dir_ + "/client");
  FakeDaemon other(dir_ + "/client");  // whose runtime directory dir_ is
  const auto open = [] { return Session::Open(); };
  unsetenv("FERRY_CLIENT_DIR");
  setenv("FERRY_RUNTIME_DIR", dir_.c_str(), 1);
  ASSERT_OK(open());
  EXPECT_EQ(daemon_->hellos(), 0u);
  EXPECT_EQ(other.hellos(), 1u);
  setenv("FERRY_CLIENT_DIR", dir_.c_str(), 1);  // says more
  ASSERT_OK(open());
  EXPECT_EQ(daemon_->hellos(), 1u);
  setenv("FERRY_CLIENT_DIR", "", 1);
  ASSERT_OK(open());
  EXPECT_EQ(other.hellos(), 2u);
  setenv("FERRY_RUNTIME_DIR", "/nowhere", 1);
  EXPECT_THAT(std::string(open().status().message()), ::testing::HasSubstr("/nowhere/client"));
  unsetenv("FERRY_RUNTIME_DIR");
  unsetenv("FERRY_CLIENT_DIR");
}

TEST(ResultTest, AValueThatIsNotThereSaysWhy) {
  Result<std::string> text(std::string("there"));
  const Result<std::string>& same = text;
  EXPECT_EQ(text.value(), "there");
  EXPECT_EQ(same.value().size() + same->size(), 10u);
  EXPECT_EQ(std::move(text).value(), "there");
  ferry_session* session = nullptr;
  const Result<int> none(Status(ferry_session_wait(session, 0)));
  EXPECT_DEATH(static_cast<void>(none.value()), "no value: INVALID_ARGUMENT/FIELD_INVALID: ferry");
}

TEST_F(SessionTest, AnOlderShorterOptionsStructIsTaken) {
  ferry_session_options options;
  std::memset(static_cast<void*>(&options), 0xff, sizeof(options));
  options.struct_size = offsetof(ferry_session_options, name);
  options.client_dir = dir_.c_str();
  ferry_session* session = nullptr;
  ASSERT_EQ(ferry_session_open(&options, &session), nullptr);
  ferry_session_close(session);
  options.struct_size = 0;
  Status status(ferry_session_open(&options, &session));
  EXPECT_EQ(status.reason(), "FIELD_INVALID");
}

TEST_F(SessionTest, NoDaemonSaysWhatToCheck) {
  daemon_.reset();  // the socket's file stays, refused
  SessionOptions options;
  options.client_dir = dir_;
  auto refused = Session::Open(options);
  EXPECT_EQ(refused.status().code_name(), "UNAVAILABLE");
  // A socket that nobody has and one that is not there are one thing to who asks.
  const auto says = ::testing::HasSubstr("no daemon listens there (is ferryd running");
  EXPECT_THAT(std::string(refused.status().message()), says);
  options.client_dir = dir_ + "/nowhere";
  auto missing = Session::Open(options);
  EXPECT_EQ(missing.status().code_name(), "UNAVAILABLE");
  EXPECT_THAT(std::string(missing.status().message()),
              ::testing::AllOf(::testing::HasSubstr(dir_ + "/nowhere/attach.sock"), says));
}

TEST_F(SessionTest, AnOverlongPathIsNamed) {
  SessionOptions options;
  options.client_dir = "/tmp/" + std::string(100, 'x');
  auto session = Session::Open(options);
  EXPECT_EQ(session.status().code_name(), "INVALID_ARGUMENT");
  EXPECT_THAT(std::string(session.status().message()), ::testing::HasSubstr("107"));
}

TEST_F(SessionTest, ARefusalReachesTheCaller) {
  SessionOptions options;
  options.client_dir = dir_;
  options.name = "refused";
  auto session = Session::Open(options);
  EXPECT_EQ(session.status().code_name(), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(session.status().reason(), "TOO_MANY_SESSIONS");
}

TEST_F(SessionTest, AShortTimelineMemfdIsRefusedNotTouched) {
  daemon_->set_memfd_short(true);
  SessionOptions options;
  options.client_dir = dir_;
  auto session = Session::Open(options);
  EXPECT_EQ(session.status().reason(), "PROTOCOL_ERROR");
}

TEST_F(SessionTest, ASilentDaemonTimesOut) {
  // A listener that accepts nothing: connect succeeds, no answer comes.
  const std::string dir = dir_ + "/silent";
  std::filesystem::create_directory(dir);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (dir + "/attach.sock").c_str());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  SessionOptions options;
  options.client_dir = dir;
  options.timeout = std::chrono::milliseconds(50);
  auto session = Session::Open(options);
  EXPECT_EQ(session.status().code_name(), "DEADLINE_EXCEEDED");
  close(listener);
}

TEST_F(SessionTest, TwoSessionsOfOneProcess) {
  Session a = Open();
  Session b = Open();
  EXPECT_NE(a.id(), b.id());
  daemon_->WaitForSessions(2);
  auto batch_a = a.Send(0, {Keyed("echo")});
  auto batch_b = b.Send(0, {Keyed("fail")});
  ASSERT_OK(batch_a);
  ASSERT_OK(batch_b);
  ASSERT_OK(batch_a->Wait(kSoon));
  EXPECT_EQ(batch_b->Wait(kSoon).reason(), "TRANSFER_MISMATCH");
  a.Close();
  daemon_->WaitForSessions(1);
  ASSERT_OK(b.Health());
  auto again = b.Send(0, {Keyed("echo")});
  ASSERT_OK(again);
  ASSERT_OK(again->Wait(kSoon));
}

TEST_F(SessionTest, NothingIsLeftBehind) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto round = [&] {
    Session session = Open();
    auto arena = session.CreateArena(0, 1 << 20);
    auto batch = session.Send(0, {Keyed("echo", {arena->All()})});
    ASSERT_OK(batch->Wait(kSoon));
    ASSERT_OK(batch->OnOver([] {}));
    session.Close();
    daemon_->WaitForSessions(0);
  };
  for (int i = 0; i < 5; ++i) round();  // gRPC keeps some for good
  const auto fds = count();
  const auto tasks = threads();
  for (int i = 0; i < 20; ++i) round();
  EXPECT_LE(count(), fds + 4);
  EXPECT_LE(threads(), tasks + 30);  // the fake's finished threads are joined at its end
}

TEST_F(SessionTest, EveryDescriptorIsCloseOnExec) {
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  auto batch = session.Send(0, {Keyed("echo", {arena->All()})});
  ASSERT_OK(batch->Wait(kSoon));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    if (fd <= 2) continue;
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    const int flags = fcntl(fd, F_GETFD);
    if (target.find("socket:") == 0 || target.find("memfd") != std::string::npos ||
        target.find("eventfd") != std::string::npos) {
      EXPECT_TRUE(flags < 0 || (flags & FD_CLOEXEC)) << fd << " " << target;
    }
  }
}

TEST_F(SessionTest, HandlesOutliveTheSession) {
  Session session = Open();
  auto arena = session.CreateArena(0, 4096);
  ASSERT_OK(arena);
  std::memset(arena->data(), 7, 4096);
  auto batch = session.Receive(0, {Keyed("never", {arena->All()})});
  ASSERT_OK(batch);
  std::thread waiter([&] { EXPECT_EQ(batch->Wait(kSoon).code_name(), "CANCELLED"); });
  session.Close();
  waiter.join();
  EXPECT_TRUE(batch->over());
  EXPECT_EQ(batch->TransferStatus(0).reason(), "CANCELLED");
  EXPECT_EQ(batch->Cancel().code_name(), "CANCELLED");
  EXPECT_EQ(arena->Release().code_name(), "CANCELLED");
  EXPECT_EQ(static_cast<char*>(arena->data())[4095], 7);
}

}  // namespace
}  // namespace ferry::testing
