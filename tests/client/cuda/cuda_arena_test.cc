// SPDX-License-Identifier: Apache-2.0
// Arenas on GPUs: the daemon's allocations and the application's own.
#include <unistd.h>

#include "tests/client/cuda/cuda_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using CudaArenaTest = CudaTest;

std::string TextOf(const Result<Arena>& result) { return std::string(result.status().message()); }

TEST_F(CudaArenaTest, TheDevicesHaveTheirUuids) {
  Session session = Open();
  ASSERT_EQ(session.devices().size(), 4u);
  const ferry_device gpu = session.devices()[3];
  EXPECT_EQ(gpu.kind, 2);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(gpu.uuid), 16),
            std::string("ferry-fake-\0\0\0\0\1", 16));
  EXPECT_EQ(session.devices()[0].uuid[0], 0);
}

TEST_F(CudaArenaTest, TheDaemonsAllocationIsMappedOnceAndGivenBack) {
  const uint64_t before = Counts().reservations;
  Session session = Open();
  auto arena = session.CreateArena(kGpu, kGranule + 5);
  ASSERT_OK(arena);
  EXPECT_EQ(daemon_->last_arena().memory(), v1::ARENA_MEMORY_CUDA_ALLOCATE);
  EXPECT_EQ(arena->bytes(), kGranule + 5);
  EXPECT_EQ(cuda::Memory(*arena), FERRY_MEMORY_CUDA_VMM);
  EXPECT_EQ(cuda::Device(*arena), 0);
  EXPECT_EQ(Counts().reservations, before + 1);
  auto host = session.CreateArena(0, kGranule + 5);
  ASSERT_OK(host);
  EXPECT_EQ(cuda::Device(*host), -1);
  ExpectCopies(session, *host, *arena, 1);
  ExpectCopies(session, *arena, *host, 2);
  EXPECT_EQ(daemon_->arenas(), 2u);
  ASSERT_OK(arena->Release());
  EXPECT_EQ(daemon_->arenas(), 1u);
  EXPECT_TRUE(Has(*arena, 2));  // mapped until the handle is freed
  *arena = Arena();
  EXPECT_EQ(Counts().reservations, before);
}

TEST_F(CudaArenaTest, TheSecondGpuIsFoundByItsUuid) {
  Session session = Open();
  auto arena = session.CreateArena(kOtherGpu, 4096);
  ASSERT_OK(arena);
  EXPECT_EQ(cuda::Device(*arena), 1);
  Fill(*arena, 3);
  EXPECT_TRUE(Has(*arena, 3));
}

TEST_F(CudaArenaTest, BytesSurviveTheDaemon) {
  for (const bool imported : {false, true}) {
    Session session = Open();
    const CUdeviceptr own = imported ? MapOwn({kGranule, 2 * kGranule}) : 0;
    auto arena = imported
                     ? cuda::ImportArena(session, kGpu, reinterpret_cast<void*>(own), 3 * kGranule)
                     : session.CreateArena(kGpu, 3 * kGranule - 7);
    ASSERT_OK(arena);
    auto host = session.CreateArena(0, arena->bytes());
    ASSERT_OK(host);
    Fill(*arena, 5);
    const void* const where = arena->data();
    auto pending = session.Receive(0, {Keyed("never")});
    Restart(GpuBehaviour());
    EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
    ASSERT_OK(session.WaitAttached(kSoon));
    EXPECT_EQ(daemon_->arenas(), 2u);
    EXPECT_EQ(arena->data(), where);
    EXPECT_TRUE(Has(*arena, 5));
    auto receive = session.Receive(0, {Keyed("back", {host->All()}, kGpu)});
    PostOptions options;
    options.over_timeline = 1;
    auto send = session.Send(kGpu, {Keyed("back", {arena->All()}, 0)}, options);
    ASSERT_OK(send);
    ASSERT_OK(receive->Wait(kSoon));
    EXPECT_TRUE(Has(*host, 5));  // what the next daemon has mapped is the same memory
  }
}

TEST_F(CudaArenaTest, AfterALossTheAllocationIsHandedBackAsTheClients) {
  Session session = Open();
  auto arena = session.CreateArena(kGpu, kGranule + 1);
  ASSERT_OK(arena);
  auto pending = session.Receive(0, {Keyed("never")});
  Restart(GpuBehaviour());
  EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
  ASSERT_OK(session.WaitAttached(kSoon));
  const v1::RegisterArena again = daemon_->last_arena();
  EXPECT_EQ(again.memory(), v1::ARENA_MEMORY_CUDA_VMM);
  EXPECT_EQ(again.bytes(), kGranule + 1);
  ASSERT_EQ(again.segment_bytes_size(), 1);
  EXPECT_EQ(again.segment_bytes(0), 2 * kGranule);
  EXPECT_FALSE(again.imported());
}

