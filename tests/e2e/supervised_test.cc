// SPDX-License-Identifier: Apache-2.0
// A daemon under a supervisor, as systemd is one: what it says, sockets it is given, a watchdog
// that sees a thread stand still; and a predecessor that takes its time to end. systemd itself:
// tools/packages-test.
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SupervisedTest : public ::testing::Test {
 protected:
  SupervisedTest() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = directory_ / "notify";
    memcpy(address.sun_path, path.data(), path.size());
    const timeval patience{kSoon.count(), 0};
    setsockopt(notify_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    FERRY_CHECK(bind(notify_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    for (const char* part : {"client", "admin"}) {
      std::filesystem::create_directories(runtime_dir() + "/" + part);
    }
  }

  std::string runtime_dir() const { return directory_ / "run"; }
  std::string log() const { return directory_ / "log"; }

  // Through `shell`, a command that ends in "exec "; it has "$@" after it.
  std::unique_ptr<Process> Daemon(const std::string& shell,
                                  const std::vector<std::string>& environment = {}) {
    SpawnOptions spawn;
    spawn.arguments = {"/bin/bash",     "-c",          shell + "\"$@\"", "-",   FerrydProgram(),
                       "--runtime-dir", runtime_dir(), "--gpus",         "none"};
    spawn.output = log();
    spawn.environment = environment;
    spawn.environment.push_back("NOTIFY_SOCKET=" + directory_ / "notify");
    return std::make_unique<Process>(spawn);
  }

  // The next datagram that has `text` in it.
  std::string Hear(const std::string& text) {
    char buffer[4096];
    while (true) {
      const ssize_t size = recv(notify_.get(), buffer, sizeof(buffer), 0);
      if (size < 0) return "nothing; the log: " + ReadFile(log());
      const std::string said(buffer, static_cast<size_t>(size));
      if (absl::StrContains(said, text)) return said;
    }
  }

  // In the shell's words: these listeners from descriptor 3 on, as systemd gives them.
  std::string Give(const std::vector<std::pair<std::string, int>>& sockets) const {
    std::string text, names;
    int place = 3;
    for (const auto& [name, fd] : sockets) {
      absl::StrAppend(&text, "exec ", place++, "<&", fd, "; ");
      absl::StrAppend(&names, names.empty() ? "" : ":", name);
    }
    return absl::StrCat(text, "export LISTEN_PID=$$ LISTEN_FDS=", sockets.size(),
                        " LISTEN_FDNAMES=", names, "; exec ");
  }

  // A listener that a child inherits, far from where the shell puts it.
  UniqueFd Listen(const std::string& file, int type) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = runtime_dir() + "/" + file;
    memcpy(address.sun_path, path.data(), path.size());
    const UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    FERRY_CHECK(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    FERRY_CHECK(listen(socket.get(), 16) == 0);
    return UniqueFd(fcntl(socket.get(), F_DUPFD, 100));
  }

  SessionOptions Options() const {
    SessionOptions options;
    options.client_dir = runtime_dir() + "/client";
    return options;
  }

  const TemporaryDirectory directory_;
  const UniqueFd notify_{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

TEST_F(SupervisedTest, ItSaysThatItServesAndThatItEnds) {
  const auto daemon = Daemon("exec ");
  EXPECT_EQ(Hear("READY=1"), "READY=1\nSTATUS=serving 2 devices, 0 sessions, 0 transfers and jobs");
  const Session session = Must(Session::Open(Options()));
  daemon->Signal(SIGTERM);
  const std::string last = Hear("STOPPING=1");
  EXPECT_THAT(last, HasSubstr("EXTEND_TIMEOUT_USEC=60000000\n"));
  EXPECT_THAT(last, HasSubstr("STATUS=draining: 2 devices, "));
  EXPECT_EQ(daemon->Wait(), std::optional<int>(0)) << ReadFile(log());
}

TEST_F(SupervisedTest, ItSaysThatItReloads) {
  const auto daemon = Daemon("exec ");
  EXPECT_THAT(Hear("READY=1"), HasSubstr("serving"));
  for (int i = 0; i < 2; ++i) {
    daemon->Signal(SIGHUP);
    EXPECT_THAT(Hear("RELOADING=1"), HasSubstr("\nMONOTONIC_USEC="));
    EXPECT_THAT(Hear("READY=1"), HasSubstr("STATUS=serving 2 devices"));
  }
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), std::optional<int>(0)) << ReadFile(log());
}

TEST_F(SupervisedTest, ARestartRefusesNobody) {
  const UniqueFd client = Listen("client/client.sock", SOCK_STREAM);
  const UniqueFd attach = Listen("client/attach.sock", SOCK_SEQPACKET);
  const UniqueFd admin = Listen("admin/admin.sock", SOCK_STREAM);
  const std::string given =
      Give({{"client", client.get()}, {"attach", attach.get()}, {"admin", admin.get()}});
  auto daemon = Daemon(given);
  EXPECT_THAT(Hear("READY=1"), HasSubstr("serving"));
  EXPECT_EQ(Admin(runtime_dir() + "/admin/admin.sock").Health("readiness"), "SERVING");
  Must(Session::Open(Options()));
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), std::optional<int>(0)) << ReadFile(log());
  EXPECT_FALSE(std::filesystem::exists(runtime_dir() + "/admin/metrics.sock")) << "its own";

  // Who comes while there is none is served by the next one.
  std::optional<Result<Session>> opened;
  std::thread comes([&] { opened = Session::Open(Options()); });
  const bool waits = Await([&] {  // in the backlog, before there is a daemon
    pollfd ready{attach.get(), POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  });
  EXPECT_TRUE(waits);
  daemon = Daemon(given);
  comes.join();
  ASSERT_TRUE(opened.has_value());
  EXPECT_TRUE(opened->ok()) << opened->status().ToString();
}

TEST_F(SupervisedTest, ASocketOfTheWrongKindIsABadConfiguration) {
  const UniqueFd packets = Listen("client/client.sock", SOCK_SEQPACKET);
  const auto daemon = Daemon(Give({{"client", packets.get()}}));
  EXPECT_EQ(daemon->Wait(), std::optional<int>(78));
  EXPECT_THAT(ReadFile(log()), HasSubstr("take the socket 'client' that was given: it is not"));
}

// The thread of `process` with this name.
pid_t ThreadOf(pid_t process, const std::string& name) {
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/task"))) {
    if (ReadFile(entry.path() / "comm") == name + "\n") {
      return static_cast<pid_t>(std::stol(entry.path().filename()));
    }
  }
  return -1;
}

