// SPDX-License-Identifier: Apache-2.0
// How near functions are to those of a wider type: of f32 over every so many of all patterns of
// bits (ferry_function_sweep has all), of f16 and bf16 over all, of f64 and of `power`, which has
// two arguments, over random ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/compute/host/function_errors.h"

namespace ferry::compute {
namespace {

TEST(FunctionTest, AreWithinTheBound) {
  constexpr uint64_t kStep = 10007;
  constexpr size_t kTile = 500;  // a part of a vector too
  for (const testing::FunctionCase& one : testing::kFunctionCases) {
    testing::WorstUnits worst;
    std::vector<uint32_t> codes(kTile);
    for (uint64_t first = 0; first < uint64_t{1} << 32; first += kStep * kTile) {
      for (size_t i = 0; i < kTile; ++i) codes[i] = static_cast<uint32_t>(first + i * kStep);
      worst.Add(testing::WorstOf(one, testing::kF32Function, codes));
    }
    RecordProperty(std::string(InfoOf(one.op).name), std::to_string(worst.units));
    EXPECT_LE(worst.units, one.bound) << InfoOf(one.op).name << " of " << worst.at;
    if (worst.units > 1.5) {
      GTEST_LOG_(INFO) << InfoOf(one.op).name << " " << worst.units << " at " << worst.at;
    }
  }
}

TEST(FunctionTest, OfHalvesAreWithinOneUnit) {
  std::vector<uint16_t> codes(1 << 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  for (const testing::FunctionCase& one : testing::kFunctionCases) {
    for (const testing::FunctionType& type : {testing::kF16Function, testing::kBF16Function}) {
      const testing::WorstUnits worst = testing::WorstOf(one, type, codes);
      EXPECT_LE(worst.units, 1) << InfoOf(one.op).name << " of " << worst.at;
    }
  }
}

// Of all magnitudes, and as many that functions make something of; NaNs are quiet.
double SomeDouble(std::mt19937_64& random, double most) {
  if (random() % 2 != 0) return std::uniform_real_distribution<double>(-most, most)(random);
  const auto any = std::bit_cast<double>(random());
  return std::isnan(any) ? std::numeric_limits<double>::quiet_NaN() : any;
}

TEST(FunctionTest, OfDoublesAreWithinTheBound) {
  std::mt19937_64 random(1);
  for (const testing::FunctionCase& one : testing::kFunctionCases) {
    constexpr size_t kValues = 100'000;
    std::vector<double> in(kValues), out(kValues);
    for (double& value : in) value = SomeDouble(random, 40);
    KernelOf(one.op, DType::kF64)(reinterpret_cast<const std::byte*>(in.data()), nullptr, nullptr,
                                  reinterpret_cast<std::byte*>(out.data()), kValues);
    testing::WorstUnits worst;
    for (size_t i = 0; i < kValues; ++i) {
      worst.Add(
          testing::UnitsOff<long double>(testing::kF64Function, out[i], one.exact_long(in[i])),
          in[i]);
    }
    RecordProperty(std::string(InfoOf(one.op).name), std::to_string(worst.units));
    GTEST_LOG_(INFO) << "f64 " << InfoOf(one.op).name << " " << worst.units << " at " << worst.at;
    EXPECT_LE(worst.units, one.bound) << InfoOf(one.op).name << " of " << worst.at;
  }
}

template <typename Float, typename Wide>
testing::WorstUnits WorstPower(const testing::FunctionType& type, size_t values) {
  std::mt19937_64 random(2);
  std::vector<Float> base(values), exponent(values), out(values);
  for (size_t i = 0; i < values; ++i) {
    base[i] = static_cast<Float>(SomeDouble(random, 8));
    exponent[i] = static_cast<Float>(i % 4 == 0 ? std::trunc(SomeDouble(random, 40))
                                                : SomeDouble(random, 100));
    if (i % 3 > 0) base[i] = std::fabs(base[i]);
  }
  const auto bytes = [](const std::vector<Float>& from) {
    return reinterpret_cast<const std::byte*>(from.data());
  };
  KernelOf(Op::kPower, type.type)(bytes(base), bytes(exponent), nullptr,
                                  reinterpret_cast<std::byte*>(out.data()), values);
  testing::WorstUnits worst;
  for (size_t i = 0; i < values; ++i) {
    const Wide exact = std::pow(Wide{base[i]}, Wide{exponent[i]});
    worst.Add(testing::UnitsOff<Wide>(type, out[i], exact), base[i]);
  }
  return worst;
}

TEST(FunctionTest, PowersAreWithinTheBound) {
  const testing::WorstUnits f32 = WorstPower<float, double>(testing::kF32Function, 1'000'000);
  const testing::WorstUnits f64 = WorstPower<double, long double>(testing::kF64Function, 200'000);
  GTEST_LOG_(INFO) << "power: f32 " << f32.units << " at " << f32.at << ", f64 " << f64.units
                   << " at " << f64.at;
  EXPECT_LE(f32.units, 4) << f32.at;
  EXPECT_LE(f64.units, 4) << f64.at;
}

}  // namespace
}  // namespace ferry::compute
