// SPDX-License-Identifier: Apache-2.0
// Which transfers the groups of a block wait for, and for which they must not be made to wait: of
// two daemons that run the same program each may send before it has received, and then neither may
// hold its send until its receive is over because both are of one kernel. Single-threaded; part of
// a Partition, whose items it knows by their places in the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/plan/graph.h"

namespace ferry::compute {

class Waits {
 public:
  // Sends and receives, by the order of the block.
  using Set = std::vector<uint64_t>;  // a bit each
  using Places = std::vector<std::vector<uint32_t>>;

  // What each item needs, and who needs it. At first each is a group.
  Waits(const Graph& graph, const Block& block, const Places& needs, const Places& users);

  // May `a` and `b` be one step? Whatever is over before one of them would be before both.
  bool MayJoin(uint32_t a, uint32_t b) const;
  void Join(uint32_t into, uint32_t from);
  // The number of the last transfer that a group waits for, from 1; 0: it waits for none.
  size_t Last(uint32_t group) const;
  // Does a transfer wait for the group?
  bool IsAwaited(uint32_t group) const;

 private:
  // To all groups that `group` needs, or that need it, by `places`, as long as `pass` changes them.
  template <typename Pass>
  void Spread(uint32_t group, const Places& places, Pass pass);

  size_t words_ = 0;  // of a set; 0: the block has no transfers
  const Places& needs_;
  const Places& users_;
  std::vector<uint32_t> group_of_;  // by place
  Places members_;                  // by group
  // By group. Invariants: `awaited_` of a group is within `allowed_`, which is within that of each
  // that needs it.
  std::vector<Set> awaited_;
  std::vector<Set> allowed_;
};

}  // namespace ferry::compute
