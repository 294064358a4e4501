// SPDX-License-Identifier: Apache-2.0
// What a package brings serves programs of other sizes, without a compiler.
#include "compute/cuda/run/common_programs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "compute/cuda/compile/packaged_kernels.h"
#include "compute/cuda/run/gpu_program.h"
#include "compute/passes/passes.h"
#include "tests/compute/parsed_program.h"

namespace ferry::compute {
namespace {

class CommonProgramsTest : public ::testing::Test {
 protected:
  CommonProgramsTest() {
    std::string path = (std::filesystem::temp_directory_path() / "package-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  ~CommonProgramsTest() override { std::filesystem::remove_all(folder_); }

  absl::Status Pack() {
    CompileChild::Options compiler;
    compiler.program = FERRY_COMPILE;
    compiler.nvrtc = FAKE_NVRTC_LIBRARY;
    return PackCommonKernels(folder_, compiler, absl::MakeConstSpan(kGpuArchs).first(1));
  }
  // OK if the program's kernels are all there.
  absl::Status Make(const Program& program) {
    KernelStore::Options options;
    options.compiler.program = "/nowhere/ferry-compile";
    options.packaged = {folder_};
    options.tiers = true;
    KernelStore store(options);
    const absl::StatusOr<GpuProgram> made = GpuProgram::Make(program, kGpuArchs[0], store);
    if (!made.ok()) return made.status();
    EXPECT_TRUE(made->full());
    EXPECT_EQ(made->compiled(), 0);
    EXPECT_EQ(store.counts().packaged, made->plan().kernels.size());
    return absl::OkStatus();
  }

  std::string folder_;
};

TEST_F(CommonProgramsTest, OtherSizesAndLabelsAreServedToo) {
  ASSERT_TRUE(Pack().ok());
  EXPECT_TRUE(CheckPackagedKernels(folder_, "13.0").ok());
  std::set<std::string> names;
  for (const CommonProgram& common : CommonPrograms()) {
    names.insert(common.name);
    EXPECT_TRUE(Make(common.program).ok()) << common.name;
  }
  EXPECT_GT(names.size(), 40u);
  const char* const others[] = {
      "buffer @weights read 12000000\nbuffer @wire write 6000000\n"
      "%x = input @weights : f32[1000,3000]\n%y = convert %x : bf16[1000,3000] \"label\"\n"
      "store @wire, %y\n",
      "buffer @g read_write 16777216\nbuffer @in read 8388608\n%x = input @in : bf16[4194304]\n"
      "%w = convert %x : f32[4194304]\naccumulate @g, %w\n",
      "buffer @x read 1073741824\nbuffer @y write 536870912\nbuffer @s write 16777216\n"
      "%x = input @x : bf16[65536,8192]\n%q, %s = quantize_block %x block=32 : "
      "f8e4m3fn[65536,8192], f8e8m0fnu[65536,256]\nstore @y, %q\nstore @s, %s\n",
      "buffer @x read 123456\nbuffer @y write 16\n%x = input @x : f32[30864]\n"
      "%s = checksum %x\nstore @y, %s\n"};
  for (const char* text : others) {
    const Program program = Simplify(testing::ParsedProgram(absl::StrCat("program 1\n", text)));
    EXPECT_TRUE(Make(program).ok()) << text;
  }
  EXPECT_EQ(Make(testing::ParsedProgram("program 1\nbuffer @y write 16\n"
                                        "%x = iota dimension=0 : u32[4]\nstore @y, %x\n"))
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(CommonProgramsTest, PackedAnewNothingElseStays) {
  const auto put = [&](const char* name) { std::ofstream(folder_ + "/" + name) << "old"; };
  const auto has = [&](const char* name) { return std::filesystem::exists(folder_ + "/" + name); };
  put("unfinished");
  ASSERT_TRUE(Pack().ok());
  EXPECT_FALSE(has("unfinished"));
  EXPECT_TRUE(has(kPackagedVersionFile));
}

}  // namespace
}  // namespace ferry::compute
