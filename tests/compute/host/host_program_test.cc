// SPDX-License-Identifier: Apache-2.0
// The CPU's results are the reference's.
#include "compute/host/host_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/host/host_runs.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/shaped_programs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;
using testing::DifferenceOf;
using testing::Parsed;
using testing::RunOnHost;

// `tools/test --full` looks at ten times as many: FERRY_RANDOM_PROGRAMS=10.
void CompareRandom(uint64_t first, uint64_t count, testing::GeneratorOptions options,
                   void (*store)(Program&) = &testing::StoreAll) {
  if (const char* times = getenv("FERRY_RANDOM_PROGRAMS"); times != nullptr) {
    first *= 100;  // other ones, and none twice
    count *= static_cast<uint64_t>(atoi(times));
  }
  for (uint64_t seed = first; seed < first + count; ++seed) {
    options.transfers = false;
    Program program = testing::ProgramGenerator(seed, options).Make();
    store(program);
    if (seed % 4 == 0) program = Simplify(program);
    const std::string difference = DifferenceOf(program, seed);
    ASSERT_EQ(difference, "") << "seed " << seed << "\n" << Print(program);
  }
}

TEST(HostProgramTest, SmallRandomProgramsAreAsTheReferenceSays) { CompareRandom(0, 250, {60, 5}); }
TEST(HostProgramTest, LongRandomProgramsAreAsTheReferenceSays) {
  CompareRandom(1000, 150, {150, 4});
}
TEST(HostProgramTest, RandomProgramsOfSeveralTilesAreAsTheReferenceSays) {
  CompareRandom(2000, 100, {25, 24});
}

// What is between is in no memory, and so may be fused.
TEST(HostProgramTest, LeavesOfRandomProgramsAreAsTheReferenceSays) {
  CompareRandom(3000, 250, {60, 5}, &testing::StoreLeaves);
  CompareRandom(4000, 100, {25, 24}, &testing::StoreLeaves);
}

// What only plans fuse: nothing is stored but in the end.
TEST(HostProgramTest, WovenProgramsAreAsTheReferenceSays) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const Program program = Simplify(testing::Weaver(seed, seed % 3 == 0 ? 24 : 4).Make());
    ASSERT_EQ(DifferenceOf(program, seed), "") << "seed " << seed << "\n" << Print(program);
  }
}

// Of random programs: what is written for the last time stays, and what nothing needs any more may
// be overwritten, as LastUses says, while the program runs.
TEST(HostProgramTest, ABufferIsFreeAfterItsLastUse) {
  size_t early = 0;
  for (uint64_t seed = 3000; seed < 3200; ++seed) {
    testing::GeneratorOptions options{40, 5};
    options.transfers = false;
    Program program = testing::ProgramGenerator(seed, options).Make();
    testing::StoreAll(program);
    const std::vector<Bytes> buffers = testing::RandomBuffers(program, seed);
    const std::vector<Bytes> undisturbed = RunOnHost(program, buffers);
    std::vector<Bytes> written = undisturbed;
    RunOnHost(program, buffers, 1, [&](const Plan& plan, size_t step, std::vector<Bytes>& now) {
      const std::vector<LastUse> uses = LastUses(plan);
      for (size_t i = 0; i < uses.size(); ++i) {
        if (uses[i].written == step) written[i] = now[i];
        if (uses[i].touched != step) continue;
        if (step + 1 < plan.steps.size()) ++early;
        std::fill(now[i].begin(), now[i].end(), std::byte{0x5A});
      }
    });
    for (size_t i = 0; i < buffers.size(); ++i) {
      ASSERT_EQ(written[i], undisturbed[i]) << "@" << program.buffers[i].name << " seed " << seed;
    }
  }
  EXPECT_GT(early, 100u);
}

TEST(HostProgramTest, RowsAndBuffersAreAsTheReferenceSays) {
  for (const Program& program : testing::RowPrograms()) {
    EXPECT_EQ(DifferenceOf(program, 5), "") << Print(program);
  }
  for (const Program& program : testing::BufferPrograms()) {
    EXPECT_EQ(DifferenceOf(program, 1), "") << Print(program);
  }
}

