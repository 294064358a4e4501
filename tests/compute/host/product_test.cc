// SPDX-License-Identifier: Apache-2.0
// Products, whoever multiplies: near the reference, in the order of sums that is promised, kept
// where a factor is constant, and by ourselves where the library may not make code.
#include "compute/host/product.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/host/cpu.h"
#include "compute/host/product_loops.h"
#include "compute/passes/passes.h"
#include "tests/compute/host/host_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

// Values between -0.5 and 0.5, `name` of `dims`, of other random bits for another `key`.
std::string RandomValues(const std::string& name, const std::string& dims, int key) {
  return absl::StrReplaceAll(
      "%NAME_k = constant splat=KEY : u64[]\n%NAME_r = rng_bits %NAME_k, %NAME_k : u32[DIMS]\n"
      "%NAME_c = convert %NAME_r : f32[DIMS]\n%NAME_n = constant splat=x0000802f : f32[DIMS]\n"
      "%NAME_u = multiply %NAME_c, %NAME_n\n%NAME_h = constant splat=0.5 : f32[DIMS]\n"
      "%NAME = subtract %NAME_u, %NAME_h\n",
      {{"NAME", name}, {"DIMS", dims}, {"KEY", absl::StrCat(key)}});
}

// "" or what is not as the reference says of `text` after its first line, whose @y has so many
// bytes.
std::string Difference(uint64_t bytes, const std::string& text) {
  const Program program =
      testing::Parsed(absl::StrCat("program 1\nbuffer @y write ", bytes, "\n", text));
  return testing::DifferenceOf(program, 1, 2);
}

// Large enough for the library: all pairs of floating types that a factor can have.
TEST(ProductTest, FactorsOfAnyFloatingTypesAreMultiplied) {
  const std::string types[] = {"f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f4e2m1fn"};
  for (const std::string& left : types) {
    for (const std::string& right : types) {
      for (const std::string result : {"f32", "bf16", "f16"}) {
        // Each by itself and by f32; results of 16 bits of factors of as many.
        const bool same = left == right;
        if (result == "f32" ? !same && right != "f32" : !same || left != result) continue;
        const std::string text = absl::StrCat(
            RandomValues("a", "101,103", 1), RandomValues("b", "105,103", 2),
            "%l = convert %a : ", left, "[101,103]\n%m = convert %b : ", right,
            "[105,103]\n%p = dot_general %l, %m lhs_contract=[1] rhs_contract=[1] : ", result,
            "[101,105]\nstore @y, %p\n");
        EXPECT_EQ(Difference(101 * 105 * 4, text), "") << text;
      }
    }
  }
}

// Rows that begin in the middle of a byte, blocks that are cut short, batches, scales with padding.
TEST(ProductTest, BlockFormatsAreMultiplied) {
  struct Shape {
    std::string lead;  // dimensions before the last two
    int rows, columns, depth;
  };
  for (const Shape& shape : {Shape{"", 100, 96, 128}, {"", 71, 129, 133}, {"3,", 35, 47, 230}}) {
    for (const std::string element : {"f8e4m3fn", "f8e5m2", "f4e2m1fn"}) {
      for (const std::string scale : {"f8e8m0fnu", "f8e4m3fn"}) {
        const bool nv = scale == "f8e4m3fn";
        if (nv && element != "f4e2m1fn") continue;
        const int block = nv ? 16 : 32;
        const auto side = [&](const std::string& name, int rows, int key) {
          const std::string dims = absl::StrCat(shape.lead, rows, ",", shape.depth);
          return absl::StrCat(RandomValues(name, dims, key), "%q", name, ", %s", name,
                              " = quantize_block %", name, " block=", block, " : ", element, "[",
                              dims, "], ", scale, "[", shape.lead, rows, ",",
                              (shape.depth + block - 1) / block, "]\n");
        };
        for (const std::string global : {"", "f32", "bf16"}) {  // 0.2: in the result's type
          if (!global.empty() && !shape.lead.empty()) continue;
          const std::string result = global.empty() ? "f32" : "bf16";
          const std::string text =
              absl::StrCat(side("a", shape.rows, 1), side("b", shape.columns, 2),
                           "%h = constant splat=3 : ", global.empty() ? "f32" : global,
                           "[]\n%p = block_scaled_dot %qa, %qb, %sa, %sb",
                           global.empty() ? "" : ", %h", " block=", block, " : ", result, "[",
                           shape.lead, shape.rows, ",", shape.columns, "]\nstore @y, %p\n");
          EXPECT_EQ(Difference(20000 * 4, text), "") << text;
        }
      }
    }
  }
}

