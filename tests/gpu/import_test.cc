// SPDX-License-Identifier: Apache-2.0
// The application's own GPU memory as arenas: VMM allocations by pointer and by descriptor, and
// DLPack tensors; and what cannot be shared is refused with the reason.
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ferry/dlpack.hpp"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGranule = 2 * kMiB;

class GpuImportTest : public GpuTest {
 protected:
  void TearDown() override {
    GpuTest::TearDown();
    for (const auto& [begin, sizes] : mapped_) {
      CUdeviceptr at = begin;
      for (const uint64_t size : sizes) {
        EXPECT_CU(driver_->cuMemUnmap(at, size));
        at += size;
      }
      EXPECT_CU(driver_->cuMemAddressFree(begin, at - begin));
    }
  }

  CUmemGenericAllocationHandle MakeOwn(uint64_t bytes, bool shareable) {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    wanted.requestedHandleTypes =
        shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(driver_->cuMemCreate(&handle, bytes, &wanted, 0));
    return handle;
  }
  // Allocations in a row on the first GPU, mapped as an application would.
  char* MapOwn(const std::vector<uint64_t>& sizes, bool shareable = true) {
    EXPECT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
    uint64_t total = 0;
    for (const uint64_t size : sizes) total += size;
    CUdeviceptr begin = 0;
    EXPECT_CU(driver_->cuMemAddressReserve(&begin, total, 0, 0, 0));
    CUdeviceptr at = begin;
    for (const uint64_t size : sizes) {
      const CUmemGenericAllocationHandle handle = MakeOwn(size, shareable);
      EXPECT_CU(driver_->cuMemMap(at, size, 0, handle, 0));
      EXPECT_CU(driver_->cuMemRelease(handle));
      at += size;
    }
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_CU(driver_->cuMemSetAccess(begin, total, &access, 1));
    mapped_[begin] = sizes;
    return reinterpret_cast<char*>(begin);
  }
  // An end without an arena yet.
  End OpenOwn() {
    End end;
    end.device = nodes().Gpu(0);
    end.session = nodes().Open(0, "test");
    return end;
  }

  std::map<CUdeviceptr, std::vector<uint64_t>> mapped_;
};

TEST_F(GpuImportTest, VmmMemoryByPointerIsSentAndReceivedAndOutlivesTheDaemon) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  for (const std::vector<uint64_t>& sizes :
       {std::vector<uint64_t>{kGranule}, std::vector<uint64_t>{kGranule, 3 * kGranule}}) {
    char* const own = MapOwn(sizes);
    const uint64_t bytes = sizes.size() * kGranule - 100;  // into the second one
    End other = Open(0, 0, bytes);
    End end = OpenOwn();
    end.arena = Must(cuda::ImportArena(end.session, end.device, own, bytes));
    EXPECT_EQ(cuda::Memory(end.arena), FERRY_MEMORY_CUDA_VMM);
    EXPECT_EQ(end.arena.data(), own);
    ExpectTransfer(end, other, "out");
    ExpectTransfer(other, end, "in");
    node(0).Kill();
    ASSERT_TRUE(node(0).Start());
    ASSERT_THAT(end.session.WaitAttached(kSoon), IsOk());
    ASSERT_THAT(other.session.WaitAttached(kSoon), IsOk());
    EXPECT_TRUE(Has(end.arena, 0, bytes, std::hash<std::string>()("in")));
    ExpectTransfer(end, other, "out again");
    ExpectTransfer(other, end, "in again");
  }
}

// As PyTorch's expandable segments are: an allocation for each 2 or 20 MiB that was needed.
TEST_F(GpuImportTest, VmmMemoryOfManyAllocationsIsOneArena) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  for (const uint64_t allocations : {3, 250}) {
    const uint64_t bytes = allocations * kGranule;
    char* const own = MapOwn(std::vector<uint64_t>(allocations, kGranule));
    End end = OpenOwn();
    end.arena = Must(cuda::ImportArena(end.session, end.device, own, bytes));
    End near = Open(0, 0, bytes), far = Open(1, 0, bytes);
    PostOptions mapped;
    mapped.route = FERRY_ROUTE_MAPPED;
    ExpectTransfer(near, end, absl::StrCat("in", allocations));
    ExpectTransfer(end, far, absl::StrCat("out", allocations), mapped);
  }
}

TEST_F(GpuImportTest, VmmMemoryByDescriptorsIsOneArena) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  End other = Open(0, 0, 3 * kGranule);
  End end = OpenOwn();
  ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  std::vector<cuda::Segment> segments;
  for (const uint64_t bytes : {kGranule, 2 * kGranule}) {
    const CUmemGenericAllocationHandle handle = MakeOwn(bytes, true);
    segments.push_back({-1, bytes});
    EXPECT_CU(driver_->cuMemExportToShareableHandle(&segments.back().fd, handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_CU(driver_->cuMemRelease(handle));
  }
  end.arena = Must(cuda::ImportArena(end.session, end.device, segments));
  for (const cuda::Segment& segment : segments) close(segment.fd);
  ExpectTransfer(end, other, "out");
  ExpectTransfer(other, end, "in");
}

TEST_F(GpuImportTest, VmmMemoryIsMappedByAnotherDaemon) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  PostOptions mapped;
  mapped.route = FERRY_ROUTE_MAPPED;
  char* const own = MapOwn({kGranule, kGranule});
  End other = Open(1, 0, 2 * kGranule);
  End end = OpenOwn();
  end.arena = Must(cuda::ImportArena(end.session, end.device, own, 2 * kGranule));
  ExpectTransfer(end, other, "out", mapped);
  ExpectTransfer(other, end, "in", mapped);
}

