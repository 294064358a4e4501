// SPDX-License-Identifier: Apache-2.0
// Programs on the CPU against loops written by hand and bare calls: medians of five turns in which
// both come after each other, so that the machine's other work meets both.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/compute/loops.h"
#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::bench {
namespace {

using compute::HostProgram;
using compute::Workers;

constexpr size_t kTurns = 5;

struct Memory {
  explicit Memory(uint64_t size)
      : bytes(size),
        at(static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096))) {
    // Values of both signs around 1, of any type.
    for (uint64_t i = 0; i < size; ++i)
      at[i] = static_cast<std::byte>(i % 4 == 3 ? 0x3F : i * 37 % 64);
  }
  ~Memory() { std::free(at); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(at);
  }

  const uint64_t bytes;
  std::byte* const at;
};

class Prepared {
 public:
  Prepared(const std::string& text, size_t threads, std::vector<const Memory*> buffers)
      : program_(Made(text, threads)), workers_(threads), arena_(program_.arena_bytes() + 64) {
    for (const Memory* memory : buffers) spans_.push_back({memory->at, memory->bytes});
  }
  void Run() { program_.Run(spans_, {arena_.at, program_.arena_bytes()}, &workers_); }

 private:
  static HostProgram Made(const std::string& text, size_t threads) {
    compute::ParsedText parsed = compute::Parse(text);
    const auto status = compute::ToStatus(parsed.program, compute::Verify(parsed.program));
    if (!status.ok() || !parsed.problems.empty()) std::fprintf(stderr, "%s\n", text.c_str());
    FERRY_CHECK(parsed.problems.empty() && status.ok());
    auto made = HostProgram::Make(compute::Simplify(parsed.program), threads);
    FERRY_CHECK(made.ok());
    return *std::move(made);
  }

  HostProgram program_;
  Workers workers_;
  Memory arena_;
  std::vector<absl::Span<std::byte>> spans_;
};

double SecondsOf(const std::function<void()>& run, size_t times) {
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < times; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(times);
}

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  // A row each of `others`. `work`: what is done each time, in the unit.
  struct Other {
    std::string name;
    std::function<void()> run;
    double target = 0;  // of our speed by its own
  };
  void Compare(const std::string& name, const std::string& unit, double work, size_t times,
               const std::function<void()>& ours, const std::vector<Other>& others) {
    std::vector<double> mine;
    std::vector<std::vector<double>> theirs(others.size());
    for (size_t turn = 0; turn <= kTurns; ++turn) {  // the first is to warm up
      const double own = SecondsOf(ours, times);
      if (turn > 0) mine.push_back(own);
      for (size_t i = 0; i < others.size(); ++i) {
        const double other = SecondsOf(others[i].run, times);
        if (turn > 0) theirs[i].push_back(other);
      }
    }
    for (size_t i = 0; i < others.size(); ++i) {
      const double own = work / MedianOf(mine);
      const double other = work / MedianOf(theirs[i]);
      const bool passed = own / other >= others[i].target;
      std::printf("%-34s %9.1f %-8s %-16s %9.1f %7.2f %7.2f  %s\n", name.c_str(), own, unit.c_str(),
                  others[i].name.c_str(), other, own / other, others[i].target,
                  passed ? "ok" : "MISSED");
      std::fflush(stdout);
    }
  }
};

std::string ChainText(uint64_t elements, bool tanh) {
  const std::string type = absl::StrCat("f32[", elements, "]");
  const auto constant = [&](const std::string& name, const std::string& value) {
    return absl::StrCat("%", name, " = constant splat=", value, " : ", type, "\n");
  };
  std::string text = absl::StrCat(
      "program 1\nbuffer @x read ", elements * 4, "\nbuffer @y read ", elements * 4,
      "\nbuffer @z write ", elements * 2, "\n%x = input @x : ", type, "\n%y = input @y : ", type,
      "\n", constant("s", "1.5"), constant("t", "0.25"), constant("h", "8"), constant("l", "-8"),
      constant("f", "0.5"), "%a = multiply %x, %s\n%b = add %a, %t\n");
  if (tanh) {
    absl::StrAppend(&text, "%c = tanh %b\n%i = multiply %c, %y\n");
  } else {
    absl::StrAppend(&text, "%c = multiply %b, %y\n%d = subtract %c, %x\n%e = minimum %d, %h\n",
                    "%g = maximum %e, %l\n%j = multiply %g, %f\n%i = add %j, %y\n");
  }
  return absl::StrCat(text, "%o = convert %i : bf16[", elements, "]\nstore @z, %o\n");
}

