// SPDX-License-Identifier: Apache-2.0
// Products of matrices on GPUs, by cuBLASLt: those of programs that a daemon runs, and the
// library's own. On a real GPU FERRY_CUBLASLT_LIBRARY names a library that the loader does not
// find.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "ferry/program.hpp"
#include "tests/compute/parsed_program.h"
#include "tests/compute/product_text.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/support/admin.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

namespace fc = ferry::compute;
using fc::DType;
using fc::testing::Bytes;
using fc::testing::ProductElement;
using fc::testing::ProductShape;
using Numbers = std::vector<double>;
using FillOf = std::function<Numbers(uint64_t count)>;

FillOf Among(double least, double most, uint64_t seed) {
  return [=](uint64_t count) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> among(least, most);
    Numbers made(count);
    for (double& value : made) value = among(random);
    return made;
  };
}
FillOf All(double value) {
  return [=](uint64_t count) { return Numbers(count, value); };
}

// Some elements of a result, or all of a small one.
std::vector<uint64_t> SomeOf(uint64_t results, int64_t terms) {
  const auto most = static_cast<uint64_t>(std::max<int64_t>(int64_t{4} << 20, terms) / terms);
  std::vector<uint64_t> some;
  for (uint64_t i = 0; i < std::min(results, most); ++i) {
    some.push_back(results <= most ? i : (i * 2654435761 + i) % results);
  }
  return some;
}

class GpuProductTest : public GpuTest {
 protected:
  static constexpr uint64_t kPlace = 4096;

  // A daemon whose programs' buffers have so much memory.
  bool Open(uint64_t bytes, std::vector<std::string> environment = {}, int gpus = 1) {
    if (!Need(gpus)) return false;
    StartNodes(1, gpus, "", std::move(environment));
    return OpenEnd(bytes);
  }
  bool OpenEnd(uint64_t bytes) {
    bytes_ = bytes;
    end_ = GpuTest::Open(0, 0, bytes);
    stream_ = MakeStream(end_);
    if (staging_ == nullptr) staging_ = Pinned(bytes);
    return true;
  }
  void CloseEnds() override { end_ = End(); }
  // False, and the test is skipped, where the library cannot be told what to refuse.
  bool NeedFake() {
    if (driver_ == nullptr) return false;
    [&] {
      if (!fake()) GTEST_SKIP() << "SKIPPED: a real library cannot be told to refuse";
    }();
    return fake();
  }

  // Runs the text, whose buffers are filled so; returns what they have afterwards.
  std::vector<Bytes> RunOnGpu(const std::string& text, const std::vector<Bytes>& contents,
                              const std::vector<std::string>& names) {
    const Program program = Must(Program::Compile(end_.session, end_.device, text));
    plan_ = std::string(program.plan());
    if (absl::StrContains(plan_, "our own kernels (open")) {
      [&] { GTEST_SKIP() << "NEEDS CUBLASLT: " << plan_; }();
      return {};
    }
    std::vector<Binding> bindings;
    std::vector<uint64_t> places;
    uint64_t at = 0;
    for (size_t i = 0; i < contents.size(); ++i) {
      places.push_back(at);
      std::memcpy(staging_ + at, contents[i].data(), contents[i].size());
      bindings.push_back({names[i], end_.arena.Range(at, contents[i].size())});
      at += (contents[i].size() + kPlace - 1) / kPlace * kPlace;
      EXPECT_LE(at, bytes_);
    }
    EXPECT_CU(driver_->cuMemcpyHtoDAsync(Address(end_.arena), staging_, at, stream_));
    EXPECT_CU(Synchronize(stream_));
    EXPECT_THAT(Must(RunPrograms(end_.session, end_.device, {program.Run(bindings)})).Wait(kSoon),
                IsOk());
    EXPECT_CU(driver_->cuMemcpyDtoHAsync(staging_, Address(end_.arena), at, stream_));
    EXPECT_CU(Synchronize(stream_));
    std::vector<Bytes> made;
    for (size_t i = 0; i < contents.size(); ++i) {
      const auto* const begin = reinterpret_cast<const std::byte*>(staging_ + places[i]);
      made.emplace_back(begin, begin + contents[i].size());
    }
    return made;
  }

  static Bytes OnHost(const std::string& text, std::vector<Bytes> contents) {
    const absl::StatusOr<fc::HostProgram> host =
        fc::HostProgram::Make(fc::Simplify(fc::testing::ParsedProgram(text)), {.threads = 8});
    EXPECT_TRUE(host.ok()) << host.status();
    std::vector<std::byte> scratch(host->scratch_bytes() + 64);
    auto* const aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    std::vector<absl::Span<std::byte>> spans;
    for (Bytes& one : contents) spans.push_back(absl::MakeSpan(one));
    host->Run(spans, {aligned, host->scratch_bytes()});
    return contents.back();
  }

