// SPDX-License-Identifier: Apache-2.0
// Reductions whose results follow each other in memory, by generated kernels that the CPU runs in
// place of a GPU: the bits are the reference's and those of the CPU's own loops, and neighbouring
// threads read neighbouring elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/host/host_program.h"
#include "compute/numerics/convert.h"
#include "compute/passes/passes.h"
#include "tests/compute/cuda/runs/host_kernels.h"
#include "tests/compute/host/host_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;
using testing::Parsed;

using ColumnDims = std::vector<int64_t>;

struct ColumnsCase {
  ColumnDims dims;
  ColumnDims reduced;
};

std::string ShapeOf(const std::string& type, const ColumnDims& dims) {
  return absl::StrCat(type, "[", absl::StrJoin(dims, ","), "]");
}

ColumnDims KeptOf(const ColumnsCase& one) {
  ColumnDims kept;
  for (size_t d = 0; d < one.dims.size(); ++d) {
    if (std::find(one.reduced.begin(), one.reduced.end(), static_cast<int64_t>(d)) ==
        one.reduced.end()) {
      kept.push_back(one.dims[d]);
    }
  }
  return kept;
}

uint64_t BytesFor(const std::string& type, const ColumnDims& dims) {
  uint64_t elements = 1;
  for (const int64_t dim : dims) elements *= static_cast<uint64_t>(dim);
  return BytesOf(*DTypeOf(type), elements);
}

// `reductions` of a value, or all that its type has, with the argmax where one dimension is
// reduced. `more`: of each op.
Program ReductionsOf(const ColumnsCase& one, const std::string& type, const std::string& more = "",
                     std::vector<std::string> reductions = {}) {
  const bool all = reductions.empty();
  if (all) {
    reductions = type == "bool" ? std::vector<std::string>{"any", "all"}
                                : std::vector<std::string>{"sum", "product", "max", "min"};
  }
  const ColumnDims kept = KeptOf(one);
  std::string buffers = absl::StrCat("program 1\nbuffer @x read ", BytesFor(type, one.dims), "\n");
  std::string ops = absl::StrCat("%x = input @x : ", ShapeOf(type, one.dims), "\n");
  for (const std::string& reduction : reductions) {
    absl::StrAppend(&buffers, "buffer @", reduction, " write ", BytesFor(type, kept), "\n");
    absl::StrAppend(&ops, "%", reduction, " = reduce %x reduction=", reduction, " dimensions=[",
                    absl::StrJoin(one.reduced, ","), "]", more, "\nstore @", reduction, ", %",
                    reduction, "\n");
  }
  const bool any = std::find(one.dims.begin(), one.dims.end(), 0) == one.dims.end();
  if (all && any && one.reduced.size() == 1 && type != "bool") {
    absl::StrAppend(&buffers, "buffer @at write ", BytesFor("i32", kept), "\n");
    absl::StrAppend(&ops, "%at = argmax %x dimension=", one.reduced[0], " : ", ShapeOf("i32", kept),
                    "\nstore @at, %at\n");
  }
  return Simplify(Parsed(buffers + ops));
}

GpuPlan GpuPlanOf(const Program& program, const CodeOptions& code = {}) {
  GpuOptions options;
  options.code = code;
  absl::StatusOr<GpuPlan> plan = MakeGpuPlan(program, kGpuArchs[0], options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : GpuPlan();
}

// How many kernels of the plan have the text.
int KernelsWith(const GpuPlan& plan, const std::string& text) {
  return static_cast<int>(std::count_if(
      plan.kernels.begin(), plan.kernels.end(),
      [&](const GpuKernel& kernel) { return absl::StrContains(kernel.source, text); }));
}

// Memory in which floating numbers are of 0.5 to 2, with both signs: among random bytes there are
// NaN and numbers beside which others vanish, so that their order would not show.
std::vector<Bytes> ModerateBuffers(const Program& program, uint64_t seed) {
  std::vector<Bytes> buffers = testing::RandomBuffers(program, seed);
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (const Node& node : program.nodes) {
    if (node.op != Op::kInput) continue;
    const DType type = program.types[node.first_result].dtype;
    if (!InfoOf(type).floating) continue;
    Bytes& bytes = buffers[node.buffers[0]];
    std::vector<float> values(bytes.size() / BytesOf(type, 1));
    for (float& value : values) {
      const uint32_t bits = random();
      value = std::bit_cast<float>((bits & 0x80FFFFFFu) | 0x3F000000u);
    }
    Convert(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), type, bytes.data(),
            values.size());
  }
  return buffers;
}

