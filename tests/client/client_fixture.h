// SPDX-License-Identifier: Apache-2.0
// Shared by the client's tests: a fake daemon in a directory of its own, and short forms for the
// wrapper.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ferry/ferry.hpp"
#include "tests/client/fake/fake_daemon.h"
#include "tests/support/fork.h"

namespace ferry::testing {

inline constexpr std::chrono::seconds kSoon{
    10};  // "must happen"; the bounds themselves are benches'

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    char pattern[] = "/tmp/ferry-client-XXXXXX";
    dir_ = mkdtemp(pattern);
    daemon_ = std::make_unique<FakeDaemon>(dir_);
  }
  ~ClientTest() override {
    daemon_.reset();
    std::filesystem::remove_all(dir_);
  }

  Session Open(const std::string& name = "test") {
    SessionOptions options;
    options.name = name;
    return OpenWith(std::move(options));
  }
  Session OpenWith(SessionOptions options) {
    options.client_dir = dir_;
    auto session = Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return std::move(*session);
  }

  // The daemon dies, and another one takes its place.
  void Restart(FakeDaemon::Behaviour behaviour = {}) {
    daemon_.reset();
    daemon_ = std::make_unique<FakeDaemon>(dir_, behaviour);
  }

  // Runs `body` in a forked child; what it returns is the child's exit status.
  template <typename Body>
  static pid_t Fork(Body body) {
    const pid_t pid = ForkToAllocate();
    if (pid == 0) _exit(body());
    return pid;
  }
  static int ExitStatus(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string dir_;
  std::unique_ptr<FakeDaemon> daemon_;
};

inline Transfer Keyed(const std::string& key, std::vector<Range> ranges = {}, uint64_t remote = 1) {
  return Transfer(remote, key, std::move(ranges));
}

// By what a batch goes to the daemon: the session's socket, or a gRPC call if it is too long for
// that.
enum class Road { kSocket, kCall };
inline constexpr Road kRoads[] = {Road::kSocket, Road::kCall};

// `transfer`. For kCall with a shape of more than 128 KiB, which the fake daemon does not look at:
// the batch that it is in goes by a call.
inline Transfer By(Road road, Transfer transfer) {
  constexpr size_t kDims = 15'000;  // of nine bytes each
  if (road == Road::kCall) transfer.shape.emplace(kDims, INT64_MAX);
  return transfer;
}

#define ASSERT_OK(expression)                                            \
  do {                                                                   \
    const auto& ferry_result = (expression);                             \
    ASSERT_TRUE(ferry_result.ok()) << StatusOf(ferry_result).ToString(); \
  } while (false)

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

}  // namespace ferry::testing
