// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_device.h"

#include <cuda.h>
#include <fake_cuda.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/nvml.h"
#include "device/host/host_memory.h"

namespace ferry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

fake_cuda_counts Counts() {
  fake_cuda_counts counts;
  fake_cuda_get_counts(&counts);
  return counts;
}

std::vector<UniqueFd> Duplicates(const DeviceMemory& memory) {
  std::vector<UniqueFd> fds;
  for (const int fd : memory.fds()) fds.emplace_back(dup(fd));
  return fds;
}

UniqueFd SealedMemfd(uint64_t bytes) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  return fd;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() {
    auto found = FindGpus(FAKE_CUDA_LIBRARY);
    EXPECT_TRUE(found.ok()) << found.status();
    for (int i : {0, 1}) {
      gpus_[i] =
          std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, (*found)[i], std::vector<int>{0, 1});
    }
  }
  ~CudaDeviceTest() override {
    for (auto& gpu : gpus_) gpu.reset();
    EXPECT_EQ(Counts().contexts, 0u);
    EXPECT_EQ(Counts().reservations, 0u);
    EXPECT_EQ(Counts().registrations, 0u);
    EXPECT_EQ(fake_cuda_allocated(0) + fake_cuda_allocated(1), 0u);
    fake_cuda_configure("memory_mib=1024;no_peer=0;no_rdma=0");
  }
  std::unique_ptr<DeviceMemory> Allocate(int gpu, uint64_t bytes) {
    auto memory = gpus_[gpu]->Map({MemoryKind::kCudaAllocate, bytes}, {});
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  std::unique_ptr<CudaDevice> gpus_[2];
};

TEST_F(CudaDeviceTest, AreFoundByUuid) {
  EXPECT_NE(gpus_[0]->info().uuid, gpus_[1]->info().uuid);
  EXPECT_EQ(gpus_[0]->info().uuid.size(), 16u);
  EXPECT_THAT(gpus_[0]->info().uuid_text(), ::testing::MatchesRegex("GPU-[0-9a-f]+-[-0-9a-f]+"));
  EXPECT_EQ(gpus_[0]->info().uuid_text().size(), 40u);
}

TEST_F(CudaDeviceTest, HasAContextOnlyWhileItIsHeld) {
  EXPECT_EQ(Counts().contexts, 0u);
  auto first = Allocate(0, kMiB);
  auto second = Allocate(0, kMiB);
  EXPECT_EQ(Counts().contexts, 1u);
  EXPECT_TRUE(gpus_[0]->usage().context);
  EXPECT_FALSE(gpus_[1]->usage().context);
  first.reset();
  EXPECT_EQ(Counts().contexts, 1u);
  second.reset();
  EXPECT_EQ(Counts().contexts, 0u);
  EXPECT_EQ(Counts().streams, 0u);
}

TEST_F(CudaDeviceTest, AllocatesWholeGranulesOfZeros) {
  auto memory = Allocate(0, 3 * kMiB);
  EXPECT_EQ(memory->bytes(), 3 * kMiB);
  EXPECT_EQ(memory->share().segment_bytes, std::vector<uint64_t>{4 * kMiB});
  EXPECT_EQ(fake_cuda_allocated(0), 4 * kMiB);
  for (uint64_t i = 0; i < 3 * kMiB; i += 4096) ASSERT_EQ(memory->data()[i], std::byte{0});
}

TEST_F(CudaDeviceTest, AllocatesForRdmaWhereTheGpuIsCapable) {
  auto memory = Allocate(0, kMiB);
  EXPECT_EQ(Counts().rdma_handles, 1u);
  memory.reset();
  fake_cuda_configure("no_rdma=1");
  memory = Allocate(0, kMiB);
  EXPECT_EQ(Counts().rdma_handles, 0u);
}

