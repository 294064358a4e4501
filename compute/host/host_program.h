// SPDX-License-Identifier: Apache-2.0
// A program made ready to run on the CPU by its plan. Kernels run a tile at a time, without
// intermediate tensors. Products, and moves that need all of their operands, run on whole tensors.
// Beside its buffers a run needs scratch, which it is given. Results are as docs/numerics.md
// says, whatever the CPU and the number of threads (but for the last bits of a library's products).
// Immutable. Any thread may run it, several at once, each in scratch of its own.
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
#include "compute/host/tile_fusion.h"
#include "compute/host/whole_ops.h"
#include "compute/plan/plan.h"
#include "compute/program/program.h"

namespace ferry::compute {

// True in debug builds.
#ifdef NDEBUG
inline constexpr bool kPoisons = false;
#else
inline constexpr bool kPoisons = true;
#endif

struct HostOptions {
  size_t threads = 1;  // most threads that a run uses and has memory for
  // Memory that nothing was written to has all bits set, in `empty` values and in scratch, so
  // that a read of it is noticed.
  bool poison = kPoisons;
  uint64_t launch_flops = kLaunchFlops;  // see run_control.h
};

class HostProgram {
 public:
  // `program` must be one that Verify accepts, better if simplified. RESOURCE_EXHAUSTED: see
  // MakePlan.
  static absl::StatusOr<HostProgram> Make(const Program& program, const HostOptions& options);
  static absl::StatusOr<HostProgram> Make(const Program& program, size_t threads = 1) {
    HostOptions options;
    options.threads = threads;
    return Make(program, options);
  }

  const Plan& plan() const { return plan_; }
  // Bytes that a run needs beside its buffers; it allocates nothing of more than 64 KiB. First the
  // plan's slots, then what steps hold while they run, then what is made from constant buffers.
  uint64_t scratch_bytes() const { return scratch_bytes_ + from_constants_bytes_; }
  // The part of scratch_bytes() for what is made from constant buffers.
  uint64_t from_constants_bytes() const { return from_constants_bytes_; }
  // For each product: the number of its step, and who multiplies ("oneDNN f32").
  std::vector<std::pair<uint32_t, std::string>> ProductMakers() const;

  // What runs over the same constant buffers, bound to the same memory, leave for the next run.
  // Used by one run at a time.
  struct FromConstants {
    absl::Span<std::byte> memory;  // from_constants_bytes() long, aligned to 64
    std::vector<bool> ready;  // by part of a step that keeps something; empty before the first run
  };

  // Lets a run be put aside. The same call with the same memory then goes on with it.
  struct Aside {
    // Asked by the run's own thread between launches after which the run can go on later: between
    // parts of steps, and between trips. True: put the run aside.
    std::function<bool()> wanted;
    bool put = false;  // the run was put aside, and the call returned OK
    // Where the run is: its step, and for each depth of repeats the part of the step and the trip.
    struct Place {
      size_t part = 0;
      int64_t trip = 0;
    };
    size_t step = 0;
    absl::InlinedVector<Place, 4> places;
  };

  // Called when a step of the plan (not one of a repeat's body) is over, in order, with its number.
  using StepOver = std::function<void(size_t step)>;

  // `buffers`: in the order of the program's buffers, of their sizes, and without overlaps.
  // `scratch`: scratch_bytes() long, or with `from_constants` from_constants_bytes() less, and
  // aligned to 64. The caller's thread does the work, with `workers` together with theirs.
  void Run(absl::Span<const absl::Span<std::byte>> buffers, absl::Span<std::byte> scratch,
           Workers* workers = nullptr, const StepOver& step_over = nullptr,
           FromConstants* from_constants = nullptr) const;
  // Runs as long as `may_go_on` says so. It is asked before each launch: a step of the plan, or a
  // part of a step that costs more than HostOptions::launch_flops. CANCELLED says how far the run
  // has got; what it writes is half done then.
  absl::Status RunWhile(const RunControl::MayGoOn& may_go_on,
                        absl::Span<const absl::Span<std::byte>> buffers,
                        absl::Span<std::byte> scratch, Workers* workers = nullptr,
                        const StepOver& step_over = nullptr,
                        FromConstants* from_constants = nullptr) const;
  // Runs the steps of the plan from `begin` to before `end`, such as those of a section
  // (compute/plan/transfers.h). The steps before `begin` must be over, in the same memory. A
  // transfer is no work here: `step_over` is called when its turn has come. What was received
  // before the first step is in scratch, which therefore is never poisoned.
  absl::Status RunSteps(size_t begin, size_t end, const RunControl::MayGoOn& may_go_on,
                        absl::Span<const absl::Span<std::byte>> buffers,
                        absl::Span<std::byte> scratch, Workers* workers, const StepOver& step_over,
                        FromConstants* from_constants = nullptr, Aside* aside = nullptr) const;

  // How much of its present step a run that was put aside has done, from 0 to 1.
  double DoneOfStep(const Aside& aside) const;

 private:
  friend class StepBuilder;

  // A part of a step of the plan, as it is run.
  struct Work {
    enum class Kind : uint8_t { kFusion, kWhole, kCopy, kRepeat };
    Kind kind = Kind::kFusion;
    TileFusion fusion;
    WholeOp whole;
    std::unique_ptr<Product> product;  // kWhole: set if the op is a product
    uint32_t step = 0;                 // number of the step
    std::optional<size_t> keeper;      // index in FromConstants::ready, if it keeps anything
    uint64_t from_constants_offset = 0;
    std::vector<Location> in;
    std::vector<Location> out;
    uint64_t bytes = 0;  // kCopy
    Location scratch;
    // kRepeat: the number of the trip goes to out[0], if anything needs it.
    int64_t trips = 0;
    std::vector<Work> body;
  };

  // One call of a run.
  struct Running {
    const RunMemory& memory;
    Workers* workers;
    FromConstants& from_constants;
    Aside& aside;
  };

  absl::Span<const Work> WorksOf(size_t step) const {
    const size_t first = step == 0 ? 0 : ends_[step - 1];
    return absl::MakeConstSpan(works_).subspan(first, ends_[step] - first);
  }
  // Runs `works`; goes on from where `run.aside` is at this depth of repeats.
  void RunAll(absl::Span<const Work> works, Running& run, size_t depth) const;
  void RunOne(const Work& work, Running& run) const;
  void Repeat(const Work& work, Running& run, size_t depth, bool inside) const;
  static void AddProductMakers(absl::Span<const Work> works,
                               std::vector<std::pair<uint32_t, std::string>>& makers);

  HostOptions options_;
  Plan plan_;
  std::vector<Work> works_;
  std::vector<size_t> ends_;  // by step of the plan: where its part of works_ ends
  std::vector<std::byte> constants_;
  uint64_t scratch_bytes_ = 0;  // without from_constants_bytes_
  uint64_t from_constants_bytes_ = 0;
  size_t keepers_ = 0;
};

}  // namespace ferry::compute
