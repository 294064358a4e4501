// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor.h"

#include <fcntl.h>

#include "daemon/door.h"
#include "daemon/pulse.h"
#include "daemon/reports.h"
#include "tests/daemon/sockets.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;
using testing::ManualExecutor;

constexpr pid_t kSelf = 4711;

// As systemd's end of $NOTIFY_SOCKET.
class Listener {
 public:
  explicit Listener(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';
    FERRY_CHECK(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())) == 0);
    testing::SetPatience(socket_.get());
  }
  std::string Next() {
    char text[4096];
    const ssize_t size = recv(socket_.get(), text, sizeof(text), 0);
    return size < 0 ? "nothing" : std::string(text, static_cast<size_t>(size));
  }

 private:
  UniqueFd socket_{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

TEST(Supervisor, HearsWhatItAskedFor) {
  testing::Directory directory;
  const std::string abstract = absl::StrCat("@ferry-supervisor-test-", getpid());
  for (const std::string& path : {directory / "notify", abstract}) {
    SCOPED_TRACE(path);
    Listener listener(path);
    Supervisor supervisor({{"NOTIFY_SOCKET", path}, {"WATCHDOG_USEC", "30000000"}}, kSelf);
    EXPECT_TRUE(supervisor.present());
    EXPECT_EQ(supervisor.watchdog(), absl::Seconds(30));
    supervisor.Ready("serving");
    EXPECT_EQ(listener.Next(), "READY=1\nSTATUS=serving");
    supervisor.Alive("a\nREADY=1");
    EXPECT_EQ(listener.Next(), "WATCHDOG=1\nSTATUS=a READY=1");
    supervisor.Silent("lane 3 stands still");
    EXPECT_EQ(listener.Next(), "STATUS=lane 3 stands still");
    supervisor.Stopping("draining", absl::Seconds(60));
    EXPECT_EQ(listener.Next(),
              "STOPPING=1\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS=draining");
  }
}

TEST(Supervisor, WhatIsMeantForAnotherProcessIsNotTaken) {
  Supervisor supervisor({{"WATCHDOG_USEC", "30000000"},
                         {"WATCHDOG_PID", "4712"},
                         {"LISTEN_PID", "4712"},
                         {"LISTEN_FDS", "1"},
                         {"LISTEN_FDNAMES", "client"}},
                        kSelf);
  EXPECT_FALSE(supervisor.present());
  EXPECT_EQ(supervisor.watchdog(), absl::InfiniteDuration());
  const absl::StatusOr<GivenSockets> given = supervisor.TakeSockets();
  ASSERT_THAT(given, Is("OK"));
  EXPECT_THAT(*given, IsEmpty());
  supervisor.Ready("nobody hears it");
}

// In a child, whose descriptors from 3 on may be anything.
int TakesSockets(const std::string& names) {
  UniqueFd other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (int fd = 3; fd < 6; ++fd) {
    if (other.get() != fd && dup2(other.get(), fd) < 0) return 100;
  }
  Supervisor supervisor(
      {{"LISTEN_PID", absl::StrCat(getpid())}, {"LISTEN_FDS", "3"}, {"LISTEN_FDNAMES", names}},
      getpid());
  absl::StatusOr<GivenSockets> given = supervisor.TakeSockets();
  if (!given.ok())
    return testing::NameOf(given.status()) == "INVALID_ARGUMENT/CONFIG_INVALID" ? 50 : 101;
  int taken = 0;
  for (const auto& [name, socket] : *given) {
    const int place = name == "attach" ? 3 : name == "client" ? 5 : -1;
    if (socket.get() == place && (fcntl(place, F_GETFD) & FD_CLOEXEC) != 0) ++taken;
  }
  const bool closed = fcntl(4, F_GETFD) < 0;
  return closed ? taken : 102;
}

TEST(SupervisorDeathTest, SocketsAreKnownByTheirNames) {
  EXPECT_EXIT(exit(TakesSockets("attach:stored:client")), ::testing::ExitedWithCode(2), "");
  EXPECT_EXIT(exit(TakesSockets("client:admin:client")), ::testing::ExitedWithCode(50), "");
}

TEST(AdoptUnix, OnlyWhatClientsFindIsTaken) {
  testing::Directory directory;
  const std::string path = directory / "s", other = directory / "t";
  const auto adopt = [&](int type, const std::string& at) {
    return AdoptUnix(*ListenUnix(path, SOCK_STREAM, 0600, Descriptors::kTaken), "client", at, type,
                     Descriptors::kRefused);
  };
  const absl::StatusOr<UniqueFd> taken = adopt(SOCK_STREAM, path);
  ASSERT_THAT(taken, Is("OK"));
  EXPECT_NE(fcntl(taken->get(), F_GETFL) & O_NONBLOCK, 0);
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_THAT(adopt(SOCK_SEQPACKET, path),
              Is("INVALID_ARGUMENT/CONFIG_INVALID", "the socket 'client'"));
  EXPECT_THAT(adopt(SOCK_STREAM, other),
              Is("INVALID_ARGUMENT/CONFIG_INVALID", "looks at " + other));
  UniqueFd deaf(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_THAT(AdoptUnix(std::move(deaf), "client", path, SOCK_STREAM, Descriptors::kTaken),
              Is("INVALID_ARGUMENT/CONFIG_INVALID", "listens"));
}

TEST(Pulse, SaysWhoHasNotGoneOn) {
  ManualExecutor control, lane;
  int answers = 0;
  Pulse pulse;
  pulse.Add("control", control, [&] { ++answers; });
  pulse.Add("lane 1", lane);
  absl::Time now = absl::UnixEpoch();
  const auto beat = [&] { return pulse.Beat(now += absl::Seconds(5), absl::Seconds(2)); };
  EXPECT_THAT(beat(), IsEmpty()) << "nobody was asked before";
  control.RunAll();
  EXPECT_THAT(beat(), ElementsAre("lane 1"));
  EXPECT_THAT(beat(), ElementsAre("control", "lane 1"));
  EXPECT_EQ(lane.RunAll(), 1u) << "who stands still is not asked again and again";
  control.RunAll();
  EXPECT_THAT(beat(), IsEmpty());
  EXPECT_EQ(answers, 2);
}

// A reload, or a stop, looks at once, however soon that is after the look before.
TEST(Pulse, NobodyStandsStillWhoWasAskedAMomentAgo) {
  ManualExecutor lane;
  Pulse pulse;
  pulse.Add("lane 1", lane);
  const absl::Time now = absl::UnixEpoch();
  EXPECT_THAT(pulse.Beat(now, absl::Seconds(2)), IsEmpty());
  EXPECT_THAT(pulse.Beat(now + absl::Milliseconds(1), absl::Seconds(2)), IsEmpty());
  EXPECT_THAT(pulse.Beat(now + absl::Seconds(2), absl::Seconds(2)), ElementsAre("lane 1"));
}

TEST(Reports, AreALineForPeople) {
  Daemon::Vitals vitals;
  vitals.devices = 2;
  vitals.sessions = 1;
  vitals.in_flight = 40;
  EXPECT_EQ(Reports::Line(vitals, false), "serving 2 devices, 1 session, 40 transfers and jobs");
  vitals.silent = {"control", "lane 3"};
  EXPECT_EQ(Reports::Line(vitals, true),
            "control, lane 3 stands still; draining: 2 devices, 1 session, 40 transfers and jobs");
}

}  // namespace
}  // namespace ferry
