// SPDX-License-Identifier: Apache-2.0
// Generated kernels by NVRTC, for every architecture that there is; and the names that their
// machine code has in a cache.
#include "compute/cuda/kernel_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/cuda/kernel_code.h"
#include "compute/numerics/reduction_order.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/cuda/runs/byte_programs.h"
#include "tests/compute/cuda/runs/kernel_programs.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"

namespace ferry::compute {
namespace {

// FERRY_NVRTC_LIBRARY if it is set, else the toolkit's, else what tools/setup unpacked.
absl::StatusOr<const NvrtcApi*> FindNvrtc() {
  const char* library = std::getenv("FERRY_NVRTC_LIBRARY");
  if (library != nullptr) return LoadNvrtc(library);
  absl::StatusOr<const NvrtcApi*> api = LoadNvrtc();
#ifdef UNPACKED_NVRTC
  if (!api.ok()) return LoadNvrtc(UNPACKED_NVRTC);
#endif
  return api;
}
const NvrtcApi* Nvrtc() {
  const absl::StatusOr<const NvrtcApi*> api = FindNvrtc();
  return api.ok() ? *api : nullptr;
}
#define SKIP_WITHOUT_NVRTC() \
  if (Nvrtc() == nullptr) GTEST_SKIP() << "NO NVRTC: " << FindNvrtc().status()

// All kernels of some plans as one source: a compiler's start costs more than a kernel.
class Sources {
 public:
  // Of vectors of one element, which are fast to compile.
  void AddNarrow(const Program& program) {
    GpuOptions options;
    options.library_products = false;
    options.code = {1, 1};
    Add(program, options);
  }
  void Add(const Program& program, const GpuOptions& options = {}) {
    const absl::StatusOr<GpuPlan> plan = MakeGpuPlan(Simplify(program), kGpuArchs[0], options);
    ASSERT_TRUE(plan.ok()) << plan.status() << Print(program);
    for (const GpuKernel& kernel : plan->kernels) {
      if (!names_.insert(kernel.name).second) continue;
      // Neither too few a source, nor so many that the compiler is slow.
      if (names_.size() % 40 == 1) texts_.emplace_back();
      absl::StrAppend(&texts_.back(), SourceOf(kernel));
    }
  }

