// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/compile_child.h"

#include <sys/stat.h>

#include <string>

#include "base/status.h"
#include "compute/cuda/compile/confine.h"
#include "compute/cuda/kernel_compiler.h"
#include "tests/compute/cuda/compile/kernels.h"

namespace ferry::compute {
namespace {

constexpr char kGood[] = "extern \"C\" __global__ void k(float* x) { x[0] *= 2; }";

// Slow by its size: NVRTC needs minutes.
std::string Endless() {
  std::string source = "extern \"C\" __global__ void k(float* x) {\n";
  for (int i = 0; i < 40000; ++i) {
    absl::StrAppend(&source, "x[", i, "] = sinf(x[", i, "] * x[", i + 1, "]);\n");
  }
  return absl::StrCat(source, "}");
}

class CompileChildTest : public testing::FolderTest {
 protected:
  // A program in place of ferry-compile.
  CompileChild::Options Script(const std::string& text) {
    CompileChild::Options options;
    options.program = (folder_ / "script").string();
    WriteFile(options.program, absl::StrCat("#!/bin/sh\n", text, "\n"));
    EXPECT_EQ(chmod(options.program.c_str(), 0700), 0);
    return options;
  }
};

TEST_F(CompileChildTest, CompilesAsThisProcessWould) {
  SKIP_WITHOUT_NVRTC();
  const NvrtcApi& nvrtc = **LoadNvrtc(testing::NvrtcLibrary());
  CompileChild child(testing::ChildOptions());
  EXPECT_EQ(*child.Version(), nvrtc.version);
  for (const GpuArch& arch : {kGpuArchs[0], kGpuArchs[1], kGpuArchs[0]}) {
    const absl::StatusOr<CompiledKernel> here = CompileKernel(nvrtc, kGood, arch);
    const absl::StatusOr<CompiledKernel> there = child.Compile(kGood, arch);
    ASSERT_TRUE(here.ok() && there.ok()) << there.status();
    EXPECT_TRUE(here->cubin == there->cubin);
    EXPECT_EQ(here->registers, there->registers);
  }
  EXPECT_EQ(child.started(), 1);
}

TEST_F(CompileChildTest, WhatDoesNotCompileEndsNobody) {
  SKIP_WITHOUT_NVRTC();
  CompileChild child(testing::ChildOptions());
  const absl::Status status =
      child.Compile("__global__ void k() { nonsense; }", kGpuArchs[0]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("nonsense"), absl::string_view::npos) << status;
  EXPECT_TRUE(child.Compile(kGood, kGpuArchs[0]).ok());
  EXPECT_EQ(child.started(), 1);
}

// No file of the machine gets into a kernel, be it by what a source includes.
TEST_F(CompileChildTest, SourcesReachNoFiles) {
  SKIP_WITHOUT_NVRTC();
  if (!kConfines) GTEST_SKIP() << "the sanitizer needs what is taken";
  WriteFile(folder_ / "header.h", "extern \"C\" __global__ void k() {}\n");
  CompileChild child(testing::ChildOptions());
  const std::string source = absl::StrCat("#include \"", (folder_ / "header.h").string(), "\"\n");
  EXPECT_FALSE(child.Compile(source, kGpuArchs[0]).ok());
}

TEST_F(CompileChildTest, WhatTakesTooLongIsKilledAndTheNextOneIsCompiled) {
  SKIP_WITHOUT_NVRTC();
  CompileChild::Options options = testing::ChildOptions();
  options.patience = absl::Seconds(10);
  CompileChild child(options);
  ASSERT_TRUE(child.Version().ok());
  const absl::Status status = child.Compile(Endless(), kGpuArchs[0]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(HasReason(status, Reason::kExecuting));
  EXPECT_TRUE(child.Compile(kGood, kGpuArchs[0]).ok());
  EXPECT_EQ(child.started(), 2);
}

TEST_F(CompileChildTest, WhoIsGoneIsSaidAndStartedAnew) {
  for (const auto& [script, says] :
       {std::pair<const char*, const char*>{"exit 3", "ended with status 3"},
        {"kill -SEGV $$", "ended by signal 11"}}) {
    CompileChild child(Script(script));
    const absl::Status status = child.Compile(kGood, kGpuArchs[0]).status();
    EXPECT_NE(status.message().find(says), absl::string_view::npos) << status;
    EXPECT_FALSE(child.Compile(kGood, kGpuArchs[0]).ok());
    EXPECT_EQ(child.started(), 2);
  }
}

TEST_F(CompileChildTest, WhoHangsUpAndStaysIsKilled) {
  CompileChild::Options options = Script("exec 0<&- 1>&-; while :; do :; done");
  options.patience = absl::Seconds(2);
  CompileChild child(options);
  const absl::Status status = child.Version().status();
  EXPECT_NE(status.message().find("ended by signal 9"), absl::string_view::npos) << status;
}

TEST_F(CompileChildTest, NonsenseOfAChildIsNotBelieved) {
  for (const char* const script : {"printf '\\377\\377\\377\\377\\377\\377\\377\\377'",
                                   "printf '\\3\\0\\0\\0\\0\\0\\0\\0abc'", "printf 'hello'"}) {
    CompileChild child(Script(script));
    EXPECT_FALSE(child.Version().ok()) << script;
  }
}

TEST_F(CompileChildTest, WhatIsMissingIsNamed) {
  CompileChild::Options options = testing::ChildOptions();
  options.program = "/nowhere/ferry-compile";
  absl::Status status = CompileChild(options).Version().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("/nowhere/ferry-compile"), absl::string_view::npos) << status;
  options = testing::ChildOptions();
  options.nvrtc = "/nowhere/libnvrtc.so";
  status = CompileChild(options).Version().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("/nowhere/libnvrtc.so"), absl::string_view::npos) << status;
}

TEST_F(CompileChildTest, TheCompilerIsFoundBesideTheProgram) {
  EXPECT_EQ(FindCompiler(), FERRY_COMPILE);
}

}  // namespace
}  // namespace ferry::compute
