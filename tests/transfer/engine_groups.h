// SPDX-License-Identifier: Apache-2.0
// A test fixture of two engines with route nccl between them. The clique is devices 0 and 2; node-a
// leads.
#pragma once

#include "two_daemons.h"

namespace ferry {

inline TransferEngine::Options GroupOptions() {
  TransferEngine::Options options;
  options.order = {Route::kLocal, Route::kNccl, Route::kUcx};
  options.cliques.cutting = {.group_bytes = 10'000, .group_chunks = 8, .chunk_bytes = 4096};
  return options;
}

class EngineGroups : public testing::Test {
 protected:
  EngineGroups() : two_(GroupOptions()) {
    two_.LinkUp();
    RouteTable routes = Routes(false, true);
    routes[static_cast<size_t>(Route::kNccl)].available = true;
    for (int i : {kA, kB}) two_.engine(i).OnPeerRoutes(PeerId(1 - i), routes);
  }
  // Posts a pair of the clique in the given direction. Returns the ids of send and receive.
  std::pair<TransferId, TransferId> Pair(std::string key, bool to_low = false,
                                         uint64_t bytes = 4096) {
    const uint64_t source = to_low ? 2 : 0;
    const TransferId send = two_.Post(SpecOf(Side::kSend, key, source, 2 - source, bytes));
    const TransferId receive = two_.Post(SpecOf(Side::kReceive, key, source, 2 - source, bytes));
    return {send, receive};
  }
  void Warm(int node) {
    const Clique clique{GlobalDeviceId(0), GlobalDeviceId(2)};
    EXPECT_TRUE(two_.engine(node).WarmCommunicator(two_.now, clique).ok());
    two_.Run();
    EXPECT_THAT(two_.daemons[kA].opens, testing::SizeIs(1));
  }
  std::vector<GroupLaunch>& Groups(int node) { return two_.daemons[node].groups; }
  std::vector<CommunicatorEnd>& Ends(int node) { return two_.daemons[node].communicator_ends; }
  // Answers the oldest unanswered group of a node.
  void Done(int node, absl::Status status = absl::OkStatus()) {
    ASSERT_LT(answered_[node], Groups(node).size());
    two_.engine(node).OnGroupDone(two_.now, Groups(node)[answered_[node]++].ticket, status);
    two_.Run();
  }

  TwoDaemons two_;
  size_t answered_[2] = {};
};

}  // namespace ferry