// Of block-scaled products what XLA's rewriter is tested for too: large enough for the library.
class BlockScaledDotTest : public ::testing::Test {
 protected:
  // The product of `dot`, of 72 rows and 80 columns that are 192 deep (%qa, %sa, %qb, %sb), whose
  // scales are stored among others in rows of 8 (%pa, %pb).
  static Bytes Product(const std::string& dot, float global = 1) {
    const auto side = [](const std::string& name, const std::string& rows) {
      return absl::StrReplaceAll(
          "%qNAME, %sNAME = quantize_block %NAME block=32 : f8e4m3fn[ROWS,192], "
          "f8e8m0fnu[ROWS,6]\n%oNAME = constant splat=x81 : f8e8m0fnu[ROWS,2]\n"
          "%pNAME = concatenate %sNAME, %oNAME dimension=1\n"
          "%tNAME = swizzle_scales %sNAME\n%uNAME = unswizzle_scales %tNAME : "
          "f8e8m0fnu[ROWS,6]\n",
          {{"NAME", name}, {"ROWS", rows}});
    };
    const Program program = testing::Parsed(absl::StrCat(
        "program 1\nbuffer @g read 4\nbuffer @y write 23040\n%g = input @g : f32[]\n",
        RandomValues("a", "72,192", 1), RandomValues("b", "80,192", 2), side("a", "72"),
        side("b", "80"), "%p = ", dot, " : f32[72,80]\nstore @y, %p\n"));
    std::vector<Bytes> buffers = {Bytes(4), Bytes(23040)};
    std::memcpy(buffers[0].data(), &global, sizeof(global));
    EXPECT_EQ(testing::DifferenceOf(program, buffers, 2), "") << dot << " " << global;
    return testing::RunOnHost(program, buffers, 2)[1];
  }
  static constexpr char kPlain[] = "block_scaled_dot %qa, %qb, %sa, %sb";
};

TEST_F(BlockScaledDotTest, HasTheSameBitsWithScalesPaddedItsBlockSaidAGlobalScaleOfOneOrSwizzled) {
  const Bytes plain = Product(kPlain);
  EXPECT_TRUE(Product(absl::StrCat(kPlain, " block=32")) == plain);
  EXPECT_TRUE(Product("block_scaled_dot %qa, %qb, %pa, %pb block=32") == plain);
  EXPECT_TRUE(Product(absl::StrCat(kPlain, ", %g")) == plain);
  EXPECT_TRUE(Product("block_scaled_dot %qa, %qb, %ua, %ub") == plain);
}

