// SPDX-License-Identifier: Apache-2.0
// Kernels of a consumer, queued behind 'over', on GPUs whose SMs are busy all the while: however
// late producer, copy and consumer come to run, none sees old bytes. The kernel is the daemon's own
// (CudaGather) in an application's hands: it copies what it finds to where the host looks.
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include "device/cuda/cuda_gather.h"
#include "tests/gpu/stream_fixture.h"

namespace ferry::testing {
namespace {

class GpuOrderTest : public GpuStreamTest {
 protected:
  // The gather kernel on a stream, with memory of its own on the same GPU.
  struct Kernel {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    std::unique_ptr<CudaGather> gather;
  };

  // Of the fake, whose kernels are loops of the CPU, less.
  uint64_t rounds() const { return fake() ? 20 : 300; }
  uint64_t load_bytes() const { return fake() ? 256 * 1024 : 256 * kMiB; }

  bool StartBusy(uint64_t bytes) {
    if (!StartEnds(bytes)) return false;
    for (const End* end : {&source_, &destination_}) {
      loads_.push_back(MakeKernel(*end, MakeStream(*end), 2 * load_bytes()));
    }
    consume_ = MakeKernel(destination_, consumer_, bytes);
    return true;
  }
  void CloseEnds() override {
    Free(consume_);
    for (Kernel& load : loads_) Free(load);
    GpuStreamTest::CloseEnds();
  }
  // More work for the GPUs that have none left.
  void KeepBusy() {
    for (Kernel& load : loads_) {
      EXPECT_CU(driver_->cuCtxSetCurrent(load.context));
      if (driver_->cuStreamQuery(load.stream) != CUDA_SUCCESS) continue;
      for (int i = 0; i < 8; ++i) {
        Launch(load, load.memory, load.memory + load_bytes(), load_bytes());
      }
    }
  }
  // On the consumer's stream: the kernel, and poison behind it.
  void ConsumeByKernel(uint64_t bytes) {
    Launch(consume_, consume_.memory, Address(destination_.arena), bytes);
    EXPECT_CU(driver_->cuMemsetD8Async(Address(destination_.arena), 0xa5,
                                       destination_.arena.bytes(), consumer_));
    EXPECT_CU(driver_->cuMemcpyDtoHAsync(seen_, consume_.memory, bytes, consumer_));
  }

 private:
  Kernel MakeKernel(const End& end, CUstream stream, uint64_t bytes) {
    const char* const library = getenv("FERRY_CUDA_LIBRARY");
    const absl::StatusOr<const CudaApi*> api =
        LoadCuda(library == nullptr ? "libcuda.so.1" : library);
    if (!api.ok()) throw std::runtime_error(std::string(api.status().message()));
    Kernel kernel;
    kernel.context = driver_->context(cuda::Device(end.arena));
    kernel.stream = stream;
    EXPECT_CU(driver_->cuCtxSetCurrent(kernel.context));
    EXPECT_CU(driver_->cuMemAlloc(&kernel.memory, bytes));
    auto made = CudaGather::Make(**api, 1, bytes / CudaGather::kTaskBytes + 1);
    if (!made.ok()) throw std::runtime_error(std::string(made.status().message()));
    kernel.gather = *std::move(made);
    return kernel;
  }
  void Free(Kernel& kernel) {
    if (kernel.memory == 0) return;
    EXPECT_CU(driver_->cuCtxSetCurrent(kernel.context));
    kernel.gather = nullptr;
    EXPECT_CU(driver_->cuMemFree(kernel.memory));
  }
  // A kernel's table is the same in all launches of a load, and free in those of the consumer.
  void Launch(Kernel& kernel, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
    EXPECT_CU(driver_->cuCtxSetCurrent(kernel.context));
    const CopyPiece piece{reinterpret_cast<std::byte*>(to), reinterpret_cast<std::byte*>(from),
                          bytes};
    const absl::Status launched =
        kernel.gather->Launch(kernel.stream, 0, absl::MakeConstSpan(&piece, 1));
    EXPECT_TRUE(launched.ok()) << launched;
  }