  struct Product {
    std::vector<Bytes> contents;
    Numbers x, w;  // what the factors are
    std::vector<uint64_t> some;
    Numbers results;   // of `some`
    double worst = 0;  // share of the bound
  };
  // Multiplies, and compares some elements with what they are to be.
  Product Multiply(const ProductShape& shape, const FillOf& x, const FillOf& w) {
    Product made;
    made.contents = {fc::testing::ElementsOf(shape.from_type(), x(shape.left_elements())),
                     fc::testing::ElementsOf(shape.from_type(), w(shape.right_elements())),
                     Bytes(fc::BytesOf(shape.to_type(), shape.results()), std::byte{0xA5})};
    const std::vector<Bytes> got = RunOnGpu(ProductText(shape), made.contents, {"x", "w", "y"});
    if (got.empty()) return made;
    EXPECT_THAT(plan_, HasSubstr("products by cuBLASLt"));
    const auto numbers = [&](size_t buffer) {
      return fc::testing::NumbersOf(shape.from_type(), made.contents[buffer],
                                    buffer == 0 ? shape.left_elements() : shape.right_elements());
    };
    made.x = numbers(0);
    made.w = numbers(1);
    made.some = SomeOf(shape.results(), shape.k);
    const Numbers all = fc::testing::NumbersOf(shape.to_type(), got[2], shape.results());
    const bool rounded = shape.to_type() == DType::kBF16 || shape.to_type() == DType::kF16;
    const double t =
        rounded
            ? 0x1p-13
            : fc::testing::ToleranceOf(shape.to_type() == DType::kF64 ? DType::kF64 : DType::kF32);
    for (const uint64_t index : made.some) {
      made.results.push_back(all[index]);
      const ProductElement element = ElementOf(shape, made.x, made.w, index);
      const double share = ShareOfBound(element, shape.to_type(), all[index], t);
      // Not a number fails too.
      EXPECT_TRUE(share <= 1) << "element " << index << " is " << all[index] << " instead of "
                              << element.value << ", " << share << " of the bound\n"
                              << ProductText(shape) << plan_;
      made.worst = std::max(made.worst, share);
      if (HasFailure()) return made;
    }
    std::cout << shape.batches << " x [" << shape.m << "," << shape.k << "] by [" << shape.k << ","
              << shape.n << "], " << shape.from << " " << shape.left << " by " << shape.right
              << " to " << shape.to << ": " << made.worst << " of the bound\n";
    return made;
  }

  End end_;
  CUstream stream_ = nullptr;
  char* staging_ = nullptr;
  uint64_t bytes_ = 0;
  std::string plan_;
};

const std::vector<std::pair<std::string, std::string>>& Types() {
  static const auto& types = *new std::vector<std::pair<std::string, std::string>>{
      {"bf16", "bf16"}, {"bf16", "f32"}, {"f16", "f16"}, {"f16", "f32"},       {"f32", "f32"},
      {"f32", "bf16"},  {"f32", "f64"},  {"f64", "f64"}, {"f8e4m3fn", "bf16"}, {"f8e5m2", "f32"}};
  return types;
}

TEST_F(GpuProductTest, AllTypesAndOrdersKeepTheirBound) {
  if (!Open(64 << 20)) return;
  const int64_t size = fake() ? 8 : 104;
  for (const auto& [from, to] : Types()) {
    for (const char* left : {"mk", "km"}) {
      for (const char* right : {"kn", "nk"}) {
        for (const int64_t batches : {1, 5}) {
          if (IsSkipped() || HasFailure()) return;
          if (fake() && (batches > 1) == (left[0] == 'm')) continue;  // its compiler is slow
          Multiply({batches, 2 * size, 3 * size, size + 6, from, to, left, right}, Among(-1, 1, 1),
                   Among(-1, 1, 2));
        }
      }
    }
  }
}

