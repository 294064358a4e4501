// SPDX-License-Identifier: Apache-2.0
// What passes join has the bits that it had: the CPU's results, with and without passes, are the
// reference's.
#include <gtest/gtest.h>

#include <string>

#include "compute/passes/passes.h"
#include "tests/compute/host/host_runs.h"
#include "tests/compute/keepdims.h"
#include "tests/compute/parsed_program.h"

namespace ferry::compute {
namespace {

class KeepdimsRunTest : public ::testing::TestWithParam<testing::KeepdimsProgram> {};

TEST_P(KeepdimsRunTest, IsAsTheReferenceSays) {
  const Program program = testing::ParsedProgram(GetParam().text);
  std::vector<testing::Bytes> buffers = testing::RandomBuffers(program, 1);
  // Numbers around 1: random bits are NaN in some element of most rows.
  for (testing::Bytes& buffer : buffers) {
    for (std::byte& byte : buffer) byte &= std::byte{0x3F};
  }
  std::vector<testing::Memory> reference(buffers.begin(), buffers.end());
  testing::Evaluate(program, reference);
  for (const Program& one : {program, Simplify(program)}) {
    const std::vector<testing::Bytes> got = testing::RunOnHost(one, buffers);
    EXPECT_EQ(reference[2].DifferenceOf(got[2]), "") << Print(one);
    EXPECT_EQ(got[2], testing::RunOnHost(program, buffers)[2]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KeepdimsRunTest, ::testing::ValuesIn(testing::KeepdimsPrograms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ferry::compute