// The fake's priorities go from 0 to -5, the most urgent.
TEST_F(CudaDeviceTest, ItsStreamsHavePriorities) {
  auto memory = Allocate(0, kMiB);
  EXPECT_EQ(fake_cuda_streams_of(-5), 2u) << "prepared transfers";
  EXPECT_EQ(fake_cuda_streams_of(-4), 6u) << "transfers, staging in and out";
  EXPECT_EQ(fake_cuda_streams_of(0), 2u) << "what clears memory";
  EXPECT_EQ(Counts().streams, 10u);
  auto stream = CudaStream::Make(*gpus_[0], {.staging_bytes = kMiB});
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(fake_cuda_streams_of(-5), 3u) << "collectives";
}

TEST_F(CudaDeviceTest, WhatItSharesIsTheSameMemory) {
  auto memory = Allocate(0, 2 * kMiB);
  memcpy(memory->data() + 100, "ferry", 5);
  // As the daemon of the other GPU maps it, and as the next life of this one does.
  for (CudaDevice* gpu : {gpus_[1].get(), gpus_[0].get()}) {
    auto mapped = gpu->Map(memory->share(), Duplicates(*memory), gpu == gpus_[0].get());
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(memcmp((*mapped)->data() + 100, "ferry", 5), 0);
    EXPECT_TRUE(gpus_[1]->CanReach(**mapped).ok());
  }
}

TEST_F(CudaDeviceTest, SegmentsFollowEachOther) {
  auto one = Allocate(0, 2 * kMiB);
  auto two = Allocate(0, 4 * kMiB);
  memcpy(two->data(), "second", 6);
  MemoryShare share{MemoryKind::kCudaVmm, 5 * kMiB, {2 * kMiB, 4 * kMiB}};
  std::vector<UniqueFd> fds = Duplicates(*one);
  fds.emplace_back(dup(two->fds().front()));
  auto both = gpus_[0]->Map(share, std::move(fds));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)->bytes(), 5 * kMiB);
  EXPECT_EQ(memcmp((*both)->data() + 2 * kMiB, "second", 6), 0);
  EXPECT_EQ((*both)->fds().size(), 2u);
}

TEST_F(CudaDeviceTest, RefusesWhatIsNotItsMemory) {
  auto memory = Allocate(1, 2 * kMiB);
  const auto refused = [&](MemoryShare share, std::vector<UniqueFd> fds) {
    const auto mapped = gpus_[0]->Map(share, std::move(fds));
    EXPECT_EQ(ReasonOf(mapped.status()), Reason::kFieldInvalid) << mapped.status();
    return Text(mapped.status());
  };
  EXPECT_THAT(refused(memory->share(), Duplicates(*memory)), HasSubstr("memory of the driver's"));
  MemoryShare share{MemoryKind::kCudaVmm, 2 * kMiB, {2 * kMiB}};
  std::vector<UniqueFd> memfd;
  memfd.push_back(SealedMemfd(2 * kMiB));
  EXPECT_THAT(refused(share, std::move(memfd)), HasSubstr("a descriptor of a GPU's allocation?"));
  EXPECT_THAT(refused(share, {}), HasSubstr("0 descriptors came"));
  share.segment_bytes = {kMiB};
  EXPECT_THAT(refused(share, Duplicates(*memory)), HasSubstr("granularity"));
  share = {MemoryKind::kCudaVmm, 3 * kMiB, {2 * kMiB}};
  EXPECT_THAT(refused(share, Duplicates(*memory)), HasSubstr("the segments have"));
  EXPECT_THAT(refused({MemoryKind::kMemfd, 4096}, {}), HasSubstr("a GPU has no memfds"));
  EXPECT_THAT(refused({MemoryKind::kCudaAllocate, 0}, {}), HasSubstr("0 bytes"));
  MemoryShare ipc{MemoryKind::kCudaIpc, 4096};
  EXPECT_THAT(refused(ipc, {}), HasSubstr("it has 0 bytes, not 64"));
  ipc.ipc_handle.assign(64, 'x');
  EXPECT_THAT(refused(ipc, {}), HasSubstr("one PID namespace"));
  EXPECT_EQ(fake_cuda_allocated(0), 0u);
  EXPECT_FALSE(gpus_[0]->usage().context);
}

