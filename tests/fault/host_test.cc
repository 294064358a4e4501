// SPDX-License-Identifier: Apache-2.0
// What a host does to a daemon: a log that takes nothing, no memory, a clock that jumps.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "tests/support/cgroup.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_socket.h"
#include "tests/support/sanitizer.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HostTest : public ClusterTest {
 protected:
  std::string Metrics(size_t i) {
    return HttpGet(node(i).runtime_dir() + "/admin/metrics.sock", "/metrics");
  }
  // The wall clock as the daemon sees it.
  absl::Time ClockOf(size_t i) {
    const Finished dump =
        RunProgram({FerryctlProgram(), "--runtime-dir", node(i).runtime_dir(), "flight", "dump"});
    const std::string before = "\"taken\":\"";
    const size_t at = dump.output.find(before);
    absl::Time time;
    std::string why;
    EXPECT_TRUE(at != std::string::npos &&
                absl::ParseTime(absl::RFC3339_full,
                                dump.output.substr(
                                    at + before.size(),
                                    dump.output.find('"', at + before.size()) - at - before.size()),
                                &time, &why))
        << dump.output.substr(0, 200) << why;
    return time;
  }
  // Sessions come and go, a peer dies and comes back: what is logged most.
  void ExpectService() {
    End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
    ExpectTransfer(source, destination, "first");
    node(1).Kill();
    ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") == "lost"; }));
    ASSERT_TRUE(node(1).Start());
    End again = OpenEnd(1, kMiB);
    ExpectTransfer(source, again, "second");
  }
};

TEST_F(HostTest, TheDiskOfTheLogIsFull) {
  ClusterOptions options;
  options.log = "/dev/full";
  Start(options);
  ExpectService();
  EXPECT_THAT(Metrics(0), AllOf(HasSubstr("ferry_log_dropped_total "),
                                Not(HasSubstr("ferry_log_dropped_total 0\n"))));
}

