// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs between processes: the application's own as arenas, deaths, and what comes back.
#include <stdlib.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

using GpuMemoryTest = GpuTest;

TEST_F(GpuMemoryTest, MemoryOfCudaMallocIsImportedByItsHandle) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  End other = Open(0, 0, 3 * kMiB);
  End end;
  end.device = other.device;
  end.session = nodes().Open(0, "test");
  CUdeviceptr own = 0;
  ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  ASSERT_CU(driver_->cuMemAlloc(&own, 8 * kMiB));
  end.arena = Must(cuda::ImportArena(end.session, end.device,
                                     reinterpret_cast<void*>(own + 4096 + 256), 3 * kMiB));
  EXPECT_EQ(cuda::Memory(end.arena), FERRY_MEMORY_CUDA_IPC);
  ExpectTransfer(end, other, "out");
  ExpectTransfer(other, end, "in");
  end.arena = Arena();
  EXPECT_CU(driver_->cuMemFree(own));
}

// What a daemon has opened by its handle, another one reads.
TEST_F(GpuMemoryTest, MemoryOfCudaMallocGoesToAnotherDaemon) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  End other = Open(1, 0, 3 * kMiB);
  End end;
  end.device = nodes().Gpu(0);
  end.session = nodes().Open(0, "test");
  CUdeviceptr own = 0;
  ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  ASSERT_CU(driver_->cuMemAlloc(&own, 8 * kMiB));
  end.arena = Must(
      cuda::ImportArena(end.session, end.device, reinterpret_cast<void*>(own + 4096), 3 * kMiB));
  for (const int route : {FERRY_ROUTE_MAPPED, FERRY_ROUTE_TCP}) {
    PostOptions options;
    options.route = route;
    ExpectTransfer(end, other, absl::StrCat("out", route), options);
    ExpectTransfer(other, end, absl::StrCat("in", route), options);
  }
  end.arena = Arena();
  EXPECT_CU(driver_->cuMemFree(own));
}

TEST_F(GpuMemoryTest, AnArenaLargerThanTheGpuIsRefusedWithWhatIsFree) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  Session session = nodes().Open(0, "test");
  const Result<Arena> arena = session.CreateArena(nodes().Gpu(0), uint64_t{1} << 42);
  EXPECT_EQ(arena.status().code_name(), "RESOURCE_EXHAUSTED") << arena.status().ToString();
  EXPECT_THAT(std::string(arena.status().message()), HasSubstr("4398046511104"));
  EXPECT_THAT(session.CreateArena(nodes().Gpu(0), kMiB), IsOk());
}

TEST_F(GpuMemoryTest, AKilledClientLeavesNothingAndItsPartnerIsTold) {
  if (!Need(1)) return;
  StartNodes(1, 1);
  const uint64_t gpu = nodes().Gpu(0);
  End partner = Open(0, 0, kMiB, "partner");
  const uint64_t before = node(0).admin().ArenaBytes();
  ClientProcess client(node(0).client_dir(), "killed");
  ASSERT_EQ(client.Tell(absl::StrCat("arena ", gpu, " ", 64 * kMiB)), "OK 0");
  ASSERT_EQ(client.Tell(absl::StrCat("send ", gpu, " ", gpu, " k 0 0 1048576 defined=0:1")),
            "OK 0");
  Batch receive = Must(partner.session.Receive(gpu, {Transfer(gpu, "k", {partner.arena.All()})}));
  EXPECT_TRUE(Await([&] { return node(0).admin().Count("matched") >= 1; }));
  const uint64_t held = driver_->FreeBytes(0);
  client.Kill();
  const Status ended = receive.Wait(kSoon);
  EXPECT_EQ(ended.code_name(), "ABORTED") << ended.ToString();
  EXPECT_TRUE(Await([&] { return node(0).admin().ArenaBytes() == before; }));
  if (!fake()) {  // the fake counts what a process allocated itself
    EXPECT_TRUE(Await([&] { return driver_->FreeBytes(0) >= held + 60 * kMiB; }));
  }
}

// The allocator's session lives as long as its process, so that is a child.
TEST_F(GpuMemoryTest, TheAllocatorOfFrameworksMakesArenas) {
  if (!Need(1)) return;
  if (getenv("FERRY_TEST_ALLOCATOR") == nullptr) {
    StartNodes(1, 1);
    const Finished child = RunProgram(
        {"/usr/bin/env", "FERRY_TEST_ALLOCATOR=1", "FERRY_CLIENT_DIR=" + node(0).client_dir(),
         absl::StrCat("/proc/", getpid(), "/exe"), "--gtest_filter=GpuMemoryTest.TheAllocator*"},
        2 * kSoon);
    EXPECT_EQ(child.status, 0) << child.output;
    return;
  }
  void* const pointer = ferry_cuda_malloc(5 * kMiB, 0, nullptr);
  ASSERT_NE(pointer, nullptr) << Status(ferry_cuda_malloc_status()).ToString();
  uint64_t offset = 0;
  ferry_arena* const arena = ferry_cuda_arena(static_cast<char*>(pointer) + 3 * kMiB, &offset);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(offset, 3 * kMiB);
  std::string bytes(kMiB, '\0'), seen(kMiB, '\0');
  FillPattern(bytes.data(), bytes.size(), 5);
  CUstream stream = nullptr;
  ASSERT_CU(driver_->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(driver_->cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(pointer) + offset,
                                       bytes.data(), kMiB, stream));
  ferry_session* session = nullptr;
  ASSERT_THAT(Status(ferry_cuda_session(&session)), IsOk());
  const uint64_t gpu = ferry_arena_device(arena);
  ferry_range ranges[] = {{arena, offset, kMiB}, {arena, 0, kMiB}};
  ferry_batch* posted[2] = {};
  for (int i = 0; i < 2; ++i) {
    ferry_transfer half{};
    half.remote_device = gpu;
    half.key = "k";
    half.key_bytes = 1;
    half.ranges = &ranges[i];
    half.range_count = 1;
    half.has_defined_at = i == 0;
    half.defined_value = 1;
    ferry_post_options options{};
    options.struct_size = sizeof(options);
    options.over_timeline = static_cast<uint32_t>(i);
    ASSERT_THAT(
        Status(i == 0 ? ferry_cross_host_send(session, gpu, &half, 1, &options, &posted[i])
                      : ferry_cross_host_receive(session, gpu, &half, 1, &options, &posted[i])),
        IsOk());
  }
  ASSERT_THAT(Status(ferry_stream_define(session, stream, 0, 1)), IsOk());
  Batch sent(posted[0]), received(posted[1]);
  ASSERT_THAT(cuda::Wait(received, stream), IsOk());
  ASSERT_CU(driver_->cuMemcpyDtoHAsync(seen.data(), reinterpret_cast<CUdeviceptr>(pointer), kMiB,
                                       stream));
  ASSERT_CU(driver_->cuStreamSynchronize(stream));
  EXPECT_TRUE(seen == bytes);
  ASSERT_THAT(sent.Wait(kSoon), IsOk());
  EXPECT_CU(driver_->cuStreamDestroy(stream));
  ferry_cuda_free(pointer, 5 * kMiB, 0, nullptr);
}

}  // namespace
}  // namespace ferry::testing