// Compares kernels with the reference over random bytes, and to the bit with it and with the CPU's
// loops over moderate numbers.
void ExpectAsReferenceAndHost(const std::vector<Program>& programs, const CodeOptions& code = {}) {
  std::vector<GpuPlan> plans;
  for (const Program& program : programs) plans.push_back(GpuPlanOf(program, code));
  std::vector<const GpuPlan*> pointers;
  for (const GpuPlan& plan : plans) pointers.push_back(&plan);
  const std::unique_ptr<testing::HostKernels> kernels = testing::HostKernels::Make(pointers);
  ASSERT_NE(kernels, nullptr);
  for (size_t i = 0; i < programs.size(); ++i) {
    for (const bool moderate : {true, false}) {
      if (!moderate && i % 4 != 0) continue;
      const std::vector<Bytes> buffers =
          moderate ? ModerateBuffers(programs[i], i) : testing::RandomBuffers(programs[i], i);
      std::vector<testing::Memory> reference(buffers.begin(), buffers.end());
      testing::Evaluate(programs[i], reference);
      const std::vector<Bytes> host = testing::RunOnHost(programs[i], buffers);
      const std::vector<Bytes> got = testing::RunGpuPlan(plans[i], buffers, *kernels);
      for (size_t j = 0; j < got.size(); ++j) {
        ASSERT_EQ(reference[j].DifferenceOf(got[j]), "")
            << "@" << programs[i].buffers[j].name << "\n"
            << Print(programs[i]) << ToText(plans[i], true);
        ASSERT_TRUE(!moderate || got[j] == host[j]) << "@" << programs[i].buffers[j].name << "\n"
                                                    << Print(programs[i]) << ToText(plans[i], true);
      }
    }
  }
}

// Widths that are no multiples of 8 or 32, and that are; lengths around 32, 128 and 4,096; leading
// and middle dimensions, and two that are apart.
const ColumnsCase kColumnsCases[] = {
    {{300, 7}, {0}},   {{300, 8}, {0}},        {{1, 33}, {0}},         {{2, 128}, {0}},
    {{129, 140}, {0}}, {{20, 1100}, {0}},      {{12, 70, 50}, {1}},    {{3, 64, 300}, {1}},
    {{31, 9}, {0}},    {{6, 5, 4, 9}, {0, 2}}, {{20, 30, 16}, {0, 1}}, {{40, 3, 50, 2}, {2}},
    {{0, 50}, {0}},    {{2, 0, 64}, {1}},      {{128, 64, 1}, {0}},    {{512, 32}, {0}}};

TEST(GpuColumnsTest, ReductionsOfAllTypesAreAsTheReferenceAndTheHostSay) {
  std::vector<Program> programs;
  int kernels = 0;
  for (const std::string type : {"f64", "f32", "f16", "bf16", "i64", "i32", "u16", "i8", "bool"}) {
    for (const ColumnsCase& one : kColumnsCases) {
      const bool some = one.dims.size() > 2 || one.dims[0] == 129 || one.dims[1] == 1100;
      if (type != "f32" && !some) continue;
      programs.push_back(ReductionsOf(one, type));
      kernels += KernelsWith(GpuPlanOf(programs.back()), "ColumnLanes<");
    }
  }
  EXPECT_GT(kernels, 100);
  ExpectAsReferenceAndHost(programs);
}

// Each width of a tile, with lengths around a chunk of 4,096, and of several chunks.
TEST(GpuColumnsTest, ChunksAreAsTheReferenceAndTheHostSay) {
  std::vector<Program> programs;
  for (const int64_t length : {4095, 4096, 4097, 8192, 8193, 12289}) {
    for (const std::string type : {"f32", "bf16", "i8"}) {
      programs.push_back(ReductionsOf({{length, 41}, {0}}, type));
    }
  }
  programs.push_back(ReductionsOf({{2, 8200, 33}, {1}}, "f64"));
  programs.push_back(ReductionsOf({{91, 91, 9}, {0, 1}}, "f32"));
  for (const Program& program : programs) {
    EXPECT_GT(KernelsWith(GpuPlanOf(program), "ColumnLanes<"), 0) << Print(program);
  }
  ExpectAsReferenceAndHost(programs);
}

