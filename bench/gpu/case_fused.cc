// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_fused.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/gpu/load.h"
#include "bench/gpu/peer_copy.h"
#include "ferry/cuda.hpp"
#include "ferry/program.hpp"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/full_kernels.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

using testing::GpuDriver;

constexpr uint64_t kBytes = uint64_t{1} << 30;  // of the whole tensor, or of all tensors
constexpr std::chrono::seconds kPatience(60);

// A tensor of `kBytes` travels in `parts` parts; each end runs a program on @x, which is all of it.
// Or `jobs` tensors of equal size travel, of `kBytes` in all; each end has a job for each of them,
// whose @x is that tensor.
struct Case {
  std::string name;
  int parts = 0;
  int jobs = 1;
  std::string sender;
  std::string receiver;
  // The same of one part, whose buffers are @x and what travels of it, by name, in bytes.
  std::string part_sender;  // empty: the part of @x is sent as it is
  std::string part_receiver;
  std::vector<std::pair<std::string, uint64_t>> travels;
  double target = 0;                       // of a plain transfer's bytes per second
  double (*value)(const void*) = nullptr;  // of the sample's bytes, at both ends
  double error = 0;                        // what values may lose, relative
};

uint64_t PartOf(const Case& made) { return kBytes / static_cast<uint64_t>(made.parts); }

// A transfer's attributes.
std::string Travels(const Case& made, const char* key) {
  return absl::StrCat(" peer=\"other\" key=\"", key, "\"",
                      made.parts == 1 ? "" : absl::StrCat(" parts=", made.parts));
}

