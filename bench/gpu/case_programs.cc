// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_programs.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/gpu/peer_copy.h"
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

struct Case {
  std::string name;
  std::string text;
  // By buffer, in bytes: what is read and written, each byte once.
  std::vector<std::pair<std::string, uint64_t>> buffers;
  double target = 0;  // of a copy's bytes per second
  // Run once before, over the buffers that `filled` names: what the program is to find there.
  std::string fill = "";
  std::vector<std::string> filled = {};
  // Not 0: measured by its time instead, and compared with a copy of so many bytes; `target` is the
  // most.
  uint64_t whole_copy = 0;
  const char* torch = "";  // its name in MeasureTorchCompile, if it has one

  uint64_t bytes() const {
    uint64_t all = 0;
    for (const auto& [name, bytes] : buffers) all += bytes;
    return all;
  }
};

std::string Header(const Case& made) {
  std::string text = "program 1\n";
  for (const auto& [name, bytes] : made.buffers) {
    absl::StrAppend(&text, "buffer @", name, name == "x" ? " read " : " write ", bytes, "\n");
  }
  return text;
}

// Eight ops on each element, and a conversion.
Case Chain() {
  constexpr uint64_t kElements = uint64_t{64} << 20;
  Case made{"8 elementwise ops, f32 to bf16, 64 Mi elements",
            "",
            {{"x", 4 * kElements}, {"y", 2 * kElements}},
            1.0};
  const std::string type = absl::StrCat("f32[", kElements, "]");
  made.text =
      absl::StrCat(Header(made), "%x = input @x : ", type, "\n%a = constant splat=0.5 : ", type,
                   "\n%b = constant splat=1.25 : ", type, "\n");
  std::string last = "x";
  int number = 0;
  for (const char* op :
       {"multiply", "add", "maximum", "subtract", "multiply", "add", "minimum", "multiply"}) {
    const std::string next = absl::StrCat("v", number);
    absl::StrAppend(&made.text, "%", next, " = ", op, " %", last, ", %",
                    number % 2 == 0 ? "a" : "b", "\n");
    last = next;
    ++number;
  }
  absl::StrAppend(&made.text, "%c = convert %", last, " : bf16[", kElements, "]\nstore @y, %c\n");
  made.torch = "chain";
  return made;
}

Case Softmax() {
  constexpr uint64_t kBytes = uint64_t{8192} * 8192 * 2;
  Case made{"row softmax, bf16[8192,8192]", "", {{"x", kBytes}, {"y", kBytes}}, 0.95};
  made.text = absl::StrCat(
      Header(made),
      "%h = input @x : bf16[8192,8192]\n%x = convert %h : f32[8192,8192]\n"
      "%m = reduce %x reduction=max dimensions=[1]\n"
      "%mb = broadcast_in_dim %m dimensions=[0] : f32[8192,8192]\n%d = subtract %x, %mb\n"
      "%e = exponential %d\n%s = reduce %e reduction=sum dimensions=[1]\n"
      "%sb = broadcast_in_dim %s dimensions=[0] : f32[8192,8192]\n%q = divide %e, %sb\n"
      "%y = convert %q : bf16[8192,8192]\nstore @y, %y\n");
  made.torch = "softmax";
  return made;
}

Case RmsNorm() {
  constexpr uint64_t kBytes = uint64_t{8192} * 8192 * 2;
  Case made{"RMSNorm, bf16[8192,8192]", "", {{"x", kBytes}, {"y", kBytes}}, 0.95};
  made.text = absl::StrCat(
      Header(made),
      "%h = input @x : bf16[8192,8192]\n%x = convert %h : f32[8192,8192]\n"
      "%q = multiply %x, %x\n%s = reduce %q reduction=sum dimensions=[1]\n"
      "%n = constant splat=0.0001220703125 : f32[8192]\n%e = constant splat=0.00001 : f32[8192]\n"
      "%v = multiply %s, %n\n%w = add %v, %e\n%r = rsqrt %w\n"
      "%rb = broadcast_in_dim %r dimensions=[0] : f32[8192,8192]\n%y = multiply %x, %rb\n"
      "%c = convert %y : bf16[8192,8192]\nstore @y, %c\n");
  made.torch = "norm";
  return made;
}

