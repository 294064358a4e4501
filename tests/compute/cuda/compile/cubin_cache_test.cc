// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/cubin_cache.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/compute/cuda/compile/kernels.h"

namespace ferry::compute {
namespace {

using Access = CubinCache::Access;

std::string Key(char digit) { return std::string(64, digit); }

CompiledKernel KernelOf(const std::string& cubin) {
  CompiledKernel kernel;
  kernel.cubin = cubin;
  kernel.registers = 17;
  kernel.log = "as it was compiled";
  return kernel;
}

class CubinCacheTest : public testing::FolderTest {
 protected:
  CubinCache Open(Access access = Access::kOwn, uint64_t most = CubinCache::kMostBytes) {
    absl::StatusOr<CubinCache> cache = CubinCache::Open(Path(), access, most);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  std::string Path() const { return (folder_ / "cache").string(); }
  std::filesystem::path FileOf(char digit) const { return folder_ / "cache" / Key(digit); }
  size_t Files() const {
    size_t files = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(Path())) ++files;
    return files;
  }
  // When the file was read last, as the cache sees it.
  void SetAge(char digit, int64_t seconds) {
    const timespec times[2] = {{0, UTIME_OMIT}, {time(nullptr) - seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, FileOf(digit).c_str(), times, 0), 0);
  }
};

TEST_F(CubinCacheTest, WhatOneHasAddedAnotherFinds) {
  CubinCache one = Open(), another = Open();
  EXPECT_FALSE(another.Find(Key('a')).has_value());
  ASSERT_TRUE(one.Add(Key('a'), KernelOf("code")).ok());
  for (CubinCache* cache : {&one, &another}) {
    const std::optional<CompiledKernel> found = cache->Find(Key('a'));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->cubin, "code");
    EXPECT_EQ(found->registers, 17);
    EXPECT_EQ(found->log, "as it was compiled");
  }
  ASSERT_TRUE(another.Add(Key('a'), KernelOf("code")).ok()) << "it may be there already";
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(one.corrupt() + another.corrupt(), 0u);
}

TEST_F(CubinCacheTest, WhatIsWrongIsNotKnownAndGoes) {
  CubinCache cache = Open();
  ASSERT_TRUE(cache.Add(Key('a'), KernelOf("code")).ok());
  const std::string good = ReadFile(FileOf('a'));
  std::vector<std::string> wrong = {"", good.substr(0, 12), good.substr(0, good.size() - 1),
                                    good + "x"};
  for (size_t i = 0; i < good.size(); ++i) {
    wrong.push_back(good);
    wrong.back()[i] ^= 1;
  }
  for (const std::string& bytes : wrong) {
    WriteFile(FileOf('a'), bytes);
    EXPECT_FALSE(cache.Find(Key('a')).has_value());
    EXPECT_FALSE(std::filesystem::exists(FileOf('a')));
  }
  EXPECT_EQ(cache.corrupt(), wrong.size());
  WriteFile(FileOf('a'), good);
  EXPECT_TRUE(cache.Find(Key('a')).has_value());
}

TEST_F(CubinCacheTest, AReadOnlyOneStaysAsItIs) {
  ASSERT_TRUE(Open().Add(Key('a'), KernelOf("code")).ok());
  CubinCache cache = Open(Access::kReadOnly);
  EXPECT_TRUE(cache.Find(Key('a')).has_value());
  EXPECT_FALSE(cache.Add(Key('b'), KernelOf("code")).ok());
  WriteFile(FileOf('a'), "no kernel");
  EXPECT_FALSE(cache.Find(Key('a')).has_value());
  EXPECT_TRUE(std::filesystem::exists(FileOf('a')));
}

TEST_F(CubinCacheTest, NothingIsBelievedOfWhereOthersMayWrite) {
  Open();
  for (const mode_t mode : {0770, 0707, 0777}) {
    ASSERT_EQ(chmod(Path().c_str(), mode), 0);
    for (const Access access : {Access::kOwn, Access::kReadOnly}) {
      const absl::Status status = CubinCache::Open(Path(), access).status();
      EXPECT_TRUE(HasReason(status, Reason::kConfigInvalid)) << status;
      EXPECT_NE(status.message().find("chmod go-w"), absl::string_view::npos) << status;
    }
  }
  ASSERT_EQ(chmod(Path().c_str(), 0700), 0);
  const std::string link = (folder_ / "link").string();
  ASSERT_EQ(symlink(Path().c_str(), link.c_str()), 0);
  EXPECT_FALSE(CubinCache::Open(link, Access::kReadOnly).ok());
  EXPECT_FALSE(CubinCache::Open((folder_ / "a" / "b").string(), Access::kOwn).ok());
  // A link in place of a file leads nowhere.
  WriteFile(folder_ / "elsewhere", "x");
  ASSERT_EQ(symlink((folder_ / "elsewhere").c_str(), FileOf('a').c_str()), 0);
  EXPECT_FALSE(Open().Find(Key('a')).has_value());
}

TEST_F(CubinCacheTest, WhatWasNotReadForLongestGoesFirst) {
  const std::string code(1000, 'c');
  {
    CubinCache cache = Open();
    for (const char digit : {'1', '2', '3', '4'}) {
      ASSERT_TRUE(cache.Add(Key(digit), KernelOf(code)).ok());
      SetAge(digit, 100 * (5 - (digit - '0')));  // '1' is the oldest
    }
    EXPECT_TRUE(cache.Find(Key('1')).has_value());  // and no more
    EXPECT_GT(cache.bytes(), 4000u);
  }
  CubinCache cache = Open(Access::kOwn, 4800);
  ASSERT_TRUE(cache.Add(Key('5'), KernelOf(code)).ok());
  EXPECT_LE(cache.bytes(), 4800u);
  EXPECT_FALSE(cache.Find(Key('2')).has_value());
  EXPECT_TRUE(cache.Find(Key('1')).has_value());
  EXPECT_TRUE(cache.Find(Key('5')).has_value());
  EXPECT_FALSE(cache.Add(Key('6'), KernelOf(std::string(5000, 'c'))).ok()) << "more than all";
}

TEST_F(CubinCacheTest, SeveralThatAddAreBoundedTogether) {
  constexpr uint64_t kMost = 64'000;
  std::vector<CubinCache> caches;
  for (int i = 0; i < 4; ++i) caches.push_back(Open(Access::kOwn, kMost));
  constexpr absl::string_view kDigits = "0123456789abcdef";
  for (size_t i = 0; i < 256; ++i) {  // 1,000 bytes each: a fourth of all from each
    std::string key(64, kDigits[i % 16]);
    key[0] = kDigits[i / 16];
    ASSERT_TRUE(caches[i % 4].Add(key, KernelOf(std::string(900, 'c'))).ok());
    uint64_t all = 0;
    for (const auto& file : std::filesystem::directory_iterator(Path())) all += file.file_size();
    ASSERT_LE(all, kMost + 4 * kMost / 64 + 1'100) << i;
  }
}

TEST_F(CubinCacheTest, WhatWasNeverFinishedGoes) {
  Open();
  for (const char* const name : {"unfinished-1-1", "unfinished-1-2"}) {
    WriteFile(folder_ / "cache" / name, "half");
  }
  const timespec old[2] = {{0, UTIME_OMIT}, {time(nullptr) - 7200, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder_ / "cache" / "unfinished-1-1").c_str(), old, 0), 0);
  WriteFile(folder_ / "cache" / "something else", "of somebody");
  Open();
  EXPECT_EQ(Files(), 2u) << "what may be written just now stays, and what is none of ours";
}

TEST_F(CubinCacheTest, NoRoomIsSaidAndLeavesNothing) {
  CubinCache cache = Open();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = cache.Add(Key('a'), KernelOf(std::string(1000, 'c')));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find(Path()), absl::string_view::npos) << status;
  EXPECT_EQ(Files(), 0u);
}

TEST_F(CubinCacheTest, OnlyKeysAreNames) {
  CubinCache cache = Open();
  WriteFile(folder_ / "passwd", "secret");
  for (const std::string& key :
       {std::string("../passwd"), std::string(), Key('G'), Key('a') + "a"}) {
    EXPECT_FALSE(cache.Find(key).has_value());
    EXPECT_FALSE(cache.Add(key, KernelOf("code")).ok());
  }
}

}  // namespace
}  // namespace ferry::compute
