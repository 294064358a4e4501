// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/kernel_store.h"

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "compute/cuda/compile/packaged_kernels.h"
#include "tests/compute/cuda/compile/kernels.h"
#include "tests/support/await.h"

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

// As far as a process can wait for the background.
void AwaitBackground(const KernelStore& store) {
  EXPECT_TRUE(ferry::testing::Await([&] { return store.counts().waiting == 0; }));
}

TEST_F(KernelStoreTest, TiersAreKernelsOfTheirOwnAndTheFullOneComesInTheBackground) {
  SKIP_WITHOUT_NVRTC();
  KernelStore::Options options = Options();
  options.tiers = true;
  absl::Notification go;
  options.before_full = [&] { go.WaitForNotification(); };
  KernelStore store(options);
  const StoredKernel* const full = store.Find(Adding(1), kGpuArchs[0]);
  EXPECT_EQ(full->code(), nullptr);
  const auto first = store.Get(Adding(1), kGpuArchs[0], Tier::kFirst);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->from, From::kCompiler);
  ASSERT_TRUE(store.Later(Adding(1), kGpuArchs[0]).ok());
  ASSERT_TRUE(store.Later(Adding(1), kGpuArchs[0]).ok());
  EXPECT_EQ(store.counts().waiting, 1u);
  EXPECT_EQ(full->code(), nullptr);
  go.Notify();
  AwaitBackground(store);
  ASSERT_NE(full->code(), nullptr);
  EXPECT_NE(full->code(), first->kernel);
  EXPECT_EQ(store.Get(Adding(1), kGpuArchs[0])->from, From::kMemory);
  EXPECT_EQ(store.counts().compiled, 1u);
  EXPECT_EQ(store.counts().compiled_first, 1u);

  KernelStore next(options);  // both are on disk
  EXPECT_EQ(next.Get(Adding(1), kGpuArchs[0], Tier::kFirst)->from, From::kDisk);
  EXPECT_NE(next.Find(Adding(1), kGpuArchs[0])->code(), nullptr);
  EXPECT_EQ(next.counts().found, 2u);
}

// The child that hangs is killed when the store goes, long before its time is up.
TEST_F(KernelStoreTest, AStoreThatGoesWaitsForNoBackground) {
  SKIP_WITHOUT_NVRTC();
  KernelStore::Options options = Options();
  options.tiers = true;
  options.cache.clear();
  absl::Notification begun;
  options.before_full = [&] {
    if (!begun.HasBeenNotified()) begun.Notify();
  };
  KernelStore store(options);
  std::string slow = absl::StrCat("extern \"C\" __global__ void ", kEntryPlace, "(float* x) {\n");
  for (int i = 0; i < 40000; ++i) {
    absl::StrAppend(&slow, "x[", i, "] = sinf(x[", i, "] * x[", i + 1, "]);\n");
  }
  ASSERT_TRUE(store.Later({"slow", slow + "}"}, kGpuArchs[0]).ok());
  ASSERT_TRUE(store.Later(Adding(1), kGpuArchs[0]).ok());
  begun.WaitForNotification();
}

// A directory as a package brings it, with these kernels. Their code is no code.
class PackageTest : public KernelStoreTest {
 protected:
  std::string Pack(const std::vector<GpuKernel>& kernels, const std::string& version = "13.0") {
    const std::string path = (folder_ / "package").string();
    absl::StatusOr<CubinCache> package = CubinCache::Open(path, CubinCache::Access::kOwn);
    EXPECT_TRUE(package.ok()) << package.status();
    for (const GpuKernel& kernel : kernels) {
      EXPECT_TRUE(package->Add(PackagedKey(kernel, kGpuArchs[0]), {"packed", 8, 0, ""}).ok());
    }
    WriteFile(folder_ / "package" / kPackagedVersionFile, version + "\n");
    return path;
  }
  KernelStore::Options WithoutCompiler() {
    KernelStore::Options options;
    options.compiler.program = "/nowhere/ferry-compile";
    return options;
  }
};

TEST_F(PackageTest, WhatAPackageBringsNeedsNoCompiler) {
  KernelStore::Options options = WithoutCompiler();
  options.packaged = {Pack({Adding(1)})};
  options.cache = Options().cache;
  KernelStore store(options);
  const absl::StatusOr<KernelStore::Got> got = store.Get(Adding(1, "a label"), kGpuArchs[0]);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->from, From::kDisk);
  EXPECT_EQ(got->kernel->cubin, "packed");
  EXPECT_EQ(store.counts().packaged, 1u);
  EXPECT_EQ(store.Get(Adding(2), kGpuArchs[0]).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store.Get(Adding(1), kGpuArchs[1]).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PackageTest, TheCacheGoesBeforeIt) {
  SKIP_WITHOUT_NVRTC();
  KernelStore maker(Options());
  ASSERT_EQ(FromOf(maker, Adding(1)), From::kCompiler);
  KernelStore::Options options = Options();
  options.packaged = {Pack({Adding(1), Adding(2)})};
  KernelStore store(options);
  EXPECT_NE(store.Get(Adding(1), kGpuArchs[0])->kernel->cubin, "packed");
  EXPECT_EQ(store.Get(Adding(2), kGpuArchs[0])->kernel->cubin, "packed");
  EXPECT_EQ(FromOf(store, Adding(3)), From::kCompiler);
  EXPECT_EQ(store.counts().found, 1u);
  EXPECT_EQ(store.counts().packaged, 1u);
}

TEST_F(PackageTest, ACorruptEntryIsAMissAndStays) {
  SKIP_WITHOUT_NVRTC();
  KernelStore::Options options = Options();
  options.packaged = {Pack({Adding(1)})};
  const std::filesystem::path entry = folder_ / "package" / PackagedKey(Adding(1), kGpuArchs[0]);
  std::string bytes = ReadFile(entry);
  bytes.back() ^= 1;
  WriteFile(entry, bytes);
  KernelStore store(options);
  EXPECT_EQ(FromOf(store, Adding(1)), From::kCompiler);
  EXPECT_EQ(ReadFile(entry), bytes);
}

TEST_F(PackageTest, ADriverThatIsOlderThanItTakesNothingOfIt) {
  const std::string path = Pack({}, "13.1");
  EXPECT_TRUE(CheckPackagedKernels(path, "13.0").ok());
  EXPECT_TRUE(CheckPackagedKernels(path, "14.2").ok());
  const absl::Status old = CheckPackagedKernels(path, "12.9");
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(old.message().find("the driver is of CUDA 12.9"), absl::string_view::npos) << old;
  EXPECT_FALSE(CheckPackagedKernels(Pack({}, "nonsense"), "13.0").ok());
  EXPECT_FALSE(CheckPackagedKernels("/nowhere", "13.0").ok());
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
  options.packaged = {"/nowhere"};
  KernelStore store(options);
  EXPECT_EQ(store.warnings().size(), 2u);
  EXPECT_EQ(FromOf(store, Adding(1)), From::kCompiler);
  EXPECT_EQ(FromOf(store, Adding(1)), From::kMemory);
}

}  // namespace
}  // namespace ferry::compute