double OfBf16(const void* bytes) {
  uint16_t code = 0;
  std::memcpy(&code, bytes, sizeof(code));
  const uint32_t wide = uint32_t{code} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
double OfF32(const void* bytes) {
  float value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

std::string InParts(const char* what, int parts) {
  return absl::StrCat(what, " in ", parts, parts == 1 ? " part" : " parts");
}

// The programs of whole tensors of so many bytes.
void SetQuantised(Case& made, uint64_t bytes) {
  const uint64_t rows = bytes / 2 / 8192;
  const std::string elements = absl::StrCat("f8e4m3fn[", rows, ",8192]");
  const std::string scales = absl::StrCat("f8e8m0fnu[", rows, ",256]");
  // Scales first, which are small: a part is there when its elements are.
  made.sender =
      absl::StrCat("program 1\nbuffer @x read ", bytes, "\n%x = input @x : bf16[", rows,
                   ",8192]\n%q, %s = quantize_block %x block=32 : ", elements, ", ", scales,
                   "\nsend %s", Travels(made, "s"), "\nsend %q", Travels(made, "q"), "\n");
  made.receiver =
      absl::StrCat("program 1\nbuffer @x write ", bytes, "\n%s = recv", Travels(made, "s"), " : ",
                   scales, "\n%q = recv", Travels(made, "q"), " : ", elements,
                   "\n%x = dequantize_block %q, %s : bf16[", rows, ",8192]\nstore @x, %x\n");
}

Case QuantisedJobs(int jobs) {
  Case made{.name = absl::StrCat("1 GiB bf16 sent as MXFP8 in ", jobs, " jobs"),
            .parts = 1,
            .jobs = jobs,
            .value = OfBf16,
            .error = 1.0 / 16};
  SetQuantised(made, kBytes / static_cast<uint64_t>(jobs));
  return made;
}

Case Quantised(int parts) {
  Case made{.name = InParts("1 GiB bf16 sent as MXFP8", parts),
            .parts = parts,
            .target = 1.7,
            .value = OfBf16,
            .error = 1.0 / 16};
  const uint64_t rows = PartOf(made) / 2 / 8192;
  const std::string shape = absl::StrCat("[", rows, ",8192]");
  const std::string types = absl::StrCat("f8e4m3fn", shape, ", f8e8m0fnu[", rows, ",256]");
  SetQuantised(made, kBytes);
  made.travels = {{"q", PartOf(made) / 2}, {"s", PartOf(made) / 64}};
  const std::string size = absl::StrCat(" ", PartOf(made), "\n");
  const auto travel = [&](const char* access) {
    std::string text;
    for (const auto& [name, bytes] : made.travels) {
      absl::StrAppend(&text, "buffer @", name, " ", access, " ", bytes, "\n");
    }
    return text;
  };
  made.part_sender = absl::StrCat(
      "program 1\nbuffer @x read", size, travel("write"), "%x = input @x : bf16", shape,
      "\n%q, %s = quantize_block %x block=32 : ", types, "\nstore @q, %q\nstore @s, %s\n");
  made.part_receiver =
      absl::StrCat("program 1\nbuffer @x write", size, travel("read"), "%q = input @q : f8e4m3fn",
                   shape, "\n%s = input @s : f8e8m0fnu[", rows,
                   ",256]\n%x = dequantize_block %q, %s : bf16", shape, "\nstore @x, %x\n");
  return made;
}

Case Reduced(int parts) {
  Case made{.name = InParts("1 GiB f32 added on arrival", parts),
            .parts = parts,
            .target = 0.95,
            .value = OfF32};
  const std::string type = absl::StrCat("f32[", PartOf(made) / 4, "]");
  const std::string all = absl::StrCat("f32[", kBytes / 4, "]\n");
  made.sender = absl::StrCat("program 1\nbuffer @x read ", kBytes, "\n%x = input @x : ", all,
                             "send %x", Travels(made, "p"), "\n");
  made.receiver = absl::StrCat("program 1\nbuffer @x read_write ", kBytes, " donated\n%r = recv",
                               Travels(made, "p"), " : ", all, "%o = input @x : ", all,
                               "%x = add %o, %r\nstore @x, %x\n");
  made.travels = {{"r", PartOf(made)}};
  const std::string size = absl::StrCat(" ", PartOf(made), "\n");
  made.part_receiver = absl::StrCat(
      "program 1\nbuffer @x read_write ", PartOf(made), " donated\n", "buffer @r read", size,
      "%x = input @x : ", type, "\n%r = input @r : ", type, "\n%y = add %x, %r\nstore @x, %y\n");
  return made;
}

absl::Status FromFerry(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, Reason::kInternal, status.ToString());
}

// A session of one node, with an arena of the GPU for the whole tensor, and one for what travels of
// it.
struct End {
  tools::Globals globals;
  uint64_t device = 0;
  Session session;
  Arena arena;
  Arena travels;

  static absl::StatusOr<End> Open(Nodes& nodes, int node) {
    End end;
    SessionOptions options;
    options.client_dir = nodes.ClientDir(node);
    options.name = "bench-fused";
    Result<Session> opened = Session::Open(options);
    if (!opened.ok()) return FromFerry(opened.status());
    end.session = *std::move(opened);
    end.device = static_cast<uint64_t>(nodes.Gpu(node, 0));
    end.globals.runtime_dir = nodes.RuntimeDir(node);
    Result<Arena> arena = end.session.CreateArena(end.device, kBytes);
    if (!arena.ok()) return FromFerry(arena.status());
    end.arena = *std::move(arena);
    Result<Arena> travels = end.session.CreateArena(end.device, kBytes);
    if (!travels.ok()) return FromFerry(travels.status());
    end.travels = *std::move(travels);
    return end;
  }
};

class FusedBench {
 public:
  FusedBench(const GpuDriver& driver, End& from, End& to, int route, int rounds)
      : driver_(driver), from_(from), to_(to), rounds_(rounds) {
    by_.route = route;
  }

  // Posted: each end runs a program for each tensor, which sends or receives all parts by itself.
  absl::Status RunPosted(const Case& made, Report& report) {
    Result<Program> sends = Program::Compile(from_.session, from_.device, made.sender);
    if (!sends.ok()) return FromFerry(sends.status());
    Result<Program> receives = Program::Compile(to_.session, to_.device, made.receiver);
    if (!receives.ok()) return FromFerry(receives.status());
    for (const End* const end : {&from_, &to_}) {
      RETURN_IF_ERROR(tools::AwaitFullKernels(end->globals));
    }
    return Compare(
        made, "posted", [&] { return Plain(made.jobs); },
        [&] { return Fused(made.jobs, *sends, *receives); }, report);
  }
  // Prepared: each end has a job for each part, joined to a batch of transfers of its own.
  absl::Status RunPrepared(const Case& made, Report& report) {
    ASSIGN_OR_RETURN(Joined here, Join(made, made.part_sender, from_, to_, true));
    ASSIGN_OR_RETURN(Joined there, Join(made, made.part_receiver, to_, from_, false));
    Result<Prepared> receive =
        to_.session.PrepareReceive(to_.device, {WholeFrom(from_, to_, "prepared")}, by_);
    Result<Prepared> send =
        from_.session.PrepareSend(from_.device, {WholeFrom(to_, from_, "prepared")}, by_);
    RETURN_IF_ERROR(FromFerry(receive.status()));
    RETURN_IF_ERROR(FromFerry(send.status()));
    return Compare(
        made, "prepared", [&] { return Fire({&*receive}, {&*send}); },
        [&] { return Fire(there.fired(), here.fired()); }, report);
  }

 private:
  using Run = absl::FunctionRef<absl::StatusOr<absl::Duration>()>;

  absl::Status Compare(const Case& made, const char* how, Run plain, Run fused, Report& report) {
    RETURN_IF_ERROR(Fill());
    std::vector<absl::Duration> of_plain, of_fused;
    for (int round = 0; round < rounds_ + 1; ++round) {
      for (int i = 0; i < 3; ++i) {
        ASSIGN_OR_RETURN(const absl::Duration took, plain());
        if (round > 0) of_plain.push_back(took);
      }
      for (int i = 0; i < 3; ++i) {
        ASSIGN_OR_RETURN(const absl::Duration took, fused());
        if (round > 0) of_fused.push_back(took);  // once kernels are loaded and memory is there
      }
    }
    RETURN_IF_ERROR(Check(made, fused));
    Row row;
    row.name = absl::StrCat(made.name, ", ", how, ", ", tools::RouteText(by_.route));
    row.unit = "GB/s";
    row.warm = tools::GigabytesPerSecond(kBytes, tools::Median(of_fused));
    row.peer = absl::StrCat("plain, ", how);
    row.peer_warm = tools::GigabytesPerSecond(kBytes, tools::Median(of_plain));
    row.target = made.target;
    report.Add(std::move(row));
    return absl::OkStatus();
  }
  static absl::Status Await(int64_t start, Result<Batch>& receives, Result<Batch>& sends,
                            absl::Duration& took) {
    RETURN_IF_ERROR(FromFerry(receives.status()));
    RETURN_IF_ERROR(FromFerry(sends.status()));
    RETURN_IF_ERROR(FromFerry(receives->Wait(kPatience)));
    RETURN_IF_ERROR(FromFerry(sends->Wait(kPatience)));
    took = absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
    return absl::OkStatus();
  }
  // Tensor i of `jobs` of them.
  static Range TensorOf(const End& end, int jobs, int i) {
    const uint64_t bytes = kBytes / static_cast<uint64_t>(jobs);
    return end.arena.Range(static_cast<uint64_t>(i) * bytes, bytes);
  }
  absl::StatusOr<absl::Duration> Plain(int jobs) {
    const std::string key = absl::StrCat("plain/", ++number_, "/");
    std::vector<Transfer> there, here;
    for (int i = 0; i < jobs; ++i) {
      there.emplace_back(from_.device, absl::StrCat(key, i), std::vector{TensorOf(to_, jobs, i)});
      here.emplace_back(to_.device, absl::StrCat(key, i), std::vector{TensorOf(from_, jobs, i)});
    }
    const int64_t start = tools::MonotonicNanoseconds();
    Result<Batch> receives = to_.session.Receive(to_.device, there, by_);
    Result<Batch> sends = from_.session.Send(from_.device, here, by_);
    absl::Duration took;
    RETURN_IF_ERROR(Await(start, receives, sends, took));
    return took;
  }
  std::vector<ProgramRun> RunsOf(int jobs, const Program& program, End& end,
                                 const End& other) const {
    std::vector<ProgramRun> runs;
    for (int i = 0; i < jobs; ++i) {
      runs.push_back(program.Run({{"x", TensorOf(end, jobs, i)}}));
      runs.back().peers = {{"other", other.device}};
      runs.back().key_suffix = absl::StrCat("/", number_, "/", i);
    }
    return runs;
  }
  absl::StatusOr<absl::Duration> Fused(int jobs, const Program& sends, const Program& receives) {
    ++number_;
    const std::vector<ProgramRun> there = RunsOf(jobs, receives, to_, from_);
    const std::vector<ProgramRun> here = RunsOf(jobs, sends, from_, to_);
    const int64_t start = tools::MonotonicNanoseconds();
    Result<Batch> receiving = RunPrograms(to_.session, to_.device, there, by_);
    Result<Batch> sending = RunPrograms(from_.session, from_.device, here, by_);
    absl::Duration took;
    RETURN_IF_ERROR(Await(start, receiving, sending, took));
    return took;
  }

  static Transfer WholeFrom(const End& other, End& end, const char* key) {
    return Transfer(other.device, key, {end.arena.Range(0, kBytes)});
  }
  using Batches = std::vector<Prepared*>;
  static absl::StatusOr<absl::Duration> Fire(const Batches& receives, const Batches& sends) {
    const int64_t start = tools::MonotonicNanoseconds();
    for (const Batches* const batches : {&receives, &sends}) {
      for (Prepared* const one : *batches) RETURN_IF_ERROR(FromFerry(one->Fire()));
    }
    for (const Batches* const batches : {&receives, &sends}) {
      for (Prepared* const one : *batches) RETURN_IF_ERROR(FromFerry(one->Wait(kPatience)));
    }
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  }
  // The jobs of one end, and what they are joined to.
  struct Joined {
    Program program;
    std::vector<std::unique_ptr<Prepared>> transfers;  // by part
    std::optional<Prepared> jobs;  // not set: the transfers are fired themselves

    Batches fired() {
      if (jobs) return {&*jobs};
      Batches all;
      for (const auto& one : transfers) all.push_back(one.get());
      return all;
    }
  };
  absl::StatusOr<Joined> Join(const Case& made, const std::string& text, End& end, const End& other,
                              bool sends) {
    Joined joined;
    const bool computes = !text.empty();
    if (computes) {
      Result<Program> program = Program::Compile(end.session, end.device, text);
      if (!program.ok()) return FromFerry(program.status());
      joined.program = *std::move(program);
    }
    std::vector<ProgramRun> runs;
    uint64_t at = 0;
    for (int i = 0; i < made.parts; ++i) {
      const Range part = end.arena.Range(static_cast<uint64_t>(i) * PartOf(made), PartOf(made));
      std::vector<Binding> bindings{{"x", part}};
      std::vector<Transfer> transfers;
      for (const auto& [name, bytes] : made.travels) {
        bindings.push_back({name, end.travels.Range(at, bytes)});
        transfers.emplace_back(other.device, absl::StrCat(made.name, "/", name, i),
                               std::vector<Range>{computes ? end.travels.Range(at, bytes) : part});
        at += bytes;
      }
      Result<Prepared> prepared = sends ? end.session.PrepareSend(end.device, transfers, by_)
                                        : end.session.PrepareReceive(end.device, transfers, by_);
      if (!prepared.ok()) return FromFerry(prepared.status());
      joined.transfers.push_back(std::make_unique<Prepared>(*std::move(prepared)));
      if (!computes) continue;
      for (size_t b = 1; b < bindings.size(); ++b) {
        bindings[b].transfers = joined.transfers.back().get();
      }
      runs.push_back(joined.program.Run(std::move(bindings)));
    }
    if (!computes) return joined;
    Result<Prepared> jobs = PreparePrograms(end.session, end.device, runs);
    if (!jobs.ok()) return FromFerry(jobs.status());
    RETURN_IF_ERROR(tools::AwaitFullKernels(end.globals));
    joined.jobs = *std::move(jobs);
    return joined;
  }

  // Random numbers of one sign and about one size in the sender's memory, as f32 or bf16 sees them.
  absl::Status Fill() {
    sample_.resize(kBytes / 4);
    uint32_t state = 12345;
    for (uint32_t& word : sample_) {
      state = state * 1664525 + 1013904223;
      word = 0x3F803F80 | (state >> 8 & 0x007F007F);
    }
    return Copy(from_, 0, sample_.data(), nullptr);
  }
  // Between host memory and an end's arena, all of it.
  absl::Status Copy(End& end, int gpu, const void* write, void* read) {
    driver_.cuCtxSetCurrent(driver_.context(gpu));
    const auto at = reinterpret_cast<CUdeviceptr>(end.arena.data());
    RETURN_IF_ERROR(FromCuda(driver_,
                             write != nullptr
                                 ? driver_.cuMemcpyHtoDAsync(at, write, kBytes, nullptr)
                                 : driver_.cuMemcpyDtoHAsync(read, at, kBytes, nullptr),
                             "copy the tensor"));
    return AwaitStream(driver_, nullptr, "await the copy");
  }
  // One more run, into memory that has something else: each element is what it is to be.
  absl::Status Check(const Case& made, Run fused) {
    std::vector<uint32_t> got(sample_.size(), 0x40004000);  // 2 and a little
    RETURN_IF_ERROR(Copy(to_, 1, got.data(), nullptr));
    RETURN_IF_ERROR(fused().status());
    RETURN_IF_ERROR(Copy(to_, 1, nullptr, got.data()));
    const bool adds = made.error == 0;
    const uint32_t before_bits = 0x40004000;
    const double before = made.value(&before_bits);
    for (size_t i = 0; i < got.size(); ++i) {
      const double want = made.value(&sample_[i]) + (adds ? before : 0);
      const double is = made.value(&got[i]);
      if (std::abs(is - want) <= want * (adds ? 1e-6 : made.error)) continue;
      return Error(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat(made.name, ": word ", i, " is ", is, " where ", want, " was sent"));
    }
    return absl::OkStatus();
  }

  const GpuDriver& driver_;
  End& from_;
  End& to_;
  const int rounds_;
  PostOptions by_;
  int number_ = 0;
  std::vector<uint32_t> sample_;
};

}  // namespace

