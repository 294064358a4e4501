// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/program_device.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/duration.h"
#include "base/executor.h"
#include "base/status.h"
#include "compute/plan/plan.h"
#include "compute/program/text.h"
#include "tools/ferryctl/client.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/full_kernels.h"
#include "tools/ferryctl/program_run.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::tools {
namespace {

using compute::DType;
using Json = nlohmann::ordered_json;

constexpr size_t kInARow = 8;       // firings that are queued behind each other
constexpr uint64_t kWordBytes = 8;  // bytes of a word of random bits
// The copy's bytes, read and written, unless the program needs more memory than that.
constexpr uint64_t kMostForCopy = uint64_t{4} << 30;

struct FreeCompiled {
  void operator()(ferry_program* program) const { ferry_program_free(program); }
};
using CompiledPtr = std::unique_ptr<ferry_program, FreeCompiled>;

// Which bits of 8 bytes of elements are random, and which are set: what is left is between 0.5 and
// 1 of both signs, of f4e2m1fn 1 or 1.5, a scale between 2^-7 and 1. Integers have any bits.
struct Bits {
  uint64_t random = ~uint64_t{0};
  uint64_t set = 0;
};
Bits BitsOf(DType type) {
  switch (type) {
    case DType::kF64:
      return {0x800fffffffffffff, 0x3fe0000000000000};
    case DType::kF32:
      return {0x807fffff807fffff, 0x3f0000003f000000};
    case DType::kF16:
      return {0x83ff83ff83ff83ff, 0x3800380038003800};
    case DType::kBF16:
      return {0x807f807f807f807f, 0x3f003f003f003f00};
    case DType::kF8E4M3FN:
      return {0x8787878787878787, 0x3030303030303030};
    case DType::kF8E5M2:
      return {0x8383838383838383, 0x3838383838383838};
    case DType::kF4E2M1FN:
      return {0x9999999999999999, 0x2222222222222222};
    case DType::kF8E8M0FNU:
      return {0x0707070707070707, 0x7878787878787878};
    case DType::kBool:
      return {0x0101010101010101, 0};
    default:
      return {};
  }
}

// The type of the first op that reads each buffer; of buffers that none reads, nothing.
std::map<uint32_t, DType> TypesRead(const compute::Program& program) {
  std::map<uint32_t, DType> types;
  for (const compute::Node& node : program.nodes) {
    if (node.op != compute::Op::kInput && node.op != compute::Op::kAccumulate) continue;
    const compute::ValueId value =
        node.op == compute::Op::kInput ? node.first_result : node.operands[0];
    types.try_emplace(node.buffers[0], program.types[value].dtype);
  }
  return types;
}

// A program that writes what `program` reads, over buffers of the same names; "" if there is
// nothing to write. Bytes behind the last whole word stay as they are.
std::string FillText(const compute::Program& program) {
  std::string head = "program 1\n";
  std::string body = "%key = constant splat=1 : u64[]\n";
  bool any = false;
  for (const auto& [index, type] : TypesRead(program)) {
    const compute::Buffer& buffer = program.buffers[index];
    const uint64_t words = buffer.bytes / kWordBytes;
    if (words == 0) continue;
    any = true;
    absl::StrAppend(&head, "buffer @", buffer.name, " write ", buffer.bytes, "\n");
    const std::string of = absl::StrCat(" : u64[", words, "]\n");
    const std::string n = absl::StrCat(index);
    const Bits bits = BitsOf(type);
    absl::StrAppend(&body, "%c", n, " = constant splat=", n, " : u64[]\n%r", n,
                    " = rng_bits %key, %c", n, of, "%m", n, " = constant splat=", bits.random, of,
                    "%a", n, " = and %r", n, ", %m", n, "\n%s", n, " = constant splat=", bits.set,
                    of, "%o", n, " = or %a", n, ", %s", n, "\nstore @", buffer.name, ", %o", n,
                    "\n");
  }
  return any ? head + body : "";
}

double SecondsSince(absl::Time from) { return absl::ToDoubleSeconds(MonotonicNow() - from); }

uint64_t BytesMoved(const compute::Cost& cost) {
  return compute::SaturatingAdd(cost.bytes_read, cost.bytes_written);
}

double BytesPerSecond(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

// A session, and the device on which programs are measured.
class DeviceBench {
 public:
  static absl::StatusOr<DeviceBench> Open(const Globals& globals, uint64_t device, size_t runs) {
    SessionOptions options;
    options.client_dir = globals.ClientDir();
    options.name = "ferryctl-program";
    if (globals.timeout) options.timeout = *globals.timeout;
    DeviceBench bench;
    bench.globals_ = globals;
    ASSIGN_OR_RETURN(bench.session_, OpenSession(options));
    ASSIGN_OR_RETURN(bench.device_, OwnDevice(bench.session_.get(), static_cast<int64_t>(device)));
    bench.patience_ = globals.timeout.value_or(absl::InfiniteDuration());
    bench.runs_ = runs;
    return bench;
  }

  absl::StatusOr<CompiledPtr> Compile(const std::string& text) const {
    ferry_program* compiled = nullptr;
    RETURN_IF_ERROR(FromFerry(
        ferry_program_compile(session_.get(), device_, text.data(), text.size(), &compiled)));
    return CompiledPtr(compiled);
  }

  // The times of `program` go into `row`. `target`, if it is not null, is set.
  absl::Status Measure(const compute::Program& program, DeviceTimes::Row& row,
                       std::string* target) const {
    ASSIGN_OR_RETURN(const CompiledPtr compiled, Compile(compute::Print(program)));
    // Whoever may not ask measures all the same, of a new kernel perhaps its first tier.
    if (const absl::Status full = AwaitFullKernels(globals_); absl::IsDeadlineExceeded(full)) {
      return full;
    }
    if (target != nullptr) {
      const std::vector<absl::string_view> lines =
          absl::StrSplit(ferry_program_plan(compiled.get()), '\n', absl::SkipEmpty());
      *target = lines.empty() ? "" : std::string(lines.back());
    }
    uint64_t bytes = 0;
    for (const compute::Buffer& buffer : program.buffers) {
      bytes = compute::SaturatingAdd(bytes, tools::PlaceOf(buffer.bytes));
    }
    ASSIGN_OR_RETURN(const ArenaPtr arena,
                     CreateArena(session_.get(), device_, std::max<uint64_t>(bytes, 1)));
    const std::vector<ferry_binding> bound = Bind(program.buffers, arena);
    if (const std::string text = FillText(program); !text.empty()) {
      RETURN_IF_ERROR(Fill(text, program, bound));
    }
    return Time(compiled, bound, row);
  }

 private:
  DeviceBench() = default;

  static std::vector<ferry_binding> Bind(const std::vector<compute::Buffer>& buffers,
                                         const ArenaPtr& arena) {
    std::vector<ferry_binding> bound;
    uint64_t at = 0;
    for (const compute::Buffer& buffer : buffers) {
      bound.push_back({buffer.name.c_str(), {arena.get(), at, buffer.bytes}, 0, nullptr});
      at += tools::PlaceOf(buffer.bytes);
    }
    return bound;
  }

  static ferry_run RunOf(const CompiledPtr& program, const std::vector<ferry_binding>& bound) {
    ferry_run run = {};
    run.program = program.get();
    run.bindings = bound.empty() ? nullptr : bound.data();
    run.binding_count = bound.size();
    return run;
  }

  absl::Status Fill(const std::string& text, const compute::Program& program,
                    const std::vector<ferry_binding>& bound) const {
    ASSIGN_OR_RETURN(const CompiledPtr fill, Compile(text));
    std::vector<ferry_binding> some;
    for (const auto& [index, type] : TypesRead(program)) {
      if (program.buffers[index].bytes >= kWordBytes) some.push_back(bound[index]);
    }
    const ferry_run run = RunOf(fill, some);
    ferry_batch* batch = nullptr;
    RETURN_IF_ERROR(
        FromFerry(ferry_run_programs(session_.get(), device_, &run, 1, nullptr, &batch)));
    return Wait(BatchPtr(batch), patience_);
  }

  absl::Status Fire(const PreparedPtr& prepared) const {
    return FromFerry(ferry_prepared_fire(prepared.get(), nullptr));
  }
  absl::Status Await(const PreparedPtr& prepared) const {
    return FromFerry(ferry_prepared_wait(prepared.get(), ferry_prepared_fired(prepared.get()),
                                         ToFerry(patience_)));
  }

  absl::Status Time(const CompiledPtr& program, const std::vector<ferry_binding>& bound,
                    DeviceTimes::Row& row) const {
    const ferry_run run = RunOf(program, bound);
    std::vector<PreparedPtr> jobs;  // all over the same memory, so each has its turn
    for (size_t i = 0; i < kInARow; ++i) {
      ferry_prepared* prepared = nullptr;
      RETURN_IF_ERROR(
          FromFerry(ferry_prepare_programs(session_.get(), device_, &run, 1, nullptr, &prepared)));
      jobs.emplace_back(prepared);
    }
    std::vector<double> alone, in_a_row;
    for (size_t i = 0; i <= runs_; ++i) {
      const absl::Time begin = MonotonicNow();
      RETURN_IF_ERROR(Fire(jobs[0]));
      RETURN_IF_ERROR(Await(jobs[0]));
      if (i > 0) alone.push_back(SecondsSince(begin));
    }
    for (size_t done = 0; done < runs_; done += kInARow) {
      const absl::Time begin = MonotonicNow();
      for (const PreparedPtr& job : jobs) RETURN_IF_ERROR(Fire(job));
      for (const PreparedPtr& job : jobs) RETURN_IF_ERROR(Await(job));
      in_a_row.push_back(SecondsSince(begin) / static_cast<double>(kInARow));
    }
    row.median_s = Median(alone);
    row.p90_s = Quantile(alone, 0.9);
    row.p99_s = Quantile(alone, 0.99);
    row.in_a_row_s = Median(in_a_row);
    return absl::OkStatus();
  }

  Globals globals_;
  SessionPtr session_;
  uint64_t device_ = 0;
  absl::Duration patience_;
  size_t runs_ = 1;
};

// A copy that reads and writes `bytes` together.
compute::Program CopyOf(uint64_t bytes) {
  const uint64_t half = std::max<uint64_t>(bytes / 2, 1);
  return compute::Parse(absl::StrCat("program 1\nbuffer @from read ", half, "\nbuffer @to write ",
                                     half, "\ncopy @to, @from bytes=", half, "\n"))
      .program;
}

DeviceTimes::Row RowOf(const compute::Step& step) {
  DeviceTimes::Row row;
  const auto kind = compute::kStepNames[static_cast<size_t>(step.kind)];
  row.step = absl::StrCat(step.number);
  row.kind = std::string(kind);
  row.label = step.label;
  row.cost = compute::CostOf(step);
  return row;
}

absl::Status MeasureCopy(const DeviceBench& bench, uint64_t buffers, DeviceTimes& times) {
  const uint64_t wanted = BytesMoved(times.rows.back().cost);
  const compute::Program copy = CopyOf(std::min(wanted, std::max(buffers, kMostForCopy)));
  DeviceTimes::Row row;
  row.step = "copy";
  row.cost = compute::CostOf(copy);
  RETURN_IF_ERROR(bench.Measure(copy, row, nullptr));
  const double speed = BytesPerSecond(BytesMoved(row.cost), row.in_a_row_s);
  for (DeviceTimes::Row& other : times.rows) {
    if (speed > 0) other.estimated_s = static_cast<double>(BytesMoved(other.cost)) / speed;
  }
  times.rows.push_back(std::move(row));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceTimes> BenchOnDevice(const Globals& globals, const compute::Program& program,
                                          uint64_t device, size_t runs) {
  RETURN_IF_ERROR(CheckNoTransfers(
      program, "time a program",
      "what is timed is run by one device alone; put inputs and stores in place of transfers"));
  ASSIGN_OR_RETURN(const compute::Plan plan, compute::MakePlan(program));
  ASSIGN_OR_RETURN(const DeviceBench bench, DeviceBench::Open(globals, device, runs));
  DeviceTimes times;
  times.device = device;
  times.runs = runs;
  compute::Step whole;
  whole.kind = compute::StepKind::kRepeat;
  whole.trips = 1;
  whole.steps = plan.steps;
  DeviceTimes::Row run = RowOf(whole);
  run.step = "run";
  run.kind = "";
  // First, since what a daemon refuses is to be said of the program, not of a step.
  RETURN_IF_ERROR(bench.Measure(program, run, &times.target));
  for (const compute::Step& step : plan.steps) {
    DeviceTimes::Row row = RowOf(step);
    row.measured = step.kind != compute::StepKind::kRepeat;
    if (row.measured) RETURN_IF_ERROR(bench.Measure(step.program, row, nullptr));
    times.rows.push_back(std::move(row));
  }
  times.rows.push_back(std::move(run));
  uint64_t buffers = 0;
  for (const compute::Buffer& buffer : program.buffers) {
    buffers = compute::SaturatingAdd(buffers, buffer.bytes);
  }
  RETURN_IF_ERROR(MeasureCopy(bench, buffers, times));
  return times;
}

std::string ToText(const DeviceTimes& times, bool json) {
  if (json) {
    Json rows = Json::array();
    for (const DeviceTimes::Row& row : times.rows) {
      uint64_t number = 0;  // as plans have it; the whole run and the copy have none
      Json one = {{"step", absl::SimpleAtoi(row.step, &number) ? Json(number) : Json(row.step)},
                  {"kind", row.kind},
                  {"label", row.label},
                  {"flops", row.cost.flops},
                  {"transcendentals", row.cost.transcendentals},
                  {"bytes_read", row.cost.bytes_read},
                  {"bytes_written", row.cost.bytes_written}};
      if (row.step != "copy") one["estimated_s"] = row.estimated_s;
      if (row.measured) {
        one["median_s"] = row.median_s;
        one["p90_s"] = row.p90_s;
        one["p99_s"] = row.p99_s;
        one["in_a_row_s"] = row.in_a_row_s;
      }
      rows.push_back(std::move(one));
    }
    const Json all = {
        {"device", times.device}, {"runs", times.runs}, {"by", times.target}, {"steps", rows}};
    return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"STEP"},
               {"KIND"},
               {"MEDIAN", kRight},
               {"P90", kRight},
               {"P99", kRight},
               {"IN A ROW", kRight},
               {"ESTIMATE", kRight},
               {"BYTES", kRight},
               {"GB/S", kRight},
               {"LABEL"}});
  for (const DeviceTimes::Row& row : times.rows) {
    const auto text = [&](bool shown, double seconds) {
      return shown ? DurationText(absl::Seconds(seconds)) : std::string("-");
    };
    const uint64_t bytes = BytesMoved(row.cost);
    table.AddRow(
        {row.step, row.kind, text(row.measured, row.median_s), text(row.measured, row.p90_s),
         text(row.measured, row.p99_s), text(row.measured, row.in_a_row_s),
         text(row.step != "copy", row.estimated_s), HumanCount(bytes),
         row.measured ? absl::StrFormat("%.2f", BytesPerSecond(bytes, row.in_a_row_s) * 1e-9) : "-",
         row.label});
  }
  const DeviceTimes::Row& copy = times.rows.back();
  const DeviceTimes::Row& run = *std::prev(times.rows.end(), 2);
  const double of_copy = BytesPerSecond(BytesMoved(copy.cost), copy.in_a_row_s);
  return absl::StrCat(
      table.ToString(), "\n",
      absl::StrFormat(
          "%d runs on device %d; %.2f of the copy's bytes per second; %s\n", times.runs,
          times.device,
          of_copy > 0 ? BytesPerSecond(BytesMoved(run.cost), run.in_a_row_s) / of_copy : 0,
          times.target));
}

std::string EstimatedAndMeasured(const DeviceTimes& times) {
  std::string text = absl::StrCat("on device ", times.device, ", ", times.runs, " runs each; ",
                                  times.target, "\n");
  for (const DeviceTimes::Row& row : times.rows) {
    const uint64_t bytes = BytesMoved(row.cost);
    absl::StrAppend(&text, row.step);
    if (row.step == "copy") {
      absl::StrAppend(&text, " of ", bytes, " bytes:");
    } else {
      absl::StrAppend(&text, " estimated: ", row.cost.flops, " flops, ", row.cost.transcendentals,
                      " functions, ", bytes, " bytes, ",
                      DurationText(absl::Seconds(row.estimated_s)), ";");
    }
    absl::StrAppend(
        &text, " measured: ",
        row.measured ? absl::StrFormat("%s, %.2f GB/s", DurationText(absl::Seconds(row.in_a_row_s)),
                                       BytesPerSecond(bytes, row.in_a_row_s) * 1e-9)
                     : "as part of the run alone",
        "\n");
  }
  return text;
}

}  // namespace ferry::tools
