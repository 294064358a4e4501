// SPDX-License-Identifier: Apache-2.0
// Which transfers the groups of a block wait for, and for which they must not be made to wait: of
// two daemons that run the same program each may send before it has received, and then neither may
// hold its send until its receive is over because both are of one kernel. Single-threaded; part of
// a Partition.
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

  // By place, as places: what each item needs, and who needs it.
  Waits(const Graph& graph, const Block& block, const std::vector<std::vector<uint32_t>>& needs,
        const std::vector<std::vector<uint32_t>>& users);

  // May `a` and `b` be one step? Whatever is over before one of them would be before both.
  bool MayJoin(uint32_t a, uint32_t b) const;
  // `group_of`: by place, after it.
  void Join(uint32_t into, uint32_t from, const std::vector<uint32_t>& group_of,
            const std::vector<std::vector<uint32_t>>& users);
  // The number of the last transfer that a group waits for, from 1; 0: it waits for none.
  size_t Last(uint32_t group) const;

 private:
  size_t words_ = 0;  // of a set; 0: the block has no transfers
  // By group. Invariant: `awaited_` of a group is within `allowed_`.
  std::vector<Set> awaited_;
  std::vector<Set> allowed_;
};

}  // namespace ferry::compute