absl::Status MeasureFused(const GpuDriver& driver, Nodes& nodes, int route, int rounds,
                          Report& report) {
  ASSIGN_OR_RETURN(End from, End::Open(nodes, 0));
  ASSIGN_OR_RETURN(End to, End::Open(nodes, 1));
  FusedBench bench(driver, from, to, route, rounds);
  RETURN_IF_ERROR(bench.RunPosted(QuantisedJobs(64), report));
  for (const auto& make : {Quantised, Reduced}) {
    for (const int parts : {1, 4, 8, 16}) RETURN_IF_ERROR(bench.RunPosted(make(parts), report));
    for (const int parts : {1, 2, 4, 8, 16, 32}) {
      RETURN_IF_ERROR(bench.RunPrepared(make(parts), report));
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureFusedUnderLoad(const GpuDriver& driver, Nodes& nodes, int route, int rounds,
                                   Report& report) {
  ASSIGN_OR_RETURN(End from, End::Open(nodes, 0));
  ASSIGN_OR_RETURN(End to, End::Open(nodes, 1));
  FusedBench bench(driver, from, to, route, rounds);
  const absl::StatusOr<std::unique_ptr<GpuLoad>> load = GpuLoad::Start(2);
  if (absl::IsUnavailable(load.status())) {
    std::fprintf(stderr, "not measured under load: %s\n",
                 std::string(load.status().message()).c_str());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(load.status());
  const auto under_load = [](Case made, double target) {
    absl::StrAppend(&made.name, ", under load");
    made.target = target;
    return made;
  };
  constexpr double kTarget = 1 / 1.05;  // at most 1.05 of the plain transfer's time
  RETURN_IF_ERROR(bench.RunPosted(under_load(QuantisedJobs(64), 0), report));
  RETURN_IF_ERROR(bench.RunPosted(under_load(Quantised(8), kTarget), report));
  return bench.RunPrepared(under_load(Quantised(16), kTarget), report);
}

}  // namespace ferry::bench
