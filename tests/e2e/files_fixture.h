// SPDX-License-Identifier: Apache-2.0
// Runs `ferryctl send` on the first node to device 2, and `ferryctl recv` on the second node from
// device 0, under one key. One thread.
#pragma once

#include <signal.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {

class FilesTest : public ClusterTest {
 protected:
  // `by`: words before the command line, such as a shell; `more`: further flags.
  void StartSender(const std::string& file, const std::vector<std::string>& more = {},
                   std::vector<std::string> by = {}) {
    Start(sender_, 0, "send", file, more, std::move(by));
  }
  void StartReceiver(const std::string& file, const std::vector<std::string>& more = {},
                     std::vector<std::string> by = {}) {
    Start(receiver_, 1, "recv", file, more, std::move(by));
  }
  // Runs both at once, to their ends.
  void Move(const std::string& from, const std::string& to,
            const std::vector<std::string>& more = {}) {
    StartReceiver(to, more);
    StartSender(from, more);
    sent_ = sender_->Wait();
    if (sent_ != 0) receiver_->Signal(SIGTERM);
    received_ = receiver_->Wait();
  }
  // Waits until a transfer is posted at the node whose key is, or contains, `key`.
  bool Waits(size_t at, const std::string& key) {
    return Await([&] {
      const auto rows = node(at).admin().Transfers();
      for (const auto& row : rows.transfers()) {
        if (absl::StrContains(row.key(), key)) return true;
      }
      return false;
    });
  }
  // The output of the two that were started last.
  std::string Output() const {
    return ReadFile(directory_ / "send.out") + ReadFile(directory_ / "recv.out");
  }
  static std::string Bytes(uint64_t count) {
    std::string bytes(count, '\0');
    FillPattern(bytes.data(), count, count);
    return bytes;
  }
  static std::string Safetensors(const std::string& header, const std::string& data) {
    std::string file(8, '\0');
    const uint64_t size = header.size();
    memcpy(file.data(), &size, 8);
    return file + header + data;
  }

  using ClusterTest::Start;
  TemporaryDirectory directory_;
  std::optional<int> sent_, received_;
  std::optional<Process> sender_, receiver_;

 private:
  void Start(std::optional<Process>& process, size_t at, const std::string& verb,
             const std::string& file, const std::vector<std::string>& more,
             std::vector<std::string> by) {
    SpawnOptions spawn;
    spawn.arguments = std::move(by);
    const std::vector<std::string> command = {FerryctlProgram(),
                                              "--runtime-dir",
                                              node(at).runtime_dir(),
                                              verb,
                                              file,
                                              at == 0 ? "--to" : "--from",
                                              at == 0 ? "2" : "0",
                                              "--key",
                                              "the-file"};
    spawn.arguments.insert(spawn.arguments.end(), command.begin(), command.end());
    spawn.arguments.insert(spawn.arguments.end(), more.begin(), more.end());
    spawn.output = directory_ / (verb + ".out");
    std::filesystem::remove(spawn.output);
    process.emplace(spawn);
  }
};

}  // namespace ferry::testing