TEST_F(CudaDeviceTest, SaysWhatIsFreeWhenItIsFull) {
  fake_cuda_configure("memory_mib=8");
  auto memory = Allocate(0, 6 * kMiB);
  const auto more = gpus_[0]->Map({MemoryKind::kCudaAllocate, 4 * kMiB}, {});
  EXPECT_EQ(ReasonOf(more.status()), Reason::kDeviceMemory);
  EXPECT_THAT(Text(more.status()),
              HasSubstr(absl::StrCat("allocate ", 4 * kMiB, " bytes on GPU-")));
  EXPECT_THAT(Text(more.status()),
              HasSubstr(absl::StrCat(4 * kMiB, " bytes were asked for, ", 2 * kMiB, " of ",
                                     gpus_[0]->info().bytes, " are free")));
}

TEST_F(CudaDeviceTest, SaysWhatIsFreeWhereverTheDriverHasNoMemory) {
  const std::string all = absl::StrCat(1024 * kMiB, " of ", 1024 * kMiB, " are free");
  auto nvml = Nvml::Open(FAKE_CUDA_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const GpuInfo info = gpus_[1]->info();
  gpus_[1] =
      std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, info, std::vector<int>{0, 1}, nvml->get());
  const auto refused = [&](int gpu, const char* setting, const MemoryShare& share,
                           std::vector<UniqueFd> fds = {}) {
    fake_cuda_configure(setting);
    const auto mapped = gpus_[gpu]->Map(share, std::move(fds), /*ours=*/false);
    EXPECT_EQ(ReasonOf(mapped.status()), Reason::kDeviceMemory) << mapped.status();
    EXPECT_FALSE(gpus_[gpu]->usage().context);
    return Text(mapped.status());
  };
  const MemoryShare wanted{MemoryKind::kCudaAllocate, 5 * kMiB};
  // Without a context only NVML can say it.
  EXPECT_THAT(
      refused(1, "fail_context=1", wanted),
      AllOf(HasSubstr("open a context on GPU-"), HasSubstr("5242880 bytes"), HasSubstr(all)));
  EXPECT_THAT(refused(0, "fail_context=1", wanted), HasSubstr("is not known"));
  EXPECT_THAT(refused(0, "fail_map=1", wanted),
              AllOf(HasSubstr("allocate 5242880 bytes"), HasSubstr("are free")));
  auto memory = Allocate(0, 2 * kMiB);
  for (const char* setting : {"fail_import=1", "fail_map=1"}) {
    EXPECT_THAT(refused(1, setting, memory->share(), Duplicates(*memory)),
                AllOf(HasSubstr("import 1 allocations of 2097152 bytes"), HasSubstr(all)));
  }
}

