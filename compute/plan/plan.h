// SPDX-License-Identifier: Apache-2.0
// The plan of a program: the steps that a run consists of, in their order, and where in one arena
// each value is that they hand on. What a step does is a small Program itself, over buffers that
// are bound to the program's own or to slots of the arena: an executor needs to know programs, and
// nothing of plans but the order. Equal kernels are equal programs, so what was made for one (by
// its fingerprint) serves all. docs/programs.md, "The plan". Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/passes/memory_plan.h"
#include "compute/program/cost.h"
#include "compute/program/program.h"

namespace ferry::compute {

// A value that is in the arena: dense, row-major, written before it is read. Its bytes are its own
// from the step `first` to `last`, both with it.
struct Slot {
  TensorType type;
  std::string label;  // of the op that makes it, or the op's name
  uint64_t offset = 0;
  uint32_t first = 0;
  uint32_t last = 0;
};

// What a buffer of a step's program is bound to.
struct Binding {
  bool slot = false;   // else one of the program's buffers
  uint32_t index = 0;  // of Plan::slots or Plan::buffers

  bool operator==(const Binding& other) const { return slot == other.slot && index == other.index; }
};

// Longer rows are not spread over again in the kernel that reduces them.
inline constexpr uint64_t kMaxRow = 8192;

enum class StepKind : uint8_t {
  // An executor may do its ops element by element, all of them of one element (where there are
  // reductions: of one row) before the next: no op reads what another element has written, and in
  // rows too long to keep (kMaxRow) none needs what a reduction of its row gives. Or it is
  // one op that has elements of its own ways, such as a transpose.
  kKernel,
  kProduct,  // of its ops one is a dot; elementwise ops before and after it go along
  kCopy,
  kSend,
  kRecv,
  kRepeat,
};
inline constexpr absl::string_view kStepNames[] = {"kernel", "product", "copy",
                                                   "send",   "recv",    "repeat"};

struct Step {
  StepKind kind = StepKind::kKernel;
  std::string label;    // those of its ops, or the last op's name, or where it writes
  uint32_t number = 0;  // in the order in which steps run, those of a repeat's body after it
  // Steps of the same list that are over before it begins. A send or a recv may go on while steps
  // run that are not after it: its memory is its own until the end, or from its place on.
  std::vector<uint32_t> after;

  Program program;                // Verify accepts it; of a repeat empty
  std::vector<Binding> bindings;  // by buffer of `program`
  std::vector<int64_t> origins;   // by op of `program`, the planned program's op; -1: none
  // Of a product: bytes for factors made on the way and the sum before what follows it.
  std::optional<uint32_t> scratch;

  // Of a repeat: the steps run so many times; `count`, if anything needs it, is the number of the
  // trip from 0. What trips hand on they do by slots.
  int64_t trips = 0;
  std::optional<uint32_t> count;
  std::vector<Step> steps;
};

struct Plan {
  Numerics numerics;
  std::vector<Buffer> buffers;  // the program's
  std::vector<Slot> slots;
  std::vector<Step> steps;
  MemoryPlan memory;  // by slot; `bytes` is all that a run needs besides its buffers
};

// Of a program that Verify accepts, as Simplify leaves it (dead code is only more to plan).
// RESOURCE_EXHAUSTED if it is too large to plan. Equal programs have equal plans.
absl::StatusOr<Plan> MakePlan(const Program& program);

// RESOURCE_EXHAUSTED with what is asked, what is there, and the largest slots at the worst step, if
// the arena, and `besides` for the scratch of an executor, have not `available` bytes of `space`.
absl::Status CheckFits(const Plan& plan, uint64_t besides, uint64_t available,
                       absl::string_view space);

// Of a program's buffer: the last of the plan's steps that writes it, and the last that touches it.
struct LastUse {
  std::optional<size_t> written;
  std::optional<size_t> touched;
};
// By buffer. A repeat is one step, whatever its body does.
std::vector<LastUse> LastUses(const Plan& plan);

// What a step costs each time it runs; bytes are of buffers and of slots, and of a slot that is
// read and written both.
Cost CostOf(const Step& step);

// A line a slot and a step; `kernels`: below each step its program.
std::string ToText(const Plan& plan, bool kernels = false);
// For graphviz: steps and what they hand on.
std::string ToDot(const Plan& plan);

}  // namespace ferry::compute
