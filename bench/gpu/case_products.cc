// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_products.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/gpu/bare_product.h"
#include "bench/gpu/peer_copy.h"
#include "ferry/cuda.hpp"
#include "ferry/program.hpp"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

namespace lt = compute::cublaslt;

constexpr uint64_t kRuns = 20;  // of one firing, or calls of the library, one behind the other

struct Case {
  std::string name;
  SquareProduct product;
  std::optional<double> target;  // of the bare library's speed
};

const char* NameOfType(int type) {
  return type == lt::kF32 ? "f32" : type == lt::kF16 ? "f16" : "bf16";
}

std::string TextOf(const SquareProduct& product) {
  const std::string dims = absl::StrCat("[", product.size, ",", product.size, "]");
  const char* const from = NameOfType(product.from);
  return absl::StrCat("program 1\nbuffer @x read ", product.factor_bytes(), "\nbuffer @w read ",
                      product.factor_bytes(), "\nbuffer @y write ", product.result_bytes(),
                      "\n%x = input @x : ", from, dims, "\n%w = input @w : ", from, dims,
                      "\n%p = dot_general %x, %w lhs_contract=[1] rhs_contract=[",
                      product.rows ? 1 : 0, "] : ", NameOfType(product.to), dims,
                      "\nstore @y, %p\n");
}

// Normal numbers: a GPU's clock depends on the bits that it multiplies.
std::vector<char> FactorOf(const SquareProduct& product) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<char> made(product.factor_bytes());
  const size_t bytes = product.from == lt::kF32 ? 4 : 2;
  for (size_t at = 0; at < made.size(); at += bytes) {
    const float value = normal(random);
    const char* const begin = reinterpret_cast<const char*>(&value);
    std::memcpy(&made[at], begin + sizeof(value) - bytes, bytes);  // bf16: cut off
  }
  return made;
}

absl::Status FromFerry(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, Reason::kInternal, status.ToString());
}

// A program of a product, which a daemon runs.
class FiredProduct {
 public:
  absl::Status Make(const testing::GpuDriver& driver, Nodes& nodes, const SquareProduct& product,
                    const std::vector<char>& factor) {
    SessionOptions options;
    options.client_dir = nodes.ClientDir(0);
    options.name = "bench-products";
    Result<Session> opened = Session::Open(options);
    if (!opened.ok()) return FromFerry(opened.status());
    session_ = *std::move(opened);
    const auto device = static_cast<uint64_t>(nodes.Gpu(0, 0));
    Result<Arena> arena =
        session_.CreateArena(device, 2 * product.factor_bytes() + kRuns * product.result_bytes());
    if (!arena.ok()) return FromFerry(arena.status());
    arena_ = *std::move(arena);
    driver.cuCtxSetCurrent(driver.context(0));
    CUstream stream = nullptr;
    RETURN_IF_ERROR(
        FromCuda(driver, driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "make a stream"));
    for (const uint64_t at : {uint64_t{0}, product.factor_bytes()}) {
      const auto to = reinterpret_cast<CUdeviceptr>(arena_.data()) + at;
      RETURN_IF_ERROR(FromCuda(
          driver, driver.cuMemcpyHtoDAsync(to, factor.data(), factor.size(), stream), "fill"));
    }
    const absl::Status filled = AwaitStream(driver, stream, "await the factors");
    driver.cuStreamDestroy(stream);
    RETURN_IF_ERROR(filled);
    Result<Program> program = Program::Compile(session_, device, TextOf(product));
    if (!program.ok()) return FromFerry(program.status());
    const std::string plan(program->plan());  // its last line says who multiplies
    std::fprintf(stderr, "%s", plan.substr(plan.rfind('\n', plan.size() - 2) + 1).c_str());
    std::vector<ProgramRun> runs;  // each with a result of its own
    for (uint64_t i = 0; i < kRuns; ++i) {
      const uint64_t y = 2 * product.factor_bytes() + i * product.result_bytes();
      runs.push_back(
          program->Run({{"x", arena_.Range(0, product.factor_bytes())},
                        {"w", arena_.Range(product.factor_bytes(), product.factor_bytes())},
                        {"y", arena_.Range(y, product.result_bytes())}}));
    }
    Result<Prepared> prepared = PreparePrograms(session_, device, runs);
    if (!prepared.ok()) return FromFerry(prepared.status());
    prepared_ = *std::move(prepared);
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Duration> Fire() {
    const int64_t start = tools::MonotonicNanoseconds();
    RETURN_IF_ERROR(FromFerry(prepared_.Fire()));
    RETURN_IF_ERROR(FromFerry(prepared_.Wait(std::chrono::seconds(60))));
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  }

 private:
  Session session_;
  Arena arena_;
  Prepared prepared_;
};

absl::Status MeasureOne(const testing::GpuDriver& driver, Nodes& nodes, const Case& made,
                        int rounds, Report& report) {
  const std::vector<char> factor = FactorOf(made.product);
  BareProduct bare(driver);
  RETURN_IF_ERROR(bare.Make(made.product, factor));
  FiredProduct fired;
  RETURN_IF_ERROR(fired.Make(driver, nodes, made.product, factor));
  std::vector<absl::Duration> of_us, of_bare;
  for (int round = 0; round < rounds + 1; ++round) {
    // Several in a row: the first has the GPU change from one process to the other.
    for (int i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const absl::Duration took, fired.Fire());
      if (round > 0 && i > 0) of_us.push_back(took / int64_t{kRuns});
    }
    for (int i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const absl::Duration took, bare.Multiply(kRuns));
      if (round > 0 && i > 0) of_bare.push_back(took / int64_t{kRuns});
    }
  }
  const auto size = static_cast<double>(made.product.size);
  const auto speed = [&](std::vector<absl::Duration> took) {
    return 2 * size * size * size / absl::ToDoubleSeconds(tools::Median(std::move(took))) / 1e12;
  };
  Row row;
  row.name = made.name;
  row.unit = "TFLOP/s";
  row.peer = "cuBLASLt, bare";
  row.target = made.target;
  row.warm = speed(std::move(of_us));
  row.peer_warm = speed(std::move(of_bare));
  report.Add(std::move(row));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureProducts(const testing::GpuDriver& driver, Nodes& nodes, int rounds,
                             Report& report) {
  const std::vector<Case> cases = {
      {"product of bf16[8192,8192], rows by columns", {8192, lt::kBF16, lt::kBF16, false}, 0.99},
      {"product of bf16[8192,8192], rows by rows", {8192, lt::kBF16, lt::kBF16, true}, 0.99},
      {"product of bf16[4096,4096] to f32", {4096, lt::kBF16, lt::kF32, true}, std::nullopt},
      {"product of bf16[8192,8192] to f32", {8192, lt::kBF16, lt::kF32, true}, std::nullopt},
      {"product of f32[4096,4096]", {4096, lt::kF32, lt::kF32, true}, std::nullopt}};
  for (const Case& made : cases) {
    const absl::Status measured = MeasureOne(driver, nodes, made, rounds, report);
    if (measured.code() == absl::StatusCode::kUnavailable) {
      std::fprintf(stderr, "no products: %s\n", std::string(measured.message()).c_str());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(measured);
  }
  return absl::OkStatus();
}

}  // namespace ferry::bench