Case Quantise() {
  constexpr uint64_t kElements = uint64_t{512} << 20;
  Case made{"quantise bf16 to MXFP8, 1 GiB",
            "",
            {{"x", 2 * kElements}, {"y", kElements}, {"s", kElements / 32}},
            0.9};
  made.text = absl::StrCat(Header(made), "%x = input @x : bf16[65536,8192]\n",
                           "%q, %s = quantize_block %x block=32 : f8e4m3fn[65536,8192], "
                           "f8e8m0fnu[65536,256]\nstore @y, %q\nstore @s, %s\n");
  return made;
}

Case Dequantise() {
  constexpr uint64_t kElements = uint64_t{512} << 20;
  Case made{"dequantise MXFP8 to bf16, 1 GiB",
            "",
            {{"x", kElements}, {"s", kElements / 32}, {"y", 2 * kElements}},
            0.9};
  made.text = absl::StrCat("program 1\nbuffer @x read ", kElements, "\nbuffer @s read ",
                           kElements / 32, "\nbuffer @y write ", 2 * kElements,
                           "\n%x = input @x : f8e4m3fn[65536,8192]\n"
                           "%s = input @s : f8e8m0fnu[65536,256]\n"
                           "%y = dequantize_block %x, %s : bf16[65536,8192]\nstore @y, %y\n");
  return made;
}

Case Transpose() {
  constexpr uint64_t kBytes = uint64_t{16384} * 16384 * 2;
  Case made{"transpose, bf16[16384,16384]", "", {{"x", kBytes}, {"y", kBytes}}, 0.85};
  made.text = absl::StrCat(Header(made), "%x = input @x : bf16[16384,16384]\n",
                           "%t = transpose %x permutation=[1,0]\nstore @y, %t\n");
  return made;
}

// What attention makes of one product, and what goes into one: queries, keys and values of 8,192
// tokens, from three buffers into one, and back.
Case Projections(bool concatenates) {
  constexpr uint64_t kPart = uint64_t{8192} * 4096 * 2;
  Case made{concatenates ? "concatenate QKV, bf16[8192,3x4096]" : "slice QKV, bf16[8192,3x4096]",
            "",
            {},
            0.9};
  std::string body = concatenates ? "" : "%x = input @x : bf16[8192,12288]\n";
  if (!concatenates) made.buffers.push_back({"x", 3 * kPart});
  for (int i = 0; i < 3; ++i) {
    made.buffers.push_back({absl::StrCat("p", i), kPart});
    if (concatenates) {
      absl::StrAppend(&body, "%p", i, " = input @p", i, " : bf16[8192,4096]\n");
    } else {
      absl::StrAppend(&body, "%p", i, " = slice %x start=[0,", 4096 * i, "] limit=[8192,",
                      4096 * (i + 1), "] : bf16[8192,4096]\nstore @p", i, ", %p", i, "\n");
    }
  }
  if (concatenates) {
    made.buffers.push_back({"y", 3 * kPart});
    body += "%y = concatenate %p0, %p1, %p2 dimension=1\nstore @y, %y\n";
  }
  made.text = "program 1\n";
  for (const auto& [name, bytes] : made.buffers) {
    const bool read = concatenates ? name != "y" : name == "x";
    absl::StrAppend(&made.text, "buffer @", name, read ? " read " : " write ", bytes, "\n");
  }
  made.text += body;
  return made;
}

// A delta of 1 GiB, of which one block of 4 KiB in 50 has changed.
constexpr uint64_t kDeltaBytes = uint64_t{1} << 30;
constexpr uint64_t kDeltaBlocks = kDeltaBytes / 4096;
constexpr uint64_t kDeltaRoom = kDeltaBlocks / 45;
std::string DeltaTypes() {
  return absl::StrCat("u32[", kDeltaBlocks / 32, "], u8[", kDeltaRoom, ",4096], u32[], u64[2]");
}
// Defines %new: the blocks that change are not 0.
std::string NewVersion() {
  const std::string column = absl::StrCat("u32[", kDeltaBlocks, "]");
  return absl::StrCat(
      "%i = iota dimension=0 : ", column, "\n%by = constant splat=50 : ", column,
      "\n%r = remainder %i, %by\n%none = constant splat=0 : ", column,
      "\n%changed = compare %r, %none direction=eq\n%one = convert %changed : ", column,
      "\n%new = broadcast_in_dim %one dimensions=[0] : u32[", kDeltaBlocks, ",1024]\n");
}
std::string DeltaBuffer(absl::string_view name, absl::string_view access, uint64_t bytes) {
  return absl::StrCat("buffer @", name, " ", access, " ", bytes, "\n");
}