// One element in a dimension, nothing that is a multiple of anything, and more than tiles are.
TEST_F(GpuProductTest, OddShapesKeepTheirBound) {
  if (!Open(256 << 20)) return;
  std::vector<std::array<int64_t, 3>> shapes = {{1, 40, 24}, {24, 40, 1}, {1, 40, 1},
                                                {24, 1, 18}, {1, 1, 1},   {7, 13, 5}};
  if (!fake()) {
    shapes.insert(shapes.end(), {{1, 8192, 4097},
                                 {4097, 8192, 1},
                                 {1021, 1023, 1019},
                                 {3000, 17, 3000},
                                 {33, 8191, 65},
                                 {2048, 4096, 2048}});
  }
  for (const auto& [m, k, n] : shapes) {
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"bf16", "bf16"}, {"bf16", "f32"}, {"f16", "f32"}, {"f32", "f32"}}) {
      for (const char* right : {"kn", "nk"}) {
        if (IsSkipped() || HasFailure()) return;
        Multiply({1, m, k, n, from, to, "mk", right}, Among(0, 1, 3), Among(-0.5, 1, 4));
      }
    }
  }
}

// Sums of equal terms, which one running sum would lose much of.
TEST_F(GpuProductTest, LongSumsKeepTheirBound) {
  if (!Open(400 << 20)) return;
  const int64_t most = int64_t{1} << (fake() ? 14 : 20);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"f32", "f32"}, {"bf16", "f32"}, {"f16", "f32"}, {"bf16", "bf16"}}) {
    if (fake() && from == "f16") continue;
    for (const int64_t k : {most, most / 3 + 1, int64_t{8192}, int64_t{16384}}) {
      if (fake() && k == 8192) continue;
      for (const int64_t side : {1, fake() ? 2 : 16}) {
        for (const auto& [x, w] :
             {std::pair(All(0.1), All(1)), std::pair(All(1), All(1)),
              std::pair(Among(0.5, 1, 5), Among(0.5, 1, 6)), std::pair(All(0.7), All(0.9))}) {
          if (IsSkipped() || HasFailure()) return;
          if (fake() && side > 1) continue;
          Multiply({1, side, k, side, from, to, "mk", "nk"}, x, w);
        }
      }
    }
  }
}

// Several calls that add to a result where it is, of batches and of none.
TEST_F(GpuProductTest, LongSumsOfLargeResultsKeepTheirBound) {
  if (!Open(400 << 20)) return;
  const int64_t side = fake() ? 6 : 1100;
  for (const auto& [from, k] : std::vector<std::pair<std::string, int64_t>>{
           {"bf16", fake() ? 8256 : 20000}, {"f16", fake() ? 8256 : 17000}, {"f32", 4000}}) {
    for (const int64_t batches : {1, 2}) {
      for (const char* order : {"mk", "km"}) {
        if (IsSkipped() || HasFailure()) return;
        Multiply({batches, side, k, side + 2, from, "f32", order, order[0] == 'm' ? "nk" : "kn"},
                 Among(0, 1, 7), Among(0, 1, 8));
      }
    }
  }
}

TEST_F(GpuProductTest, TheHostsExecutorGivesTheSameWithinTheBound) {
  if (!Open(64 << 20)) return;
  const int64_t side = fake() ? 16 : 512;
  for (const auto& [from, to] : Types()) {
    const ProductShape shape = {1, side, side + 8, side - 8, from, to, "mk", "kn"};
    const Product made = Multiply(shape, Among(-1, 1, 9), Among(-1, 1, 10));
    if (IsSkipped() || HasFailure()) return;
    const Numbers host = fc::testing::NumbersOf(
        shape.to_type(), OnHost(ProductText(shape), made.contents), shape.results());
    const double t =
        fc::testing::ToleranceOf(shape.to_type() == DType::kF64 ? DType::kF64 : DType::kF32);
    for (size_t i = 0; i < made.some.size(); ++i) {
      const ProductElement element = ElementOf(shape, made.x, made.w, made.some[i]);
      ASSERT_LE(fc::testing::ShareOfBound({host[made.some[i]], element.magnitude}, shape.to_type(),
                                          made.results[i], 2 * t),
                1)
          << "the GPU has " << made.results[i] << ", the host " << host[made.some[i]];
    }
  }
}

// Factors and products below the least normal number count.
TEST_F(GpuProductTest, SmallNumbersAreNotTakenForZero) {
  if (!Open(16 << 20)) return;
  for (const auto& [from, x, w] :
       std::vector<std::tuple<std::string, double, double>>{{"bf16", 0x1p-130, 1},
                                                            {"bf16", 0x1p-70, 0x1p-70},
                                                            {"f16", 0x1p-22, 1},
                                                            {"f32", 0x1p-140, 1},
                                                            {"f32", 0x1p-70, 0x1p-70}}) {
    for (const int64_t side : {1, 16, fake() ? 20 : 256}) {
      if (IsSkipped()) return;
      Multiply({1, side, 64, side, from, "f32", "mk", "nk"}, All(x), All(w));
    }
  }
}

