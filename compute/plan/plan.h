// SPDX-License-Identifier: Apache-2.0
// The plan of a program: the steps of a run in order, and where in the run's scratch each value is
// that steps pass on. What a step does is a small Program itself, whose buffers are bound to the
// program's own or to slots of the scratch. So an executor must know programs, and of plans only
// the order. Equal kernels are equal programs, so the result of preparing one (found by its
// fingerprint) serves all. docs/programs.md, "The plan". Plain data; any thread.
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

// A value in the scratch: dense, row-major, written before it is read. Its bytes are used for
// nothing else from step `first` to step `last`, both included.
struct Slot {
  TensorType type;
  std::string label;  // label of the op that makes it, or the op's name
  uint64_t offset = 0;
  uint32_t first = 0;
  uint32_t last = 0;
};

// What a buffer of a step's program is bound to.
struct Binding {
  bool slot = false;   // a slot; else one of the program's buffers
  uint32_t index = 0;  // in Plan::slots or Plan::buffers

  bool operator==(const Binding& other) const { return slot == other.slot && index == other.index; }
};

// A longer row is not spread over again in the kernel that reduces it.
inline constexpr uint64_t kMaxRow = 8192;

enum class StepKind : uint8_t {
  // The executor may compute it element by element, all ops of one element (with reductions: of one
  // row) before the next. No op reads what another element has written. In a row that is too long
  // to keep (kMaxRow), no op needs the result of a reduction of that row. Or the kernel is one op
  // whose elements come from positions of their own, such as a transpose.
  kKernel,
  kProduct,  // one of its ops is a dot; elementwise ops before and after it are included
  kCopy,
  kSend,
  kRecv,
  kRepeat,
};
inline constexpr absl::string_view kStepNames[] = {"kernel", "product", "copy",
                                                   "send",   "recv",    "repeat"};

struct Step {
  StepKind kind = StepKind::kKernel;
  std::string label;    // labels of its ops, else the last op's name, or what it writes
  uint32_t number = 0;  // in the order in which steps run; the steps of a repeat's body follow it
  // Indices of steps of the same list that must be over before it begins. A send or receive may go
  // on while steps run that are not `after` it: its memory is then used for nothing else to the end
  // (a send), or from its place on (a receive).
  std::vector<uint32_t> after;

  Program program;                // Verify accepts it; empty for a repeat
  std::vector<Binding> bindings;  // by buffer of `program`
  std::vector<int64_t> origins;   // by op of `program`: op of the planned program; -1: none
  // kProduct: the slot for factors that are made on the way, and for the sums before what follows.
  std::optional<uint32_t> scratch;

  // kRepeat: `steps` run `trips` times. `count`, if anything needs it, is the slot with the number
  // of the trip, from 0. Trips pass values on in slots.
  int64_t trips = 0;
  std::optional<uint32_t> count;
  std::vector<Step> steps;
};

struct Plan {
  Numerics numerics;
  std::vector<Buffer> buffers;  // the program's buffers
  std::vector<Slot> slots;
  std::vector<Step> steps;
  MemoryPlan memory;  // by slot; `bytes` is all that a run needs beside its buffers
};

// Plans a program that Verify accepts, best as Simplify() leaves it (dead code would be planned
// too). RESOURCE_EXHAUSTED if it is too large to plan. Equal programs have equal plans.
absl::StatusOr<Plan> MakePlan(const Program& program);

// RESOURCE_EXHAUSTED if the slots and `besides`, what an executor adds to them, need more than the
// `available` bytes of `space`. The error says what is needed, what is available, and the largest
// slots at the worst step.
absl::Status CheckFits(const Plan& plan, uint64_t besides, uint64_t available,
                       absl::string_view space);

// The last of the plan's steps that writes a buffer, and the last that reads or writes it.
struct LastUse {
  std::optional<size_t> written;
  std::optional<size_t> touched;
};
// By buffer of the program. A repeat counts as one step, whatever its body does.
std::vector<LastUse> LastUses(const Plan& plan);

// What one run of a step costs. Bytes are of buffers and slots; a slot that is both read and
// written counts for both.
Cost CostOf(const Step& step);

// One line for each slot and step; with `kernels`, each step's program below it.
std::string ToText(const Plan& plan, bool kernels = false);
// The steps and what they pass on, for graphviz.
std::string ToDot(const Plan& plan);

}  // namespace ferry::compute
