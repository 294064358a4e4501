// SPDX-License-Identifier: Apache-2.0
// The communicators of some nodes' daemons, as their operator sees and steers them. What is waited
// for is there within half a minute, or an error says what was not. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/nodes.h"
#include "ferry/admin/v1/admin.pb.h"
#include "tools/ferryctl/admin_client.h"

namespace ferry::bench {

class CommControl {
 public:
  // Of the nodes 0 to `count` - 1; one that has another life needs another object.
  static absl::StatusOr<CommControl> Open(const Nodes& nodes, int count);

  absl::StatusOr<admin::v1::ListCommsResponse> List(int node);
  // That of devices `low` and `high`, the first of which is the first node's; returns when it is
  // open at all nodes, which have no other.
  absl::Status Warm(uint64_t low, uint64_t high);
  // Returns when no node has this attempt of it any more; the next one may come meanwhile.
  absl::Status Abort(uint64_t low, uint64_t high);
  // The latest at a node, and until it is gone there.
  absl::StatusOr<uint32_t> Attempt(int node);
  absl::Status AwaitGone(int node, uint32_t attempt);
  // Until one of the node's has a group on its GPU.
  absl::Status AwaitRunning(int node);
  // The longest that opening took at any node, and what it took there of the GPU's memory.
  struct Opened {
    absl::Duration took;
    uint64_t bytes = 0;
  };
  absl::StatusOr<Opened> WhatOpeningTook();

 private:
  using Found = std::function<bool(const admin::v1::ListCommsResponse&)>;
  explicit CommControl(std::vector<tools::AdminClient> admins) : admins_(std::move(admins)) {}
  absl::Status Await(int node, absl::string_view what, const Found& found);

  std::vector<tools::AdminClient> admins_;
};

}  // namespace ferry::bench