// Chains, rows kept, rows in parts, blocks, four bits: large enough for several parts.
TEST(HostProgramTest, ThreadsDoNotChangeBits) {
  const std::string kernels[] = {
      "%y = multiply %x, %x\n%z = tanh %y\nstore @y, %z\n",
      "%m = reduce %x reduction=sum dimensions=[1]\nstore @m, %m\n",
      "%q, %e = quantize_block %x block=32 : f4e2m1fn[TYPE], f8e8m0fnu[ROWS,BLOCKS]\n"
      "store @q, %q\nstore @e, %e\n",
      "%m = reduce %x reduction=max dimensions=[1]\n"
      "%b = broadcast_in_dim %m dimensions=[0] : f32[TYPE]\n%y = subtract %x, %b\nstore @y, %y\n",
  };
  for (const auto& dims : {std::pair(1, 200001), {300, 701}, {9, 20001}, {64, 4096}}) {
    for (std::string text : kernels) {
      text =
          "program 1\nbuffer @x read 1100000\nbuffer @y write 1100000\nbuffer @m write 1200\n"
          "buffer @q write 140000\nbuffer @e write 10000\n%x = input @x : f32[TYPE]\n" +
          text;
      const auto put = [&](const std::string& name, const std::string& value) {
        for (size_t at = text.find(name); at != std::string::npos; at = text.find(name)) {
          text.replace(at, name.size(), value);
        }
      };
      put("TYPE", std::to_string(dims.first) + "," + std::to_string(dims.second));
      put("ROWS", std::to_string(dims.first));
      put("BLOCKS", std::to_string((dims.second + 31) / 32));
      const Program program = Parsed(text);
      const std::vector<Bytes> one = RunOnHost(program, testing::RandomBuffers(program, 1));
      const std::vector<Bytes> three = RunOnHost(program, testing::RandomBuffers(program, 1), 3);
      EXPECT_TRUE(one == three) << text;
    }
  }
}

// Products large enough for the library, of every layout that it is given; and with values so small
// that it is not.
TEST(HostProgramTest, LargeProductsAreNearEnough) {
  for (const std::string type : {"f32", "bf16"}) {
    for (const std::string scale : {"1", "x00000001"}) {
      for (const std::string contracts :
           {"lhs_contract=[1] rhs_contract=[0]", "lhs_contract=[0] rhs_contract=[1]",
            "lhs_contract=[1] rhs_contract=[1]"}) {
        const std::string text =
            "program 1\nbuffer @y write 90000\n%k = constant splat=7 : u64[]\n"
            "%r = rng_bits %k, %k : u32[150,150]\n%c = convert %r : f32[150,150]\n"
            "%n = constant splat=x0000802f : f32[150,150]\n%u = multiply %c, %n\n"
            "%h = constant splat=0.5 : f32[150,150]\n%v = subtract %u, %h\n"
            "%s = constant splat=" +
            scale +
            " : f32[150,150]\n%w = multiply %v, %s\n"
            "%a = convert %w : " +
            type + "[150,150]\n%b = convert %v : " + type +
            "[150,150]\n"
            "%p = dot_general %a, %b " +
            contracts + " : f32[150,150]\nstore @y, %p\n";
        EXPECT_EQ(DifferenceOf(Parsed(text), 1), "") << text;
      }
    }
  }
}

// How far into its scratch a run writes, of which it has so many bytes and no more.
uint64_t HighWater(const HostProgram& made, const Program& program, uint64_t seed, size_t threads) {
  constexpr uint64_t kRedZone = 4096;
  const uint64_t bytes = made.scratch_bytes();
  Workers workers(threads);
  uint64_t high = 0;
  for (const std::byte pattern : {std::byte{0xA5}, std::byte{0x5A}}) {
    const std::unique_ptr<std::byte, void (*)(void*)> scratch(
        static_cast<std::byte*>(std::aligned_alloc(64, (bytes + kRedZone + 63) / 64 * 64)),
        &std::free);
    std::fill_n(scratch.get(), bytes + kRedZone, pattern);
    std::vector<Bytes> buffers = testing::RandomBuffers(program, seed);
    std::vector<absl::Span<std::byte>> spans;
    for (Bytes& buffer : buffers) spans.push_back(absl::MakeSpan(buffer));
    made.Run(spans, {scratch.get(), bytes}, &workers);
    for (uint64_t i = 0; i < bytes + kRedZone; ++i) {
      if (scratch.get()[i] != pattern) high = std::max(high, i + 1);
    }
  }
  return high;
}

