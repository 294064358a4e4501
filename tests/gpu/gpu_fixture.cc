// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu_fixture.h"

#include <stdlib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ferry::testing {

const GpuCase kGpuLocal = {"local", FERRY_ROUTE_LOCAL, true, false, false, false};
const GpuCase kGpuMapped = {"mapped", FERRY_ROUTE_MAPPED, false, false, false, false};
const GpuCase kGpuNccl = {"nccl", FERRY_ROUTE_NCCL, false, false, false, false};
const GpuCase kGpuSelf = {"self", FERRY_ROUTE_LOCAL, true, false, false, true};
const GpuCase kGpuHostToGpu = {"host_to_gpu", FERRY_ROUTE_LOCAL, true, true, false, false};
const GpuCase kGpuToHost = {"gpu_to_host", FERRY_ROUTE_LOCAL, true, false, true, false};
const GpuCase kGpuHostToGpuMapped = {
    "host_to_gpu_mapped", FERRY_ROUTE_MAPPED, false, true, false, false};
const GpuCase kGpuTcp = {"tcp", FERRY_ROUTE_TCP, false, false, false, false};
const GpuCase kGpuHostToGpuTcp = {"host_to_gpu_tcp", FERRY_ROUTE_TCP, false, true, false, false};
const GpuCase kGpuToHostTcp = {"gpu_to_host_tcp", FERRY_ROUTE_TCP, false, false, true, false};
// As it is, where UCX can take it; by way of host memory, and as between hosts.
#define FERRY_UCX_SHM "shm_tls: \"posix,sysv,cma,self\""
const GpuCase kGpuUcx = {
    "ucx", FERRY_ROUTE_UCX, false, false, false, false, "ucx: { direct: true, " FERRY_UCX_SHM " }"};
const GpuCase kGpuUcxShm = {"ucx_shm",
                            FERRY_ROUTE_UCX,
                            false,
                            false,
                            false,
                            false,
                            "ucx: { direct: false, " FERRY_UCX_SHM " }"};
const GpuCase kGpuUcxTcp = {
    "ucx_tcp",
    FERRY_ROUTE_UCX,
    false,
    false,
    false,
    false,
    "ucx: { direct: false, net_tls: \"tcp,self\", open_to: \"this test\" }"};

void GpuTest::SetUp() {
  std::string why;
  driver_ = GpuDriver::Get(&why);
  if (driver_ == nullptr) GTEST_SKIP() << "NO GPU: " << why;
}

void GpuTest::TearDown() {
  for (const auto& [stream, context] : streams_) {
    EXPECT_CU(Synchronize(stream));
    driver_->cuStreamDestroy(stream);
  }
  for (char* memory : pinned_) driver_->cuMemFreeHost(memory);
  CloseEnds();
  ClusterTest::TearDown();
}

CUresult GpuTest::Synchronize(CUstream stream) {
  driver_->cuCtxSetCurrent(streams_.at(stream));
  return driver_->cuStreamSynchronize(stream);
}

bool GpuTest::fake() const {
  const char* library = getenv("FERRY_CUDA_LIBRARY");
  return library != nullptr && std::string(library).find("fake") != std::string::npos;
}

bool GpuTest::Need(int gpus) {
  if (driver_ == nullptr) return false;
  if (driver_->devices() >= gpus) return true;
  [&] { GTEST_SKIP() << "NEEDS " << gpus << " GPUS, found " << driver_->devices(); }();
  return false;
}

std::vector<std::string> FakeWith(const std::string& more) {
  return {absl::StrCat("FERRY_FAKE_CUDA=", getenv("FERRY_FAKE_CUDA"), ";", more)};
}

void GpuTest::StartNodes(int nodes, int gpus, const std::string& transfer,
                         std::vector<std::string> environment) {
  ClusterOptions options;
  options.transfer = transfer;
  options.environment = std::move(environment);
  StartNodes(nodes, gpus, std::move(options));
}

void GpuTest::StartNodes(int nodes, int gpus, ClusterOptions options) {
  options.nodes = nodes;
  options.devices = 1;
  options.gpus = gpus / nodes;
  options.own_gpus = true;
  if (fake()) {
    options.environment.push_back("FERRY_FAKE_NCCL=" + options.fake_nccl);
    options.environment.push_back("FERRY_NVRTC_LIBRARY=" FAKE_NVRTC_LIBRARY);
  }
  Start(options);
}

bool GpuTest::StartFor(const GpuCase& gpu_case, std::vector<std::string> environment) {
  if (!Need(gpu_case.gpus())) return false;
  if (!gpu_case.one_node && !Need(2)) return false;
  StartNodes(gpu_case.one_node ? 1 : 2, gpu_case.one_node ? gpu_case.gpus() : 2, gpu_case.transfer,
             std::move(environment));
  return gpu_case.route != FERRY_ROUTE_UCX || NeedUcx();
}

bool GpuTest::NeedUcx() {
  const std::string ucx = node(0).admin().Status().ucx();
  if (absl::StartsWith(ucx, "1.")) return true;
  [&] { GTEST_SKIP() << "NEEDS UCX: " << ucx; }();
  return false;
}

End GpuTest::Open(size_t node, int gpu, uint64_t bytes, const std::string& name) {
  End end;
  end.device = gpu < 0 ? nodes().Device(node) : nodes().Gpu(node, static_cast<uint64_t>(gpu));
  end.session = nodes().Open(node, name);
  end.arena = Must(end.session.CreateArena(end.device, bytes));
  return end;
}

End GpuTest::OpenSource(const GpuCase& gpu_case, uint64_t bytes) {
  return Open(0, gpu_case.source_on_host ? -1 : 0, bytes, "source");
}

End GpuTest::OpenDestination(const GpuCase& gpu_case, uint64_t bytes) {
  if (gpu_case.destination_on_host) {
    return Open(gpu_case.one_node ? 0 : 1, -1, bytes, "destination");
  }
  if (!gpu_case.one_node) return Open(1, 0, bytes, "destination");
  const bool first = gpu_case.same_gpu || gpu_case.source_on_host;
  return Open(0, first ? 0 : 1, bytes, "destination");
}

CUstream GpuTest::MakeStream(const End& end) {
  CUstream stream = nullptr;
  const CUcontext context = driver_->context(cuda::Device(end.arena));
  EXPECT_CU(driver_->cuCtxSetCurrent(context));
  EXPECT_CU(driver_->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  streams_[stream] = context;
  return stream;
}

char* GpuTest::Pinned(uint64_t bytes) {
  void* memory = nullptr;
  EXPECT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  EXPECT_CU(driver_->cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
  pinned_.push_back(static_cast<char*>(memory));
  return pinned_.back();
}

}  // namespace ferry::testing