TEST_F(CudaDeviceTest, AHandleThatCannotWorkIsRefusedWithTheReason) {
  CUdeviceptr own = 0;
  CUipcMemHandle handle;
  auto memory = Allocate(0, 2 * kMiB);  // and the context
  ASSERT_EQ(cuMemAlloc(&own, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcGetMemHandle(&handle, own), CUDA_SUCCESS);
  MemoryShare share{MemoryKind::kCudaIpc, kMiB};
  share.ipc_handle.assign(handle.reserved, sizeof(handle.reserved));
  const auto refused = [&] {
    const auto mapped = gpus_[0]->Map(share, {});
    EXPECT_EQ(mapped.status().code(), absl::StatusCode::kInvalidArgument) << mapped.status();
    EXPECT_EQ(ReasonOf(mapped.status()), Reason::kFieldInvalid);
    return Text(mapped.status());
  };
  // The driver has a word of its own for each: the maker's own process, and one that is not there,
  // as a process of another PID namespace is not.
  EXPECT_THAT(refused(), AllOf(HasSubstr("INVALID_CONTEXT"), HasSubstr("one PID namespace")));
  const int nobody = 0x7ffffffe;
  memcpy(share.ipc_handle.data() + 8, &nobody, sizeof(nobody));
  EXPECT_THAT(refused(), AllOf(HasSubstr("INVALID_VALUE"), HasSubstr("one PID namespace")));
  EXPECT_EQ(cuMemFree(own), CUDA_SUCCESS);
}

// cuMemAlloc of "another process": one that is forked off has the same descriptors, and so the fake
// driver takes a handle that names it.
class ForeignMemory {
 public:
  explicit ForeignMemory(uint64_t bytes) {
    EXPECT_EQ(cuMemAlloc(&pointer_, bytes), CUDA_SUCCESS);
    CUipcMemHandle handle;
    EXPECT_EQ(cuIpcGetMemHandle(&handle, pointer_), CUDA_SUCCESS);
    process_ = fork();
    if (process_ == 0) {
      for (;;) pause();
    }
    share_.bytes = bytes;
    share_.ipc_handle.assign(handle.reserved, sizeof(handle.reserved));
    memcpy(share_.ipc_handle.data() + 8, &process_, sizeof(process_));
  }
  ~ForeignMemory() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    EXPECT_EQ(cuMemFree(pointer_), CUDA_SUCCESS);
  }
  const MemoryShare& share() const { return share_; }

 private:
  CUdeviceptr pointer_ = 0;
  pid_t process_ = -1;
  MemoryShare share_{MemoryKind::kCudaIpc};
};

TEST_F(CudaDeviceTest, OpensALegacyHandleForAnotherGpuToo) {
  auto first = Allocate(0, kMiB);
  auto second = Allocate(1, kMiB);
  gpus_[0]->MakeCurrent();
  ForeignMemory foreign(2 * kMiB);
  MemoryShare share = foreign.share();
  share.bytes = kMiB;
  share.ipc_offset = kMiB;
  auto memory = gpus_[0]->Map(share, {});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_FALSE(gpus_[0]->WantsOpening(**memory));
  EXPECT_TRUE(gpus_[1]->WantsOpening(**memory));
  EXPECT_FALSE(gpus_[1]->WantsOpening(*first)) << "a descriptor's memory has one address";
  EXPECT_TRUE(gpus_[1]->CanReach(**memory).ok());
  EXPECT_FALSE(gpus_[1]->KernelsCanReach(**memory));
  EXPECT_EQ(gpus_[1]->AddressOf(**memory), (*memory)->data());

  const uint64_t holds = gpus_[1]->usage().holds;
  ASSERT_TRUE(gpus_[1]->Open(**memory).ok());
  EXPECT_FALSE(gpus_[1]->WantsOpening(**memory));
  EXPECT_TRUE(gpus_[1]->KernelsCanReach(**memory));
  EXPECT_NE(gpus_[1]->AddressOf(**memory), (*memory)->data());
  EXPECT_EQ(gpus_[0]->AddressOf(**memory), (*memory)->data());
  EXPECT_EQ(gpus_[1]->usage().holds, holds + 1);
  (*memory)->data()[7] = std::byte{42};
  EXPECT_EQ(gpus_[1]->AddressOf(**memory)[7], std::byte{42});
  memory->reset();
  EXPECT_EQ(gpus_[1]->usage().holds, holds);
  gpus_[0]->MakeCurrent();
}