Case DeltaEncode(bool checksum) {
  const std::string type = absl::StrCat("u32[", kDeltaBlocks, ",1024]");
  Case made{checksum ? "delta of 1 GiB, 2 % changed, with checksum" : "delta of 1 GiB, 2 % changed",
            "",
            {{"old", kDeltaBytes},
             {"new", kDeltaBytes},
             {"bitmap", kDeltaBlocks / 8},
             {"values", kDeltaRoom * 4096},
             {"count", 4}},
            0.9};
  if (checksum) made.buffers.push_back({"sum", 16});
  made.text = "program 1\n";
  for (const auto& [name, bytes] : made.buffers) {
    made.text += DeltaBuffer(name, name == "old" || name == "new" ? "read" : "write", bytes);
  }
  absl::StrAppend(&made.text, "%old = input @old : ", type, "\n%new = input @new : ", type,
                  "\n%b, %v, %c, %s = delta_encode %old, %new : ", DeltaTypes(),
                  "\nstore @bitmap, %b\nstore @values, %v\nstore @count, %c\n",
                  checksum ? "store @sum, %s\n" : "");
  made.fill =
      absl::StrCat("program 1\n", DeltaBuffer("old", "write", kDeltaBytes),
                   DeltaBuffer("new", "write", kDeltaBytes), NewVersion(),
                   "%old = constant splat=0 : ", type, "\nstore @new, %new\nstore @old, %old\n");
  made.filled = {"old", "new"};
  return made;
}

Case DeltaApply() {
  Case made{"apply that delta, us, of a copy of 1 GiB",
            "",
            {{"data", kDeltaBytes},
             {"bitmap", kDeltaBlocks / 8},
             {"values", kDeltaRoom * 4096},
             {"count", 4}},
            0.1};
  made.whole_copy = kDeltaBytes;
  const std::string delta = absl::StrCat(DeltaBuffer("bitmap", "read", kDeltaBlocks / 8),
                                         DeltaBuffer("values", "read", kDeltaRoom * 4096),
                                         DeltaBuffer("count", "read", 4));
  made.text = absl::StrCat(
      "program 1\n", DeltaBuffer("data", "read_write", kDeltaBytes), delta,
      "%b = input @bitmap : u32[", kDeltaBlocks / 32, "]\n%v = input @values : u8[", kDeltaRoom,
      ",4096]\n%c = input @count : u32[]\ndelta_apply @data, %b, %v, %c bytes=", kDeltaBytes, "\n");
  made.fill = absl::StrCat("program 1\n", absl::StrReplaceAll(delta, {{" read ", " write "}}),
                           NewVersion(), "%old = constant splat=0 : u32[", kDeltaBlocks,
                           ",1024]\n%b, %v, %c, %s = delta_encode %old, %new : ", DeltaTypes(),
                           "\nstore @bitmap, %b\nstore @values, %v\nstore @count, %c\n");
  made.filled = {"bitmap", "values", "count"};
  return made;
}

Case Checksum() {
  Case made{"checksum of 2 GiB", "", {{"x", uint64_t{2} << 30}, {"y", 16}}, 0.9};
  made.text = absl::StrCat(Header(made), "%x = input @x : u8[", uint64_t{2} << 30,
                           "]\n%s = checksum %x\nstore @y, %s\n");
  return made;
}

