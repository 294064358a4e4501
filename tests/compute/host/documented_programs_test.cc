// SPDX-License-Identifier: Apache-2.0
// The composites that docs/programs/ writes out: near the formula in float64, and fused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "compute/passes/passes.h"
#include "tests/compute/host/host_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

constexpr size_t kRows = 16, kColumns = 64;

Program Documented(const std::string& name) {
  std::ifstream file(std::string(PROGRAMS_DIRECTORY "/") + name + ".program");
  EXPECT_TRUE(file.is_open()) << name;
  return Simplify(testing::Parsed({std::istreambuf_iterator<char>(file), {}}));
}

std::vector<float> RandomFloats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}
Bytes BytesOfFloats(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The program `name`, of `x` and whatever is between it and the last buffer, does to each row what
// `exact` does, in one kernel that keeps nothing in memory.
void ExpectRows(const std::string& name, const std::vector<std::vector<float>>& inputs,
                const std::function<void(std::vector<double>&)>& exact) {
  const Program program = Documented(name);
  const absl::StatusOr<HostProgram> made = HostProgram::Make(program);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->plan().steps.size(), 1u);
  EXPECT_EQ(made->plan().steps[0].kind, StepKind::kKernel);
  EXPECT_EQ(made->plan().memory.bytes, 0u);

  std::vector<Bytes> buffers;
  for (const std::vector<float>& input : inputs) buffers.push_back(BytesOfFloats(input));
  buffers.emplace_back(kRows * kColumns * sizeof(float));
  EXPECT_EQ(testing::DifferenceOf(program, buffers), "");
  const std::vector<Bytes> after = testing::RunOnHost(program, buffers);
  std::vector<float> got(kRows * kColumns);
  std::memcpy(got.data(), after.back().data(), after.back().size());
  for (size_t row = 0; row < kRows; ++row) {
    const auto first = inputs[0].begin() + static_cast<int64_t>(row * kColumns);
    std::vector<double> values(first, first + kColumns);
    exact(values);
    for (size_t i = 0; i < kColumns; ++i) {
      ASSERT_NEAR(got[row * kColumns + i], values[i], 1e-6 + 1e-5 * std::fabs(values[i]))
          << row << "," << i;
    }
  }
}

TEST(DocumentedProgramsTest, GeluIsTheFormula) {
  ExpectRows("gelu", {RandomFloats(kRows * kColumns, 1)}, [](std::vector<double>& row) {
    for (double& x : row) x = 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  });
}

TEST(DocumentedProgramsTest, SoftmaxIsTheFormula) {
  std::vector<float> x = RandomFloats(kRows * kColumns, 2);
  x[5] = 1000;  // whose exponential is too large
  ExpectRows("softmax", {x}, [](std::vector<double>& row) {
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value - largest);
    for (double& value : row) value /= sum;
  });
}

TEST(DocumentedProgramsTest, RmsnormIsTheFormula) {
  const std::vector<float> weight = RandomFloats(kColumns, 4);
  ExpectRows("rmsnorm", {RandomFloats(kRows * kColumns, 3), weight}, [&](std::vector<double>& row) {
    double sum = 0;
    for (const double value : row) sum += value * value;
    const double root = std::sqrt(sum / kColumns + 1e-5);
    for (size_t i = 0; i < kColumns; ++i) row[i] *= weight[i] / root;
  });
}

}  // namespace
}  // namespace ferry::compute
