// SPDX-License-Identifier: Apache-2.0
// Daemons with a GPU each, and route nccl between them. One thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/support/await.h"

namespace ferry::testing {

inline constexpr uint64_t kNcclBytes = 3 * kMiB + 17;
// Ten times what docs/failures.md promises where a daemon is killed, and where one is stopped.
inline constexpr std::chrono::seconds kKilled{10}, kStopped{60};

class MultiGpuNcclTest : public GpuTest {
 protected:
  // Each daemon has a host device and a GPU, with consecutive ids.
  bool StartDaemons(int nodes, ClusterOptions options = {}) {
    if (!Need(nodes)) return false;
    StartNodes(nodes, nodes, std::move(options));
    return true;
  }
  // The NCCL of node-a has the faults `faults`; that of the other nodes has none, or `others`.
  bool StartWithFaults(const std::string& faults, ClusterOptions options = {},
                       const std::string& others = "", int nodes = 2) {
    if (driver_ != nullptr && !fake()) {
      [&] { GTEST_SKIP() << "NEEDS the fake NCCL, which fails where a test wants it"; }();
      return false;
    }
    for (int i = 0; i < nodes; ++i) {
      options.launchers.push_back(
          {"/usr/bin/env", absl::StrCat("FERRY_FAKE_NCCL=", i == 0 ? faults : others)});
    }
    return StartDaemons(nodes, std::move(options));
  }
  static PostOptions Nccl() {
    PostOptions options;
    options.route = FERRY_ROUTE_NCCL;
    return options;
  }
  void ExpectMoves(End& from, End& to, const PostOptions& options = Nccl(),
                   uint64_t bytes = kNcclBytes) {
    const std::string key = absl::StrCat("key-", ++keys_);
    Fill(from.arena, 0, bytes, keys_);
    Fill(to.arena, 0, bytes, keys_ + 1000);
    Batch receive = Receive(to, from, key, {to.arena.Range(0, bytes)}, options);
    Batch send = Send(from, to, key, {from.arena.Range(0, bytes)}, options);
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    ASSERT_TRUE(Has(to.arena, 0, bytes, keys_));
  }
  uint32_t AttemptAt(size_t i) {
    const auto comms = node(i).admin().Comms();
    return comms.comms_size() == 0 ? 0 : comms.comms(comms.comms_size() - 1).attempt();
  }
  std::string Gate(const char* name) { return gates_ / name; }

  TemporaryDirectory gates_;
  uint64_t keys_ = 0;
};

}  // namespace ferry::testing
