// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/huge_pages.h"

namespace ferry {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

UniqueFd Memfd(uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

void ExpectRefused(UniqueFd fd, uint64_t bytes, Reason reason) {
  const auto mapping = HostMapping::Map(std::move(fd), bytes, HostMapping::Access::kReadWrite);
  ASSERT_FALSE(mapping.ok());
  EXPECT_EQ(mapping.status().code(), absl::StatusCode::kInvalidArgument) << mapping.status();
  EXPECT_EQ(ReasonOf(mapping.status()), reason) << mapping.status();
}

TEST(HostMapping, SharesBytesWithTheOwner) {
  UniqueFd fd = Memfd(10'000, kSeals);
  const int owner = dup(fd.get());
  auto mapping = HostMapping::Map(std::move(fd), 10'000, HostMapping::Access::kReadWrite);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ((*mapping)->bytes(), 10'000u);
  ASSERT_EQ(pwrite(owner, "ferry", 5, 9'000), 5);
  EXPECT_EQ(std::memcmp((*mapping)->data() + 9'000, "ferry", 5), 0);
  std::memcpy((*mapping)->data(), "other", 5);
  char seen[5];
  ASSERT_EQ(pread(owner, seen, 5, 0), 5);
  EXPECT_EQ(std::memcmp(seen, "other", 5), 0);
  // A hole punched under the mapping reads as zeros and faults nobody.
  ASSERT_EQ(fallocate(owner, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 1808), 0);
  EXPECT_EQ((*mapping)->data()[9'000], std::byte{0});
  close(owner);
}

TEST(HostMapping, RefusesWhatCouldFault) {
  ExpectRefused(UniqueFd(), 1, Reason::kFieldInvalid);
  ExpectRefused(Memfd(4096, kSeals), 0, Reason::kFieldInvalid);
  ExpectRefused(Memfd(4096, kSeals), 4097, Reason::kFieldInvalid);
  ExpectRefused(Memfd(4096, kSeals), ~uint64_t{0}, Reason::kFieldInvalid);
  ExpectRefused(Memfd(4096, 0), 4096, Reason::kMemfdUnsealed);
  ExpectRefused(Memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW), 4096, Reason::kMemfdUnsealed);
  ExpectRefused(Memfd(4096, F_SEAL_GROW | F_SEAL_SEAL), 4096, Reason::kMemfdUnsealed);
  ExpectRefused(UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 4096,
                Reason::kFieldInvalid);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[1]);
  ExpectRefused(UniqueFd(ends[0]), 4096, Reason::kFieldInvalid);
}

TEST(HostMapping, RefusesHugePages) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(ftruncate(fd.get(), 2 << 20), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kSeals), 0);
  ExpectRefused(std::move(fd), 4096, Reason::kFieldInvalid);
}

TEST(HostMapping, NoAddressSpaceIsAnError) {
  // Sparse, and more than 47 bits of addresses.
  UniqueFd fd = Memfd(uint64_t{1} << 62, kSeals);
  const auto mapping =
      HostMapping::Map(std::move(fd), uint64_t{1} << 62, HostMapping::Access::kReadOnly);
  ASSERT_FALSE(mapping.ok());
  EXPECT_EQ(mapping.status().code(), absl::StatusCode::kResourceExhausted) << mapping.status();
  EXPECT_EQ(ReasonOf(mapping.status()), Reason::kDeviceMemory);
}

TEST(HostMapping, ReadOnlyOfAWriteSealedOrReadOnlyDescriptor) {
  UniqueFd fd = Memfd(4096, kSeals);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  UniqueFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  UniqueFd again(dup(read_only.get()));
  EXPECT_TRUE(HostMapping::Map(std::move(read_only), 4096, HostMapping::Access::kReadOnly).ok());
  ExpectRefused(std::move(again), 4096, Reason::kFieldInvalid);
}

// Wherever the kernel put the mappings before: huge pages of the file can be mapped as such.
TEST(HostMapping, StartsWhereHugePagesCan) {
  std::vector<std::unique_ptr<HostMapping>> mappings;
  for (uint64_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage + 8192}) {
    auto mapping = HostMapping::Map(Memfd(4096, kSeals), 4096, HostMapping::Access::kReadWrite);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    mappings.push_back(*std::move(mapping));
    mapping = HostMapping::Map(Memfd(bytes, kSeals), bytes, HostMapping::Access::kReadWrite);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*mapping)->data()) % kHugePage, 0u) << bytes;
    mappings.push_back(*std::move(mapping));
  }
}

// All of it is there in the end: nothing that is written can fail for want of memory.
TEST(HostMapping, MakesItsPagesInSteps) {
  constexpr uint64_t kBytes = HostMapping::kPagesAtOnce + 4096;
  auto made = HostMapping::Create(kBytes);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*(*made)->MakePages(), false);
  EXPECT_EQ(*(*made)->MakePages(), true);
  struct stat file;
  ASSERT_EQ(fstat((*made)->fd(), &file), 0);
  EXPECT_GE(static_cast<uint64_t>(file.st_blocks) * 512, kBytes);
  EXPECT_EQ((*made)->data()[kBytes - 1], std::byte{0});
  EXPECT_EQ(*(*made)->MakePages(), true);
}

// The mapping must stay out of core files and of forked children.
TEST(HostMapping, IsNeitherDumpedNorForked) {
  auto mapping = HostMapping::Map(Memfd(4096, kSeals), 4096, HostMapping::Access::kReadWrite);
  ASSERT_TRUE(mapping.ok());
  char start[32];
  snprintf(start, sizeof(start), "%lx-", reinterpret_cast<unsigned long>((*mapping)->data()));
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  std::string flags;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind(start, 0) == 0) inside = true;
    if (inside && line.rfind("VmFlags:", 0) == 0) {
      flags = line;
      break;
    }
  }
  EXPECT_NE(flags.find(" dd"), std::string::npos) << flags;
  EXPECT_NE(flags.find(" dc"), std::string::npos) << flags;
}

}  // namespace
}  // namespace ferry