// Many results: 32 to a block.
TEST(GpuColumnsTest, TilesOfAllWidthsAreAsTheReferenceAndTheHostSay) {
  std::vector<Program> programs;
  for (const int64_t columns : {100, 4100, 8200}) {
    programs.push_back(ReductionsOf({{140, columns}, {0}}, "f32", "", {"sum", "max"}));
  }
  programs.push_back(ReductionsOf({{129, 12, 350}, {0}}, "f64", "", {"sum"}));
  const char* const widths[] = {"W = 8,", "W = 16,", "W = 32,", "W = 16,"};
  for (size_t i = 0; i < programs.size(); ++i) {
    const GpuPlan plan = GpuPlanOf(programs[i]);
    EXPECT_GT(KernelsWith(plan, widths[i]), 0) << ToText(plan, true);
  }
  ExpectAsReferenceAndHost(programs);
  ExpectAsReferenceAndHost(programs, kFirstTierCode[0]);
}

TEST(GpuColumnsTest, SumsAreMadeInTheTypeThatTheProgramSays) {
  std::vector<Program> programs;
  for (const std::string sum : {"f32", "f64"}) {
    programs.push_back(
        ReductionsOf({{5000, 40}, {0}}, "bf16", absl::StrCat(" accumulate=", sum), {"sum"}));
  }
  ExpectAsReferenceAndHost(programs);
}

// What is seen through moves lies across too, and what is done around a reduction of that is done
// in its kernel.
TEST(GpuColumnsTest, ViewsThatLieAcrossAreReadDown) {
  std::vector<Program> programs;
  const std::string across =
      "%v = input @x strides=[1,700] : f32[700,400]\n%y0 = reduce %v reduction=max "
      "dimensions=[1]\n";
  const std::string views[] = {
      across + "%y = negate %y0\n",
      across +
          "%s = multiply %v, %v\n%t = reduce %s reduction=sum dimensions=[1]\n"
          "%y = add %t, %y0\n",
      "%v = slice %x start=[3,5] limit=[390,600] step=[2,3]\n%y = reduce %v reduction=sum "
      "dimensions=[0]\n",
      "%v = reverse %x dimensions=[0,1]\n%y = reduce %v reduction=sum dimensions=[0]\n",
      "%v = reshape %x : f32[20,100,140]\n%y = reduce %v reduction=sum dimensions=[1]\n"};
  for (const std::string& view : views) {
    programs.push_back(Simplify(Parsed(absl::StrCat(
        "program 1\nbuffer @x read 1120000\nbuffer @y write 12000\n%x = input @x : f32[400,700]\n",
        view, "store @y, %y\n"))));
    const GpuPlan plan = GpuPlanOf(programs.back());
    EXPECT_EQ(plan.commands.size(), 1u) << ToText(plan, true);
    EXPECT_EQ(KernelsWith(plan, "ColumnLanes<"), 1) << ToText(plan, true);
  }
  ExpectAsReferenceAndHost(programs);
}

// What is made of several tensors is made where it is reduced: each is read in that order, however
// it lies, and is a row or a column that is spread, a table, or places.
TEST(GpuColumnsTest, WhatIsReducedIsMadeInTheKernel) {
  std::vector<Program> programs;
  for (const ColumnsCase& one :
       {ColumnsCase{{300, 150}, {0}}, ColumnsCase{{12, 70, 50}, {1}}, ColumnsCase{{0, 50}, {0}},
        ColumnsCase{{4, 150}, {0}}, ColumnsCase{{30, 2, 40}, {1}}, ColumnsCase{{9000, 40}, {0}},
        ColumnsCase{{6, 5, 4, 9}, {0, 2}}}) {
    const ColumnDims kept = KeptOf(one);
    const std::string all = absl::StrJoin(one.dims, ",");
    const size_t last = one.dims.size() - 1;
    programs.push_back(Simplify(Parsed(absl::StrCat(
        "program 1\nbuffer @x read ", BytesFor("f32", one.dims), "\nbuffer @h read ",
        BytesFor("bf16", one.dims), "\nbuffer @f read ", 4 * one.dims[0], "\nbuffer @l read ",
        4 * one.dims[last], "\nbuffer @y write ", BytesFor("f32", kept), "\n%x = input @x : f32[",
        all, "]\n%h = input @h : bf16[", all, "]\n%f = input @f : f32[", one.dims[0],
        "]\n%l = input @l : f32[", one.dims[last],
        "]\n%ff = broadcast_in_dim %f dimensions=[0] : f32[", all,
        "]\n%ll = broadcast_in_dim %l dimensions=[", last, "] : f32[", all,
        "]\n%i = iota dimension=0 : f32[", all, "]\n%g = convert %h : f32[", all,
        "]\n%a = subtract %x, %ll\n%b = multiply %a, %ff\n%c = add %b, %i\n%d = maximum %c, %g\n"
        "%s = reduce %d reduction=sum dimensions=[",
        absl::StrJoin(one.reduced, ","), "]\n%y = negate %s\nstore @y, %y\n"))));
    const GpuPlan plan = GpuPlanOf(programs.back());
    EXPECT_EQ(plan.commands.size(), one.dims[0] == 9000 ? 2u : 1u) << ToText(plan, true);
    EXPECT_EQ(KernelsWith(plan, "ColumnLanes<"), one.dims[0] == 0 ? 0 : 1) << ToText(plan, true);
  }
  for (const std::string ops : {"%r = reverse %x dimensions=[0]\n%e = subtract %r, %x\n",
                                "%v = slice %w start=[3,20] limit=[43,60]\n%e = add %v, %x\n"}) {
    programs.push_back(Simplify(Parsed(
        absl::StrCat("program 1\nbuffer @x read 6400\nbuffer @w read 12800\nbuffer @y write 160\n"
                     "%x = input @x : f32[40,40]\n%w = input @w : f32[50,64]\n",
                     ops, "%s = argmax %e dimension=0 : i32[40]\nstore @y, %s\n"))));
    const GpuPlan plan = GpuPlanOf(programs.back());
    EXPECT_EQ(plan.commands.size(), 1u) << ops;
    EXPECT_EQ(KernelsWith(plan, "threadIdx.x) / W"), 1) << ToText(plan, true);
  }
  ExpectAsReferenceAndHost(programs);
  ExpectAsReferenceAndHost(programs, kFirstTierCode[0]);
}

