// SPDX-License-Identifier: Apache-2.0
// A GPU that is the CPU, and a machine for it: the fake driver has the kernels, which the fake
// NVRTC has made, compiled by the host's compiler; the fake cuBLASLt multiplies.
#pragma once

#include <fake_cublaslt.h>
#include <fake_cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "compute/cuda/run/gpu_machine.h"
#include "compute/program/text.h"
#include "tests/compute/doublings.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute::testing {

inline CompileChild::Options CompilerOptions() {
  CompileChild::Options options;
  options.program = FERRY_COMPILE;
  options.nvrtc = FAKE_NVRTC_LIBRARY;
  return options;
}

class GpuMachineFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::vector<GpuInfo>> found = FindGpus(FAKE_CUDA_LIBRARY);
    ASSERT_TRUE(found.ok()) << found.status();
    device_ = std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, (*found)[0], std::vector<int>{0});
    machine_ = std::make_unique<compute::GpuMachine>(*device_, library_.get());
    UseLibrary(FAKE_CUBLASLT_LIBRARY);
  }

  // Programs that are made from now on have their products made by this library, where it has them.
  void UseLibrary(const std::string& name) {
    asked_ = std::make_unique<CublasLtLibrary>(name, 13000);
    multiplier_ = std::make_unique<GpuMultiplier>(*device_, *asked_);
  }

  GpuProgram Made(const Program& program) {
    absl::StatusOr<GpuProgram> made = GpuProgram::Make(program, arch_, store_, multiplier_.get());
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  // Memory of the GPU for the buffers, one behind the other, and scratch.
  struct Memory {
    std::unique_ptr<DeviceMemory> memory;
    std::vector<absl::Span<std::byte>> buffers;
    absl::Span<std::byte> scratch;
  };
  Memory Bind(const GpuProgram& program, const std::vector<Bytes>& contents) {
    uint64_t bytes = program.scratch_bytes() + kTemporaryAlignment;
    for (const Bytes& content : contents) bytes += (content.size() + 15) / 16 * 16;
    absl::StatusOr<std::unique_ptr<DeviceMemory>> memory = machine_->Allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    Memory made{*std::move(memory), {}, {}};
    std::byte* at = made.memory->data();
    made.scratch = {at, program.scratch_bytes()};
    std::memset(at, 0xA5, program.scratch_bytes());  // the fake GPU's memory is the host's
    at += (program.scratch_bytes() + kTemporaryAlignment - 1) / kTemporaryAlignment *
          kTemporaryAlignment;
    for (const Bytes& content : contents) {
      made.buffers.push_back({at, content.size()});
      std::copy(content.begin(), content.end(), at);
      at += (content.size() + 15) / 16 * 16;
    }
    return made;
  }

  absl::Status Run(const GpuProgram& program, Memory& memory, compute::GpuMachine::Aside& aside,
                   const compute::GpuMachine::MayGoOn& may_go_on = nullptr,
                   const compute::GpuMachine::StepOver& step_over = nullptr) {
    return machine_->Run(Work(program, memory, may_go_on, step_over), aside);
  }
  static compute::GpuMachine::Work Work(const GpuProgram& program, Memory& memory,
                                        const compute::GpuMachine::MayGoOn& may_go_on = nullptr,
                                        const compute::GpuMachine::StepOver& step_over = nullptr) {
    return {.program = program,
            .begin = 0,
            .end = [&program] { return program.plan().plan.steps.size(); },
            .buffers = memory.buffers,
            .scratch = memory.scratch,
            .may_go_on = may_go_on,
            .step_over = step_over};
  }

  void CompareWithReference(const Program& program, uint64_t seed) {
    CompareWithReference(program, RandomBuffers(program, seed));
  }
  void CompareWithReference(const Program& program, const std::vector<Bytes>& contents) {
    CompareRun(program, Made(program), contents);
  }
  void CompareRun(const Program& program, const GpuProgram& made, uint64_t seed) {
    CompareRun(program, made, RandomBuffers(program, seed));
  }
  void CompareRun(const Program& program, const GpuProgram& made,
                  const std::vector<Bytes>& contents) {
    std::vector<compute::testing::Memory> reference(contents.begin(), contents.end());
    Evaluate(program, reference);
    Memory memory = Bind(made, contents);
    compute::GpuMachine::Aside aside;
    const absl::Status ran = Run(made, memory, aside);
    ASSERT_TRUE(ran.ok()) << ran;
    for (size_t i = 0; i < memory.buffers.size(); ++i) {
      const Bytes got(memory.buffers[i].begin(), memory.buffers[i].end());
      ASSERT_EQ(reference[i].DifferenceOf(got), "") << "@" << program.buffers[i].name << "\n"
                                                    << Print(program) << ToText(made.plan());
    }
  }

  // A chain of so many kernels, and contents of its buffers: 1 in the first.
  static Program Steps(int steps) { return ParsedProgram(Doublings(steps)); }
  static std::vector<Bytes> Ones(const Program& program) {
    std::vector<Bytes> contents(program.buffers.size(), Bytes(32));
    contents[0] = BytesOfValues(std::vector<int32_t>(8, 1));
    return contents;
  }
  static uint64_t Launches() {
    fake_cuda_counts counts;
    fake_cuda_get_counts(&counts);
    return counts.launches;
  }
  int ValueOf(const Memory& memory, size_t buffer) {
    int value = 0;
    std::memcpy(&value, memory.buffers[buffer].data(), sizeof(value));
    return value;
  }
  GpuArch arch_ = kGpuArchs[0];
  // The machine's.
  const std::unique_ptr<const CublasLtLibrary> library_ =
      std::make_unique<CublasLtLibrary>(FAKE_CUBLASLT_LIBRARY, 13000);
  KernelStore store_{{CompilerOptions(), {}, "", 0}};
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<compute::GpuMachine> machine_;
  std::unique_ptr<const CublasLtLibrary> asked_;
  std::unique_ptr<GpuMultiplier> multiplier_;  // null: our own kernels multiply
};

}  // namespace ferry::compute::testing
