// SPDX-License-Identifier: Apache-2.0
// Keeps track, for each fusion of a block, of the transfers that it waits for, and of the transfers
// that it may be made to wait for. Two daemons that run the same program may each have a send that
// needs no receive. If the send were in one kernel with something that needs the receive, each
// would wait for the other. Single-threaded; part of a Partition, whose items it knows by their
// places in the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/plan/graph.h"

namespace ferry::compute {

class Waits {
 public:
  // Transfers of the block, by their order in it.
  using Set = std::vector<uint64_t>;  // one bit for each
  using Places = std::vector<std::vector<uint32_t>>;

  // `needs`: what each item needs; `users`: what needs each item. At first each item is a fusion.
  Waits(const Graph& graph, const Block& block, const Places& needs, const Places& users);

  // Whether `a` and `b` may be one step. All that is over before one of them would be over before
  // both.
  bool MayJoin(uint32_t a, uint32_t b) const;
  void Join(uint32_t into, uint32_t from);
  // The number of the last transfer, from 1, that the fusion waits for; 0: it waits for none.
  size_t Last(uint32_t fusion) const;
  // Whether a transfer waits for the fusion.
  bool IsAwaited(uint32_t fusion) const;

 private:
  // Goes from `fusion` along `places` to the fusions that it needs, or that need it, and from these
  // on, as long as `pass` changes them.
  template <typename Pass>
  void Spread(uint32_t fusion, const Places& places, Pass pass);

  size_t words_ = 0;  // length of a set; 0: the block has no transfers
  const Places& needs_;
  const Places& users_;
  std::vector<uint32_t> fusion_of_;  // by place
  Places members_;                   // by fusion
  // By fusion: the transfers that it waits for, and those that it may be made to wait for.
  // Invariants: the `awaited_` of a fusion is within its `allowed_`; its `allowed_` is within that
  // of each fusion that needs it.
  std::vector<Set> awaited_;
  std::vector<Set> allowed_;
};

}  // namespace ferry::compute
