// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/suite/suite.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "compute/passes/passes.h"
#include "tests/compute/cuda/runs/byte_programs.h"
#include "tests/compute/cuda/runs/kernel_programs.h"
#include "tests/compute/cuda/runs/number_programs.h"
#include "tests/compute/keepdims.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/shaped_programs.h"

namespace ferry::testing {
namespace {

namespace fc = ferry::compute;

fc::Program RandomProgram(uint64_t seed, const fc::testing::GeneratorOptions& options,
                          void (*store)(fc::Program&) = &fc::testing::StoreAll) {
  fc::Program program = fc::testing::ProgramGenerator(seed, options).Make();
  store(program);
  return seed % 4 == 0 ? fc::Simplify(program) : program;
}

std::vector<fc::Program> Joined(std::vector<std::vector<fc::Program>> parts) {
  std::vector<fc::Program> programs;
  for (std::vector<fc::Program>& part : parts) {
    for (fc::Program& program : part) programs.push_back(std::move(program));
  }
  return programs;
}

// The programs of a suite that is listed; none of one whose programs are made one by one.
std::vector<fc::Program> Listed(Suite suite) {
  switch (suite) {
    case Suite::kTemplates:
      return fc::testing::KernelPrograms();
    case Suite::kBytes:
      return fc::testing::BytePrograms();
    case Suite::kNumbers:
      return Joined({fc::testing::ConversionPrograms(), fc::testing::QuotientPrograms()});
    case Suite::kShapes:
      return Joined({fc::testing::ElementwisePrograms(), fc::testing::ChainPrograms(),
                     fc::testing::RowPrograms(), fc::testing::ColumnPrograms(),
                     fc::testing::MadeColumnPrograms(), fc::testing::ArgmaxPrograms(),
                     fc::testing::ColumnUsePrograms(), fc::testing::TransposePrograms(),
                     fc::testing::AcrossPrograms(), fc::testing::BufferPrograms()});
    case Suite::kNorms: {
      std::vector<fc::Program> programs;
      for (const auto& norm : fc::testing::KeepdimsPrograms()) {
        programs.push_back(fc::testing::ParsedProgram(norm.text));
        programs.push_back(fc::Simplify(programs.back()));
      }
      return programs;
    }
    case Suite::kWoven:
    case Suite::kBlocks:
    case Suite::kSmall:
    case Suite::kLong:
    case Suite::kLeaves:
    case Suite::kRandom:
      break;
  }
  return {};
}

// Number `number` of a suite that is not listed.
SuiteProgram Made(Suite suite, uint64_t number) {
  SuiteProgram made;
  made.seed = number;
  if (suite == Suite::kWoven) {
    made.program = fc::Simplify(fc::testing::Weaver(number, number % 3 == 0 ? 24 : 4).Make());
    return made;
  }
  if (suite == Suite::kBlocks) {
    made.seed = 2000 + number;
    made.program = RandomProgram(made.seed, {25, 24, false});
    return made;
  }
  if (suite == Suite::kLeaves) {
    made.seed = 3000 + number;
    made.program = RandomProgram(made.seed, {40, 16, false}, &fc::testing::StoreLeaves);
    return made;
  }
  made.options.code = {1, 1};  // fast to compile
  if (suite == Suite::kLong) made.seed = 1000 + number;
  const int ops = suite == Suite::kSmall ? 60 : suite == Suite::kLong ? 150 : 12;
  made.program = RandomProgram(made.seed, {ops, suite == Suite::kLong ? 4 : 5, false});
  return made;
}

uint64_t SizeOf(Suite suite) {
  switch (suite) {
    case Suite::kWoven:
      return 120;
    case Suite::kBlocks:
    case Suite::kLeaves:
      return 100;
    case Suite::kSmall:
      return 250;
    case Suite::kLong:
      return 150;
    default:
      return kRandomPrograms;
  }
}

}  // namespace

void ForEachProgram(Suite suite, uint64_t first, uint64_t count,
                    absl::FunctionRef<bool(const SuiteProgram&)> act) {
  std::vector<fc::Program> listed = Listed(suite);
  const uint64_t size = listed.empty() ? SizeOf(suite) : listed.size();
  const uint64_t end = first + std::min(count, size - std::min(first, size));
  for (uint64_t number = first; number < end; ++number) {
    SuiteProgram made;
    if (listed.empty()) {
      made = Made(suite, number);
    } else {
      made.program = std::move(listed[number]);
      made.seed = number;
      made.small = suite == Suite::kNorms;
    }
    made.options.library_products = false;
    if (!act(made)) return;
  }
}

}  // namespace ferry::testing
