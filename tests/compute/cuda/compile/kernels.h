// SPDX-License-Identifier: Apache-2.0
// What tests of compiled kernels need: NVRTC, a temporary folder, a kernel.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "compute/cuda/compile/compile_child.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/cuda/nvrtc.h"

namespace ferry::compute::testing {

// The NVRTC library to use: FERRY_NVRTC_LIBRARY if it is set, else the toolkit's (""), else the one
// that tools/setup unpacked.
inline std::string NvrtcLibrary() {
  const char* const library = std::getenv("FERRY_NVRTC_LIBRARY");
  if (library != nullptr) return library;
#ifdef UNPACKED_NVRTC
  if (!LoadNvrtc().ok()) return UNPACKED_NVRTC;
#endif
  return "";
}
inline bool HasNvrtc() { return LoadNvrtc(NvrtcLibrary()).ok(); }
#define SKIP_WITHOUT_NVRTC() \
  if (!testing::HasNvrtc()) GTEST_SKIP() << "NO NVRTC"

inline CompileChild::Options ChildOptions() {
  CompileChild::Options options;
  options.program = FERRY_COMPILE;
  options.nvrtc = NvrtcLibrary();
  return options;
}

// A kernel that adds `number` to x[0]; its name is kEntryPlace.
inline GpuKernel Adding(int number, const std::string& name = "add") {
  return {name, absl::StrCat("extern \"C\" __global__ void ", kEntryPlace,
                             "(float* x) { x[0] += ", number, "; }")};
}

// Gives each test a folder of its own, with mode 0700, which is removed afterwards.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    std::string path = (std::filesystem::temp_directory_path() / "kernels-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  static std::string ReadFile(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void WriteFile(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  std::filesystem::path folder_;
};

}  // namespace ferry::compute::testing
