// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_programs.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/gpu/peer_copy.h"
#include "bench/gpu/program_cases.h"
#include "bench/gpu/torch_compile.h"
#include "ferry/cuda.hpp"
#include "ferry/program.hpp"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/full_kernels.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

absl::Status FromFerry(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, Reason::kInternal, status.ToString());
}

// The driver's copy within a GPU.
class OwnCopy {
 public:
  explicit OwnCopy(const testing::GpuDriver& driver) : driver_(driver) {}
  ~OwnCopy() {
    driver_.cuCtxSetCurrent(driver_.context(0));
    if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
    if (memory_ != 0) driver_.cuMemFree(memory_);
  }
  absl::Status Make(uint64_t bytes) {
    bytes_ = bytes;
    driver_.cuCtxSetCurrent(driver_.context(0));
    RETURN_IF_ERROR(FromCuda(driver_, driver_.cuMemAlloc(&memory_, 2 * bytes_), "allocate"));
    RETURN_IF_ERROR(FromCuda(driver_, driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                             "make a stream"));
    return Fill();
  }
  // So many copies, one behind the other.
  absl::StatusOr<absl::Duration> Copy(int count) {
    const int64_t start = tools::MonotonicNanoseconds();
    for (int i = 0; i < count; ++i) {
      RETURN_IF_ERROR(
          FromCuda(driver_,
                   driver_.cuMemcpyPeerAsync(memory_ + bytes_, driver_.context(0), memory_,
                                             driver_.context(0), bytes_, stream_),
                   "copy within a GPU"));
    }
    RETURN_IF_ERROR(AwaitStream(driver_, stream_, "await the copies"));
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  }

 private:
  // With random data, as what programs read: the same again and again, more than a cache holds.
  absl::Status Fill() {
    std::vector<uint32_t> random(uint64_t{16} << 20);
    std::mt19937 numbers(7);
    for (uint32_t& word : random) word = static_cast<uint32_t>(numbers());
    const uint64_t most = random.size() * sizeof(uint32_t);
    for (uint64_t at = 0; at < bytes_; at += most) {
      RETURN_IF_ERROR(FromCuda(driver_,
                               driver_.cuMemcpyHtoDAsync(memory_ + at, random.data(),
                                                         std::min(most, bytes_ - at), stream_),
                               "fill what is copied"));
    }
    return AwaitStream(driver_, stream_, "fill what is copied");
  }

  const testing::GpuDriver& driver_;
  uint64_t bytes_ = 0;
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
};

class ProgramBench {
 public:
  ProgramBench(const testing::GpuDriver& driver, Nodes& nodes, int rounds,
               std::map<std::string, double> torch, Report& report)
      : driver_(driver),
        nodes_(nodes),
        rounds_(rounds),
        torch_(std::move(torch)),
        report_(report) {}

  absl::Status Run(const ProgramCase& made, bool tiny) {
    SessionOptions options;
    options.client_dir = nodes_.ClientDir(0);
    options.name = "bench-programs";
    Result<Session> opened = Session::Open(options);
    if (!opened.ok()) return FromFerry(opened.status());
    const auto device = static_cast<uint64_t>(nodes_.Gpu(0, 0));
    constexpr uint64_t kAlignment = 4096;
    const int count = tiny ? 1 : RunsOf(made);
    Result<Arena> arena = opened->CreateArena(
        device, static_cast<uint64_t>(count) * (made.bytes() + made.buffers.size() * kAlignment));
    if (!arena.ok()) return FromFerry(arena.status());
    Result<Program> program = Program::Compile(*opened, device, made.text);
    if (!program.ok()) return FromFerry(program.status());
    Result<Program> fill = made.fill.empty() ? Result<Program>(Program())
                                             : Program::Compile(*opened, device, made.fill);
    if (!fill.ok()) return FromFerry(fill.status());
    std::vector<ProgramRun> runs, fills;  // each with memory of its own
    uint64_t at = 0;
    for (int i = 0; i < count; ++i) {
      std::vector<Binding> bindings;
      for (const auto& [name, bytes] : made.buffers) {
        bindings.push_back({name, arena->Range(at, bytes)});
        at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      }
      runs.push_back(program->Run(bindings));
      std::vector<Binding> some;
      for (const Binding& binding : bindings) {
        if (absl::c_count(made.filled, binding.name) > 0) some.push_back(binding);
      }
      if (!some.empty()) fills.push_back(fill->Run(some));
    }
    if (!fills.empty()) {
      Result<Batch> filled = RunPrograms(*opened, device, fills);
      if (!filled.ok()) return FromFerry(filled.status());
      RETURN_IF_ERROR(FromFerry(filled->Wait()));
    }
    Result<Prepared> prepared = PreparePrograms(*opened, device, runs);
    if (!prepared.ok()) return FromFerry(prepared.status());
    tools::Globals globals;
    globals.runtime_dir = nodes_.RuntimeDir(0);
    RETURN_IF_ERROR(tools::AwaitFullKernels(globals));
    return tiny ? AddLatency(made, *prepared) : AddSpeed(made, *prepared);
  }