// `run` of each half.
void InHalves(Workers& workers, size_t count, const std::function<void(size_t, size_t)>& run) {
  const size_t parts = workers.threads();
  workers.Run(parts, [&](size_t part) {
    const size_t begin = count * part / parts;
    run(begin, count * (part + 1) / parts - begin);
  });
}

void Chains(Bench& bench, uint64_t elements, size_t threads, size_t times, bool tanh) {
  Memory x(elements * 4), y(elements * 4), z(elements * 2), between(elements * 4);
  Prepared program(ChainText(elements, tanh), threads, {&x, &y, &z});
  Workers workers(threads);
  const auto* xs = x.As<float>();
  const auto* ys = y.As<float>();
  auto* zs = z.As<uint16_t>();
  auto* v = between.As<float>();
  const auto fused = [&] {
    InHalves(workers, elements, [&](size_t at, size_t n) {
      tanh ? FusedTanh(xs + at, ys + at, zs + at, n) : FusedChain(xs + at, ys + at, zs + at, n);
    });
  };
  using Step = std::function<void(size_t, size_t)>;
  std::vector<Step> steps = {[&](size_t at, size_t n) { Scale(xs + at, 1.5f, v + at, n); },
                             [&](size_t at, size_t n) { Shift(v + at, 0.25f, v + at, n); }};
  if (tanh) steps.push_back([&](size_t at, size_t n) { Tanh(v + at, v + at, n); });
  steps.push_back([&](size_t at, size_t n) { Multiply(v + at, ys + at, v + at, n); });
  if (!tanh) {
    steps.push_back([&](size_t at, size_t n) { Subtract(v + at, xs + at, v + at, n); });
    steps.push_back([&](size_t at, size_t n) { AtMost(v + at, 8, v + at, n); });
    steps.push_back([&](size_t at, size_t n) { AtLeast(v + at, -8, v + at, n); });
    steps.push_back([&](size_t at, size_t n) { Scale(v + at, 0.5f, v + at, n); });
    steps.push_back([&](size_t at, size_t n) { Add(v + at, ys + at, v + at, n); });
  }
  steps.push_back([&](size_t at, size_t n) { ToBF16(v + at, zs + at, n); });
  const auto each = [&] {
    for (const Step& step : steps) InHalves(workers, elements, step);
  };
  const bool small = elements < (1 << 20);
  const std::string name = absl::StrCat(tanh ? "chain with tanh, " : "8-op chain to bf16, ",
                                        small ? elements >> 10 : elements >> 20,
                                        small ? " Ki" : " Mi", ", ", threads, " threads");
  const double gigabytes = static_cast<double>(elements) * 10e-9;
  if (small) {
    bench.Compare(name, "GB/s", gigabytes, times, [&] { program.Run(); },
                  {{"compiled loop", fused, tanh ? 1.0 : 0.70}});
  } else {
    bench.Compare(
        name, "GB/s", gigabytes, times, [&] { program.Run(); },
        {{"compiled loop", fused, tanh ? 1.0 : 0.85}, {"op at a time", each, tanh ? 2.2 : 4.0}});
  }
}

