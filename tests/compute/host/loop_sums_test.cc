// SPDX-License-Identifier: Apache-2.0
// Random loops that add up reductions, run as they are simplified: sums are made before they are
// reduced. Integers have the same bits; floating sums are as near to those in f64 as products are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/host/host_program.h"
#include "compute/numerics/convert.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute {
namespace {

using testing::Bytes;
using Dims = std::vector<int64_t>;

// What is computed in, and what is carried round; and the way from a reduction to its sum.
class RandomLoop {
 public:
  explicit RandomLoop(uint64_t seed) : seed_(seed) {}

  // The same loop for all types.
  Program In(DType type, DType carried) {
    std::mt19937_64 random(seed_);
    const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
    Dims dims;
    for (int64_t rank = 1 + below(3); rank > 0; --rank) dims.push_back(1 + below(7));
    dims[static_cast<size_t>(below(dims.size()))] = 2 + below(40);
    Dims reduced, kept;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (below(2) == 0) {
        reduced.push_back(static_cast<int64_t>(d));
      } else {
        kept.push_back(dims[d]);
      }
    }
    if (reduced.empty()) {
      reduced.push_back(0);
      kept.erase(kept.begin());
    }
    std::string body;
    DType now = type;
    std::string value = "sum";
    int names = 0;
    const auto add = [&](const std::string& op, const std::string& attributes) {
      const std::string name = absl::StrCat("p", names++);
      absl::StrAppend(&body, "  %", name, " = ", op, " %", value, " ", attributes, " : ",
                      Type(now, kept), "\n");
      value = name;
    };
    for (int64_t steps = below(4); steps > 0; --steps) {
      const int64_t choice = below(5);
      if (choice == 0 && !kept.empty()) {
        std::reverse(kept.begin(), kept.end());
        Dims permutation(kept.size());
        for (size_t d = 0; d < kept.size(); ++d) {
          permutation[d] = static_cast<int64_t>(kept.size() - 1 - d);
        }
        add("transpose", absl::StrCat("permutation=[", absl::StrJoin(permutation, ","), "]"));
      } else if (choice == 1) {
        int64_t elements = 1;
        for (const int64_t dim : kept) elements *= dim;
        kept = {elements};
        add("reshape", "");
      } else if (choice == 2 && !kept.empty()) {
        add("reverse", "dimensions=[0]");
      } else if (choice == 3) {
        const std::string zero = absl::StrCat("zero", names++);
        absl::StrAppend(&body, "  %", zero, "i = constant splat=0 : ", Type(DType::kI32, kept),
                        "\n  %", zero, " = convert %", zero, "i : ", Type(now, kept), "\n");
        const std::string name = absl::StrCat("p", names++);
        absl::StrAppend(&body, "  %", name, " = select %odd, %", value, ", %", zero, "\n");
        value = name;
      } else if (choice == 4 && now != carried) {
        now = carried;
        add("convert", "");
      }
    }
    if (now != carried) {
      now = carried;
      add("convert", "");
    }
    const std::string text = absl::StrCat(
        "program 1\nallow_reassociation\nbuffer @x read ", Size(type, dims), "\nbuffer @y ",
        "read_write ", Size(carried, kept), " donated\n%x = input @x : ", Type(type, dims),
        "\n%before = input @y : ", Type(carried, kept), "\n%r = repeat %before trips=", below(8),
        " (%i, %carried)\n", "  %one = constant splat=1 : i32[]\n  %bit = and %i, %one\n",
        "  %odd = compare %bit, %one direction=eq\n", "  %next = add %i, %one\n  %f = convert ",
        "%next : ", Type(type, {}), "\n  %g = broadcast_in_dim %f : ", Type(type, dims),
        "\n  %m = multiply %x, %g\n  %sum = reduce %m reduction=sum dimensions=[",
        absl::StrJoin(reduced, ","), "]\n", body, "  %new = add %carried, %", value,
        "\n  yield %new\nstore @y, %r\n");
    return testing::ParsedProgram(text);
  }

 private:
  static std::string Type(DType type, const Dims& dims) { return ToString(TensorType{type, dims}); }
  static uint64_t Size(DType type, const Dims& dims) { return *BytesOf(TensorType{type, dims}); }

  const uint64_t seed_;
};

Bytes BytesOfValues(DType type, const std::vector<double>& values) {
  Bytes bytes(BytesOf(type, values.size()));
  Convert(DType::kF64, reinterpret_cast<const std::byte*>(values.data()), type, bytes.data(),
          values.size());
  return bytes;
}