  // How long a client waits for a program with a kernel that nobody has compiled, and for one whose
  // kernel is known: each program is another one.
  absl::Status RunCompile() {
    SessionOptions options;
    options.client_dir = nodes_.ClientDir(0);
    options.name = "bench-programs";
    Result<Session> opened = Session::Open(options);
    if (!opened.ok()) return FromFerry(opened.status());
    const auto device = static_cast<uint64_t>(nodes_.Gpu(0, 0));
    const int count = 4 * rounds_;
    std::vector<absl::Duration> fresh, known;
    for (int i = 0; i <= 2 * count; ++i) {
      const bool is_fresh = i <= count;
      const std::string text =
          is_fresh ? UnknownProgram(i, 16) : UnknownProgram(0, static_cast<uint64_t>(i));
      const int64_t start = tools::MonotonicNanoseconds();
      Result<Program> program = Program::Compile(*opened, device, text);
      if (!program.ok()) return FromFerry(program.status());
      const auto took = absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
      if (i > 0) (is_fresh ? fresh : known).push_back(took);  // the first starts the compiler
    }
    for (const bool is_fresh : {true, false}) {
      Row row;
      row.name = is_fresh ? "compile 40 ops in one kernel, for its first run"
                          : "compile the same for other sizes";
      row.unit = "ms";
      row.warm = absl::ToDoubleMilliseconds(tools::Median(is_fresh ? fresh : known));
      row.at_most = true;
      row.target = is_fresh ? 60 : 1;
      report_.Add(std::move(row));
    }
    return absl::OkStatus();
  }

 private:
  // Of one firing, or copies, one behind the other: as many as there is memory for.
  static int RunsOf(const ProgramCase& made) {
    constexpr uint64_t kMost = uint64_t{64} << 30;
    return static_cast<int>(std::clamp<uint64_t>(kMost / made.bytes(), 1, 30));
  }

  static absl::StatusOr<absl::Duration> Fire(Prepared& prepared) {
    const int64_t start = tools::MonotonicNanoseconds();
    RETURN_IF_ERROR(FromFerry(prepared.Fire()));
    RETURN_IF_ERROR(FromFerry(prepared.Wait(std::chrono::seconds(60))));
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  }

  absl::Status AddSpeed(const ProgramCase& made, Prepared& prepared) {
    // A copy of half of the bytes reads and writes as many.
    OwnCopy copy(driver_);
    RETURN_IF_ERROR(copy.Make(made.whole_copy > 0 ? made.whole_copy : made.moved() / 2));
    const int runs = RunsOf(made);
    std::vector<absl::Duration> fired, copied;
    for (int round = 0; round < rounds_ + 1; ++round) {
      // Several in a row: the first has the GPU change from one process to the other.
      for (int i = 0; i < 3; ++i) {
        ASSIGN_OR_RETURN(const absl::Duration of_us, Fire(prepared));
        if (round > 0 && i > 0) fired.push_back(of_us / runs);  // once the kernel is loaded
      }
      for (int i = 0; i < 3; ++i) {
        ASSIGN_OR_RETURN(const absl::Duration of_copy, copy.Copy(runs));
        if (round > 0 && i > 0) copied.push_back(of_copy / runs);
      }
    }
    Row row;
    row.name = made.name;
    row.peer = "cuMemcpy on the GPU";
    row.target = made.target;
    if (made.whole_copy > 0) {
      row.unit = "us";
      row.at_most = true;
      row.warm = absl::ToDoubleMicroseconds(tools::Median(fired));
      row.peer_warm = absl::ToDoubleMicroseconds(tools::Median(copied));
    } else {
      row.unit = "GB/s";
      row.warm = tools::GigabytesPerSecond(made.moved(), tools::Median(fired));
      row.peer_warm = tools::GigabytesPerSecond(made.moved(), tools::Median(copied));
    }
    report_.Add(row);
    const auto compiled = torch_.find(made.torch);
    if (compiled == torch_.end()) return absl::OkStatus();
    row.peer = "torch.compile";
    row.peer_warm = tools::GigabytesPerSecond(made.moved(), absl::Seconds(compiled->second));
    row.target = 1;
    report_.Add(std::move(row));
    return absl::OkStatus();
  }

  absl::Status AddLatency(const ProgramCase& made, Prepared& prepared) {
    std::vector<absl::Duration> fired;
    for (int i = 0; i < 2000; ++i) {
      ASSIGN_OR_RETURN(fired.emplace_back(), Fire(prepared));
    }
    Row row;
    row.name = made.name;
    row.unit = "us";
    row.warm = absl::ToDoubleMicroseconds(tools::Median(fired));
    row.at_most = true;
    row.target = made.target;
    report_.Add(std::move(row));
    return absl::OkStatus();
  }

  const testing::GpuDriver& driver_;
  Nodes& nodes_;
  const int rounds_;
  const std::map<std::string, double> torch_;
  Report& report_;
};

}  // namespace

absl::Status MeasurePrograms(const testing::GpuDriver& driver, Nodes& nodes, int rounds,
                             Report& report) {
  ProgramBench bench(driver, nodes, rounds, MeasureTorchCompile(), report);
  for (const ProgramCase& made : ProgramCases()) RETURN_IF_ERROR(bench.Run(made, false));
  RETURN_IF_ERROR(bench.Run(TinyProgram(), true));
  return bench.RunCompile();
}

}  // namespace ferry::bench