// Our own kernels multiply what the library refuses, and the plan says why they do.
TEST_F(GpuProductTest, WhatTheLibraryRefusesIsMultipliedAllTheSame) {
  if (!NeedFake() || !Open(16 << 20, {"FERRY_FAKE_CUBLASLT=no_type=14"})) return;
  const ProductShape shape = {1, 24, 40, 18, "bf16", "bf16", "mk", "nk"};
  const std::vector<Bytes> contents = {
      fc::testing::ElementsOf(DType::kBF16, Among(-1, 1, 19)(shape.left_elements())),
      fc::testing::ElementsOf(DType::kBF16, Among(-1, 1, 20)(shape.right_elements())),
      Bytes(fc::BytesOf(DType::kBF16, shape.results()))};
  std::vector<fc::testing::Memory> reference(contents.begin(), contents.end());
  fc::testing::Evaluate(fc::testing::ParsedProgram(ProductText(shape)), reference);
  const std::vector<Bytes> got = RunOnGpu(ProductText(shape), contents, {"x", "w", "y"});
  EXPECT_EQ(reference[2].DifferenceOf(got[2]), "");
  EXPECT_THAT(plan_, HasSubstr("products by our own kernels (multiply 1 x [24,40] by [40,18], "));
  EXPECT_THAT(plan_, HasSubstr("by cuBLASLt 13.1.0: CUBLAS_STATUS_NOT_SUPPORTED)"));
  Multiply({1, 24, 40, 18, "bf16", "f32"}, Among(-1, 1, 21), Among(-1, 1, 22));
}

// Tensor cores take block scales only on a GPU whose library was tried.
TEST_F(GpuProductTest, BlockScalesAreOfTheGpuThatTheProgramWasCompiledFor) {
  if (!NeedFake() || !Open(1 << 20, FakeWith("capability=100"), 2)) return;
  const std::string text =
      "program 1\naccumulation native_block\nbuffer @x read 1024\nbuffer @w read 1024\n"
      "buffer @s read 32\nbuffer @t read 32\nbuffer @y write 1024\n"
      "%x = input @x : f8e4m3fn[16,64]\n%w = input @w : f8e4m3fn[16,64]\n"
      "%s = input @s : f8e8m0fnu[16,2]\n%t = input @t : f8e8m0fnu[16,2]\n"
      "%p = block_scaled_dot %x, %w, %s, %t block=32 : f32[16,16]\nstore @y, %p\n";
  const std::vector<std::string> names = {"x", "w", "s", "t", "y"};
  const std::vector<Bytes> contents = {
      fc::testing::ElementsOf(DType::kF8E4M3FN, Among(-1, 1, 23)(1024)),
      fc::testing::ElementsOf(DType::kF8E4M3FN, Among(-1, 1, 24)(1024)), Bytes(32, std::byte{126}),
      Bytes(32, std::byte{125}), Bytes(1024)};
  std::vector<fc::testing::Memory> reference(contents.begin(), contents.end());
  fc::testing::Evaluate(fc::testing::ParsedProgram(text), reference);
  const std::vector<Bytes> got = RunOnGpu(text, contents, names);
  EXPECT_THAT(plan_, HasSubstr("gpu sm_100a, 1 kernels, products by cuBLASLt 13.1.0, block scales "
                               "by tensor cores\n"));
  EXPECT_EQ(reference[4].DifferenceOf(got[4]), "");
  // The other GPU runs it once it is compiled for that.
  const Program first = Must(Program::Compile(end_.session, end_.device, text));
  end_.device = nodes().Gpu(0, 1);
  end_.arena = Must(end_.session.CreateArena(end_.device, bytes_));
  stream_ = MakeStream(end_);
  const auto refused = RunPrograms(end_.session, end_.device, {first.Run({})});
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("no program of this fingerprint is kept for sm_100a"));
  const std::vector<Bytes> other = RunOnGpu(text, contents, names);
  EXPECT_EQ(other[4], got[4]);
}

// Infinities and what is not a number, to the bit of the reference where bits are promised.
TEST_F(GpuProductTest, RandomBitsAreMultipliedAsTheReferenceSays) {
  if (!Open(16 << 20)) return;
  uint64_t seed = 0;
  for (const auto& [from, to] : Types()) {
    // Sums of the largest numbers of f64 overflow in one order and not in another.
    if (std::string(from) == "f64") continue;
    const ProductShape shape = {1, 40, 3, 48, from, to, "mk", "nk"};
    const fc::Program program = fc::testing::ParsedProgram(ProductText(shape));
    const std::vector<Bytes> contents = fc::testing::RandomBuffers(program, ++seed);
    std::vector<fc::testing::Memory> reference(contents.begin(), contents.end());
    fc::testing::Evaluate(program, reference);
    const std::vector<Bytes> got = RunOnGpu(ProductText(shape), contents, {"x", "w", "y"});
    if (IsSkipped()) return;
    EXPECT_EQ(reference[2].DifferenceOf(got[2]), "") << ProductText(shape);
  }
}

