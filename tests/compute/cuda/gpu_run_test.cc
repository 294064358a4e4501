// SPDX-License-Identifier: Apache-2.0
// Generated kernels, made by the host's compiler and run by the CPU in place of a GPU: their
// results are the reference's, to the bit but for functions and products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/cuda/runs/byte_programs.h"
#include "tests/compute/cuda/runs/host_kernels.h"
#include "tests/compute/cuda/runs/kernel_programs.h"
#include "tests/compute/cuda/runs/number_programs.h"
#include "tests/compute/keepdims.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/reference/evaluate.h"
#include "tests/compute/shaped_programs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

GpuPlan PlanOf(const Program& program, bool library, const GpuArch& arch = kGpuArchs[0],
               uint32_t alignment = 256) {
  GpuOptions options;
  options.buffer_alignment = alignment;
  options.library_products = library;
  absl::StatusOr<GpuPlan> plan = MakeGpuPlan(program, arch, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : GpuPlan();
}

// Compares plans of programs with the reference, with one run of the compiler.
void ComparePlans(
    const std::vector<Program>& programs, const std::vector<GpuPlan>& plans,
    const testing::HostKernels::Compiler& compiler = testing::HostKernels::OwnCompiler()) {
  std::vector<const GpuPlan*> pointers;
  for (const GpuPlan& plan : plans) pointers.push_back(&plan);
  const std::unique_ptr<testing::HostKernels> kernels =
      testing::HostKernels::Make(pointers, compiler);
  ASSERT_NE(kernels, nullptr);
  for (size_t i = 0; i < programs.size(); ++i) {
    std::vector<testing::Memory> reference;
    for (Bytes& bytes : testing::RandomBuffers(programs[i], i)) {
      reference.emplace_back(std::move(bytes));
    }
    testing::Evaluate(programs[i], reference);
    const std::vector<Bytes> got =
        testing::RunGpuPlan(plans[i], testing::RandomBuffers(programs[i], i), *kernels);
    for (size_t j = 0; j < got.size(); ++j) {
      const std::string difference = reference[j].DifferenceOf(got[j]);
      ASSERT_EQ(difference, "") << "@" << programs[i].buffers[j].name << " of program " << i << "\n"
                                << Print(programs[i]) << ToText(plans[i], true);
    }
  }
}

// The same for many programs.
void CompareAll(
    const std::vector<Program>& programs, bool library = false, const GpuArch& arch = kGpuArchs[0],
    uint32_t alignment = 256,
    const testing::HostKernels::Compiler& compiler = testing::HostKernels::OwnCompiler()) {
  std::vector<GpuPlan> plans;
  for (const Program& program : programs)
    plans.push_back(PlanOf(program, library, arch, alignment));
  ComparePlans(programs, plans, compiler);
}

// The plan with launches of the first tier in place of every `nth` one that has such.
class FirstTier {
 public:
  explicit FirstTier(uint32_t nth) : nth_(nth) {}

  GpuPlan Of(const Program& program, uint32_t alignment = 256) {
    GpuOptions options;
    options.buffer_alignment = alignment;
    options.library_products = false;
    options.first_tier = true;
    absl::StatusOr<GpuPlan> plan = MakeGpuPlan(program, kGpuArchs[0], options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    Replace(plan->commands, *plan);
    return *std::move(plan);
  }
  uint32_t replaced() const { return replaced_; }
  uint32_t without() const { return without_; }

 private:
  void Replace(std::vector<GpuCommand>& commands, GpuPlan& plan) {
    for (GpuCommand& command : commands) {
      Replace(command.body, plan);
      if (command.kind != GpuCommand::Kind::kLaunch) continue;
      without_ += command.first ? 0 : 1;
      if (!command.first || ++seen_ % nth_ != 0) continue;
      ++replaced_;
      const GpuKernel& kernel = plan.first_kernels[command.first->kernel];
      const auto known =
          std::find_if(plan.kernels.begin(), plan.kernels.end(),
                       [&](const GpuKernel& other) { return other.name == kernel.name; });
      command.kernel = static_cast<uint32_t>(known - plan.kernels.begin());
      if (known == plan.kernels.end()) plan.kernels.push_back(kernel);
      command.blocks = command.first->blocks;
      command.threads = command.first->threads;
      command.arguments = command.first->arguments;
    }
  }

  const uint32_t nth_;
  uint32_t seen_ = 0, replaced_ = 0, without_ = 0;
};

void CompareRandomOnGpu(uint64_t first, uint64_t count, testing::GeneratorOptions options,
                        void (*store)(Program&) = &testing::StoreAll) {
  std::vector<Program> programs;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    options.transfers = false;
    Program program = testing::ProgramGenerator(seed, options).Make();
    store(program);
    programs.push_back(seed % 4 == 0 ? Simplify(program) : std::move(program));
  }
  CompareAll(programs);
}

TEST(GpuRunTest, AllTemplatesOfAllTypesAreAsTheReferenceSays) {
  std::map<std::string, int> kernels;  // by what a template alone has
  for (const Program& program : testing::KernelPrograms()) {
    for (const GpuKernel& kernel : PlanOf(program, false).kernels) {
      for (const char* text :
           {"constexpr int kSide", "RowLanes<", "DivideBy<", " Lanes<", "ColumnLanes<",
            "ColumnLargest<", "constexpr int count = V", "LargestOfBlocks<"}) {
        kernels[text] += absl::StrContains(kernel.source, text) ? 1 : 0;
      }
    }
  }
  for (const auto& [text, count] : kernels) EXPECT_GT(count, 1) << text;
  CompareAll(testing::KernelPrograms());
}

TEST(GpuRunTest, ChecksumsAndDeltasAreAsTheReferenceSays) {
  CompareAll(testing::BytePrograms());
  CompareAll(testing::BytePrograms(), false, kGpuArchs[0], /*alignment=*/1);
}

// What runs until kernels are compiled in full, all of it or some, gives the same bits.
TEST(GpuRunTest, FirstTiersAreAsTheReferenceSays) {
  for (const uint32_t nth : {1, 2}) {
    std::vector<Program> programs;
    const std::vector<Program> all = testing::KernelPrograms();
    for (size_t i = 0; i < all.size(); i += nth == 1 ? 2 : 5) programs.push_back(all[i]);
    for (Program& program : testing::BytePrograms()) programs.push_back(std::move(program));
    for (uint64_t seed = 0; seed < 8; ++seed) {
      programs.push_back(Simplify(testing::Weaver(seed, seed % 3 == 0 ? 24 : 4).Make()));
    }
    FirstTier tier(nth);
    std::vector<GpuPlan> plans;
    for (const Program& program : programs) plans.push_back(tier.Of(program, nth == 1 ? 256 : 16));
    EXPECT_GT(tier.replaced(), 50u);
    EXPECT_LT(tier.without(), tier.replaced() / 20);
    ComparePlans(programs, plans);
  }
}

// Concatenates [rows, n] for each n of `parts`, and cuts the same parts out of the whole again.
Program PartsOf(const std::string& type, int rows, const std::vector<int>& parts, bool adds) {
  int all = 0;
  std::string buffers, cuts, names;
  const int bits = InfoOf(*DTypeOf(type)).bits;
  const auto bytes = [&](int columns) { return std::to_string(rows * columns * bits / 8); };
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string n = std::to_string(i);
    const std::string shape =
        " : " + type + "[" + std::to_string(rows) + "," + std::to_string(parts[i]) + "]\n";
    buffers += "buffer @x" + n + " read " + bytes(parts[i]) + "\nbuffer @y" + n + " write " +
               bytes(parts[i]) + "\n";
    names += (i == 0 ? "%x" : ", %x") + n;
    cuts += "%c" + n + " = slice %w start=[0," + std::to_string(all) + "] limit=[" +
            std::to_string(rows) + "," + std::to_string(all + parts[i]) + "]" + shape + "store @y" +
            n + ", %c" + n + "\n";
    all += parts[i];
  }
  std::string text = "program 1\n" + buffers + "buffer @whole write " + bytes(all) +
                     "\nbuffer @from read " + bytes(all) + "\n";
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string n = std::to_string(i);
    const std::string of =
        type + "[" + std::to_string(rows) + "," + std::to_string(parts[i]) + "]\n";
    text += adds ? "%i" + n + " = input @x" + n + " : " + of + "%x" + n + " = add %i" + n + ", %i" +
                       n + "\n"
                 : "%x" + n + " = input @x" + n + " : " + of;
  }
  text += "%all = concatenate " + names +
          " dimension=1\nstore @whole, %all\n%w = input @from : " + type + "[" +
          std::to_string(rows) + "," + std::to_string(all) + "]\n" + cuts;
  ParsedText parsed = Parse(text);
  EXPECT_TRUE(parsed.problems.empty()) << text;
  EXPECT_EQ(ToStatus(parsed.program, Verify(parsed.program)), absl::OkStatus()) << text;
  return Simplify(parsed.program);
}

