// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/kernel_store.h"

#include <sys/stat.h>

#include <string>

#include "base/status.h"
#include "tests/compute/cuda/compile/kernels.h"

namespace ferry::compute {
namespace {

using From = KernelStore::From;
using testing::Adding;

class KernelStoreTest : public testing::FolderTest {
 protected:
  KernelStore::Options Options() const {
    KernelStore::Options options;
    options.compiler = testing::ChildOptions();
    options.cache = (folder_ / "cache").string();
    return options;
  }
  static From FromOf(KernelStore& store, const GpuKernel& kernel,
                     const GpuArch& arch = kGpuArchs[0]) {
    const absl::StatusOr<KernelStore::Got> got = store.Get(kernel, arch);
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? got->from : From::kCompiler;
  }
};

TEST_F(KernelStoreTest, EachKernelIsCompiledOnce) {
  SKIP_WITHOUT_NVRTC();
  KernelStore store(Options());
  EXPECT_EQ(FromOf(store, Adding(1)), From::kCompiler);
  EXPECT_EQ(FromOf(store, Adding(1)), From::kMemory);
  EXPECT_EQ(FromOf(store, Adding(2)), From::kCompiler);
  EXPECT_EQ(FromOf(store, Adding(1), kGpuArchs[1]), From::kCompiler);
  EXPECT_EQ(FromOf(store, Adding(1, "another label")), From::kMemory);
  KernelStore next(Options());  // another process, or the next life
  EXPECT_EQ(FromOf(next, Adding(1)), From::kDisk);
  EXPECT_EQ(FromOf(next, Adding(1)), From::kMemory);
  EXPECT_TRUE(store.warnings().empty() && next.warnings().empty());
}

// What a launch looks for in the machine code, and nothing that a client has called it.
TEST_F(KernelStoreTest, TheEntryIsTheStoresOwn) {
  SKIP_WITHOUT_NVRTC();
  KernelStore store(Options());
  const absl::StatusOr<KernelStore::Got> got = store.Get(Adding(1, "secret_label"), kGpuArchs[0]);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_NE(got->kernel->cubin.find(kStoredEntry), std::string::npos);
  EXPECT_EQ(got->kernel->cubin.find("secret_label"), std::string::npos);
}

TEST_F(KernelStoreTest, WhatAPackageBringsIsLookedIntoFirst) {
  SKIP_WITHOUT_NVRTC();
  KernelStore maker(Options());
  ASSERT_EQ(FromOf(maker, Adding(1)), From::kCompiler);
  KernelStore::Options options = Options();
  options.read_only = {options.cache};
  options.cache.clear();
  KernelStore store(options);
  EXPECT_EQ(FromOf(store, Adding(1)), From::kDisk);
  EXPECT_EQ(FromOf(store, Adding(2)), From::kCompiler);
}

TEST_F(KernelStoreTest, ACorruptEntryIsCompiledAnew) {
  SKIP_WITHOUT_NVRTC();
  KernelStore maker(Options());
  ASSERT_EQ(FromOf(maker, Adding(1)), From::kCompiler);
  for (const auto& file : std::filesystem::directory_iterator(Options().cache)) {
    std::string bytes = ReadFile(file.path());
    bytes[bytes.size() / 2] ^= 1;
    WriteFile(file.path(), bytes);
  }
  KernelStore store(Options());
  EXPECT_EQ(FromOf(store, Adding(1)), From::kCompiler);
  KernelStore next(Options());
  EXPECT_EQ(FromOf(next, Adding(1)), From::kDisk);
}

TEST_F(KernelStoreTest, ADirectoryThatCannotBeUsedIsAWarning) {
  SKIP_WITHOUT_NVRTC();
  ASSERT_EQ(mkdir((folder_ / "cache").c_str(), 0700), 0);
  ASSERT_EQ(chmod((folder_ / "cache").c_str(), 0777), 0);
  KernelStore::Options options = Options();
  options.read_only = {"/nowhere"};
  KernelStore store(options);
  EXPECT_EQ(store.warnings().size(), 2u);
  EXPECT_EQ(FromOf(store, Adding(1)), From::kCompiler);
  EXPECT_EQ(FromOf(store, Adding(1)), From::kMemory);
}

}  // namespace
}  // namespace ferry::compute