// The estimate is what is used: nothing behind it, and all of it but what is left of the last tile.
// Of several threads some may find nothing left to do, and do not touch what is theirs.
TEST(HostProgramTest, TheArenaIsAsLargeAsEstimated) {
  constexpr uint64_t kLeft = 8192;
  int with_slots = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Program program = seed % 2 == 0 ? testing::Weaver(seed, 24).Make()
                                    : testing::ProgramGenerator(seed, {60, 9, false}).Make();
    program = Simplify(program);
    for (const size_t threads : {1, 2, 4}) {
      const absl::StatusOr<HostProgram> made =
          HostProgram::Make(program, {.threads = threads, .poison = false});
      ASSERT_TRUE(made.ok()) << made.status();
      const uint64_t bytes = made->scratch_bytes();
      const uint64_t high = HighWater(*made, program, seed, threads);
      ASSERT_LE(high, bytes) << "seed " << seed << " threads " << threads << "\n" << Print(program);
      if (threads > 1) continue;
      ASSERT_GE(high + kLeft, bytes) << "seed " << seed << "\n" << Print(program);
      if (made->plan().memory.bytes > 0) ++with_slots;
    }
  }
  EXPECT_GT(with_slots, 50);
}

TEST(HostProgramTest, EveryElementwiseOpOfEveryType) {
  const std::vector<Program> programs = testing::ElementwisePrograms();
  EXPECT_GT(programs.size(), 400u);
  for (const Program& program : programs) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      ASSERT_EQ(DifferenceOf(program, seed), "") << Print(program);
    }
  }
}

TEST(HostProgramTest, EachOpOfAChainRounds) {
  for (const Program& program : testing::ChainPrograms()) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      EXPECT_EQ(DifferenceOf(program, seed), "") << Print(program);
    }
  }
}

constexpr char kChain[] = R"(program 1
buffer @x read 262144
buffer @y write 131072
%x = input @x : f32[256,256]
%scale = constant splat=0.5 : f32[256,256]
%a = multiply %x, %scale
%b = add %a, %x
%c = reshape %b : f32[65536]
%d = abs %c
%e = sqrt %d
%f = convert %e : bf16[65536]
store @y, %f
)";

TEST(HostProgramTest, AChainHasNoIntermediateTensor) {
  const Program program = Parsed(kChain);
  EXPECT_EQ(DifferenceOf(program, 1), "");
  const absl::StatusOr<HostProgram> made = HostProgram::Make(program);
  ASSERT_TRUE(made.ok());
  EXPECT_LE(made->scratch_bytes(), uint64_t{64} << 10);
}

// Scratch is all ones, too, where what nothing is written to is to be noticed.
TEST(HostProgramTest, WhatIsEmptyIsNobodysData) {
  const Program program = Parsed(testing::kEmptied);
  for (const bool poison : {false, true}) {
    const absl::StatusOr<HostProgram> made =
        HostProgram::Make(program, {.threads = 1, .poison = poison});
    ASSERT_TRUE(made.ok());
    std::vector<float> y(4, 7);
    Bytes z(3, std::byte{7});
    std::vector<std::byte> space(made->scratch_bytes() + 4096 + 64, std::byte{0x11});
    void* aligned = space.data();
    size_t room = space.size();
    ASSERT_NE(std::align(64, made->scratch_bytes() + 4096, aligned, room), nullptr);
    auto* const scratch = static_cast<std::byte*>(aligned);
    const std::vector<absl::Span<std::byte>> buffers = {
        absl::MakeSpan(reinterpret_cast<std::byte*>(y.data()), 16), absl::MakeSpan(z)};
    made->Run(buffers, {scratch, made->scratch_bytes()});
    EXPECT_EQ(y[2], 4);
    EXPECT_EQ(y[3], 4);
    EXPECT_EQ(std::isnan(y[0]) && std::isnan(y[1]), poison) << y[0] << " " << y[1];
    EXPECT_EQ(y[0] == 0 && y[1] == 0, !poison) << y[0] << " " << y[1];
    const auto filled = static_cast<std::byte>(poison);
    EXPECT_EQ(z, (Bytes{filled, filled, std::byte{0}}));
    EXPECT_EQ(scratch[made->scratch_bytes()], std::byte{0x11});
  }
}

}  // namespace
}  // namespace ferry::compute