TEST_F(BlockScaledDotTest, AGlobalScaleIsAFactor) {
  const auto floats = [](const Bytes& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const std::vector<float> plain = floats(Product(kPlain));
  for (const float global : {0.0f, -2.0f, std::numeric_limits<float>::infinity()}) {
    const std::vector<float> scaled = floats(Product(absl::StrCat(kPlain, ", %g"), global));
    for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(scaled[i], plain[i] * global) << global;
  }
}

// Scales so large and so small that bf16 or a library would lose something.
TEST(ProductTest, BlocksBeyondBF16AreNotLost) {
  for (const std::string code : {"x01", "x02", "x40", "xc0"}) {
    const std::string text =
        absl::StrCat(RandomValues("a", "128,128", 1),
                     "%q = convert %a : f8e5m2[128,128]\n%s = constant splat=", code,
                     " : f8e8m0fnu[128,4]\n%o = constant splat=x7f : f8e8m0fnu[128,4]\n",
                     "%p = block_scaled_dot %q, %q, %s, %o : f32[128,128]\nstore @y, %p\n");
    EXPECT_EQ(Difference(128 * 128 * 4, text), "") << text;
  }
}

// Factors or products below the least normal number, which a CPU or a library may take for 0.
TEST(ProductTest, SmallNumbersCount) {
  const std::string one = "x0000803f", small = "x0000801e", subnormal = "x00000800";
  for (const std::string type : {"f32", "bf16"}) {
    for (const auto& [left, right] :
         {std::pair(small, small), std::pair(subnormal, one), std::pair(one, subnormal)}) {
      const auto scaled = [&](const std::string& name, const std::string& dims,
                              const std::string& by) {
        return absl::StrCat("%s", name, " = constant splat=", by, " : f32[", dims, "]\n%t", name,
                            " = multiply %", name, ", %s", name, "\n%f", name, " = convert %t",
                            name, " : ", type, "[", dims, "]\n");
      };
      const std::string text = absl::StrCat(
          RandomValues("a", "101,103", 1), RandomValues("b", "105,103", 2),
          scaled("a", "101,103", left), scaled("b", "105,103", right),
          "%p = dot_general %fa, %fb lhs_contract=[1] rhs_contract=[1] : f32[101,105]\n"
          "store @y, %p\n");
      EXPECT_EQ(Difference(101 * 105 * 4, text), "") << text;
    }
  }
}

// Too small and too large for f32, of sums in f32 and in f64, by ourselves and by the library.
TEST(ProductTest, FactorsOfF64AreRoundedToTheTypeOfTheSums) {
  for (const std::string value : {"1e-71", "1e182"}) {
    for (const std::string by : {"1e60", "1e-60"}) {
      for (const std::string accumulate : {"", " accumulate=f64"}) {
        for (const std::string size : {"2", "128"}) {
          const std::string dims = absl::StrCat(size, ",", size);
          const std::string text = absl::StrCat(
              "%a = constant splat=", value, " : f64[", dims, "]\n%b = constant splat=", by,
              " : f64[", dims, "]\n%p = dot_general %a, %b lhs_contract=[1] rhs_contract=[1]",
              accumulate, " : f32[", dims, "]\nstore @y, %p\n");
          EXPECT_EQ(Difference(std::stoull(size) * std::stoull(size) * 4, text), "") << text;
        }
      }
    }
  }
}

// All bytes there are, so that a sum of two products has no room in 16 bits and all of them none in
// 32: modulo 2^32, whoever adds.
TEST(ProductTest, IntegersAreExactModuloTheirSum) {
  for (const std::string left : {"i8", "u8", "u16"}) {
    for (const std::string right : {"i8", "u8"}) {
      for (const std::string sum : {"", "accumulate=i16"}) {
        for (const std::string result : {"i32", "i64"}) {
          if (right == "u8" && result == "i64") continue;
          const std::string text = absl::StrCat(
              "%k = constant splat=7 : u64[]\n%r = rng_bits %k, %k : u32[101,105]\n%a = convert %r "
              ": ",
              left, "[101,105]\n%b = convert %r : ", right,
              "[101,105]\n%p = dot_general %a, %b lhs_contract=[1] rhs_contract=[1] ", sum, " : ",
              result, "[101,101]\nstore @y, %p\n");
          EXPECT_EQ(Difference(101 * 101 * 8, text), "") << text;
        }
      }
    }
  }
  const char large[] =
      "%a = constant splat=127 : i8[8,140000]\n%l = constant splat=-128 : i8[8,140000]\n"
      "%p = dot_general %a, %a lhs_contract=[1] rhs_contract=[1] : i32[8,8]\nstore @y, %p\n"
      "%q = dot_general %l, %a lhs_contract=[1] rhs_contract=[1] : i32[8,8]\n"
      "store @y, %q offset=256\n";
  EXPECT_EQ(Difference(512, large), "");
}

// Depths that fill the last row of an AMX tile (64 bytes) all but to the end, with more rows than
// two tiles have: oneDNN 2.6 has wrong results there, or ends the process.
TEST(ProductTest, DepthsThatAlmostFillATileAreMultiplied) {
  for (const int rows : {66, 74, 202}) {
    for (const int depth : {95, 126, 127}) {
      const auto text = [&](const std::string& type, const std::string& result) {
        return absl::StrCat(
            RandomValues("c", absl::StrCat(rows, ",", depth), 1),
            RandomValues("d", absl::StrCat("405,", depth), 2), "%e = constant splat=200 : f32[",
            rows, ",", depth, "]\n%f = constant splat=200 : f32[405,", depth,
            "]\n%g = multiply %c, %e\n%h = multiply %d, %f\n%a = convert %g : ", type, "[", rows,
            ",", depth, "]\n%b = convert %h : ", type, "[405,", depth,
            "]\n%p = dot_general %a, %b lhs_contract=[1] rhs_contract=[1] : ", result, "[", rows,
            ",405]\nstore @y, %p\n");
      };
      const uint64_t bytes = static_cast<uint64_t>(rows) * 405 * 4;
      EXPECT_EQ(Difference(bytes, text("i8", "i32")), "") << rows << " " << depth;
      EXPECT_EQ(Difference(bytes, text("bf16", "f32")), "") << rows << " " << depth;
    }
  }
}

// The order of sums of floats, as product_loops.h says it, of one sum of lanes.
template <typename T>
T SumInOrder(const std::vector<T>& a, const T* b) {
  std::array<T, 32> lanes = {};
  for (size_t k = 0; k < a.size(); ++k) lanes[k % 32] += a[k] * b[k];
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum;
}

template <typename T>
void ExpectOrder(RowType type) {
  std::mt19937 random(1);
  std::normal_distribution<T> values;
  for (const size_t depth : {0, 1, 31, 32, 33, 64, 95, 300}) {
    for (size_t count = 0; count <= 13; ++count) {
      std::vector<T> row(depth), others(depth * count), sums(count);
      for (T& value : row) value = values(random);
      for (T& value : others) value = values(random);
      RowKernelOf(type)(reinterpret_cast<const std::byte*>(row.data()),
                        reinterpret_cast<const std::byte*>(others.data()), count, depth,
                        reinterpret_cast<std::byte*>(sums.data()));
      for (size_t j = 0; j < count; ++j) {
        ASSERT_EQ(sums[j], SumInOrder(row, others.data() + j * depth)) << depth << " " << j;
      }
    }
  }
}

TEST(ProductTest, OurSumsOfFloatsHaveOneOrder) {
  ExpectOrder<float>(RowType::kF32);
  ExpectOrder<double>(RowType::kF64);
}

TEST(ProductTest, ThreadsDoNotChangeOurProducts) {
  for (const std::string type : {"f64", "i32"}) {
    const Program program = testing::Parsed(absl::StrCat(
        "program 1\nbuffer @y write 80000\n", RandomValues("a", "97,130", 1), "%l = convert %a : ",
        type, "[97,130]\n%p = dot_general %l, %l lhs_contract=[1] rhs_contract=[1] : ", type,
        "[97,97]\nstore @y, %p\n"));
    EXPECT_TRUE(testing::RunOnHost(program, testing::RandomBuffers(program, 1), 1) ==
                testing::RunOnHost(program, testing::RandomBuffers(program, 1), 3));
  }
}

struct Memory {
  explicit Memory(uint64_t size) : bytes(size + 64) {}
  absl::Span<std::byte> Span() {
    const size_t past = reinterpret_cast<uintptr_t>(bytes.data()) % 64;
    return absl::MakeSpan(bytes).subspan(past == 0 ? 0 : 64 - past, bytes.size() - 64);
  }
  Bytes bytes;
};

TEST(ProductTest, WhatIsMadeOfConstantBuffersIsKept) {
  const Program program = testing::Parsed(
      "program 1\nbuffer @x read 22000\nbuffer @w read 22000 constant\nbuffer @y write 40000\n"
      "%x = input @x : f16[100,110]\n%w = input @w : f16[110,100]\n"
      "%p = dot_general %x, %w lhs_contract=[1] rhs_contract=[0] : f32[100,100]\nstore @y, %p\n");
  const auto made = HostProgram::Make(program, 2);
  ASSERT_TRUE(made.ok()) << made.status();
  const bool by_library = LibraryProblem().empty();
  EXPECT_EQ(made->from_constants_bytes() > 0, by_library);
  Bytes x(22000), w(22000), y(40000);
  for (size_t i = 1; i < x.size(); i += 2) {
    x[i] = std::byte{0x3C};  // 1
    w[i] = std::byte{0x40};  // 2
  }
  const std::vector<absl::Span<std::byte>> buffers = {absl::MakeSpan(x), absl::MakeSpan(w),
                                                      absl::MakeSpan(y)};
  Memory scratch(made->scratch_bytes()), kept_memory(made->from_constants_bytes());
  HostProgram::FromConstants kept{kept_memory.Span(), {}};
  const absl::Span<std::byte> rest =
      scratch.Span().subspan(0, made->scratch_bytes() - made->from_constants_bytes());
  const auto first = [&] {
    float value;
    std::memcpy(&value, y.data(), sizeof(value));
    return value;
  };
  made->Run(buffers, rest, nullptr, nullptr, &kept);
  EXPECT_EQ(first(), 220);
  x[1] = std::byte{0x44};  // 4: seen
  made->Run(buffers, rest, nullptr, nullptr, &kept);
  EXPECT_EQ(first(), 226);
  for (size_t i = 1; i < w.size(); i += 2) w[i] = std::byte{0x3C};
  made->Run(buffers, rest, nullptr, nullptr, &kept);  // not seen, if it is kept
  EXPECT_EQ(first(), by_library ? 226 : 113);
  made->Run(buffers, scratch.Span());  // a run by itself
  EXPECT_EQ(first(), 113);
}

// Whatever is made of them before the product, whoever multiplies.
TEST(ProductTest, WhatOpsMakeOfConstantBuffersIsKept) {
  const std::string by_convert =
      "%w = input @w : f8e4m3fn[128,128]\n%m = convert %w : bf16[128,128]\n";
  const std::string by_blocks =
      "%w = input @w : f8e4m3fn[128,128]\n%s = input @s : f8e8m0fnu[128,4]\n"
      "%m = dequantize_block %w, %s : bf16[128,128]\n";
  for (const std::string& make : {by_convert, by_blocks}) {
    for (const bool constant : {false, true}) {
      const std::string declared = constant ? " constant\n" : "\n";
      const Program program = Simplify(testing::Parsed(
          absl::StrCat("program 1\nbuffer @x read 32768\nbuffer @w read 16384", declared,
                       "buffer @s read 512", declared, "buffer @y write 65536\n", make,
                       "%x = input @x : bf16[128,128]\n%p = dot_general %x, %m lhs_contract=[1] "
                       "rhs_contract=[1] : f32[128,128]\nstore @y, %p\n")));
      const auto made = HostProgram::Make(program, 2);
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_EQ(made->from_constants_bytes() >= 32768, constant);
      Bytes x(32768), w(16384, std::byte{0x38}), s(512, std::byte{127}), y(65536);  // 1, 1
      for (size_t i = 1; i < x.size(); i += 2) x[i] = std::byte{0x40};              // 2
      const std::vector<absl::Span<std::byte>> buffers = {absl::MakeSpan(x), absl::MakeSpan(w),
                                                          absl::MakeSpan(s), absl::MakeSpan(y)};
      Memory scratch(made->scratch_bytes()), kept_memory(made->from_constants_bytes());
      HostProgram::FromConstants kept{kept_memory.Span(), {}};
      const absl::Span<std::byte> rest =
          scratch.Span().subspan(0, made->scratch_bytes() - made->from_constants_bytes());
      const auto run = [&] {
        made->Run(buffers, rest, nullptr, nullptr, &kept);
        float value;
        std::memcpy(&value, y.data(), sizeof(value));
        return value;
      };
      EXPECT_EQ(run(), 256);
      std::fill(scratch.Span().begin(), scratch.Span().end(), std::byte{0x3F});  // others had it
      std::fill(w.begin(), w.end(), std::byte{0x40});                            // 2
      EXPECT_EQ(run(), constant ? 256 : 512);
      for (size_t i = 1; i < x.size(); i += 2) x[i] = std::byte{0x00};  // small: by our own sums
      for (size_t i = 0; i < x.size(); i += 2) x[i] = std::byte{0x40};
      EXPECT_EQ(run(), (constant ? 128 : 256) * std::ldexp(1.0f, -127));
    }
  }
}

// So are scales that the product's own step unswizzles.
TEST(ProductTest, ScalesOfConstantBuffersAreUnswizzledOnce) {
  for (const bool constant : {false, true}) {
    const std::string declared = constant ? " constant\n" : "\n";
    const Program program = testing::Parsed(absl::StrCat(
        "program 1\nbuffer @x read 32768\nbuffer @w read 16384", declared, "buffer @s read 512",
        declared, "buffer @y write 65536\n%x = input @x : bf16[128,128]\n",
        "%w = input @w : f8e4m3fn[128,128]\n%t = input @s : f8e8m0fnu[512]\n",
        "%s = unswizzle_scales %t : f8e8m0fnu[128,4]\n",
        "%p = block_scaled_dot %w, %x, %s : f32[128,128]\nstore @y, %p\n"));
    const auto made = HostProgram::Make(program, 2);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->from_constants_bytes() >= 512, constant);
    std::vector<Bytes> bytes = {Bytes(32768), Bytes(16384, std::byte{0x38}),  // x: 2; w, s: 1
                                Bytes(512, std::byte{127}), Bytes(65536)};
    for (size_t i = 1; i < bytes[0].size(); i += 2) bytes[0][i] = std::byte{0x40};
    std::vector<absl::Span<std::byte>> buffers;
    for (Bytes& each : bytes) buffers.push_back(absl::MakeSpan(each));
    Memory scratch(made->scratch_bytes()), kept_memory(made->from_constants_bytes());
    HostProgram::FromConstants kept{kept_memory.Span(), {}};
    const absl::Span<std::byte> rest =
        scratch.Span().subspan(0, made->scratch_bytes() - made->from_constants_bytes());
    for (const float wanted : {256.0f, constant ? 256.0f : 512.0f}) {
      made->Run(buffers, rest, nullptr, nullptr, &kept);
      float value;
      std::memcpy(&value, bytes[3].data(), sizeof(value));
      EXPECT_EQ(value, wanted);
      std::fill(bytes[2].begin(), bytes[2].end(), std::byte{128});  // 2
    }
  }
}

