// SPDX-License-Identifier: Apache-2.0
// A load is what groups carry at this end: a transfer, or the current firing of a bundle. Plain
// data. Home: control.
//
// An example. A send of 20 MB, with chunks of 8 MB: the leader cuts it into the groups 4, 5 and 6.
// While 4 runs and 5 waits for a lane, `cut` is 16 MB, `chunks_out` 2 and `moved` 0. When all three
// are over, `chunks_out` is 0 and `moved` 20 MB: the load is settled, and the transfer is over.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/ids.h"
#include "transfer/clique/group.h"
#include "transfer/layout.h"

namespace ferry {

struct Load {
  TransferId half;      // of a transfer: our half's id; none for a firing
  uint64_t bundle = 0;  // of a firing: the number of its bundle here; 0 for a transfer
  Clique clique;
  PairName name;          // what both ends call the load
  PeerId peer;            // the daemon of the clique's other device
  bool receives = false;  // our end is the destination
  uint64_t bytes = 0;
  // Of a transfer: the ranges of our half, which stay until Cliques::Forget.
  const Layout* layout = nullptr;

  // Of a transfer: the clique's leader has it, and not all of it is cut yet.
  bool handed = false;
  uint64_t cut = 0;         // bytes in groups that this daemon knows, from the load's begin
  uint32_t chunks_out = 0;  // chunks in groups that are not over here: meanwhile it is pinned
  uint64_t moved = 0;       // bytes that have arrived, or left
  // Why a chunk failed, or why no more of it shall be carried; OK until then. A send's stays OK:
  // the destination tells how the transfer ends.
  absl::Status why;

  bool pinned() const { return chunks_out > 0; }
};

}  // namespace ferry