TEST_F(GpuImportTest, WhatCannotBeSharedIsRefusedWithTheReason) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  End end = OpenOwn();
  const auto refused = [&](void* pointer, uint64_t bytes) {
    return cuda::ImportArena(end.session, end.device, pointer, bytes);
  };
  const std::string invalid = "INVALID_ARGUMENT/FIELD_INVALID";
  EXPECT_THAT(refused(MapOwn({kGranule}) + 512, 4096),
              Is(invalid, HasSubstr("512 bytes behind the begin of its mapping")));
  EXPECT_THAT(refused(MapOwn(std::vector<uint64_t>(251, kGranule)), 251 * kGranule),
              Is(invalid, HasSubstr("251 allocations")));
  EXPECT_THAT(refused(MapOwn({kGranule}, false), kGranule),
              Is(invalid, HasSubstr("CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR")));
  int local = 0;
  EXPECT_THAT(refused(&local, sizeof(local)), Is(invalid, HasSubstr("memory of a GPU")));
  CUdeviceptr legacy = 0;
  ASSERT_CU(driver_->cuMemAlloc(&legacy, kGranule));
  EXPECT_THAT(refused(reinterpret_cast<void*>(legacy + 4096), kGranule),
              Is(invalid, HasSubstr("has only 2093056 bytes from there")));
  EXPECT_CU(driver_->cuMemFree(legacy));
  if (fake()) return;  // which has neither of these
  ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  CUdeviceptr managed = 0, pooled = 0;
  const auto allocate_managed = driver_->Find<decltype(&cuMemAllocManaged)>("cuMemAllocManaged");
  const auto allocate_async = driver_->Find<decltype(&cuMemAllocAsync)>("cuMemAllocAsync");
  ASSERT_CU(allocate_managed(&managed, kGranule, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CU(allocate_async(&pooled, kGranule, nullptr));
  ASSERT_CU(driver_->cuCtxSynchronize());
  for (const CUdeviceptr pointer : {managed, pooled}) {
    EXPECT_THAT(refused(reinterpret_cast<void*>(pointer), kGranule), Is(invalid));
    EXPECT_CU(driver_->cuMemFree(pointer));
  }
}

TEST_F(GpuImportTest, TensorsGoAndComeByDlpack) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  constexpr uint64_t kBytes = 2 * 16 * 1023;  // BF16[16,1023]
  // Ours, in a consumer's hands: it is a pointer to the GPU's memory that outlives our handle.
  End owner = Open(0, 0, kBytes);
  Fill(owner.arena, 0, kBytes, 3);
  dlpack::ManagedTensor* const exported = dlpack::Export(owner.arena, FERRY_BF16, {16, 1023});
  ASSERT_NE(exported, nullptr);
  EXPECT_EQ(exported->tensor.device.type, dlpack::kCuda);
  EXPECT_EQ(exported->tensor.device.id, 0);
  // A consumer's, which becomes an arena where it is.
  CUdeviceptr theirs = 0;
  ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  ASSERT_CU(driver_->cuMemAlloc(&theirs, kBytes));
  int64_t shape[] = {16, 1023};
  dlpack::ManagedTensor tensor{};
  tensor.tensor.data = reinterpret_cast<void*>(theirs);
  tensor.tensor.device = {dlpack::kCuda, 0};
  tensor.tensor.ndim = 2;
  tensor.tensor.dtype = *dlpack::ToDlpack(FERRY_BF16);
  tensor.tensor.shape = shape;
  End end = OpenOwn();
  end.arena = Must(dlpack::Import(end.session, end.device, tensor));
  End other = Open(0, 0, kBytes);
  ExpectTransfer(end, other, "out");
  ExpectTransfer(other, end, "in");
  // From the consumer's view of ours into theirs, by the driver.
  char* const seen = Pinned(kBytes);
  const CUstream stream = MakeStream(end);
  ASSERT_CU(driver_->cuMemcpyDtoHAsync(seen, reinterpret_cast<CUdeviceptr>(exported->tensor.data),
                                       kBytes, stream));
  ASSERT_CU(Synchronize(stream));
  EXPECT_TRUE(HasPattern(seen, kBytes, 3));
  const uint64_t before = node(0).admin().ArenaBytes();
  exported->deleter(exported);
  EXPECT_TRUE(Await([&] { return node(0).admin().ArenaBytes() < before; }));
  end.arena = Arena();
  EXPECT_CU(driver_->cuMemFree(theirs));
}

}  // namespace
}  // namespace ferry::testing
