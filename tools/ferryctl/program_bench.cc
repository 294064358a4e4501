// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/program_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/duration.h"
#include "base/status.h"
#include "compute/host/cpu.h"
#include "compute/host/host_program.h"
#include "compute/numerics/convert.h"
#include "compute/plan/plan.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/program_run.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::tools {
namespace {

using compute::DType;
using Json = nlohmann::ordered_json;

// Elements between 0.5 and 1 of both signs, so that none is a special case; integers are random.
void FillElements(DType type, std::byte* at, uint64_t bytes, std::mt19937_64& random) {
  const bool floating = compute::InfoOf(type).floating;
  if (!floating || type == DType::kF8E8M0FNU) {
    for (uint64_t i = 0; i < bytes; ++i) {
      // Scales are powers of two between 2^-7 and 2^8.
      at[i] = static_cast<std::byte>(floating ? 120 + random() % 16 : random());
    }
    return;
  }
  constexpr uint64_t kChunk = 512;
  std::vector<float> values(kChunk);
  for (float& value : values) {
    const float magnitude = 0.5f + static_cast<float>(random() % 1024) / 2048;
    value = random() % 2 == 0 ? magnitude : -magnitude;
  }
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  const uint64_t chunk = compute::BytesOf(type, kChunk);
  const uint64_t elements =
      type == DType::kF4E2M1FN ? 2 * bytes : bytes / compute::BytesOf(type, 1);
  for (uint64_t done = 0; done < elements; done += kChunk) {
    compute::Convert(DType::kF32, from, type, at + done / kChunk * chunk,
                     std::min(kChunk, elements - done));
  }
}

void FillBuffers(const compute::Program& program,
                 const std::vector<absl::Span<std::byte>>& buffers) {
  std::mt19937_64 random(1);
  // The type of the first reader is filled last, and stays.
  for (size_t i = program.nodes.size(); i-- > 0;) {
    const compute::Node& node = program.nodes[i];
    if (node.op != compute::Op::kInput && node.op != compute::Op::kAccumulate) continue;
    const compute::ValueId value =
        node.op == compute::Op::kInput ? node.first_result : node.operands[0];
    for (const compute::BufferRange& range : compute::RangesOf(program, node)) {
      if (!range.reads) continue;
      FillElements(program.types[value].dtype, buffers[range.buffer].data() + range.begin,
                   range.end - range.begin, random);
    }
  }
}

double PerSecond(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

uint64_t BytesOf(const compute::Cost& cost) {
  return compute::SaturatingAdd(cost.bytes_read, cost.bytes_written);
}

uint64_t FlopsOf(const compute::Cost& cost) {
  return compute::SaturatingAdd(cost.flops, cost.transcendentals);
}

}  // namespace

absl::StatusOr<ProgramTimes> BenchProgram(const compute::Program& program, size_t threads,
                                          size_t runs) {
  RETURN_IF_ERROR(CheckNoTransfers(
      program, "time a program",
      "what is timed is run by this process alone; put inputs and stores in place of transfers"));
  ASSIGN_OR_RETURN(const compute::HostProgram made, compute::HostProgram::Make(program, threads));
  uint64_t bytes = 0;
  for (const compute::Buffer& buffer : program.buffers) {
    bytes = compute::SaturatingAdd(bytes, PlaceOf(buffer.bytes));
  }
  RETURN_IF_ERROR(CheckMemory(made, bytes));
  ASSIGN_OR_RETURN(const RunMemory memory, AllocateRun("its buffers", bytes));
  ASSIGN_OR_RETURN(const RunMemory arena,
                   AllocateRun("its intermediate values", made.scratch_bytes()));
  std::vector<absl::Span<std::byte>> buffers;
  std::byte* next = memory.get();
  for (const compute::Buffer& buffer : program.buffers) {
    buffers.push_back({next, buffer.bytes});
    std::fill_n(next, buffer.bytes, std::byte{0});
    next += PlaceOf(buffer.bytes);
  }
  const compute::Plan& plan = made.plan();
  std::vector<std::vector<double>> seconds(plan.steps.size() + 1);
  compute::Workers workers(threads);
  const uint64_t rest = made.scratch_bytes() - made.from_constants_bytes();
  compute::HostProgram::FromConstants kept{{arena.get() + rest, made.from_constants_bytes()}, {}};
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  FillBuffers(program, buffers);
  for (size_t run = 0; run <= runs; ++run) {
    const Clock::time_point begin = Clock::now();
    Clock::time_point last = begin;
    const auto step_over = [&](size_t step) {
      if (run > 0) seconds[step].push_back(since(last));
      last = Clock::now();
    };
    made.Run(buffers, {arena.get(), rest}, &workers, step_over, &kept);
    if (run > 0) seconds.back().push_back(since(begin));
  }
  ProgramTimes times{threads, runs, compute::DescribeCpu(threads), {}};
  std::map<std::string, std::string> who;  // by step
  for (const auto& [step, name] : made.ProductMakers()) {
    std::string& all = who[absl::StrCat(step)];
    absl::StrAppend(&all, all.empty() ? "" : "; ", name);
  }
  compute::Step whole;
  whole.kind = compute::StepKind::kRepeat;
  whole.trips = 1;
  whole.steps = plan.steps;
  for (size_t i = 0; i <= plan.steps.size(); ++i) {
    const bool is_run = i == plan.steps.size();
    const compute::Step& step = is_run ? whole : plan.steps[i];
    const std::string number = is_run ? "run" : absl::StrCat(step.number);
    const auto kind = compute::kStepNames[static_cast<size_t>(step.kind)];
    times.rows.push_back({number, is_run ? "" : std::string(kind.data(), kind.size()), step.label,
                          who[number], compute::CostOf(step), Median(seconds[i]),
                          Quantile(seconds[i], 0)});
  }
  return times;
}

std::string ToText(const ProgramTimes& times, bool json) {
  if (json) {
    Json rows = Json::array();
    for (const ProgramTimes::Row& row : times.rows) {
      uint64_t number = 0;  // as plans have it; the whole run has none
      const bool is_step = absl::SimpleAtoi(row.step, &number);
      rows.push_back({{"step", is_step ? Json(number) : Json(row.step)},
                      {"kind", row.kind},
                      {"label", row.label},
                      {"by", row.by},
                      {"flops", row.cost.flops},
                      {"transcendentals", row.cost.transcendentals},
                      {"bytes_read", row.cost.bytes_read},
                      {"bytes_written", row.cost.bytes_written},
                      {"median_s", row.median_s},
                      {"least_s", row.least_s}});
    }
    const Json all = {
        {"threads", times.threads}, {"runs", times.runs}, {"cpu", times.cpu}, {"steps", rows}};
    return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"STEP"},
               {"KIND"},
               {"MEDIAN", kRight},
               {"LEAST", kRight},
               {"OF RUN", kRight},
               {"FLOPS", kRight},
               {"GFLOP/S", kRight},
               {"BYTES", kRight},
               {"GB/S", kRight},
               {"BY"},
               {"LABEL"}});
  const ProgramTimes::Row& run = times.rows.back();
  for (const ProgramTimes::Row& row : times.rows) {
    table.AddRow({row.step, row.kind, DurationText(absl::Seconds(row.median_s)),
                  DurationText(absl::Seconds(row.least_s)),
                  absl::StrFormat("%.0f %%", 100 * PerSecond(1, run.median_s) * row.median_s),
                  HumanCount(FlopsOf(row.cost)),
                  absl::StrFormat("%.2f", PerSecond(FlopsOf(row.cost), row.median_s) * 1e-9),
                  HumanCount(BytesOf(row.cost)),
                  absl::StrFormat("%.2f", PerSecond(BytesOf(row.cost), row.median_s) * 1e-9),
                  row.by, row.label});
  }
  const auto threads = static_cast<double>(times.threads);
  return absl::StrCat(
      table.ToString(), "\n",
      absl::StrFormat("%d runs; %.2f GB/s and %.2f GFLOP/s a thread; %s\n", times.runs,
                      PerSecond(BytesOf(run.cost), run.median_s) * 1e-9 / threads,
                      PerSecond(FlopsOf(run.cost), run.median_s) * 1e-9 / threads, times.cpu));
}

}  // namespace ferry::tools