TEST_F(HostTest, NobodyReadsTheLog) {
  const TemporaryDirectory directory;
  ClusterOptions options;
  options.log = directory / "log";
  ASSERT_EQ(mkfifo(options.log.c_str(), 0600), 0);
  const UniqueFd pipe(open(options.log.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const std::string line(4096, '\n');
  while (write(pipe.get(), line.data(), line.size()) > 0) {
  }
  ASSERT_EQ(errno, EAGAIN);
  Start(options);
  ExpectService();
  EXPECT_THAT(Metrics(0), Not(HasSubstr("ferry_log_dropped_total 0\n")));
}

// A daemon without address space for an arena refuses that one, and all it has goes on.
TEST_F(HostTest, NoMemoryForAnArena) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself needs address space";
#endif
  Start();
  End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
  ExpectTransfer(source, destination, "before");
  std::optional<uint64_t> kib;
  for (absl::string_view line :
       absl::StrSplit(ReadFile(absl::StrCat("/proc/", node(0).process().pid(), "/status")), '\n')) {
    uint64_t value = 0;
    if (absl::ConsumePrefix(&line, "VmSize:") &&
        absl::SimpleAtoi(absl::StripSuffix(line, " kB"), &value))
      kib = value;
  }
  ASSERT_TRUE(kib.has_value());
  rlimit before{};
  ASSERT_EQ(prlimit(node(0).process().pid(), RLIMIT_AS, nullptr, &before), 0);
  const rlimit low{*kib * 1024 + 256 * kMiB, before.rlim_max};
  ASSERT_EQ(prlimit(node(0).process().pid(), RLIMIT_AS, &low, nullptr), 0);
  const UniqueFd large = MakeMemfd(1024 * kMiB, ArenaSeals());
  const Result<Arena> refused = source.session.ImportArena(source.device, large.get(), 1024 * kMiB);
  EXPECT_THAT(refused.status(), Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY"));
  EXPECT_THAT(refused.status().message(), HasSubstr("1073741824"));
  EXPECT_THAT(refused.status().message(), HasSubstr("; largest holders: session "));
  ExpectTransfer(source, destination, "meanwhile");
  ASSERT_EQ(prlimit(node(0).process().pid(), RLIMIT_AS, &before, nullptr), 0);
  EXPECT_THAT(source.session.ImportArena(source.device, large.get(), 1024 * kMiB).status(), IsOk());
}

// A client that fills an arena of more than its own cgroup may have pays for that itself.
TEST_F(HostTest, AClientOverItsMemoryLimit) {
  std::string why;
  const std::unique_ptr<Cgroup> cgroup = Cgroup::OfMemory(64 * kMiB, &why);
  if (cgroup == nullptr) GTEST_SKIP() << "no memory cgroups: " << why;
  Start();
  End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
  {
    ClientProcess greedy(node(0).client_dir(), "greedy");
    ASSERT_TRUE(cgroup->Add(greedy.pid()));
    ASSERT_EQ(greedy.Tell("arena 0 16777216"), "OK 0");
    ASSERT_EQ(node(0).admin().Sessions().sessions_size(), 2);
    EXPECT_EQ(greedy.Tell("arena 0 1073741824"), "") << "it must be dead";
  }
  EXPECT_TRUE(Await([&] { return node(0).admin().ArenaBytes() == kMiB; }));
  ExpectTransfer(source, destination, "after");
}

// Steps of the wall clock, an hour forward and two back, shorten no deadline, lengthen none, and
// lose no link.
TEST_F(HostTest, TheClockIsStepped) {
  const TemporaryDirectory directory;
  const std::string file = directory / "clock";
  WriteFile(file, std::string(sizeof(int64_t), '\0'));
  const UniqueFd fd(open(file.c_str(), O_RDWR | O_CLOEXEC));
  void* const page =
      mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(page, MAP_FAILED);
  ClusterOptions options;
  options.environment = Preloaded(ClockStepLibrary());
  options.environment.push_back(absl::StrCat("FERRY_TEST_CLOCK=", file));
  Start(options);
  {
    End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
    ExpectTransfer(source, destination, "before");
    PostOptions patient;
    patient.over_timeline = 1;  // the others are not over before it otherwise
    patient.deadline = std::chrono::seconds(60);
    Batch waits = Send(source, destination, "waits", {source.arena.All()}, patient);
    constexpr int64_t kHour = 3'600'000'000'000;
    for (const int64_t step : {kHour, -kHour, int64_t{0}}) {
      __atomic_store_n(static_cast<int64_t*>(page), step, __ATOMIC_RELAXED);
      EXPECT_LT(absl::AbsDuration(ClockOf(0) - absl::Now() - absl::Nanoseconds(step)),
                absl::Minutes(10));
      const auto asked = Clock::now();
      PostOptions hasty;
      hasty.deadline = milliseconds(200);
      Batch late = Receive(destination, source, absl::StrCat("late ", step),
                           {destination.arena.All()}, hasty);
      EXPECT_THAT(late.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
      EXPECT_GE(Clock::now() - asked, milliseconds(200));
      ExpectTransfer(source, destination, absl::StrCat("at ", step));
      EXPECT_FALSE(waits.over());
      EXPECT_EQ(node(0).admin().PeerState("node-b"), "up");
    }
    Batch receive = Receive(destination, source, "waits", {destination.arena.All()});
    EXPECT_THAT(waits.Wait(kSoon), IsOk());
    EXPECT_THAT(receive.Wait(kSoon), IsOk());
    EXPECT_THAT(node(0).Log(), Not(HasSubstr("peer.lost")));
  }
  munmap(page, sizeof(int64_t));
}

TEST_F(HostTest, ARuntimeDirectoryMayHaveAnyName) {
  for (const char* name : {"plain", "a%41b", "a#b", "a?b", "a b", "a%zz"}) {
    TemporaryDirectory directory;
    SpawnOptions spawn;
    spawn.arguments = {FerrydProgram(), "--runtime-dir", directory / name};
    spawn.output = directory / "log";
    Process daemon(spawn);
    std::string said;
    EXPECT_TRUE(Await([&] {
      const Finished status =
          RunProgram({FerryctlProgram(), "--runtime-dir", directory / name, "status"});
      said = status.output;
      return status.status == 0;
    })) << name
        << ": " << said;
    daemon.Signal(SIGTERM);
    EXPECT_EQ(daemon.Wait(), std::optional<int>(0)) << name;
  }
}

}  // namespace
}  // namespace ferry::testing
