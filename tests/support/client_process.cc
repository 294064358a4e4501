// SPDX-License-Identifier: Apache-2.0
#include "tests/support/client_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "tests/support/cluster.h"

namespace ferry::testing {
namespace {

SpawnOptions Options(const std::string& client_dir, const std::string& name,
                     std::optional<uid_t> uid) {
  SpawnOptions options;
  options.arguments = {ClientProgram(), client_dir, name};
  // It becomes the other user itself, once its libraries are loaded: the build directory may be
  // closed to it.
  if (uid.has_value()) options.arguments.push_back(std::to_string(*uid));
  options.pipes = true;
  return options;
}

}  // namespace

ClientProcess::ClientProcess(const std::string& client_dir, const std::string& name,
                             std::optional<uid_t> uid)
    : process_(Options(client_dir, name, uid)) {
  signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(Answer(), "OK") << "client " << name << " did not attach";
}

void ClientProcess::Order(const std::string& command) {
  const std::string line = command + "\n";
  [[maybe_unused]] const ssize_t written = write(process_.input(), line.data(), line.size());
}

std::string ClientProcess::Answer(std::chrono::milliseconds patience) {
  while (true) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd readable{process_.output(), POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(patience.count())) <= 0) return "";
    char buffer[4096];
    const ssize_t size = read(process_.output(), buffer, sizeof(buffer));
    if (size <= 0) return "";
    unread_.append(buffer, static_cast<size_t>(size));
  }
}

std::string ClientProcess::Tell(const std::string& command) {
  Order(command);
  return Answer();
}

std::optional<int> ClientProcess::Finish() {
  Order("exit");
  return process_.Wait();
}

}  // namespace ferry::testing