TEST(GpuRunTest, PartsAreMovedByVectorsOfWhatFollowsEachOther) {
  const std::vector<std::vector<int>> shapes = {{64, 64, 64}, {24, 8, 100}, {6, 10}, {3, 5, 7},
                                                {4, 12, 2},   {1, 33},      {16, 48}};
  std::vector<Program> programs;
  for (const std::string type : {"bf16", "f32", "f64", "u8", "f8e4m3fn", "bool"}) {
    for (const std::vector<int>& parts : shapes) {
      const bool adds = type != "bool" && type != "f8e4m3fn" && programs.size() % 2 == 1;
      programs.push_back(PartsOf(type, 37, parts, adds));
    }
  }
  programs.push_back(PartsOf("f4e2m1fn", 6, {32, 64}, false));
  CompareAll(programs);
  CompareAll(programs, false, kGpuArchs[0], /*alignment=*/1);
}

// What keys, queries and values are made of: words of 16 bytes, from memory to memory.
TEST(GpuRunTest, TheProjectionsOfAttentionAreMovedByWords) {
  const GpuPlan plan =
      PlanOf(PartsOf("bf16", 8192, {4096, 4096, 4096}, false), false, kGpuArchs[0], 16);
  EXPECT_EQ(plan.scratch_bytes, 0u) << ToText(plan);
  EXPECT_EQ(plan.commands.size(), 6u) << ToText(plan);
  for (const GpuKernel& kernel : plan.kernels) {
    EXPECT_TRUE(absl::StrContains(kernel.source, "ReadVector<16>")) << kernel.source;
    EXPECT_TRUE(absl::StrContains(kernel.source, "WriteVector<16>")) << kernel.source;
    EXPECT_TRUE(absl::StrContains(kernel.source, "V = 8")) << kernel.source;
    EXPECT_FALSE(absl::StrContains(kernel.source, "One<")) << kernel.source;
  }
}