TEST_F(CudaArenaTest, AnInvisibleGpuIsNamed) {
  FakeDaemon::Behaviour behaviour = GpuBehaviour();
  behaviour.gpus = 3;
  Restart(behaviour);
  Session session = Open();
  auto arena = session.CreateArena(4, 4096);
  EXPECT_EQ(arena.status().reason(), "DEVICE_UNKNOWN");
  EXPECT_THAT(TextOf(arena), AllOf(HasSubstr("4096 bytes on device 4"), HasSubstr("GPU-66657272-"),
                                   HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_EQ(daemon_->arenas(), 0u);
}

TEST_F(CudaArenaTest, AVmmPointerIsTakenApart) {
  Session session = Open();
  const CUdeviceptr own = MapOwn({kGranule, 3 * kGranule});
  void* const pointer = reinterpret_cast<void*>(own);
  auto arena = cuda::ImportArena(session, kGpu, pointer, 4 * kGranule - 100);
  ASSERT_OK(arena);
  EXPECT_EQ(cuda::Memory(*arena), FERRY_MEMORY_CUDA_VMM);
  EXPECT_EQ(arena->data(), pointer);
  const v1::RegisterArena shown = daemon_->last_arena();
  EXPECT_TRUE(shown.imported());
  ASSERT_EQ(shown.segment_bytes_size(), 2);
  EXPECT_EQ(shown.segment_bytes(0), kGranule);
  EXPECT_EQ(shown.segment_bytes(1), 3 * kGranule);
  auto host = session.CreateArena(0, 4 * kGranule - 100);
  ExpectCopies(session, *host, *arena, 9);

  auto middle = cuda::ImportArena(session, kGpu, reinterpret_cast<void*>(own + 512), 4096);
  EXPECT_EQ(middle.status().reason(), "FIELD_INVALID");
  EXPECT_THAT(TextOf(middle), HasSubstr("512 bytes behind the begin of its mapping of 2097152"));
  const CUdeviceptr closed = MapOwn({kGranule}, false);
  auto unshareable = cuda::ImportArena(session, kGpu, reinterpret_cast<void*>(closed), 4096);
  EXPECT_THAT(TextOf(unshareable), HasSubstr("CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"));
}

TEST_F(CudaArenaTest, AnArenaHasAsManyAllocationsAsAPacketHasDescriptors) {
  Session session = Open();
  const CUdeviceptr own = MapOwn(std::vector<uint64_t>(251, kGranule));
  const auto import = [&](Session& by, uint64_t allocations) {
    return cuda::ImportArena(by, kGpu, reinterpret_cast<void*>(own), allocations * kGranule);
  };
  for (const uint64_t allocations : {1, 3, 250}) {
    auto arena = import(session, allocations);
    ASSERT_OK(arena);
    EXPECT_EQ(static_cast<uint64_t>(daemon_->last_arena().segment_bytes_size()), allocations);
    // The first bytes and the last.
    const std::string text = "ferry" + std::to_string(allocations);
    for (const uint64_t at : {uint64_t{0}, arena->bytes() - text.size()}) {
      std::string seen(text.size(), '\0');
      ASSERT_OK(arena->Write(at, text.data(), text.size()));
      ASSERT_OK(arena->Read(at, seen.data(), seen.size()));
      EXPECT_EQ(seen, text);
    }
  }
  auto beyond = import(session, 251);
  EXPECT_EQ(beyond.status().reason(), "FIELD_INVALID");
  EXPECT_THAT(TextOf(beyond), AllOf(HasSubstr("251 allocations"), HasSubstr("1 to 250")));
}

TEST_F(CudaArenaTest, ALegacyPointerIsShownByItsHandle) {
  Session session = Open();
  CUdeviceptr own = 0;
  EXPECT_CUDA(cuMemAlloc(&own, 3 * kGranule));
  auto arena = cuda::ImportArena(session, kGpu, reinterpret_cast<void*>(own + 768), kGranule);
  ASSERT_OK(arena);
  EXPECT_EQ(cuda::Memory(*arena), FERRY_MEMORY_CUDA_IPC);
  EXPECT_EQ(daemon_->last_arena().memory(), v1::ARENA_MEMORY_CUDA_IPC);
  EXPECT_EQ(daemon_->last_arena().ipc_handle().size(), 64u);
  EXPECT_EQ(daemon_->last_arena().ipc_offset(), 768u);
  Fill(*arena, 4);
  EXPECT_TRUE(Has(*arena, 4));
  auto beyond = cuda::ImportArena(session, kGpu, reinterpret_cast<void*>(own + 768), 3 * kGranule);
  EXPECT_EQ(beyond.status().reason(), "FIELD_INVALID");
  EXPECT_CUDA(cuMemFree(own));
}

TEST_F(CudaArenaTest, MemoryOfTheHostOrOfAnotherGpuIsRefused) {
  Session session = Open();
  int local = 0;
  EXPECT_EQ(cuda::ImportArena(session, kGpu, &local, 4).status().reason(), "FIELD_INVALID");
  EXPECT_EQ(cuda::ImportArena(session, kGpu, nullptr, 4).status().reason(), "FIELD_INVALID");
  const CUdeviceptr own = MapOwn({kGranule}, true, 1);
  auto other = cuda::ImportArena(session, kGpu, reinterpret_cast<void*>(own), kGranule);
  EXPECT_THAT(TextOf(other), AllOf(HasSubstr("CUDA device 1"), HasSubstr("is CUDA device 0")));
  auto host = cuda::ImportArena(session, 0, reinterpret_cast<void*>(own), kGranule);
  EXPECT_EQ(host.status().reason(), "DEVICE_UNKNOWN");
  EXPECT_EQ(daemon_->arenas(), 0u);
}

TEST_F(CudaArenaTest, DescriptorsAreMappedInOrder) {
  Session session = Open();
  std::vector<cuda::Segment> segments;
  for (const uint64_t bytes : {kGranule, 2 * kGranule}) {
    const CUmemGenericAllocationHandle handle = MakeOwn(bytes, true, 0);
    cuda::Segment segment{-1, bytes};
    EXPECT_CUDA(cuMemExportToShareableHandle(&segment.fd, handle,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_CUDA(cuMemRelease(handle));
    segments.push_back(segment);
  }
  auto arena = cuda::ImportArena(session, kGpu, segments);
  for (const cuda::Segment& segment : segments) close(segment.fd);
  ASSERT_OK(arena);
  EXPECT_EQ(arena->bytes(), 3 * kGranule);
  auto host = session.CreateArena(0, arena->bytes());
  ExpectCopies(session, *arena, *host, 11);
  EXPECT_EQ(cuda::ImportArena(session, kGpu, std::vector<cuda::Segment>()).status().reason(),
            "FIELD_INVALID");
  EXPECT_FALSE(cuda::ImportArena(session, kGpu, {{STDERR_FILENO, kGranule}}).ok());
}

TEST_F(CudaArenaTest, ReadsAndWritesStayInside) {
  Session session = Open();
  for (const uint64_t device : {uint64_t{0}, kGpu}) {
    auto arena = session.CreateArena(device, 4096);
    ASSERT_OK(arena);
    char bytes[2] = {1, 2};
    ASSERT_OK(arena->Write(4094, bytes, 2));
    EXPECT_EQ(arena->Write(4095, bytes, 2).reason(), "RANGE_INVALID");
    EXPECT_EQ(arena->Read(UINT64_MAX, bytes, 2).reason(), "RANGE_INVALID");
    ASSERT_OK(arena->Read(4096, bytes, 0));
  }
}

TEST_F(CudaArenaTest, WithoutMemoryToMapItSaysWhatIsFree) {
  Session session = Open();
  const std::string free = " of 1073741824 bytes of CUDA device 1 are free";
  fake_cuda_configure("fail_map=1");
  auto arena = session.CreateArena(kOtherGpu, 4096);
  EXPECT_EQ(arena.status().reason(), "DEVICE_MEMORY");
  EXPECT_THAT(TextOf(arena), AllOf(HasSubstr("4096 bytes"), HasSubstr(free)));
  const CUmemGenericAllocationHandle handle = MakeOwn(kGranule, true, 1);
  int fd = -1;
  EXPECT_CUDA(
      cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  fake_cuda_configure("fail_import=1");
  auto imported = cuda::ImportArena(session, kOtherGpu, {{fd, kGranule}});
  EXPECT_EQ(imported.status().reason(), "DEVICE_MEMORY");
  EXPECT_THAT(TextOf(imported), AllOf(HasSubstr("2097152 bytes"), HasSubstr(free)));
  close(fd);
  EXPECT_CUDA(cuMemRelease(handle));
}

TEST_F(CudaArenaTest, AnAllocatorHandsOutArenas) {
  setenv("FERRY_CLIENT_DIR", dir_.c_str(), 1);
  EXPECT_EQ(ferry_cuda_malloc(0, 0, nullptr), nullptr);
  EXPECT_EQ(Status(ferry_cuda_malloc_status()).ok(), true);
  EXPECT_EQ(ferry_cuda_malloc(-5, 0, nullptr), nullptr);
  EXPECT_EQ(Status(ferry_cuda_malloc_status()).reason(), "FIELD_INVALID");
  void* const pointer = ferry_cuda_malloc(5000, 1, nullptr);
  ASSERT_NE(pointer, nullptr) << Status(ferry_cuda_malloc_status()).ToString();
  uint64_t offset = 0;
  ferry_arena* const arena = ferry_cuda_arena(static_cast<char*>(pointer) + 4999, &offset);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(offset, 4999u);
  EXPECT_EQ(ferry_arena_device(arena), kOtherGpu);
  EXPECT_EQ(ferry_cuda_arena(static_cast<char*>(pointer) + 5000, nullptr), nullptr);
  ferry_session* session = nullptr;
  ASSERT_OK(Status(ferry_cuda_session(&session)));
  EXPECT_EQ(daemon_->arenas(), 1u);
  ferry_cuda_free(pointer, 5000, 1, nullptr);
  ferry_cuda_free(nullptr, 0, 1, nullptr);
  EXPECT_EQ(daemon_->arenas(), 0u);
  EXPECT_EQ(ferry_cuda_malloc(5000, 2, nullptr), nullptr);
  EXPECT_EQ(Status(ferry_cuda_malloc_status()).reason(), "DEVICE_UNKNOWN");
}

}  // namespace
}  // namespace ferry::testing
