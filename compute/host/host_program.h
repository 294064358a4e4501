// SPDX-License-Identifier: Apache-2.0
// A program made ready to be run by the CPU, as its plan says: kernels a tile at a time, without
// intermediate tensors; products, and moves that need all of their operands, on whole tensors. All
// that a run needs beside its buffers is one arena that it is given. Results are as
// docs/numerics.md says, whatever the CPU and however many threads (the last bits of a library's
// products excepted). Immutable; any thread may run
// it, several at once in arenas of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/host/product.h"
#include "compute/host/run_control.h"
#include "compute/host/tile_group.h"
#include "compute/host/whole_ops.h"
#include "compute/plan/plan.h"
#include "compute/program/program.h"

namespace ferry::compute {

// In debug builds.
#ifdef NDEBUG
inline constexpr bool kPoisons = false;
#else
inline constexpr bool kPoisons = true;
#endif

struct HostOptions {
  size_t threads = 1;  // that a run may use, and has memory for
  // What nothing was written to is all ones, in `empty` values and in the arena, so that whoever
  // reads it notices.
  bool poison = kPoisons;
  uint64_t launch_flops = kLaunchFlops;  // see run_control.h
};

class HostProgram {
 public:
  // `program` is one that Verify accepts, better simplified. RESOURCE_EXHAUSTED: see MakePlan.
  static absl::StatusOr<HostProgram> Make(const Program& program, const HostOptions& options);
  static absl::StatusOr<HostProgram> Make(const Program& program, size_t threads = 1) {
    HostOptions options;
    options.threads = threads;
    return Make(program, options);
  }

  const Plan& plan() const { return plan_; }
  // What a run needs beside its buffers, all of it: nothing of more than 64 KiB is allocated. First
  // the plan's, then what steps hold while they are at it, then what is made of constant buffers.
  uint64_t arena_bytes() const { return arena_bytes_ + kept_bytes_; }
  // Of that, what is made of constant buffers.
  uint64_t kept_bytes() const { return kept_bytes_; }
  // Of each product: the number of its step, and who multiplies ("oneDNN f32").
  std::vector<std::pair<uint32_t, std::string>> ProductMakers() const;

  // What runs over the same constant buffers, bound to the same memory, hand on to the next one.
  // Of one run at a time.
  struct Kept {
    absl::Span<std::byte> memory;  // kept_bytes(), aligned to 64
    std::vector<bool> ready;       // by part of a step that keeps something; empty at first
  };

  // A run may be put aside, and gone on with by the same call with the same memory.
  struct Aside {
    // Asked by the run's own thread between launches that can be gone on from: parts of steps, and
    // trips.
    std::function<bool()> wanted;
    bool put = false;  // it was, and the call was OK
    // Where the run is: its step, and by depth of repeats the part of it and its trip.
    struct Place {
      size_t part = 0;
      int64_t trip = 0;
    };
    size_t step = 0;
    absl::InlinedVector<Place, 4> places;
  };

  // Called with the number of a step of the plan (not of a repeat's body) that is over, in order.
  using StepOver = std::function<void(size_t step)>;

  // `buffers` as the program names them, of their sizes, apart from each other; `arena` has
  // arena_bytes(), with `kept` kept_bytes() less, and is aligned to 64. Without `workers` all is
  // done by the caller; with them by him too.
  void Run(absl::Span<const absl::Span<std::byte>> buffers, absl::Span<std::byte> arena,
           Workers* workers = nullptr, const StepOver& step_over = nullptr,
           Kept* kept = nullptr) const;
  // The same as long as `may_go_on` says so, which is asked before each launch: a step of the plan,
  // or a part of one that costs more than HostOptions::launch_flops. CANCELLED says how far the run
  // has got; what it writes is then half done.
  absl::Status RunWhile(const RunControl::MayGoOn& may_go_on,
                        absl::Span<const absl::Span<std::byte>> buffers,
                        absl::Span<std::byte> arena, Workers* workers = nullptr,
                        const StepOver& step_over = nullptr, Kept* kept = nullptr) const;
  // The same of some steps of the plan, from `begin` to before `end`, such as those of a stage
  // (compute/plan/transfers.h); those before them are over, in the same memory. A transfer is
  // nothing to do here: `step_over` hears when its turn has come, and what was received before the
  // first step is in the arena, which is never poisoned.
  absl::Status RunSteps(size_t begin, size_t end, const RunControl::MayGoOn& may_go_on,
                        absl::Span<const absl::Span<std::byte>> buffers,
                        absl::Span<std::byte> arena, Workers* workers, const StepOver& step_over,
                        Kept* kept = nullptr, Aside* aside = nullptr) const;

  // How much of its step a run that was put aside has done, from 0 to 1.
  double DoneOfStep(const Aside& aside) const;

 private:
  friend class StepBuilder;

  // A part of a step of the plan.
  struct Work {
    enum class Kind : uint8_t { kGroup, kWhole, kCopy, kRepeat };
    Kind kind = Kind::kGroup;
    TileGroup group;
    WholeOp whole;
    std::unique_ptr<Product> product;  // of kWhole, if it is one
    uint32_t step = 0;                 // of it
    std::optional<size_t> keeper;      // of `ready`, if it keeps anything
    uint64_t kept_offset = 0;
    std::vector<Location> in;
    std::vector<Location> out;
    uint64_t bytes = 0;  // of a copy
    Location scratch;
    // Of a repeat: the count of the trip is at out[0], if anybody needs it.
    int64_t trips = 0;
    std::vector<Work> body;
  };

  struct Running {
    const RunMemory& memory;
    Workers* workers;
    Kept& kept;
    Aside& aside;
  };

  absl::Span<const Work> WorksOf(size_t step) const {
    const size_t first = step == 0 ? 0 : ends_[step - 1];
    return absl::MakeConstSpan(works_).subspan(first, ends_[step] - first);
  }
  // Goes on from where `run.aside` is at this depth of repeats.
  void RunAll(absl::Span<const Work> works, Running& run, size_t depth) const;
  void RunOne(const Work& work, Running& run) const;
  void Repeat(const Work& work, Running& run, size_t depth, bool inside) const;
  static void AddProductMakers(absl::Span<const Work> works,
                               std::vector<std::pair<uint32_t, std::string>>& makers);

  HostOptions options_;
  Plan plan_;
  std::vector<Work> works_;
  std::vector<size_t> ends_;  // by step of the plan: of its part of works_
  std::vector<std::byte> constants_;
  uint64_t arena_bytes_ = 0;  // without what is kept
  uint64_t kept_bytes_ = 0;
  size_t keepers_ = 0;
};

}  // namespace ferry::compute