void Dots(Bench& bench, const std::string& type, size_t threads, size_t times) {
  constexpr int64_t kSide = 2048;
  const uint64_t each = type == "f32" ? 4 : 2;
  Memory a(kSide * kSide * each), b(kSide * kSide * each), c(kSide * kSide * 4);
  const std::string shape = absl::StrCat("[", kSide, ",", kSide, "]");
  Prepared program(absl::StrCat("program 1\nbuffer @a read ", a.bytes, "\nbuffer @b read ", b.bytes,
                                "\nbuffer @c write ", c.bytes, "\n%a = input @a : ", type, shape,
                                "\n%b = input @b : ", type, shape,
                                "\n%c = dot_general %a, %b lhs_contract=[1] rhs_contract=[0] : f32",
                                shape, "\nstore @c, %c\n"),
                   threads, {&a, &b, &c});
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto tag = type == "f32" ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  const auto layout = dnnl::memory::format_tag::ab;
  const dnnl::memory::desc factor({kSide, kSide}, tag, layout);
  const dnnl::memory::desc result({kSide, kSide}, dnnl::memory::data_type::f32, layout);
  const dnnl::matmul matmul(dnnl::matmul::primitive_desc({factor, factor, result}, engine));
  dnnl::memory left(factor, engine, a.at), right(factor, engine, b.at), out(result, engine, c.at);
  const auto bare = [&] {
    matmul.execute(stream, {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, out}});
    stream.wait();
  };
  bench.Compare(absl::StrCat("dot ", type, " 2048^3"), "GFLOP/s", 2e-9 * kSide * kSide * kSide,
                times, [&] { program.Run(); }, {{"bare oneDNN call", bare, 0.95}});
}

void Blocks(Bench& bench, uint64_t elements, size_t threads, size_t times) {
  Memory x(elements * 2), q(elements), scales(elements / 32), copy(elements * 2);
  const std::string dims = absl::StrCat("[", elements / 4096, ",4096]");
  const std::string blocks = absl::StrCat("[", elements / 4096, ",128]");
  Prepared quantize(
      absl::StrCat("program 1\nbuffer @x read ", x.bytes, "\nbuffer @q write ", q.bytes,
                   "\nbuffer @e write ", scales.bytes, "\n%x = input @x : bf16", dims,
                   "\n%q, %e = quantize_block %x : f8e4m3fn", dims, ", f8e8m0fnu", blocks,
                   "\nstore @q, %q\nstore @e, %e\n"),
      threads, {&x, &q, &scales});
  Prepared dequantize(
      absl::StrCat("program 1\nbuffer @q read ", q.bytes, "\nbuffer @e read ", scales.bytes,
                   "\nbuffer @x write ", x.bytes, "\n%q = input @q : f8e4m3fn", dims,
                   "\n%e = input @e : f8e8m0fnu", blocks, "\n%x = dequantize_block %q, %e : bf16",
                   dims, "\nstore @x, %x\n"),
      threads, {&q, &scales, &x});
  Workers workers(threads);
  const auto plain = [&] {
    InHalves(workers, x.bytes,
             [&](size_t at, size_t n) { std::memcpy(copy.at + at, x.at + at, n); });
  };
  const double gigabytes = static_cast<double>(x.bytes) * 1e-9;  // of bf16
  bench.Compare("quantise bf16 to MXFP8", "GB/s", gigabytes, times, [&] { quantize.Run(); },
                {{"memcpy", plain, 0.3}});
  bench.Compare("dequantise MXFP8 to bf16", "GB/s", gigabytes, times, [&] { dequantize.Run(); },
                {{"memcpy", plain, 0.6}});
}

int Main(size_t threads) {
  Bench bench;
  std::printf("%-34s %9s %-8s %-16s %9s %7s %7s\n", "case", "ours", "unit", "against", "its",
              "ratio", "target");
  Chains(bench, uint64_t{64} << 20, threads, 1, false);
  Chains(bench, uint64_t{64} << 10, 1, 2000, false);
  Chains(bench, uint64_t{16} << 20, threads, 1, true);
  Dots(bench, "f32", threads, 2);
  Dots(bench, "bf16", threads, 2);
  Blocks(bench, uint64_t{16} << 20, threads, 2);
  return 0;
}

}  // namespace
}  // namespace ferry::bench

int main(int argc, char** argv) {
  return ferry::bench::Main(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 2);
}