TEST_F(CudaDeviceTest, AHandleThatCannotBeOpenedForAnotherGpuStaysAsItWas) {
  auto first = Allocate(0, kMiB);
  auto second = Allocate(1, kMiB);
  gpus_[0]->MakeCurrent();
  ForeignMemory foreign(kMiB);
  auto memory = gpus_[0]->Map(foreign.share(), {});
  ASSERT_TRUE(memory.ok()) << memory.status();
  const uint64_t holds = gpus_[1]->usage().holds;
  fake_cuda_configure("unknown_handle=1");
  EXPECT_EQ(ReasonOf(gpus_[1]->Open(**memory)), Reason::kFieldInvalid);
  EXPECT_FALSE(gpus_[1]->WantsOpening(**memory)) << "it is tried once";
  EXPECT_TRUE(gpus_[1]->CanReach(**memory).ok());
  EXPECT_FALSE(gpus_[1]->KernelsCanReach(**memory));
  EXPECT_EQ(gpus_[1]->AddressOf(**memory), (*memory)->data());
  EXPECT_EQ(gpus_[1]->usage().holds, holds);
  memory->reset();
  gpus_[0]->MakeCurrent();
}

// Of a call of ours it would mean that the GPUs are lost.
TEST_F(CudaDeviceTest, WhatTheDriverHasNoWordForIsRefusedWhereAClientSentIt) {
  auto memory = Allocate(0, 2 * kMiB);
  MemoryShare ipc{MemoryKind::kCudaIpc, 4096};
  ipc.ipc_handle.assign(64, 'x');
  for (const MemoryShare& share : {memory->share(), ipc}) {
    fake_cuda_configure("unknown_handle=1");
    const auto mapped = gpus_[0]->Map(
        share, share.kind == MemoryKind::kCudaIpc ? std::vector<UniqueFd>() : Duplicates(*memory));
    EXPECT_EQ(mapped.status().code(), absl::StatusCode::kInvalidArgument) << mapped.status();
    EXPECT_EQ(ReasonOf(mapped.status()), Reason::kFieldInvalid);
    EXPECT_THAT(Text(mapped.status()), HasSubstr("CUDA_ERROR_UNKNOWN"));
  }
  EXPECT_NE(Allocate(0, 2 * kMiB), nullptr);  // the GPU is as it was
}

TEST_F(CudaDeviceTest, WithoutPeerAccessSaysSo) {
  auto memory = Allocate(0, 2 * kMiB);
  fake_cuda_configure("no_peer=1");
  const auto mapped = gpus_[1]->Map(memory->share(), Duplicates(*memory), /*ours=*/false);
  EXPECT_THAT(Text(mapped.status()), HasSubstr("no peer access"));
  auto alone = Allocate(0, 2 * kMiB);
  EXPECT_TRUE(gpus_[0]->CanReach(*alone).ok());
  EXPECT_EQ(ReasonOf(gpus_[1]->CanReach(*alone)), Reason::kRouteUnavailable);
}

TEST_F(CudaDeviceTest, RegistersHostMemoryForAsLongAsItIsMapped) {
  auto host = HostMapping::Map(SealedMemfd(8192), 8192, HostMapping::Access::kReadWrite);
  ASSERT_TRUE(host.ok()) << host.status();
  auto memory = Allocate(0, kMiB);
  const uint64_t of_its_own = Counts().registrations;
  auto registration = gpus_[0]->Register(**host, false);
  ASSERT_TRUE(registration.ok()) << registration.status();
  (*host)->Keep(*std::move(registration));
  EXPECT_EQ(Counts().registrations, of_its_own + 1);
  EXPECT_EQ(gpus_[1]->Register(**host, false).status().code(), absl::StatusCode::kInternal)
      << "once is for all GPUs";
  EXPECT_EQ(Counts().contexts, 1u);
  host->reset();
  EXPECT_EQ(Counts().registrations, of_its_own);
}