// A row that is spread over fewer elements of each result than 8 lies as what is reduced does.
TEST(GpuColumnsTest, WhatIsSpreadAlongFewElementsIsReadDown) {
  const GpuPlan plan = GpuPlanOf(Simplify(
      Parsed("program 1\nbuffer @x read 131072\nbuffer @w read 32768\nbuffer @y write 32768\n"
             "%x = input @x : f32[4,8192]\n%r = input @w : f32[8192]\n"
             "%w = broadcast_in_dim %r dimensions=[1] : f32[4,8192]\n%e = multiply %x, %w\n"
             "%s = reduce %e reduction=sum dimensions=[0]\nstore @y, %s\n")));
  EXPECT_EQ(plan.commands.size(), 1u);
  EXPECT_EQ(KernelsWith(plan, "ColumnLanes<"), 1) << ToText(plan, true);
}

// A thread has fewer lanes of more ops, but 32 bytes of neighbours are read at a time.
TEST(GpuColumnsTest, ManyOpsHaveNarrowTiles) {
  const auto kernels = [](const std::string& type, int ops, const std::string& text) {
    std::string chain = absl::StrCat("%e0 = add %x, %x\n");
    for (int i = 1; i < ops; ++i) {
      absl::StrAppend(&chain, "%e", i, " = multiply %e", i - 1, ", %x\n");
    }
    const GpuPlan plan = GpuPlanOf(Simplify(Parsed(absl::StrCat(
        "program 1\nbuffer @x read 134217728\nbuffer @y write 32768\n%x = input @x : ", type,
        "[4096,8192]\n", chain, "%s = reduce %e", ops - 1,
        " reduction=sum dimensions=[0]\nstore @y, %s\n"))));
    EXPECT_EQ(plan.commands.size(), 1u);
    return KernelsWith(plan, text);
  };
  EXPECT_EQ(kernels("f32", 4, "U = 16, W = 32,"), 1);
  EXPECT_EQ(kernels("f32", 5, "U = 8, W = 16,"), 1);
  EXPECT_EQ(kernels("f32", 12, "U = 4, W = 8,"), 1);
  EXPECT_EQ(kernels("bf16", 12, "U = 8, W = 16,"), 1);
}

// A row of what is reduced lies as it lies, not as the reduction reads it.
TEST(GpuColumnsTest, WhatIsDoneWithResultsReadsWhatIsReducedAsItLies) {
  std::vector<Program> programs;
  for (const std::string ops : {"%e = abs %x\n", "%e = reshape %x : f32[64,32]\n"}) {
    programs.push_back(Simplify(Parsed(absl::StrCat(
        "program 1\nbuffer @x read 8192\nbuffer @y write 128\n%x = input @x : f32[64,32]\n", ops,
        "%s = reduce %e reduction=sum dimensions=[0]\n%r = slice %x start=[3,0] limit=[4,32]\n"
        "%r2 = reshape %r : f32[32]\n%y = add %s, %r2\nstore @y, %y\n"))));
    EXPECT_EQ(GpuPlanOf(programs.back()).commands.size(), 1u);
  }
  ExpectAsReferenceAndHost(programs);
}