// In a repeat too, and with either factor constant: as if it were not.
TEST(ProductTest, ConstantFactorsDoNotChangeResults) {
  for (const std::string constant : {"@x", "@w"}) {
    for (const std::string type : {"f16", "bf16", "f8e4m3fn"}) {
      const std::string text = absl::StrReplaceAll(
          "program 1\nbuffer @x read BYTES\nbuffer @w read BYTES\nbuffer @y read_write 40000\n"
          "%x = input @x : TYPE[100,110]\n%w = input @w : TYPE[100,110]\n"
          "repeat trips=2 (%c)\n%q = dot_general %x, %w lhs_contract=[1] rhs_contract=[1] : "
          "f32[100,100]\naccumulate @y, %q\nyield\n",
          {{"TYPE", type}, {"BYTES", type == "f8e4m3fn" ? "11000" : "22000"}});
      const std::string declared =
          absl::StrCat("buffer ", constant, " read ", type == "f8e4m3fn" ? "11000" : "22000");
      const Program plain = testing::Parsed(text);
      const Program marked =
          testing::Parsed(absl::StrReplaceAll(text, {{declared, declared + " constant"}}));
      ASSERT_FALSE(plain == marked);
      std::vector<Bytes> buffers = testing::RandomBuffers(marked, 4);
      const size_t each = type == "f8e4m3fn" ? 1 : 2;
      for (size_t i = each - 1; i < buffers[0].size(); i += each) {  // none is NaN
        buffers[0][i] &= std::byte{0xB7};
        buffers[1][i] &= std::byte{0xB7};
      }
      buffers[2].assign(buffers[2].size(), std::byte{0});
      EXPECT_EQ(testing::DifferenceOf(marked, buffers, 2), "") << type;
    }
  }
}

// Nobody may make memory executable in this process from now on, as systemd's
// MemoryDenyWriteExecute has it.
void DenyCode() {
#ifdef __x86_64__
  constexpr uint32_t kProtection = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kProtection),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
    std::perror("seccomp");
    std::_Exit(3);
  }
#else
  std::_Exit(3);
#endif
}

TEST(ProductDeathTest, AHardenedProcessHasProductsOfItsOwn) {
#ifndef __x86_64__
  GTEST_SKIP() << "the filter is x86's";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    DenyCode();
    const std::string text = absl::StrCat(
        RandomValues("a", "128,128", 1),
        "%p = dot_general %a, %a lhs_contract=[1] rhs_contract=[1] : f32[128,128]\nstore @y, %p\n");
    const std::string difference = Difference(128 * 128 * 4, text);
    std::fprintf(stderr, "%s; difference: %s.\n", DescribeCpu(2).c_str(), difference.c_str());
    std::_Exit(difference.empty() ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0),
              "2 threads, products by ourselves: oneDNN: it cannot make code in this process.*; "
              "difference: \\.");
}

}  // namespace
}  // namespace ferry::compute