// Scales are applied before, and what is after a product is ours.
TEST_F(GpuProductTest, BlockScalesBiasAndGeluAreAsTheReferenceSays) {
  if (!Open(16 << 20)) return;
  const std::string text =
      "program 1\nbuffer @x read 4096\nbuffer @w read 3072\nbuffer @s read 128\n"
      "buffer @t read 96\nbuffer @b read 96\nbuffer @y write 1536\n"
      "%x = input @x : f8e4m3fn[32,128]\n%w = input @w : f8e4m3fn[24,128]\n"
      "%s = input @s : f8e8m0fnu[32,4]\n%t = input @t : f8e8m0fnu[24,4]\n"
      "%p = block_scaled_dot %x, %w, %s, %t block=32 : f32[32,24]\n"
      "%b = input @b : f32[24]\n%all = broadcast_in_dim %b dimensions=[1] : f32[32,24]\n"
      "%sum = add %p, %all\n%z = constant splat=0 : f32[32,24]\n%r = maximum %sum, %z\n"
      "%c = convert %r : bf16[32,24]\nstore @y, %c\n";
  const fc::Program program = fc::testing::ParsedProgram(text);
  std::vector<Bytes> contents;
  std::mt19937_64 random(11);
  for (const fc::Buffer& buffer : program.buffers) contents.emplace_back(buffer.bytes);
  contents[0] = fc::testing::ElementsOf(DType::kF8E4M3FN, Among(-400, 400, 12)(4096));
  contents[1] = fc::testing::ElementsOf(DType::kF8E4M3FN, Among(-400, 400, 13)(3072));
  for (std::byte& scale : contents[2]) scale = std::byte(120 + random() % 12);
  for (std::byte& scale : contents[3]) scale = std::byte(120 + random() % 12);
  const std::vector<double> bias = Among(-1, 1, 14)(24);
  contents[4] = fc::testing::ElementsOf(DType::kF32, bias);
  std::vector<fc::testing::Memory> reference(contents.begin(), contents.end());
  fc::testing::Evaluate(program, reference);
  const std::vector<Bytes> got = RunOnGpu(text, contents, {"x", "w", "s", "t", "b", "y"});
  if (IsSkipped()) return;
  EXPECT_THAT(plan_, HasSubstr("products by cuBLASLt"));
  EXPECT_EQ(reference[5].DifferenceOf(got[5]), "");
}

// The daemon gives the context back when nobody needs the GPU, and the library works with the next
// one. Its CUDA run time keeps memory for itself, once (docs/programs-on-gpus.md).
TEST_F(GpuProductTest, TheContextIsGivenBackAfterAProduct) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  const uint64_t left = uint64_t{fake() ? 64u : 704u} << 20;
  const uint64_t free_bytes = driver_->FreeBytes(0);
  OpenEnd(1 << 20);
  const ProductShape shape = {1, 64, 64, 64, "bf16", "f32"};
  for (int again = 0; again < 2; ++again) {
    Multiply(shape, Among(-1, 1, 15), Among(-1, 1, 16));
    if (IsSkipped() || HasFailure()) return;
    ASSERT_THAT(end_.arena.Release(), IsOk());
    ASSERT_TRUE(Await([&] { return !node(0).admin().Devices().devices(1).context(); }));
    EXPECT_TRUE(Await([&] { return driver_->FreeBytes(0) + left >= free_bytes; }))
        << free_bytes - driver_->FreeBytes(0) << " bytes of the GPU are not free";
    end_.arena = Must(end_.session.CreateArena(end_.device, bytes_));
  }
}

// Equal runs give equal bits: the library's choice is kept, and its sums have one order.
TEST_F(GpuProductTest, EachRunGivesTheSameBits) {
  if (!Open(64 << 20)) return;
  const int64_t side = fake() ? 16 : 640;
  const ProductShape shape = {1, side, fake() ? 600 : 4096, side, "f32", "f32"};
  const Product first = Multiply(shape, Among(-1, 1, 17), Among(-1, 1, 18));
  for (int again = 0; again < 3 && !IsSkipped() && !HasFailure(); ++again) {
    EXPECT_EQ(Multiply(shape, Among(-1, 1, 17), Among(-1, 1, 18)).results, first.results);
  }
}

}  // namespace
}  // namespace ferry::testing
