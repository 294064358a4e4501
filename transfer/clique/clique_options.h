// SPDX-License-Identifier: Apache-2.0
// The bounds of groups and communicators. Plain data.
#pragma once

#include "absl/time/time.h"
#include "transfer/clique/group_cutter.h"

namespace ferry {

struct CliqueOptions {
  GroupCutter::Options cutting;
  // A group of large transfers may have as many bytes as the measured rate moves in this time, or
  // `cutting.group_bytes` if that is more. A small transfer waits for two of these groups, the one
  // that runs and the one that has its lanes already, and then goes in a short group. May change at
  // any time.
  absl::Duration group_time = absl::Milliseconds(2);
  // How long the first group of a lane may run.
  absl::Duration group_deadline = absl::Seconds(10);
  // How long a group may wait for the other end's lane.
  absl::Duration grant_deadline = absl::Seconds(60);
  // How long a communicator may take to open.
  absl::Duration open_deadline = absl::Seconds(30);
};

}  // namespace ferry