  size_t kernels() const { return names_.size(); }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::set<std::string> names_;
  std::vector<std::string> texts_;
};

void CompileAll(const Sources& sources, const GpuArch& arch, Tier tier = Tier::kFull) {
  for (const std::string& text : sources.texts()) {
    const absl::StatusOr<CompiledKernel> made = CompileKernel(*Nvrtc(), text, arch, tier);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_GT(made->cubin.size(), 0u);
    EXPECT_GT(made->registers, 8);
    EXPECT_LT(made->spilled, 64) << made->log;
  }
}

class KernelCompilerTest : public ::testing::TestWithParam<GpuArch> {};

TEST_P(KernelCompilerTest, AllTemplatesOfAllTypesCompile) {
  SKIP_WITHOUT_NVRTC();
  Sources sources;
  for (const Program& program : testing::KernelPrograms()) sources.AddNarrow(program);
  for (const Program& program : testing::BytePrograms()) sources.Add(program);
  EXPECT_GT(sources.kernels(), 300u);
  CompileAll(sources, GetParam());
}

TEST_P(KernelCompilerTest, WideVectorsCompile) {
  SKIP_WITHOUT_NVRTC();
  Sources sources;
  const std::vector<Program> programs = testing::KernelPrograms();
  for (size_t i = 0; i < programs.size(); i += 31) sources.Add(programs[i]);
  CompileAll(sources, GetParam());
}

TEST_P(KernelCompilerTest, FirstTiersCompile) {
  SKIP_WITHOUT_NVRTC();
  Sources sources;
  const std::vector<Program> programs = testing::KernelPrograms();
  for (size_t i = 0; i < programs.size(); i += 7) sources.AddNarrow(programs[i]);
  for (const Program& program : testing::BytePrograms()) sources.Add(program);
  CompileAll(sources, GetParam(), Tier::kFirst);
}

INSTANTIATE_TEST_SUITE_P(All, KernelCompilerTest, ::testing::ValuesIn(kGpuArchs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(KernelCompilerTest, KernelsOfRandomProgramsCompile) {
  SKIP_WITHOUT_NVRTC();
  Sources sources;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Program program = testing::ProgramGenerator(seed, {60, 9, false}).Make();
    testing::StoreAll(program);
    sources.AddNarrow(program);
  }
  EXPECT_GT(sources.kernels(), 50u);
  CompileAll(sources, kGpuArchs[0]);
}

// Results of 48 functions, which cost too much to be computed twice, are added up in one order and
// subtracted in the other: written as one kernel, all of them would be held.
TEST(KernelCompilerTest, WhatNeedsManyValuesIsCutBeforeItSpills) {
  SKIP_WITHOUT_NVRTC();
  constexpr int kValues = 48, kElements = 65536;
  std::string text = absl::StrCat("program 1\nbuffer @x read ", kValues * kElements * 4,
                                  "\nbuffer @y write ", kElements * 4, "\n");
  for (int i = 0; i < kValues; ++i) {
    absl::StrAppend(&text, "%x", i, " = input @x offset=", i * kElements * 4, " : f32[", kElements,
                    "]\n%t", i, " = tanh %x", i, "\n");
  }
  std::string last = "%t0";
  for (int i = 1; i < kValues; ++i) {
    absl::StrAppend(&text, "%a", i, " = add ", last, ", %t", i, "\n");
    last = absl::StrCat("%a", i);
  }
  for (int i = kValues - 1; i >= 0; --i) {
    absl::StrAppend(&text, "%b", i, " = subtract ", last, ", %t", i, "\n");
    last = absl::StrCat("%b", i);
  }
  ParsedText parsed = Parse(absl::StrCat(text, "store @y, ", last, "\n"));
  ASSERT_TRUE(parsed.problems.empty());
  Sources sources;
  sources.Add(parsed.program);
  EXPECT_GT(sources.kernels(), 1u);
  CompileAll(sources, kGpuArchs[0]);
}

// All that a thread of a column holds: its lanes of two reductions, and what it reads for them.
TEST(KernelCompilerTest, ReductionsOfColumnsDoNotSpill) {
  SKIP_WITHOUT_NVRTC();
  Sources sources;
  ParsedText parsed = Parse(
      "program 1\nbuffer @x read 537001984\nbuffer @z read 537001984\nbuffer @y write 131072\n"
      "%x = input @x strides=[1,16384] : f64[16384,4097]\n"
      "%z = input @z strides=[1,16384] : f64[16384,4097]\n"
      "%a = add %x, %z\n%b = multiply %x, %z\n%c = abs %b\n%d = maximum %c, %a\n%e = tanh %d\n"
      "%m = reduce %d reduction=max dimensions=[1]\n%n = reduce %e reduction=min dimensions=[1]\n"
      "%o = add %m, %n\nstore @y, %o\n");
  ASSERT_TRUE(parsed.problems.empty());
  sources.Add(parsed.program);
  const std::vector<Program> programs = testing::KernelPrograms();
  size_t columns = 0;
  for (const Program& program : programs) {
    const absl::StatusOr<GpuPlan> plan = MakeGpuPlan(program, kGpuArchs[0]);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const bool down =
        !plan->kernels.empty() && absl::StrContains(plan->kernels[0].source, "ColumnLanes<");
    if (down && columns++ % 4 == 0) sources.Add(program);
  }
  EXPECT_GT(columns, 12u);
  CompileAll(sources, kGpuArchs[0]);
}

TEST(KernelCompilerTest, WhatDoesNotCompileIsSaidWithTheLog) {
  SKIP_WITHOUT_NVRTC();
  const absl::Status status =
      CompileKernel(*Nvrtc(), "__global__ void k() { nonsense; }", kGpuArchs[0]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("sm_90a"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("nonsense"), absl::string_view::npos) << status;
}

TEST(NvrtcTest, ALibraryThatIsNotThereIsNamed) {
  const absl::Status status = LoadNvrtc("/nowhere/libnvrtc.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("/nowhere/libnvrtc.so"), absl::string_view::npos) << status;
}

TEST(GpuArchTest, AnUnknownArchitectureIsRefusedWithTheKnownOnes) {
  EXPECT_TRUE(GpuArchOf("sm_90a").ok());
  const absl::Status status = GpuArchOf("sm_90").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const GpuArch& arch : kGpuArchs) {
    EXPECT_NE(status.message().find(arch.name), absl::string_view::npos) << status;
  }
}

// x * a + b, with what differs between programs that are one kernel, or not.
Program ScaledSum(const std::string& elements, const std::string& bytes,
                  const std::string& label = "", const std::string& op = "add") {
  ParsedText parsed = Parse(
      absl::StrCat("program 1\nbuffer @x read ", bytes, "\nbuffer @s read 4\nbuffer @y write ",
                   bytes, "\n%x = input @x : f32[", elements,
                   "]\n%s = input @s : f32[]\n%b = broadcast_in_dim %s : f32[", elements,
                   "]\n%m = multiply %x, %b\n%a = ", op, " %m, %x", label.empty() ? "" : " \"",
                   label, label.empty() ? "" : "\"", "\nstore @y, %a\n"));
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_TRUE(Verify(parsed.program).empty());
  return std::move(parsed.program);
}

std::string KeyOf(const Program& program, const GpuArch& arch = kGpuArchs[0],
                  uint32_t alignment = 256) {
  GpuOptions options;
  options.buffer_alignment = alignment;
  const absl::StatusOr<GpuPlan> plan = MakeGpuPlan(program, arch, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kernels.size(), 1u);
  return KernelKey(plan->kernels[0].source, CompileOptions(arch), "13.0");
}

TEST(KernelKeyTest, SizesAndLabelsAndNamesDoNotMatter) {
  const std::string key = KeyOf(ScaledSum("1024", "4096"));
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(KeyOf(ScaledSum("2048", "8192")), key);
  EXPECT_EQ(KeyOf(ScaledSum("1000,77", "308000")), key);
  EXPECT_EQ(KeyOf(ScaledSum("1024", "4096", "scaled")), key);
}

TEST(KernelKeyTest, WhatTheMachineCodeDependsOnDoes) {
  std::set<std::string> keys = {KeyOf(ScaledSum("1024", "4096"))};
  const auto is_new = [&](const std::string& key) { return keys.insert(key).second; };
  EXPECT_TRUE(is_new(KeyOf(ScaledSum("1024", "4096", "", "subtract"))));
  EXPECT_TRUE(is_new(KeyOf(ScaledSum("1024", "4096"), kGpuArchs[1])));
  EXPECT_TRUE(is_new(KeyOf(ScaledSum("1024", "4096"), kGpuArchs[0], /*alignment=*/4)));
  // Places that 32 bits do not hold.
  EXPECT_TRUE(is_new(KeyOf(ScaledSum("3000000000", "12000000000"))));
  const absl::StatusOr<GpuPlan> plan = MakeGpuPlan(ScaledSum("1024", "4096"), kGpuArchs[0]);
  const std::string& source = plan->kernels[0].source;
  std::vector<std::string> options = CompileOptions(kGpuArchs[0]);
  EXPECT_TRUE(is_new(KernelKey(source, options, "13.1")));
  EXPECT_TRUE(is_new(KernelKey(source, CompileOptions(kGpuArchs[0], Tier::kFirst), "13.0")));
  for (size_t i = 0; i < options.size(); ++i) {
    std::vector<std::string> fewer = options;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(is_new(KernelKey(source, fewer, "13.0"))) << options[i];
  }
  for (size_t i = 0; i < KernelHeaders().size(); ++i) {
    std::vector<KernelHeader> headers(KernelHeaders().begin(), KernelHeaders().end());
    headers[i].text += " ";
    EXPECT_TRUE(is_new(KernelKey(source, options, "13.0", DigestOf(headers)))) << headers[i].name;
  }
}

// What the planner and the generator count with, kernels compute with.
TEST(KernelHeadersTest, ReductionsHaveTheChunksAndLanesOfTheHost) {
  const absl::Span<const KernelHeader> headers = KernelHeaders();
  const auto header =
      absl::c_find_if(headers, [](const KernelHeader& one) { return one.name == "reduce.cuh"; });
  ASSERT_NE(header, headers.end());
  EXPECT_THAT(header->text, ::testing::HasSubstr(absl::StrCat("kChunk = ", kReductionChunk, ";")));
  EXPECT_THAT(header->text, ::testing::HasSubstr(absl::StrCat("kLanes = ", kReductionLanes, ";")));
}

// The kernel's name has the label, so that profilers show it; equal kernels are one.
TEST(GpuPlanTest, KernelsAreNamedByLabelsAndEqualOnesAreOne) {
  ParsedText parsed = Parse(
      "program 1\nbuffer @x read 4096\nbuffer @z read 8192\nbuffer @y write 4096\n"
      "buffer @w write 8192\n%x = input @x : f32[1024]\n%a = negate %x \"turn it: round\"\n"
      "store @y, %a\n%z = input @z : f32[2048]\n%b = negate %z\nstore @w, %b\n");
  ASSERT_TRUE(parsed.problems.empty());
  const absl::StatusOr<GpuPlan> plan = MakeGpuPlan(parsed.program, kGpuArchs[0]);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->commands.size(), 2u);
  ASSERT_EQ(plan->kernels.size(), 1u);
  EXPECT_EQ(plan->kernels[0].name.find("turn_it__round_"), 0u) << plan->kernels[0].name;
  EXPECT_NE(SourceOf(plan->kernels[0]).find(plan->kernels[0].name), std::string::npos);
}

}  // namespace
}  // namespace ferry::compute