// Softmax and norms as JAX prints them, with dimensions of 1.
TEST(GpuRunTest, NormsWithKeptDimensionsAreOneLaunch) {
  std::vector<Program> programs;
  for (const testing::KeepdimsProgram& one : testing::KeepdimsPrograms()) {
    programs.push_back(Simplify(testing::ParsedProgram(one.text)));
    const GpuPlan plan = PlanOf(programs.back(), false);
    EXPECT_EQ(plan.commands.size(), 1u) << one.name << "\n" << ToText(plan);
    EXPECT_EQ(plan.scratch_bytes, 0u) << one.name;
  }
  CompareAll(programs);
}

TEST(GpuRunTest, ChainsRowsColumnsAndBuffersAreAsTheReferenceSays) {
  CompareAll(testing::ChainPrograms());
  CompareAll(testing::RowPrograms());
  CompareAll(testing::ColumnUsePrograms());
  CompareAll(testing::AcrossPrograms());
  CompareAll(testing::BufferPrograms());
}
TEST(GpuRunTest, QuotientsAreRounded) { CompareAll(testing::QuotientPrograms()); }
TEST(GpuRunTest, SmallRandomProgramsAreAsTheReferenceSays) { CompareRandomOnGpu(0, 40, {60, 5}); }
TEST(GpuRunTest, RandomProgramsOfSeveralBlocksAreAsTheReferenceSays) {
  CompareRandomOnGpu(2000, 20, {25, 24});
}
TEST(GpuRunTest, LeavesOfRandomProgramsAreAsTheReferenceSays) {
  CompareRandomOnGpu(3000, 15, {60, 5}, &testing::StoreLeaves);
  CompareRandomOnGpu(4000, 15, {25, 24}, &testing::StoreLeaves);
}
TEST(GpuRunTest, WovenProgramsAreAsTheReferenceSays) {
  std::vector<Program> programs;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    programs.push_back(Simplify(testing::Weaver(seed, seed % 3 == 0 ? 24 : 4).Make()));
  }
  CompareAll(programs);
}

// Buffers begin where clients like.
TEST(GpuRunTest, NothingIsTakenForAlignedThatMayNotBe) {
  std::vector<Program> programs;
  for (uint64_t seed = 50; seed < 56; ++seed) {
    programs.push_back(Simplify(testing::Weaver(seed, 8).Make()));
  }
  CompareAll(programs, false, kGpuArchs[0], /*alignment=*/1);
}

TEST(GpuRunTest, ConversionsRoundAsTheReferenceSays) { CompareAll(testing::ConversionPrograms()); }

// What is left open means different things to different compilers: threads behind the last element
// that computed with what they had not read did not exist for Clang, nor did the bounds of stores.
TEST(GpuRunTest, AnotherCompilersKernelsAreAsTheReferenceSays) {
  const auto other = testing::HostKernels::OtherCompiler();
  if (!other) GTEST_SKIP() << "NO SECOND COMPILER";
  std::vector<Program> programs = testing::KernelPrograms();
  for (size_t i = 0; i < programs.size(); ++i) {  // some of each kind
    if (i % 5 == 0) std::swap(programs[i / 5], programs[i]);
  }
  programs.resize(programs.size() / 5);
  for (Program& program : testing::BytePrograms()) programs.push_back(std::move(program));
  for (uint64_t seed = 0; seed < 12; ++seed) {
    programs.push_back(Simplify(testing::Weaver(seed, seed % 3 == 0 ? 24 : 4).Make()));
  }
  CompareAll(programs, false, kGpuArchs[0], 256, *other);
}

