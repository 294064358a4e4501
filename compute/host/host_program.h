// SPDX-License-Identifier: Apache-2.0
// A program made ready to be run by the CPU: elementwise chains, moves into them and reductions a
// tile at a time, without intermediate tensors; the other ops one by one, on whole tensors in an
// arena that the run is given. Results are as docs/numerics.md says, whatever the CPU. Immutable;
// any thread may run it, several at once in arenas of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/host/tile_group.h"
#include "compute/program/program.h"

namespace ferry::compute {

class HostProgram {
 public:
  // `program` is one that Verify accepts. UNIMPLEMENTED names an op that is not run here: `send`
  // and `recv`, which are transfers.
  static absl::StatusOr<HostProgram> Make(Program program);

  // What a run needs beside its buffers, all of it: nothing of more than 64 KiB is allocated.
  uint64_t arena_bytes() const { return arena_bytes_; }

  // `buffers` as the program names them, of their sizes, apart from each other; `arena` has
  // arena_bytes() and is aligned to 64.
  void Run(absl::Span<const absl::Span<std::byte>> buffers, absl::Span<std::byte> arena) const;

 private:
  friend class HostPlanner;

  struct Step {
    enum class Kind : uint8_t { kGroup, kWhole, kCopy, kRepeat, kEnd };
    Kind kind = Kind::kGroup;
    size_t index = 0;               // of the group, or the op
    std::vector<Location> in;       // of a repeat what it is given, of its end what is yielded
    std::vector<Location> out;      // of both what is carried; before it the count
    std::vector<uint64_t> bytes;    // of what is carried
    std::vector<Location> yielded;  // of an end: between, as what is yielded may be what is carried
    Location scratch;
    size_t end = 0;  // of a repeat, its end's step
  };

  void RunSteps(size_t begin, size_t end, const RunMemory& memory) const;
  void RunRepeat(const Step& step, size_t begin, const RunMemory& memory) const;

  Program program_;
  std::vector<Step> steps_;
  std::vector<TileGroup> groups_;
  std::vector<std::byte> constants_;
  uint64_t arena_bytes_ = 0;
};

}  // namespace ferry::compute
