// SPDX-License-Identifier: Apache-2.0
// Programs on the CPU against loops written by hand and bare calls: medians of five turns in which
// both come after each other, so that the machine's other work meets both.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>
#include <dnnl.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "bench/compute/layouts.h"
#include "bench/compute/loops.h"
#include "bench/compute/side_by_side.h"

namespace ferry::bench {
namespace {

using compute::Workers;

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

// The chain in NumPy (with ml_dtypes), in a process of its own that computes it once a line.
class NumPy {
 public:
  static std::unique_ptr<NumPy> Start(const std::string& python, uint64_t elements) {
    // What is written into goes to it, what it writes comes from it.
    const std::string script = absl::StrCat(
        "import sys, numpy as np, ml_dtypes\n"
        "n = ",
        elements,
        "\n"
        "x = np.linspace(-3, 3, n, dtype=np.float32)\n"
        "y = np.linspace(2, -2, n, dtype=np.float32)\n"
        "f = np.float32\n"
        "for line in sys.stdin:\n"
        "  v = (x * f(1.5) + f(0.25)) * y - x\n"
        "  v = np.maximum(np.minimum(v, f(8)), f(-8)) * f(0.5) + y\n"
        "  z = v.astype(ml_dtypes.bfloat16)\n"
        "  print(z[n // 2], flush=True)\n");
    int to[2], from[2];
    FERRY_CHECK(pipe(to) == 0 && pipe(from) == 0);
    const pid_t child = fork();
    FERRY_CHECK(child >= 0);
    if (child == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (const int end : {to[0], to[1], from[0], from[1]}) close(end);
      execlp(python.c_str(), python.c_str(), "-c", script.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    return std::unique_ptr<NumPy>(new NumPy(child, to[1], from[0]));
  }
  ~NumPy() {
    close(to_);
    waitpid(child_, nullptr, 0);
    close(from_);
  }
  void Run() {
    char answer = 0;
    bool ok = write(to_, "\n", 1) == 1;
    while (ok && answer != '\n') ok = read(from_, &answer, 1) == 1;
    if (!ok) std::fprintf(stderr, "NumPy with ml_dtypes does not run\n");
    FERRY_CHECK(ok);
  }

 private:
  NumPy(pid_t child, int to, int from) : child_(child), to_(to), from_(from) {}
  const pid_t child_;
  const int to_, from_;
};

void Chains(Bench& bench, uint64_t elements, size_t threads, size_t times, bool tanh,
            const std::string& python) {
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
    std::vector<Bench::Other> others = {{"compiled loop", fused, tanh ? 1.0 : 0.85},
                                        {"op at a time", each, tanh ? 2.2 : 4.0}};
    const std::unique_ptr<NumPy> numpy = python.empty() ? nullptr : NumPy::Start(python, elements);
    if (numpy != nullptr) others.push_back({"NumPy", [&] { numpy->Run(); }, 8.0});
    bench.Compare(
        name, "GB/s", gigabytes, times, [&] { program.Run(); }, others);
  }
}

// By oneDNN alone, as it would be called; nothing if it has none for the types on this CPU.
std::optional<std::function<void()>> BareProduct(const std::string& type, int64_t rows,
                                                 int64_t side, const Memory& a, const Memory& b,
                                                 const Memory& c) {
  try {
    dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const auto tag = type == "f32" ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
    const auto layout = dnnl::memory::format_tag::ab;
    const dnnl::memory::desc left({rows, side}, tag, layout), right({side, side}, tag, layout);
    const dnnl::memory::desc result({rows, side}, dnnl::memory::data_type::f32, layout);
    const dnnl::matmul matmul(dnnl::matmul::primitive_desc({left, right, result}, engine));
    dnnl::memory lhs(left, engine, a.at), rhs(right, engine, b.at), out(result, engine, c.at);
    return [=]() mutable {
      matmul.execute(stream, {{DNNL_ARG_SRC, lhs}, {DNNL_ARG_WEIGHTS, rhs}, {DNNL_ARG_DST, out}});
      stream.wait();
    };
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

constexpr int64_t kSide = 2048;

// rows x 2048 by 2048 x 2048 to f32; the right factor may be constant.
std::string DotText(const std::string& type, int64_t rows, bool constant) {
  const uint64_t each = type == "f32" ? 4 : type == "i8" ? 1 : type == "f64" ? 8 : 2;
  const std::string result = type == "i8" ? "i32" : type == "f64" ? "f64" : "f32";
  const std::string left = absl::StrCat("[", rows, ",", kSide, "]");
  const std::string right = absl::StrCat("[", kSide, ",", kSide, "]");
  return absl::StrCat("program 1\nbuffer @a read ", rows * kSide * each, "\nbuffer @b read ",
                      kSide * kSide * each, constant ? " constant" : "", "\nbuffer @c write ",
                      rows * kSide * (type == "f64" ? 8 : 4), "\n%a = input @a : ", type, left,
                      "\n%b = input @b : ", type, right,
                      "\n%c = dot_general %a, %b lhs_contract=[1] rhs_contract=[0] : ", result,
                      left, "\nstore @c, %c\n");
}

double Gigaflops(int64_t rows) { return 2e-9 * static_cast<double>(rows * kSide * kSide); }

void Dots(Bench& bench, const std::string& type, size_t threads, size_t times) {
  const uint64_t each = type == "f32" ? 4 : type == "i8" ? 1 : type == "f64" ? 8 : 2;
  Memory a(kSide * kSide * each), b(kSide * kSide * each);
  Memory c(kSide * kSide * (type == "f64" ? 8 : 4));
  Prepared program(DotText(type, kSide, false), threads, {&a, &b, &c});
  std::vector<Bench::Other> others;
  if (type == "f32" || type == "bf16") {
    if (const auto bare = BareProduct(type, kSide, kSide, a, b, c)) {
      others.push_back({"bare oneDNN call", *bare, 0.95});
    }
  }
  const Memory x(others.empty() ? kSide * kSide * 4 : 0);
  if (others.empty()) {  // which has none here: against that of f32
    others.push_back({"bare oneDNN f32", *BareProduct("f32", kSide, kSide, x, x, x)});
  }
  bench.Compare(
      absl::StrCat("dot ", type, " 2048^3, ", program.who()), "GFLOP/s", Gigaflops(kSide), times,
      [&] { program.Run(); }, others);
}

// There is one where the library has an order of its own for weights, as it has for AMX.
double TargetOf(const Prepared& kept) {
  return kept.who().find("packed") != std::string::npos ? 1.3 : 0;
}

// What is kept of the weights from run to run, against the same made anew each time.
void ConstantWeights(Bench& bench, const std::string& type, int64_t rows, size_t threads,
                     size_t times) {
  const uint64_t each = type == "f32" ? 4 : 2;
  Memory a(static_cast<uint64_t>(rows * kSide) * each), b(kSide * kSide * each);
  Memory c(static_cast<uint64_t>(rows * kSide) * 4);
  Prepared kept(DotText(type, rows, true), threads, {&a, &b, &c});
  Prepared anew(DotText(type, rows, false), threads, {&a, &b, &c});
  bench.Compare(absl::StrCat("constant weights ", type, ", ", rows, " rows"), "GFLOP/s",
                Gigaflops(rows), times, [&] { kept.Run(true); },
                {{"not constant", [&] { anew.Run(); }, TargetOf(kept)}});
}

std::string BlockDotText(int64_t rows, bool constant) {
  const auto buffer = [&](const char* name, int64_t bytes, bool is_constant) {
    return absl::StrCat("buffer @", name, " read ", bytes, is_constant ? " constant\n" : "\n");
  };
  const int64_t blocks = kSide / 32;
  const auto dims = [](int64_t m, int64_t n) { return absl::StrCat("[", m, ",", n, "]\n"); };
  return absl::StrCat(
      "program 1\n", buffer("a", rows * kSide, false), buffer("s", rows * blocks, false),
      buffer("b", kSide * kSide, constant), buffer("t", kSide * blocks, constant),
      "buffer @c write ", rows * kSide * 4, "\n%a = input @a : f8e4m3fn", dims(rows, kSide),
      "%s = input @s : f8e8m0fnu", dims(rows, blocks), "%b = input @b : f8e4m3fn",
      dims(kSide, kSide), "%t = input @t : f8e8m0fnu", dims(kSide, blocks),
      "%c = block_scaled_dot %a, %b, %s, %t : f32", dims(rows, kSide), "store @c, %c\n");
}

// MXFP8 against bf16, both as programs; and with constant weights.
void BlockDots(Bench& bench, size_t threads, size_t times) {
  Memory a(kSide * kSide), b(kSide * kSide), s(kSide * kSide / 32), t(kSide * kSide / 32);
  Memory c(kSide * kSide * 4), x(kSide * kSide * 2), y(kSide * kSide * 2);
  for (Memory* scales : {&s, &t}) std::memset(scales->at, 127, scales->bytes);
  Prepared blocks(BlockDotText(kSide, false), threads, {&a, &s, &b, &t, &c});
  Prepared plain(DotText("bf16", kSide, false), threads, {&x, &y, &c});
  bench.Compare(absl::StrCat("dot MXFP8 2048^3, ", blocks.who()), "GFLOP/s", Gigaflops(kSide),
                times, [&] { blocks.Run(); }, {{"dot bf16", [&] { plain.Run(); }, 0.8}});
  constexpr int64_t kFew = 64;
  Memory few(kFew * kSide), few_scales(kFew * kSide / 32);
  std::memset(few_scales.at, 127, few_scales.bytes);
  Prepared kept(BlockDotText(kFew, true), threads, {&few, &few_scales, &b, &t, &c});
  Prepared anew(BlockDotText(kFew, false), threads, {&few, &few_scales, &b, &t, &c});
  bench.Compare(absl::StrCat("constant weights MXFP8, ", kFew, " rows"), "GFLOP/s", Gigaflops(kFew),
                4 * times, [&] { kept.Run(true); },
                {{"not constant", [&] { anew.Run(); }, TargetOf(kept)}});
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

constexpr char kUsage[] =
    "ferry_compute_bench [--threads N] [--cases NAME,...] [--numpy PYTHON]\n"
    "cases: chain, tanh, dot, integers, constant, blocks, reduce, transpose\n";

int Main(absl::Span<char* const> arguments) {
  size_t threads = 2;
  std::string cases = "chain,tanh,dot,integers,constant,blocks,reduce,transpose";
  std::string python;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const absl::string_view name = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (has_value && name == "--threads" && absl::SimpleAtoi(arguments[i + 1], &threads) &&
        threads > 0) {
      continue;
    }
    if (has_value && name == "--cases") {
      cases = arguments[i + 1];
    } else if (has_value && name == "--numpy") {
      python = arguments[i + 1];
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  Bench bench;
  std::printf("%-40s %9s %-8s %-18s %9s %7s %7s\n", "case", "ours", "unit", "against", "its",
              "ratio", "target");
  for (const absl::string_view one : absl::StrSplit(cases, ',')) {
    if (one == "chain") {
      Chains(bench, uint64_t{64} << 20, threads, 1, false, python);
      Chains(bench, uint64_t{64} << 10, 1, 2000, false, "");
    } else if (one == "tanh") {
      Chains(bench, uint64_t{64} << 20, threads, 1, true, "");
    } else if (one == "dot") {
      for (const char* type : {"f32", "bf16", "f16"}) Dots(bench, type, threads, 1);
      BlockDots(bench, threads, 1);
    } else if (one == "integers") {
      for (const char* type : {"i8", "f64"}) Dots(bench, type, threads, 1);
    } else if (one == "constant") {
      for (const char* type : {"f32", "bf16"}) {
        for (const int64_t rows : {16, 64}) ConstantWeights(bench, type, rows, threads, 8);
      }
    } else if (one == "blocks") {
      Blocks(bench, uint64_t{16} << 20, threads, 2);
    } else if (one == "reduce") {
      Reductions(bench, threads);
    } else if (one == "transpose") {
      Transposes(bench, threads);
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  return 0;
}

}  // namespace
}  // namespace ferry::bench

int main(int argc, char** argv) {
  return ferry::bench::Main(
      absl::MakeConstSpan(argv + 1, static_cast<size_t>(std::max(argc - 1, 0))));
}
