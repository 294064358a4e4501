// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/gpu_run.h"

#include <gtest/gtest.h>

#include <utility>

namespace ferry::compute::testing {
namespace {

class GpuRun {
 public:
  GpuRun(const GpuPlan& plan, const std::vector<Bytes>& buffers, GpuMachine& machine)
      : plan_(plan), machine_(machine) {
    for (const Bytes& buffer : buffers) buffers_.push_back(machine.Allocate(buffer));
    arena_ = machine.Allocate(Bytes(plan.arena_bytes, std::byte{0xA5}));  // nothing is 0 by luck
  }

  void Run(const std::vector<GpuCommand>& commands) {
    for (const GpuCommand& command : commands) {
      switch (command.kind) {
        case GpuCommand::Kind::kLaunch: {
          std::vector<std::pair<uint64_t, uint32_t>> arguments;
          for (const GpuArgument& argument : command.arguments) {
            arguments.emplace_back(argument.place ? AddressOf(*argument.place)
                                                  : static_cast<uint64_t>(argument.number),
                                   argument.bytes);
          }
          machine_.Launch(plan_.kernels[command.kernel].name, command.blocks, command.threads,
                          arguments);
          break;
        }
        case GpuCommand::Kind::kCopy:
          machine_.Copy(AddressOf(command.to), AddressOf(command.from), command.bytes);
          break;
        case GpuCommand::Kind::kRepeat:
          for (int64_t trip = 0; trip < command.trips; ++trip) {
            if (command.count) {
              const std::vector<int32_t> count = {static_cast<int32_t>(trip)};
              machine_.Write(AddressOf(*command.count), BytesOfValues(count));
            }
            Run(command.body);
          }
          break;
        default:
          ADD_FAILURE() << "a command that tests do not carry out";
      }
    }
  }

  std::vector<Bytes> Buffers() {
    std::vector<Bytes> made;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      made.push_back(machine_.Read(buffers_[i], plan_.plan.buffers[i].bytes));
    }
    machine_.FreeAll();
    return made;
  }

 private:
  uint64_t AddressOf(const GpuPlace& place) const {
    if (place.kind == GpuPlace::Kind::kBuffer) return buffers_[place.index] + place.offset;
    return arena_ + ArenaOffsetOf(plan_, place);
  }

  const GpuPlan& plan_;
  GpuMachine& machine_;
  std::vector<uint64_t> buffers_;
  uint64_t arena_ = 0;
};

}  // namespace

std::vector<Bytes> RunGpuPlan(const GpuPlan& plan, const std::vector<Bytes>& buffers,
                              GpuMachine& machine) {
  GpuRun run(plan, buffers, machine);
  run.Run(plan.commands);
  return run.Buffers();
}

}  // namespace ferry::compute::testing
