// SPDX-License-Identifier: Apache-2.0
// Shows and controls the communicators of several nodes' daemons, as an operator does. Each wait
// ends within half a minute; after that an error says what did not happen. One thread.
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
  // For the nodes 0 to `count` - 1. A node that was restarted needs another object.
  static absl::StatusOr<CommControl> Open(const Nodes& nodes, int count);

  absl::StatusOr<admin::v1::ListCommsResponse> List(int node);
  // Warms the communicator of devices `low` and `high`; `low` is the first node's. Returns when it
  // is open at all nodes, which must have no other.
  absl::Status Warm(uint64_t low, uint64_t high);
  // Returns when no node has this attempt any more. The next attempt may come meanwhile.
  absl::Status Abort(uint64_t low, uint64_t high);
  // The latest attempt at a node; and a wait until an attempt is gone there.
  absl::StatusOr<uint32_t> Attempt(int node);
  absl::Status AwaitGone(int node, uint32_t attempt);
  // Waits until a communicator of the node has a group on its GPU.
  absl::Status AwaitRunning(int node);
  // The longest opening at any node, and the GPU memory that it took there.
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