  std::vector<Kernel> loads_;
  Kernel consume_;
};

TEST_P(GpuOrderTest, AConsumersKernelBehindOverNeverSeesOldBytesOnBusyGpus) {
  constexpr uint64_t kMost = 1 * kMiB + 8;
  if (!StartBusy(kMost)) return;
  std::mt19937_64 random(7);
  for (uint64_t round = 1; round <= rounds(); ++round) {
    const uint64_t bytes = 8 * (1 + random() % (kMost / 8));
    KeepBusy();
    Transfer send(destination_.device, "k", {source_.arena.Range(0, bytes)});
    Transfer receive(source_.device, "k", {destination_.arena.Range(0, bytes)});
    send.defined_at = Transfer::DefinedAt{0, round};
    receive.defined_at = Transfer::DefinedAt{1, round};
    Batch received = Must(destination_.session.Receive(destination_.device, {receive}, options()));
    Batch sent = Must(source_.session.Send(source_.device, {send}, options()));
    ASSERT_THAT(cuda::Define(destination_.session, consumer_, 1, round), IsOk());
    Produce(round);
    ASSERT_THAT(cuda::Define(source_.session, producer_, 0, round), IsOk());
    ASSERT_THAT(cuda::Wait(received, consumer_), IsOk());
    ConsumeByKernel(bytes);
    ASSERT_CU(Synchronize(consumer_));
    ASSERT_TRUE(HasPattern(seen_, bytes, round)) << "round " << round << ", " << bytes << " bytes";
    ASSERT_THAT(received.Wait(kSoon), IsOk());
    ASSERT_THAT(sent.Wait(kSoon), IsOk());
  }
}

using GpuPreparedOrderTest = GpuOrderTest;

// Small pieces, far from each other at the destination: where these are gathered by a kernel of the
// daemon's, it waits for the SMs too.
TEST_P(GpuPreparedOrderTest, ScatteredFiringsAreWholeOnBusyGpus) {
  constexpr uint64_t kPiece = 1024 + 8, kStride = 3 * kPiece, kPieces = 300;
  if (!StartBusy(kStride * kPieces)) return;
  Transfer send(destination_.device, "k", {source_.arena.Range(0, kPieces * kPiece)});
  Transfer receive(source_.device, "k");
  receive.strided = destination_.arena.Strided(0, kPiece, kStride, kPieces);
  Prepared received =
      Must(destination_.session.PrepareReceive(destination_.device, {receive}, options()));
  Prepared sent = Must(source_.session.PrepareSend(source_.device, {send}, options()));
  std::string whole(kPieces * kPiece, '\0');
  for (uint64_t round = 1; round <= rounds(); ++round) {
    KeepBusy();
    ASSERT_THAT(cuda::Fire(received, consumer_), IsOk());
    Produce(round);
    ASSERT_THAT(cuda::Fire(sent, producer_), IsOk());
    ASSERT_THAT(cuda::Wait(sent, producer_), IsOk());
    ASSERT_THAT(cuda::Wait(received, consumer_), IsOk());
    ConsumeByKernel(kStride * kPieces);
    ASSERT_CU(Synchronize(consumer_));
    for (uint64_t i = 0; i < kPieces; ++i) {
      std::copy_n(seen_ + i * kStride, kPiece, whole.begin() + static_cast<ptrdiff_t>(i * kPiece));
    }
    ASSERT_TRUE(HasPattern(whole.data(), whole.size(), round)) << "round " << round;
    ASSERT_CU(Synchronize(producer_));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuOrderTest, ::testing::Values(kGpuSelf),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuOrderTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Gpu, GpuPreparedOrderTest, ::testing::Values(kGpuSelf),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuPreparedOrderTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ferry::testing