int Products(const GpuPlan& plan, const std::vector<GpuCommand>& commands) {
  int products = 0;
  for (const GpuCommand& command : commands) {
    products += command.kind == GpuCommand::Kind::kProduct ? 1 : 0;
    products += Products(plan, command.body);
  }
  return products;
}

TEST(GpuRunTest, ProductsOfALibraryAreAsTheReferenceSays) {
  std::vector<Program> programs;
  int products = 0;
  for (uint64_t seed = 100; seed < 112; ++seed) {
    programs.push_back(Simplify(testing::Weaver(seed, 8).Make()));
  }
  for (const Program& program : testing::KernelPrograms()) {
    const bool product =
        std::any_of(program.nodes.begin(), program.nodes.end(), [](const Node& node) {
          return node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
        });
    if (product) programs.push_back(program);
  }
  for (const Program& program : programs) {
    const GpuPlan plan = PlanOf(program, true);
    products += Products(plan, plan.commands);
  }
  EXPECT_GT(products, 10);
  CompareAll(programs, true);
}

// A factor's transpose is the library's: nothing is launched, and nothing is in memory for it.
TEST(GpuRunTest, TransposedFactorsAreTheLibrarys) {
  std::vector<Program> programs;
  for (const char* factors : {"%x = input @x : bf16[64,32]\n"
                              "%xt = transpose %x permutation=[1,0]\n"
                              "%w = input @w : bf16[48,64]\n"
                              "%wt = transpose %w permutation=[1,0]\n"
                              "%p = dot_general %xt, %wt lhs_contract=[1] rhs_contract=[0]",
                              "%x = input @x : bf16[1,64,2,16]\n"
                              "%xt = transpose %x permutation=[0,2,1,3]\n"
                              "%w = input @w : bf16[2,16,96]\n"
                              "%wt = transpose %w permutation=[0,2,1]\n"
                              "%p = dot_general %xt, %wt lhs_batch=[1] rhs_batch=[0] "
                              "lhs_contract=[3] rhs_contract=[2]"}) {
    const std::string text = factors;
    const bool batched = absl::StrContains(text, "batch");
    const std::string bytes = batched ? "4096\nbuffer @w read 6144\nbuffer @y write 24576"
                                      : "4096\nbuffer @w read 6144\nbuffer @y write 3072";
    programs.push_back(Simplify(testing::ParsedProgram(
        "program 1\nbuffer @x read " + bytes + "\n" + text +
        (batched ? " : bf16[2,1,64,96]" : " : bf16[32,48]") + "\nstore @y, %p\n")));
    const GpuPlan plan = PlanOf(programs.back(), true);
    EXPECT_EQ(plan.commands.size(), 1u) << ToText(plan);
    EXPECT_EQ(Products(plan, plan.commands), 1) << ToText(plan);
    EXPECT_EQ(plan.temporaries.size(), 1u) << "not only a workspace\n" << ToText(plan);
  }
  CompareAll(programs, true);
}

// Where tensor cores take scales, and the program lets them, nothing is dequantised.
TEST(GpuRunTest, ScaledProductsAreNativeWhereTheyMayBe) {
  std::vector<Program> programs;
  for (Program program : testing::KernelPrograms()) {
    if (program.nodes.size() < 2 ||
        program.nodes[program.nodes.size() - 2].op != Op::kBlockScaledDot) {
      continue;
    }
    for (const GpuArch& arch : kGpuArchs) {
      for (const bool asked : {false, true}) {
        program.numerics.accumulation =
            asked ? Accumulation::kNativeBlock : Accumulation::kExactProducts;
        const GpuPlan plan = PlanOf(program, true, arch);
        ASSERT_EQ(Products(plan, plan.commands), 1);
        const auto product = std::find_if(
            plan.commands.begin(), plan.commands.end(),
            [](const GpuCommand& command) { return command.kind == GpuCommand::Kind::kProduct; });
        EXPECT_EQ(product->product.block > 0, asked && arch.block_scales) << arch.name;
      }
    }
    programs.push_back(program);
  }
  ASSERT_EQ(programs.size(), 2u);
  CompareAll(programs, true, kGpuArchs[1]);
}

}  // namespace
}  // namespace ferry::compute
