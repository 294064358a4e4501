// SPDX-License-Identifier: Apache-2.0
// Shared by the client's tests with the fake CUDA: a fake daemon with two host devices (0, 1) and
// two GPUs (2, 3), and the driver, which test and library both use.
#pragma once

#include <cuda.h>

#include <map>
#include <string>
#include <vector>

#include "fake_cuda.h"
#include "ferry/cuda.hpp"
#include "tests/client/client_fixture.h"
#include "tests/support/pattern.h"

namespace ferry::testing {

inline constexpr uint64_t kGranule = 2 << 20;  // granule of the fake CUDA's memory
inline constexpr uint64_t kGpu = 2;            // the daemon's ids of the GPUs
inline constexpr uint64_t kOtherGpu = 3;

#define EXPECT_CUDA(call) EXPECT_EQ(call, CUDA_SUCCESS)

class CudaTest : public ClientTest {
 protected:
  CudaTest() {
    Restart(GpuBehaviour());
    EXPECT_CUDA(cuInit(0));
    for (int i = 0; i < 2; ++i) EXPECT_CUDA(cuDevicePrimaryCtxRetain(&contexts_[i], i));
    EXPECT_CUDA(cuCtxSetCurrent(contexts_[0]));
  }
  ~CudaTest() override {
    for (CUstream stream : streams_) {
      EXPECT_CUDA(cuStreamSynchronize(stream));
      EXPECT_CUDA(cuStreamDestroy(stream));
    }
    for (auto& [address, bytes] : mapped_) {
      cuMemUnmap(address, bytes);
      cuMemAddressFree(address, bytes);
    }
    cuCtxSetCurrent(nullptr);
    for (int i = 0; i < 2; ++i) cuDevicePrimaryCtxRelease(i);
  }

  static FakeDaemon::Behaviour GpuBehaviour() {
    FakeDaemon::Behaviour behaviour;
    behaviour.gpus = 2;
    return behaviour;
  }
  CUstream MakeStream() {
    CUstream stream = nullptr;
    EXPECT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    streams_.push_back(stream);
    return stream;
  }
  // Makes several allocations in a row, mapped as an application would. Returns their address.
  CUdeviceptr MapOwn(const std::vector<uint64_t>& sizes, bool shareable = true, int device = 0) {
    uint64_t total = 0;
    for (const uint64_t size : sizes) total += size;
    CUdeviceptr begin = 0;
    EXPECT_CUDA(cuMemAddressReserve(&begin, total, 0, 0, 0));
    CUdeviceptr at = begin;
    for (const uint64_t size : sizes) {
      CUmemGenericAllocationHandle handle = MakeOwn(size, shareable, device);
      EXPECT_CUDA(cuMemMap(at, size, 0, handle, 0));
      EXPECT_CUDA(cuMemRelease(handle));
      at += size;
    }
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_CUDA(cuMemSetAccess(begin, total, &access, 1));
    mapped_[begin] = total;
    return begin;
  }
  static CUmemGenericAllocationHandle MakeOwn(uint64_t bytes, bool shareable, int device) {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    wanted.requestedHandleTypes =
        shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CUDA(cuMemCreate(&handle, bytes, &wanted, 0));
    return handle;
  }

  static void Fill(Arena& arena, uint64_t seed) {
    std::string bytes(arena.bytes(), '\0');
    FillPattern(bytes.data(), bytes.size(), seed);
    ASSERT_OK(arena.Write(0, bytes.data(), bytes.size()));
  }
  static bool Has(const Arena& arena, uint64_t seed) {
    std::string bytes(arena.bytes(), '\0');
    const Status read = arena.Read(0, bytes.data(), bytes.size());
    EXPECT_TRUE(read.ok()) << read.ToString();
    return HasPattern(bytes.data(), bytes.size(), seed);
  }
  // Moves all of `from` to `to`, which had other bytes, and expects that they arrive.
  static void ExpectCopies(Session& session, Arena& from, Arena& to, uint64_t seed) {
    Fill(from, seed);
    Fill(to, seed + 1);
    auto receive = session.Receive(to.device(), {Keyed("copy", {to.All()}, from.device())});
    ASSERT_OK(receive);
    PostOptions options;
    options.over_timeline = 1;
    auto send = session.Send(from.device(), {Keyed("copy", {from.All()}, to.device())}, options);
    ASSERT_OK(send);
    ASSERT_OK(receive->Wait(kSoon));
    ASSERT_OK(send->Wait(kSoon));
    EXPECT_TRUE(Has(to, seed));
  }
  static fake_cuda_counts Counts() {
    fake_cuda_counts counts;
    fake_cuda_get_counts(&counts);
    return counts;
  }

  CUcontext contexts_[2] = {};
  std::vector<CUstream> streams_;
  std::map<CUdeviceptr, uint64_t> mapped_;
};

}  // namespace ferry::testing