TEST_F(CudaDeviceTest, IsReleasedOnlyUnusedAndComesBack) {
  auto memory = Allocate(0, kMiB);
  EXPECT_EQ(gpus_[0]->Release().code(), absl::StatusCode::kFailedPrecondition);
  memory.reset();
  EXPECT_TRUE(gpus_[0]->Release().ok());
  const auto refused = gpus_[0]->Map({MemoryKind::kCudaAllocate, kMiB}, {});
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kNotReady);
  EXPECT_THAT(Text(refused.status()), HasSubstr("reclaim"));
  gpus_[0]->Reclaim();
  memory = Allocate(0, kMiB);
}

TEST(CudaLibraryTest, WhatIsMissingIsSaid) {
  EXPECT_THAT(Text(FindGpus("/no/such/libcuda.so").status()), HasSubstr("/no/such/libcuda.so"));
  const std::string libc = "libc.so.6";
  EXPECT_THAT(Text(FindGpus(libc).status()), HasSubstr("it has no cuInit"));
  EXPECT_THAT(Text(Nvml::Open(libc).status()), HasSubstr("it has no nvmlInit_v2"));
  const std::filesystem::path link =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("libcuda-", getpid(), ".so");
  std::filesystem::create_symlink(FAKE_CUDA_LIBRARY, link);
  fake_cuda_configure("version=11080");
  EXPECT_THAT(Text(FindGpus(link).status()), HasSubstr("CUDA 11.8, 12.0 or later is needed"));
  fake_cuda_configure("version=13000");
  EXPECT_TRUE(FindGpus(link).ok());
  std::filesystem::remove(link);
}

TEST(CudaLibraryTest, AGpuWhoseMemoryCannotBeSharedIsUnusable) {
  fake_cuda_configure("no_vmm=1");
  auto found = FindGpus(FAKE_CUDA_LIBRARY);
  fake_cuda_configure("no_vmm=0");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT((*found)[1].unusable, HasSubstr("has no virtual memory management"));
  EXPECT_EQ((*FindGpus(FAKE_CUDA_LIBRARY))[1].unusable, "");
}

TEST(NvmlTest, KnowsMemoryWithoutAContext) {
  auto gpus = FindGpus(FAKE_CUDA_LIBRARY);
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  auto nvml = Nvml::Open(FAKE_CUDA_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_EQ((*nvml)->driver_version(), "580.0-fake");
  const auto memory = (*nvml)->MemoryOf((*gpus)[1].uuid_text());
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->free, 1024 * kMiB);
  EXPECT_FALSE((*nvml)->MemoryOf("GPU-0").has_value());
  EXPECT_EQ(Counts().contexts, 0u);
}

class NvmlTopologyTest : public ::testing::Test {
 protected:
  using Nvlinks = std::vector<std::optional<int>>;
  ~NvmlTopologyTest() override {
    fake_cuda_configure("nvlinks=18;nvlinks_down=0;nvswitch=0;virtual_gpus=0;no_peer=0");
    fake_cuda_configure("version=13000");
  }
  // From the first GPU to the second, to itself, and to one that NVML does not know.
  static Nvlinks Ask(const std::string& library, const char* settings) {
    fake_cuda_configure(settings);
    auto gpus = FindGpus(FAKE_CUDA_LIBRARY);
    auto nvml = Nvml::Open(library);
    EXPECT_TRUE(gpus.ok() && nvml.ok()) << nvml.status();
    EXPECT_EQ(Counts().contexts, 0u);
    const std::string one = (*gpus)[0].uuid_text(), other = (*gpus)[1].uuid_text();
    return (*nvml)->NvlinksTo(one, {other, one, "GPU-0"});
  }
  static Nvlinks Ask(const char* settings) { return Ask(FAKE_CUDA_LIBRARY, settings); }
};

TEST_F(NvmlTopologyTest, CountsTheNvlinksThatAreUp) {
  EXPECT_EQ(Ask("nvlinks=18"), (Nvlinks{18, {}, {}}));
  EXPECT_EQ(Ask("nvlinks=4;nvlinks_down=1"), (Nvlinks{3, {}, {}}));
  EXPECT_EQ(Ask("nvlinks=18;nvlinks_down=2;nvswitch=1"), (Nvlinks{16, {}, {}}));
}