// By the threads that have the results, with as many ops as there are.
TEST(GpuColumnsTest, WhatIsDoneWithResultsIsDoneInTheirKernel) {
  std::vector<Program> programs;
  std::string many = "%a0 = add %s, %m\n";
  for (int i = 0; i < 24; ++i) absl::StrAppend(&many, "%a", i + 1, " = abs %a", i, "\n");
  for (const std::string& ops : {std::string("%a24 = multiply %s, %m\n"), many}) {
    for (const std::string dims : {"300,150", "9000,150"}) {
      programs.push_back(Simplify(Parsed(absl::StrCat(
          "program 1\nbuffer @x read 5400000\nbuffer @m read 600\nbuffer @y write 600\nbuffer @z "
          "read_write 300\n%x = input @x : f32[",
          dims, "]\n%m = input @m : f32[150]\n%s = reduce %x reduction=sum dimensions=[0]\n", ops,
          "%c = convert %a24 : bf16[150]\nstore @y, %a24\naccumulate @z, %c\n"))));
      const GpuPlan plan = GpuPlanOf(programs.back());
      EXPECT_EQ(plan.plan.steps.size(), 1u) << ToText(plan, true);
      EXPECT_EQ(KernelsWith(plan, "ColumnLanes<"), 1) << ToText(plan, true);
    }
  }
  ExpectAsReferenceAndHost(programs);
}

TEST(GpuColumnsTest, ResultsAreAddedToABufferAndWrittenAcross) {
  std::vector<Program> programs;
  const std::string begin =
      "program 1\nbuffer @x read 42000\nbuffer @y read_write 12000\n"
      "%x = input @x : f32[70,150]\n%s = reduce %x reduction=sum dimensions=[0]\n";
  programs.push_back(Simplify(Parsed(begin + "accumulate @y, %s\n")));
  programs.push_back(Simplify(Parsed(begin + "store @y, %s strides=[20]\n")));
  ExpectAsReferenceAndHost(programs);
}

// Neighbouring threads have neighbouring results, one place after the other in memory; what they
// read next is a row of the tensor further on.
TEST(GpuColumnsTest, NeighbouringThreadsReadNeighbouringElements) {
  const GpuPlan plan = GpuPlanOf(ReductionsOf({{4096, 8192}, {0}}, "f32", "", {"sum"}));
  ASSERT_EQ(plan.kernels.size(), 1u);
  ASSERT_EQ(plan.commands.size(), 1u);
  const std::string& source = plan.kernels[0].source;
  for (const std::string text :
       {"W = 32", "const int lane = static_cast<int>(threadIdx.x) / W;",
        "const Index place = tile * W + static_cast<Index>(threadIdx.x) % W;",
        "const Index r = place < n0 ? place : n0 - 1;", "ReadOne<f32, 16>(p0, (c + k) * n2 + r)"}) {
    EXPECT_TRUE(absl::StrContains(source, text)) << text << "\n" << source;
  }
  EXPECT_EQ(plan.commands[0].blocks, 256u);
  EXPECT_EQ(plan.commands[0].threads, 256u);
}

// Threads that have lanes of results, not those behind the last result or the last element.
TEST(GpuColumnsTest, ThreadsThatHaveALaneAreBusy) {
  const auto busy = [](const ColumnsCase& one) {
    const GpuPlan plan = GpuPlanOf(ReductionsOf(one, "f32", "", {"sum"}));
    return plan.commands[0].busy;
  };
  EXPECT_EQ(busy({{4096, 8192}, {0}}), 8192u * 8);
  EXPECT_EQ(busy({{5, 4100}, {0}}), 4100u * 5);
  EXPECT_EQ(busy({{300, 9}, {0}}), 9u * 32);
  EXPECT_EQ(busy({{8195, 40}, {0}}), 40u * (32 + 32 + 3));
}

// Few results, and results that lie further from each other than their elements: a warp has each.
TEST(GpuColumnsTest, ElsewhereAWarpHasAResult) {
  for (const ColumnsCase& one : {ColumnsCase{{300, 7}, {0}}, ColumnsCase{{40, 3, 50, 2}, {2}},
                                 ColumnsCase{{64, 300}, {1}}, ColumnsCase{{4, 64, 300}, {0, 2}}}) {
    const GpuPlan plan = GpuPlanOf(ReductionsOf(one, "f32", "", {"sum"}));
    EXPECT_EQ(KernelsWith(plan, "ColumnLanes<"), 0) << ToText(plan, true);
    EXPECT_EQ(KernelsWith(plan, " Lanes<"), 1) << ToText(plan, true);
  }
}

}  // namespace
}  // namespace ferry::compute
