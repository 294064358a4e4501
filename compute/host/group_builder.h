// SPDX-License-Identifier: Apache-2.0
// Makes a TileGroup of the ops that a planner has put together: each value in a register of its
// own, of which memory is shared by those that do not live at the same time. Single-threaded.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "compute/host/planner.h"
#include "compute/host/tile_group.h"

namespace ferry::compute {

class GroupBuilder {
 public:
  GroupBuilder(const HostPlanner& planner, const HostPlanner::Group& group)
      : planner_(planner), program_(planner.program_), group_(group) {}

  TileGroup Build();

  // Are what is reduced the last dimensions?
  static bool ReducesRows(const Node& node, const TensorType& type);

 private:
  void AddMember(const HostPlanner::Member& member);
  void AddReduce(const Node& node);
  // Registers: of an operand, loading it if need be, and of a result.
  uint32_t In(ValueId value);
  uint32_t NewRegister();
  void Result(TileOp op, ValueId value);
  void ShareMemory();

  const HostPlanner& planner_;
  const Program& program_;
  const HostPlanner::Group& group_;
  TileGroup made_;
  std::map<std::pair<uint32_t, bool>, uint32_t>
      registers_;  // by root, and whether for all elements
};

}  // namespace ferry::compute