TEST_F(NvmlTopologyTest, NearAreAGpusOwnMemoryAndThatOfThoseWithNvlink) {
  struct Near {
    bool own, others, hosts;
    bool operator==(const Near&) const = default;
  };
  const auto look = [](const char* settings, bool nvml_opened = true) {
    fake_cuda_configure(settings);
    auto nvml = Nvml::Open(FAKE_CUDA_LIBRARY);
    auto found = FindGpus(FAKE_CUDA_LIBRARY);
    CudaDevice gpu(FAKE_CUDA_LIBRARY, (*found)[0], {0, 1}, nvml_opened ? nvml->get() : nullptr);
    CudaDevice other(FAKE_CUDA_LIBRARY, (*found)[1], {0, 1});
    const auto own = gpu.Map({MemoryKind::kCudaAllocate, 2 * kMiB}, {});
    const auto others = other.Map({MemoryKind::kCudaAllocate, 2 * kMiB}, {});
    const auto host = HostMapping::Map(SealedMemfd(4096), 4096, HostMapping::Access::kReadOnly);
    return Near{gpu.IsNear(**own), gpu.IsNear(**others), gpu.IsNear(**host)};
  };
  EXPECT_EQ(look("nvlinks=18"), (Near{true, true, false}));
  EXPECT_EQ(look("nvlinks=0"), (Near{true, false, false}));
  EXPECT_EQ(look("virtual_gpus=1"), (Near{true, false, false})) << "NVML does not say";
  EXPECT_EQ(look("virtual_gpus=0", /*nvml_opened=*/false), (Near{true, false, false}));
}

TEST_F(NvmlTopologyTest, GpusWithoutNvlinkHaveNone) {
  EXPECT_EQ(Ask("nvlinks=0"), (Nvlinks{0, {}, {}}));
  EXPECT_EQ(Ask("nvlinks=18;no_peer=1"), (Nvlinks{0, {}, {}})) << "they are there, and of no use";
}

TEST_F(NvmlTopologyTest, WhatNvmlDoesNotSayIsNotKnown) {
  EXPECT_EQ(Ask("virtual_gpus=1"), (Nvlinks{{}, {}, {}}));
  EXPECT_EQ(Ask(FAKE_OLD_NVML_LIBRARY, "virtual_gpus=0"), (Nvlinks{{}, {}, {}}));
  EXPECT_EQ(Ask("nvlinks=4;nvlinks_down=4"), (Nvlinks{{}, {}, {}})) << "joined, but it hides how";
  auto old = Nvml::Open(FAKE_OLD_NVML_LIBRARY);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ((*old)->NumaNodeOf("GPU-0"), std::nullopt);
  ASSERT_TRUE((*old)->MemoryOf("GPU-0").has_value());
  EXPECT_EQ((*old)->MemoryOf("GPU-0")->free, 60u);
}

TEST_F(NvmlTopologyTest, KnowsTheNumaNodeThatOldDriversDoNot) {
  const auto of_driver = [] { return (*FindGpus(FAKE_CUDA_LIBRARY))[1].numa; };
  EXPECT_EQ(of_driver(), 0);
  fake_cuda_configure("version=12000");
  EXPECT_EQ(of_driver(), -1);
  auto nvml = Nvml::Open(FAKE_CUDA_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const std::string uuid = (*FindGpus(FAKE_CUDA_LIBRARY))[1].uuid_text();
  EXPECT_EQ((*nvml)->NumaNodeOf(uuid), 0);
  EXPECT_EQ((*nvml)->NumaNodeOf("GPU-0"), std::nullopt);
  fake_cuda_configure("virtual_gpus=1");
  EXPECT_EQ((*nvml)->NumaNodeOf(uuid), std::nullopt);
}

}  // namespace
}  // namespace ferry