TEST_F(SupervisedTest, NoSignOfLifeWhileAThreadStandsStill) {
  const auto daemon = Daemon("exec ", {"WATCHDOG_USEC=400000"});
  Hear("READY=1");
  for (const char* name : {"lane 1", "control"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(Hear("WATCHDOG=1"), HasSubstr("STATUS=serving"));
    const pid_t thread = ThreadOf(daemon->pid(), name);
    ASSERT_GT(thread, 0);
    ASSERT_EQ(ptrace(PTRACE_SEIZE, thread, nullptr, nullptr), 0) << strerror(errno);
    ASSERT_EQ(ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0) << strerror(errno);
    ASSERT_EQ(waitpid(thread, nullptr, __WALL), thread);
    EXPECT_THAT(Hear("stands still"), AllOf(HasSubstr(absl::StrCat("STATUS=", name, " stands")),
                                            Not(HasSubstr("WATCHDOG"))));
    EXPECT_THAT(Hear(""), Not(HasSubstr("WATCHDOG"))) << "as long as it does";
    ASSERT_EQ(ptrace(PTRACE_DETACH, thread, nullptr, nullptr), 0);
    EXPECT_THAT(Hear("WATCHDOG=1"), HasSubstr("STATUS=serving"));
    EXPECT_THAT(ReadFile(log()), HasSubstr(absl::StrCat("daemon.silent: ", name, " has not")));
  }
}

TEST_F(SupervisedTest, ItNeedsNoEnvironment) {
  const auto daemon = Daemon("exec env -i NOTIFY_SOCKET=$NOTIFY_SOCKET ");
  EXPECT_THAT(Hear("READY=1"), HasSubstr("serving"));
  Must(Session::Open(Options()));
}

TEST_F(SupervisedTest, APredecessorThatTakesItsTimeIsWaitedFor) {
  auto first = Daemon("exec ");
  Hear("READY=1");
  const auto second = Daemon("exec ", {"FERRY_START__LOCK_WAIT=10m"});
  EXPECT_TRUE(
      Await([&] { return absl::StrContains(ReadFile(log()), "another daemon still holds"); }));
  EXPECT_TRUE(second->Running());
  first->Kill();
  EXPECT_THAT(Hear("READY=1"), HasSubstr("serving"));
  Must(Session::Open(Options()));
}

}  // namespace
}  // namespace ferry::testing