std::vector<double> ValuesOf(DType type, const Bytes& bytes) {
  std::vector<double> values(bytes.size() / BytesOf(type, 1));
  Convert(type, bytes.data(), DType::kF64, reinterpret_cast<std::byte*>(values.data()),
          values.size());
  return values;
}

Bytes ByReference(const Program& program, const Bytes& x, const Bytes& y) {
  std::vector<testing::Memory> buffers{testing::Memory(x), testing::Memory(y)};
  testing::Evaluate(program, buffers);
  return buffers[1].bytes();
}

Bytes OnHost(const Program& program, Bytes x, Bytes y) {
  const absl::StatusOr<HostProgram> made = HostProgram::Make(program);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return y;
  const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, (made->scratch_bytes() + 63) / 64 * 64 + 64)),
      &std::free);
  const std::vector<absl::Span<std::byte>> buffers = {absl::MakeSpan(x), absl::MakeSpan(y)};
  made->Run(buffers, {scratch.get(), made->scratch_bytes()});
  return y;
}

bool IsMoved(const Program& program) { return !(MoveReductionsOutOfLoops(program) == program); }

TEST(LoopSumsTest, RandomSumsAreNearThoseInF64) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const auto& [type, carried] :
         {std::pair(DType::kF32, DType::kF32), std::pair(DType::kF32, DType::kF64),
          std::pair(DType::kBF16, DType::kBF16), std::pair(DType::kBF16, DType::kF32),
          std::pair(DType::kF16, DType::kF16), std::pair(DType::kF64, DType::kF64)}) {
      SCOPED_TRACE(absl::StrCat(seed, " ", NameOf(type), " ", NameOf(carried)));
      const Program program = RandomLoop(seed).In(type, carried);
      Program wide = RandomLoop(seed).In(DType::kF64, DType::kF64);
      wide.numerics.allow_reassociation = false;
      moved += IsMoved(program) ? 1 : 0;
      // Products with the number of the trip are exact in 16 bits.
      std::mt19937_64 random(seed);
      const bool half = InfoOf(type).bits == 16;
      const auto value = [&] {
        const double some = static_cast<double>(random() % 65536) / 2048 - 16;
        return half ? std::trunc(some) : some;
      };
      std::vector<double> x(wide.buffers[0].bytes / 8), y(wide.buffers[1].bytes / 8);
      std::generate(x.begin(), x.end(), value);
      std::generate(y.begin(), y.end(), value);
      const auto sums = [&](const std::vector<double>& a, const std::vector<double>& b) {
        const DType f64 = DType::kF64;
        return ValuesOf(f64, ByReference(wide, BytesOfValues(f64, a), BytesOfValues(f64, b)));
      };
      const auto magnitudes = [](std::vector<double> values) {
        for (double& one : values) one = std::fabs(one);
        return values;
      };
      const std::vector<double> exact = sums(x, y);
      const std::vector<double> size = sums(magnitudes(x), magnitudes(y));
      const std::vector<double> got = ValuesOf(
          carried, OnHost(Simplify(program), BytesOfValues(type, x), BytesOfValues(carried, y)));
      const double unit = carried == DType::kBF16  ? 0x1p-8
                          : carried == DType::kF16 ? 0x1p-11
                                                   : 0x1p-24;
      for (size_t i = 0; i < exact.size(); ++i) {
        // Of a half, twice: the sum, and what there was added to it.
        ASSERT_LE(std::fabs(got[i] - exact[i]),
                  size[i] * 0x1p-17 + 2 * unit * (std::fabs(exact[i]) + 16))
            << i << "\n"
            << Print(Simplify(program));
      }
    }
  }
  EXPECT_GT(moved, 600);
}

TEST(LoopSumsTest, RandomSumsOfIntegersHaveTheSameBits) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const auto& [type, carried] :
         {std::pair(DType::kI32, DType::kI32), std::pair(DType::kI32, DType::kU8),
          std::pair(DType::kI8, DType::kI64), std::pair(DType::kU64, DType::kI16)}) {
      SCOPED_TRACE(absl::StrCat(seed, " ", NameOf(type), " ", NameOf(carried)));
      Program program = RandomLoop(seed).In(type, carried);
      program.numerics.allow_reassociation = false;
      moved += IsMoved(program) ? 1 : 0;
      const std::vector<Bytes> buffers = testing::RandomBuffers(program, seed);
      ASSERT_EQ(OnHost(Simplify(program), buffers[0], buffers[1]),
                ByReference(program, buffers[0], buffers[1]))
          << Print(program) << Print(Simplify(program));
    }
  }
  EXPECT_GT(moved, 300);
}

}  // namespace
}  // namespace ferry::compute
