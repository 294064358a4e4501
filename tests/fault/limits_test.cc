// SPDX-License-Identifier: Apache-2.0
// Limits of a process, the daemon's, ferryctl's and a client's, from too small to enough: it does
// what it is to do, or it ends in time with a text that names the limit.
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/support/cgroup.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of this process alone: the kernel counts a user's threads over all its processes, and another one
// of these tests may run at the same time.
uid_t User() { return 1'000'000 + static_cast<uid_t>(getpid()); }
constexpr uint64_t kMib = 1 << 20;

struct Limit {
  const char* name;    // of prlimit; "pids": a cgroup's
  const char* option;  // what a text that names it has in it
  std::vector<uint64_t> of_daemon, of_client, of_file;
};
void PrintTo(const Limit& limit, std::ostream* out) { *out << limit.name; }

class LimitsTest : public ::testing::TestWithParam<Limit> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
#ifdef __SANITIZE_ADDRESS__
    if (strcmp(GetParam().name, "as") == 0)
      GTEST_SKIP() << "the sanitizer itself needs address space";
#endif
    std::string why;
    if (InCgroup(GetParam()) && Cgroup::OfThreads(1, &why) == nullptr) GTEST_SKIP() << why;
    if (!InCgroup(GetParam())) {
      ASSERT_EQ(chown(directory_.path().c_str(), User(), User()), 0);
    }
  }
  static bool InCgroup(const Limit& limit) { return strcmp(limit.name, "pids") == 0; }
  std::vector<std::string> Command(const std::string& program,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> command = {program, "--runtime-dir", directory_ / "run"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  // As the user, who has a limit of its own; in a cgroup as root, which alone may enter it.
  SpawnOptions Limited(const Limit& limit, uint64_t value, const std::vector<std::string>& command,
                       const std::string& output) {
    SpawnOptions spawn;
    if (InCgroup(limit)) {
      std::string why;
      cgroup_.reset();
      cgroup_ = Cgroup::OfThreads(value, &why);
      if (cgroup_ == nullptr) throw std::runtime_error(why);
      spawn.arguments = cgroup_->launcher();
    } else {
      spawn.arguments = {"/usr/bin/prlimit", absl::StrCat("--", limit.name, "=", value)};
      spawn.uid = User();
    }
    spawn.arguments.insert(spawn.arguments.end(), command.begin(), command.end());
    spawn.output = output;
    return spawn;
  }
  // It has ended, though not by a signal, and says which limit it was, and no other one.
  static void ExpectNamed(int status, const std::string& output, const Limit& limit,
                          uint64_t value) {
    EXPECT_LT(status, 128) << value << ": " << output;
    EXPECT_THAT(output, HasSubstr(limit.option)) << value;
    for (const char* const of_threads : {"ulimit -u", "pids.max", "ulimit -v"}) {
      if (strcmp(of_threads, limit.option) == 0) continue;
      EXPECT_THAT(output, Not(HasSubstr(of_threads))) << value;
    }
  }
  bool Serves() const { return RunProgram(Command(FerryctlProgram(), {"status"})).status == 0; }
  // A client without limits of its own.
  SpawnOptions Free(const std::vector<std::string>& command) const {
    SpawnOptions spawn;
    spawn.arguments = command;
    spawn.output = directory_ / "free";
    if (!InCgroup(GetParam())) spawn.uid = User();
    return spawn;
  }
  // Runs a daemon until it serves a session or ends; whether it served, and what it said.
  std::pair<bool, std::string> RunDaemon(const Limit& limit, uint64_t value) {
    const std::string output = directory_ / absl::StrCat("log", value);
    Process daemon(Limited(limit, value, Command(FerrydProgram(), {"--gpus", "none"}), output));
    bool serves = false;
    EXPECT_TRUE(Await([&] { return !daemon.Running() || (serves = Serves()); }))
        << value << ": " << ReadFile(output);
    if (serves) {
      Process session(Free(Command(FerryctlProgram(), {"bench", "latency", "--iterations", "2"})));
      EXPECT_EQ(session.Wait(), std::optional<int>(0)) << value << ": " << ReadFile(output);
      daemon.Signal(SIGTERM);
    }
    const std::optional<int> status = daemon.Wait();
    EXPECT_TRUE(status.has_value()) << value << " does not end: " << ReadFile(output);
    if (serves) {
      EXPECT_EQ(status, std::optional<int>(0)) << value << ": " << ReadFile(output);
    } else {
      ExpectNamed(status.value_or(-1), ReadFile(output), limit, value);
    }
    return {serves, ReadFile(output)};
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Cgroup> cgroup_;
};

TEST_P(LimitsTest, ADaemonServesOrNamesIt) {
  bool served = false;
  for (const uint64_t value : GetParam().of_daemon) {
    served = RunDaemon(GetParam(), value).first;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_TRUE(served) << "the last one is enough";
}

TEST_P(LimitsTest, AClientDoesItsWorkOrNamesIt) {
  SpawnOptions spawn;
  spawn.arguments = Command(FerrydProgram(), {"--gpus", "none"});
  spawn.output = directory_ / "log";
  if (!InCgroup(GetParam())) spawn.uid = User();
  Process daemon(spawn);
  ASSERT_TRUE(Await([&] { return Serves(); })) << ReadFile(spawn.output);
  // Calls for operators, and a session.
  const std::vector<std::string> commands[] = {{"status"},
                                               {"bench", "latency", "--iterations", "2"}};
  for (const std::vector<std::string>& command : commands) {
    std::optional<int> status;
    for (const uint64_t value : GetParam().of_client) {
      const std::string output = directory_ / absl::StrCat(command[0], value);
      Process client(Limited(GetParam(), value, Command(FerryctlProgram(), command), output));
      status = client.Wait();
      ASSERT_TRUE(status.has_value()) << value << " does not end: " << ReadFile(output);
      if (*status != 0) ExpectNamed(*status, ReadFile(output), GetParam(), value);
      ASSERT_FALSE(HasFailure()) << command[0];
    }
    EXPECT_EQ(status, std::optional<int>(0)) << "the last one is enough for " << command[0];
  }
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), std::optional<int>(0));
}

// A file goes from one end to the other, or the end that cannot says so.
TEST_P(LimitsTest, AnEndOfAFileDoesItsWorkOrNamesIt) {
  SpawnOptions spawn = Free(Command(FerrydProgram(), {"--gpus", "none"}));
  spawn.output = directory_ / "log";
  Process daemon(spawn);
  ASSERT_TRUE(Await([&] { return Serves(); })) << ReadFile(spawn.output);
  const std::string in = directory_ / "in.bin", out = directory_ / "out.bin";
  std::string content(3 * kMib, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 509);
  WriteFile(in, content);
  for (const char* const end : {"send", "recv"}) {
    const bool sends = strcmp(end, "send") == 0;
    std::optional<int> status;
    for (const uint64_t value : GetParam().of_file) {
      const std::string key = absl::StrCat(end, value);
      const auto send = Command(FerryctlProgram(), {"send", in, "--to", "1", "--key", key});
      const auto recv =
          Command(FerryctlProgram(), {"recv", out, "--from", "0", "--to", "1", "--key", key});
      Process other(Free(sends ? recv : send));
      const std::string output = directory_ / key;
      Process limited(Limited(GetParam(), value, sends ? send : recv, output));
      status = limited.Wait();
      ASSERT_TRUE(status.has_value()) << key << " does not end: " << ReadFile(output);
      if (*status != 0) {
        ExpectNamed(*status, ReadFile(output), GetParam(), value);
      } else {
        EXPECT_EQ(other.Wait(), std::optional<int>(0)) << key;
        EXPECT_EQ(ReadFile(out), content) << key;
      }
      ASSERT_FALSE(HasFailure()) << end;
    }
    EXPECT_EQ(status, std::optional<int>(0)) << "the last one is enough for " << end;
  }
}

// With fewer for a client the dynamic loader ends it, in words of its own.
const Limit kDescriptors = {"nofile",
                            "ulimit -n",
                            {6, 8, 12, 16, 20, 24, 32, 48, 64, 99, 100, 128},
                            {8, 10, 12, 16, 20, 22, 24, 32},
                            {16, 24, 32, 48}};

INSTANTIATE_TEST_SUITE_P(
    Limits, LimitsTest,
    ::testing::Values(kDescriptors,
                      Limit{"nproc",
                            "ulimit -u",
                            {1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64},
                            {1, 4, 8, 16, 24, 32, 40, 48, 64, 96},
                            {16, 32, 48, 64, 128}},
                      Limit{"pids",
                            "pids.max",
                            {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64},
                            {1, 2, 3, 4, 6, 8, 12, 16, 24, 32},
                            {2, 4, 8, 16, 64}},
                      Limit{"fsize",
                            "ulimit -f",
                            {1024, 4096, 65536, 68 << 10, kMib - 1, kMib, 1 << 30},
                            {4096, kMib},
                            {4096, kMib, 4 * kMib, 1 << 30}},
                      Limit{"as",
                            "ulimit -v",
                            {128 * kMib, 256 * kMib, 512 * kMib, 1024 * kMib, 4096 * kMib},
                            {128 * kMib, 192 * kMib, 256 * kMib, 512 * kMib, 1024 * kMib,
                             2048 * kMib},
                            {256 * kMib, 512 * kMib, 1024 * kMib, 4096 * kMib}},
                      Limit{"memlock", "ulimit -l", {0, 4096, kMib}, {0, 4096, kMib}, {0, kMib}}),
    [](const auto& info) { return std::string(info.param.name); });

class DescriptorLimitTest : public LimitsTest {};

INSTANTIATE_TEST_SUITE_P(, DescriptorLimitTest, ::testing::Values(kDescriptors),
                         [](const auto&) { return std::string("nofile"); });

TEST_P(DescriptorLimitTest, TheNumberThatIsNamedIsEnoughAndNotTooLarge) {
  const auto [serves, text] = RunDaemon(GetParam(), 6);
  ASSERT_FALSE(serves);
  constexpr char kSet[] = "`ulimit -n ";
  const size_t at = text.find(kSet);
  ASSERT_NE(at, std::string::npos) << text;
  uint64_t needed = 0;
  const size_t begin = at + strlen(kSet);
  ASSERT_TRUE(absl::SimpleAtoi(text.substr(begin, text.find('`', begin) - begin), &needed)) << text;
  EXPECT_FALSE(RunDaemon(GetParam(), needed - 1).first);
  EXPECT_TRUE(RunDaemon(GetParam(), needed).first);
  // Two of the default's devices, and nobody to talk to: what a shell gives is enough for it.
  EXPECT_LE(needed, 128u);
}

}  // namespace
}  // namespace ferry::testing
