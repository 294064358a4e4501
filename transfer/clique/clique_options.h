// SPDX-License-Identifier: Apache-2.0
// The bounds of groups and communicators. Plain data.
#pragma once

#include "absl/time/time.h"
#include "transfer/clique/group_cutter.h"

namespace ferry {

struct CliqueOptions {
  GroupCutter::Options cutting;
  // How long the first group of a lane may run.
  absl::Duration group_deadline = absl::Seconds(10);
  // How long a group may wait for the other end's lane.
  absl::Duration grant_deadline = absl::Seconds(60);
  // How long a communicator may take to open.
  absl::Duration open_deadline = absl::Seconds(30);
};

}  // namespace ferry
