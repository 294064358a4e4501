// SPDX-License-Identifier: Apache-2.0
// Runs programs on the CPU, and compares the result with the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/host/host_program.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute::testing {

// Runs a program. Each memory has exactly its size, so that sanitizers notice every access beyond
// it, and begins with bytes that are not 0.
using StepOver = std::function<void(const Plan& plan, size_t step, std::vector<Bytes>& buffers)>;
inline std::vector<Bytes> RunOnHost(const Program& program, std::vector<Bytes> buffers,
                                    size_t threads = 1, const StepOver& step_over = nullptr) {
  Workers workers(threads);
  const absl::StatusOr<HostProgram> made = HostProgram::Make(program, threads);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return buffers;
  const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, (made->scratch_bytes() + 63) / 64 * 64)),
      &std::free);
  std::fill_n(scratch.get(), made->scratch_bytes(), std::byte{0xA5});
  std::vector<absl::Span<std::byte>> spans;
  for (Bytes& buffer : buffers) spans.push_back(absl::MakeSpan(buffer));
  made->Run(spans, {scratch.get(), made->scratch_bytes()}, &workers,
            step_over ? [&](size_t step) { step_over(made->plan(), step, buffers); }
                      : HostProgram::StepOver());
  return buffers;
}

// "", or the first difference from the reference of a run that begins with `buffers`.
inline std::string DifferenceOf(const Program& program, const std::vector<Bytes>& buffers,
                                size_t threads = 1) {
  std::vector<Memory> reference(buffers.begin(), buffers.end());
  Evaluate(program, reference);
  const std::vector<Bytes> got = RunOnHost(program, buffers, threads);
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string difference = reference[i].DifferenceOf(got[i]);
    if (!difference.empty()) return "@" + program.buffers[i].name + " " + difference;
  }
  return "";
}
inline std::string DifferenceOf(const Program& program, uint64_t seed, size_t threads = 1) {
  return DifferenceOf(program, RandomBuffers(program, seed), threads);
}

inline Program Parsed(const std::string& text) {
  ParsedText parsed = Parse(text);
  for (const TextProblem& problem : parsed.problems) ADD_FAILURE() << problem.text;
  for (const Problem& problem : Verify(parsed.program)) {
    ADD_FAILURE() << ToString(parsed.program, problem);
  }
  return std::move(parsed.program);
}

}  // namespace ferry::compute::testing
