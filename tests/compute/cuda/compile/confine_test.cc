// SPDX-License-Identifier: Apache-2.0
// What a confined process cannot do, tried by one.
#include "compute/cuda/compile/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace ferry::compute {
namespace {

constexpr uint64_t kMemory = uint64_t{8} << 30;

// Runs `act` in a confined process of its own; what it returned, or 128 and the signal.
int Confined(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    if (!LimitProcess(kMemory).ok() || !Confine().ok()) _exit(99);
    _exit(act());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// 0 if the call was refused as it should be.
int Refused(long result) { return result == -1 && errno == EPERM ? 0 : 1; }

#define SKIP_UNCONFINED() \
  if (!kConfines) GTEST_SKIP() << "the sanitizer needs what is taken"

TEST(ConfineTest, OpensNothing) {
  SKIP_UNCONFINED();
  EXPECT_EQ(Confined([] { return Refused(open("/etc/passwd", O_RDONLY)); }), 0);
  EXPECT_EQ(Confined([] { return Refused(open("/tmp/x", O_RDWR | O_CREAT, 0600)); }), 0);
  EXPECT_EQ(Confined([] { return Refused(unlink("/tmp/nothing-of-this-name")); }), 0);
  EXPECT_EQ(Confined([] { return Refused(socket(AF_INET, SOCK_STREAM, 0)); }), 0);
  EXPECT_EQ(Confined([] { return Refused(socket(AF_UNIX, SOCK_STREAM, 0)); }), 0);
}

TEST(ConfineTest, StartsNothing) {
  SKIP_UNCONFINED();
  EXPECT_EQ(Confined([] { return Refused(fork()); }), 0);
  EXPECT_EQ(Confined([] { return Refused(execl("/bin/true", "true", nullptr)); }), 0);
}

TEST(ConfineTest, SignalsNobody) {
  SKIP_UNCONFINED();
  const pid_t parent = getpid();
  EXPECT_EQ(Confined([parent] { return Refused(kill(parent, 0)); }), 0);
  EXPECT_EQ(Confined([parent] { return Refused(syscall(SYS_tgkill, parent, parent, 0)); }), 0);
  EXPECT_EQ(Confined([]() -> int { abort(); }), 128 + SIGABRT) << "it may end itself";
}

TEST(ConfineTest, MakesNothingExecutable) {
  SKIP_UNCONFINED();
  const auto map = [](int protection) {
    return mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  EXPECT_EQ(
      Confined([&] { return map(PROT_READ | PROT_EXEC) == MAP_FAILED && errno == EPERM ? 0 : 1; }),
      0);
  EXPECT_EQ(Confined([&] {
              void* const memory = map(PROT_READ | PROT_WRITE);
              return memory == MAP_FAILED ? 1 : Refused(mprotect(memory, 4096, PROT_EXEC));
            }),
            0);
}

TEST(ConfineTest, ComputesAndAllocatesUpToItsBound) {
  SKIP_UNCONFINED();
  EXPECT_EQ(Confined([] {
              std::string much(64 << 20, 'x');
              return much[much.size() / 2] == 'x' ? 0 : 1;
            }),
            0);
  EXPECT_EQ(Confined([] {
              void* const memory = mmap(nullptr, kMemory, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
              return memory == MAP_FAILED && errno == ENOMEM ? 0 : 1;
            }),
            0);
}

TEST(ConfineTest, WritesWhereItMayAlready) {
  SKIP_UNCONFINED();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(Confined([&] { return write(ends[1], "x", 1) == 1 ? 0 : 1; }), 0);
  char got = 0;
  EXPECT_EQ(read(ends[0], &got, 1), 1);
  EXPECT_EQ(got, 'x');
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace ferry::compute