// 40 ops in one kernel, which no kernel before was that had another `number`. `mebi`: elements, in
// units of 2^20; the kernel is the same for any.
std::string Unknown(int number, uint64_t mebi) {
  const std::string type = absl::StrCat("f32[", mebi << 20, "]");
  std::string text = absl::StrCat("program 1\nbuffer @x read ", mebi << 22, "\nbuffer @y write ",
                                  mebi << 21, "\n%v0 = input @x : ", type,
                                  "\n%a = constant splat=", number, ".5 : ", type, "\n");
  for (int i = 1; i <= 39; ++i) {
    absl::StrAppend(&text, "%v", i, " = ", i % 2 == 0 ? "add" : "multiply", " %v", i - 1, ", %a\n");
  }
  return absl::StrCat(text, "%c = convert %v39 : bf16[", mebi << 20, "]\nstore @y, %c\n");
}

// Ten ops on four elements each, which nothing but launches take time for.
Case Tiny() {
  Case made{"10 tiny ops, prepared", "", {{"x", 16}, {"y", 16}}, 20};
  made.text = absl::StrCat(Header(made), "%v0 = input @x : f32[4]\n");
  for (int i = 1; i <= 10; ++i) {
    absl::StrAppend(&made.text, "%v", i, " = add %v", i - 1, ", %v0\n");
  }
  absl::StrAppend(&made.text, "store @y, %v10\n");
  return made;
}

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
    return FromCuda(driver_, driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                    "make a stream");
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

  absl::Status Run(const Case& made, bool tiny) {
    SessionOptions options;
    options.client_dir = nodes_.ClientDir(0);
    options.name = "bench-programs";
    Result<Session> opened = Session::Open(options);
    if (!opened.ok()) return FromFerry(opened.status());
    const auto device = static_cast<uint64_t>(nodes_.Gpu(0, 0));
    constexpr uint64_t kAlignment = 4096;
    const int count = tiny ? 1 : kRuns;
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
      const std::string text = is_fresh ? Unknown(i, 16) : Unknown(0, static_cast<uint64_t>(i));
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
  static constexpr int kRuns = 30;  // of one firing, or copies, one behind the other

  static absl::StatusOr<absl::Duration> Fire(Prepared& prepared) {
    const int64_t start = tools::MonotonicNanoseconds();
    RETURN_IF_ERROR(FromFerry(prepared.Fire()));
    RETURN_IF_ERROR(FromFerry(prepared.Wait(std::chrono::seconds(60))));
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  }

  absl::Status AddSpeed(const Case& made, Prepared& prepared) {
    // A copy of half of the bytes reads and writes as many.
    OwnCopy copy(driver_);
    RETURN_IF_ERROR(copy.Make(made.whole_copy > 0 ? made.whole_copy : made.bytes() / 2));
    std::vector<absl::Duration> fired, copied;
    for (int round = 0; round < rounds_ + 1; ++round) {
      // Several in a row: the first has the GPU change from one process to the other.
      for (int i = 0; i < 3; ++i) {
        ASSIGN_OR_RETURN(const absl::Duration of_us, Fire(prepared));
        if (round > 0 && i > 0) fired.push_back(of_us / kRuns);  // once the kernel is loaded
      }
      for (int i = 0; i < 3; ++i) {
        ASSIGN_OR_RETURN(const absl::Duration of_copy, copy.Copy(kRuns));
        if (round > 0 && i > 0) copied.push_back(of_copy / kRuns);
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
      row.warm = tools::GigabytesPerSecond(made.bytes(), tools::Median(fired));
      row.peer_warm = tools::GigabytesPerSecond(made.bytes(), tools::Median(copied));
    }
    report_.Add(row);
    const auto compiled = torch_.find(made.torch);
    if (compiled == torch_.end()) return absl::OkStatus();
    row.peer = "torch.compile";
    row.peer_warm = tools::GigabytesPerSecond(made.bytes(), absl::Seconds(compiled->second));
    row.target = 1;
    report_.Add(std::move(row));
    return absl::OkStatus();
  }

  absl::Status AddLatency(const Case& made, Prepared& prepared) {
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
  for (const Case& made :
       {Chain(), Softmax(), RmsNorm(), Quantise(), Dequantise(), Transpose(), Projections(true),
        Projections(false), Checksum(), DeltaEncode(false), DeltaEncode(true), DeltaApply()}) {
    RETURN_IF_ERROR(bench.Run(made, false));
  }
  RETURN_IF_ERROR(bench.Run(Tiny(), true));
  return bench.RunCompile();
}

}  // namespace ferry::bench
