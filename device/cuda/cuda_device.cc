// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "device/cuda/cuda_copier.h"
#include "device/cuda/cuda_engine.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/loss_story.h"
#include "device/cuda/nvml.h"

namespace ferry {

std::string GpuInfo::uuid_text() const {
  const std::string hex = absl::BytesToHexString(uuid);
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

namespace {

// Arenas are allocations that are shared by descriptor.
absl::StatusOr<std::string> WhyUnusable(const CudaApi& api, CUdevice device,
                                        const std::string& doing) {
  static constexpr struct {
    CUdevice_attribute attribute;
    const char* what;
  } kNeeded[] = {
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "descriptors of memory"},
  };
  for (const auto& [attribute, what] : kNeeded) {
    int supported = 0;
    RETURN_IF_CUDA(api, api.cuDeviceGetAttribute(&supported, attribute, device), doing);
    if (supported == 0) {
      return absl::StrCat("it or its driver has no ", what,
                          ", without which its memory cannot be shared");
    }
  }
  return std::string();
}

}  // namespace

absl::StatusOr<std::vector<GpuInfo>> FindGpus(const std::string& library) {
  ASSIGN_OR_RETURN(const CudaApi* api, LoadCuda(library));
  int count = 0;
  RETURN_IF_CUDA(*api, api->cuDeviceGetCount(&count), "count GPUs");
  std::vector<GpuInfo> found;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const std::string doing = absl::StrCat("look at GPU ", ordinal);
    GpuInfo info;
    info.ordinal = ordinal;
    CUdevice device = 0;
    RETURN_IF_CUDA(*api, api->cuDeviceGet(&device, ordinal), doing);
    CUuuid uuid;
    RETURN_IF_CUDA(*api, api->cuDeviceGetUuid(&uuid, device), doing);
    info.uuid.assign(uuid.bytes, sizeof(uuid.bytes));
    char text[128] = {};
    RETURN_IF_CUDA(*api, api->cuDeviceGetName(text, sizeof(text), device), doing);
    info.name = text;
    size_t bytes = 0;
    RETURN_IF_CUDA(*api, api->cuDeviceTotalMem(&bytes, device), doing);
    info.bytes = bytes;
    RETURN_IF_CUDA(*api, api->cuDeviceGetPCIBusId(text, sizeof(text), device), doing);
    info.pci = text;
    // Older drivers do not know where a GPU is.
    if (api->cuDeviceGetAttribute(&info.numa, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) !=
        CUDA_SUCCESS) {
      info.numa = -1;
    }
    RETURN_IF_CUDA(*api,
                   api->cuDeviceGetAttribute(&info.major,
                                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
                   doing);
    RETURN_IF_CUDA(*api,
                   api->cuDeviceGetAttribute(&info.minor,
                                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
                   doing);
    info.driver = CudaVersionText(api->version);
    info.driver_version = api->version;
    ASSIGN_OR_RETURN(info.unusable, WhyUnusable(*api, device, doing));
    found.push_back(std::move(info));
  }
  return found;
}

absl::StatusOr<std::unique_ptr<CudaEngine>> CudaEngine::Make(const CudaApi& api, int priority) {
  auto engine = std::make_unique<CudaEngine>();
  engine->api = &api;
  for (CUstream& stream : engine->streams) {
    RETURN_IF_CUDA(api, api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority),
                   "make a stream");
  }
  for (CUevent& event : engine->events) {
    RETURN_IF_CUDA(api, api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "make an event");
  }
  return engine;
}

CudaEngine::~CudaEngine() {
  for (const CUevent event : events) {
    if (event != nullptr) api->cuEventDestroy(event);
  }
  for (const CUstream stream : streams) {
    if (stream != nullptr) api->cuStreamDestroy(stream);
  }
}

CudaDevice::CudaDevice(const std::string& library, GpuInfo info, std::vector<int> team,
                       const Nvml* nvml)
    : api_(**LoadCuda(library)), info_(std::move(info)), team_(std::move(team)), nvml_(nvml) {
  FindNear();
}

// Of all that this process sees: other daemons' memory is mapped too.
void CudaDevice::FindNear() {
  near_ = {info_.ordinal};
  int count = 0;
  if (nvml_ == nullptr || api_.cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  std::vector<std::string> others;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    GpuInfo other;
    CUuuid uuid = {};
    if (api_.cuDeviceGetUuid(&uuid, ordinal) == CUDA_SUCCESS) {
      other.uuid.assign(uuid.bytes, sizeof(uuid.bytes));
    }
    others.push_back(other.uuid.empty() ? "" : other.uuid_text());
  }
  const std::vector<std::optional<int>> nvlinks = nvml_->NvlinksTo(Name(), others);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (nvlinks[static_cast<size_t>(ordinal)].value_or(0) > 0) near_.push_back(ordinal);
  }
}

CudaDevice::~CudaDevice() {
  MutexLock lock(mutex_);
  FERRY_CHECK(holds_ == 0);
  if (!staging_.empty()) munmap(staging_.data(), staging_.size());
}

std::string CudaDevice::Name() const { return info_.uuid_text(); }

void CudaDevice::MakeCurrent() const {
  LossStory::AtGpu(info_.ordinal);
  const CUresult result = api_.cuCtxSetCurrent(context_);
  // If the GPUs are lost, this says so and ends the process.
  if (result != CUDA_SUCCESS) CudaError(api_, result, "make a context current").IgnoreError();
  FERRY_CHECK(result == CUDA_SUCCESS);
}

absl::Status CudaDevice::Hold() {
  MutexLock lock(mutex_);
  if (released_) {
    // Not UNAVAILABLE: to try again is of no use before an operator acts.
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
                 absl::StrCat("use ", Name(),
                              ": an operator took it from this daemon (ferryctl devices release); "
                              "ferryctl devices reclaim gives it back"));
  }
  if (holds_ == 0) RETURN_IF_ERROR(OpenContext());
  ++holds_;
  MakeCurrent();
  return absl::OkStatus();
}

absl::Status CudaDevice::OpenContext() {
  const std::string doing = absl::StrCat("open a context on ", Name());
  CUcontext context = nullptr;
  RETURN_IF_CUDA(api_, api_.cuDevicePrimaryCtxRetain(&context, info_.ordinal), doing);
  context_ = context;
  MakeCurrent();
  int least = 0;
  int greatest = 0;
  absl::Status made;
  if (const CUresult range = api_.cuCtxGetStreamPriorityRange(&least, &greatest);
      range != CUDA_SUCCESS) {
    made = CudaError(api_, range, doing);
  }
  // Ours go before the kernels of a process that shares this context's priorities, urgent ones
  // before the others.
  const int normal = std::min(greatest + 1, least);
  const int priorities[kCopyEngines + 1] = {normal, greatest, normal, normal, least};
  for (size_t i = 0; i <= kCopyEngines && made.ok(); ++i) {
    absl::StatusOr<std::unique_ptr<CudaEngine>> engine = CudaEngine::Make(api_, priorities[i]);
    made = engine.status();
    if (engine.ok()) engines_[i] = *std::move(engine);
  }
  if (!made.ok()) {
    CloseContext();
    return Annotate(made, doing);
  }
  LoadGather();
  RegisterStaging();
  FlightRecorder::Get().Record("cuda.context", static_cast<uint64_t>(info_.ordinal), 1);
  FERRY_LOG(info, "gpu.context", LogFields("uuid", info_.uuid_text()), "opened");
  return absl::OkStatus();
}

void CudaDevice::LoadGather() {
  for (size_t i = 0; i < kCopyEngines; ++i) {
    absl::StatusOr<std::unique_ptr<CudaGather>> gather = CudaGather::Make(
        api_, CudaEngine::kSteps, CudaEngine::kPieces + StepSize::kMost / CudaGather::kTaskBytes);
    if (!gather.ok()) {
      FERRY_LOG(warn, "gpu.gather", LogFields("uuid", info_.uuid_text()),
                "many small pieces go by the copy engine: {}",
                std::string(gather.status().message()));
      return;
    }
    engines_[i]->gather = *std::move(gather);
  }
}

absl::StatusOr<absl::Span<std::byte>> CudaDevice::MakeStaging(size_t bytes) {
  MutexLock lock(mutex_);
  FERRY_CHECK(holds_ == 0 && staging_.empty());
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                      absl::StrCat("map ", bytes, " bytes to stage copies of ", Name()), errno);
  }
  staging_ = {static_cast<std::byte*>(memory), bytes};
  return staging_;
}

void CudaDevice::RegisterStaging() {
  if (staging_.empty()) return;
  const CUresult registered = api_.cuMemHostRegister(
      staging_.data(), staging_.size(), CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  staging_registered_ = registered == CUDA_SUCCESS;
  if (staging_registered_) return;
  const absl::Status status = CudaError(api_, registered, "register host memory for staging");
  FERRY_LOG(warn, "gpu.pin", LogFields("uuid", info_.uuid_text()),
            "staged copies go by way of the driver's buffers, which is slower: {}",
            std::string(status.message()));
}

void CudaDevice::CloseContext() {
  if (std::exchange(staging_registered_, false)) api_.cuMemHostUnregister(staging_.data());
  for (auto& engine : engines_) engine.reset();
  api_.cuCtxSetCurrent(nullptr);
  context_ = nullptr;
  const CUresult released = api_.cuDevicePrimaryCtxRelease(info_.ordinal);
  if (released != CUDA_SUCCESS) {
    const absl::Status status =
        CudaError(api_, released, absl::StrCat("give back the context of ", Name()));
    FERRY_LOG(warn, "gpu.context", "{}", std::string(status.message()));
  }
  FlightRecorder::Get().Record("cuda.context", static_cast<uint64_t>(info_.ordinal), 0);
  FERRY_LOG(info, "gpu.context", LogFields("uuid", info_.uuid_text()), "closed");
}

void CudaDevice::Letgo() {
  MutexLock lock(mutex_);
  if (--holds_ == 0) CloseContext();
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> CudaDevice::Map(const MemoryShare& share,
                                                              std::vector<UniqueFd> fds,
                                                              bool ours) {
  // Held a second time until it is known what was free when there was too little.
  if (absl::Status held = Hold(); !held.ok()) return WithFree(held, share.bytes);
  RETURN_IF_ERROR(Hold());
  auto memory = CudaMemory::Make(*this, share, std::move(fds), ours);
  absl::Status made = memory.ok() ? absl::OkStatus() : WithFree(memory.status(), share.bytes);
  Letgo();
  if (!made.ok()) return made;
  return memory;
}

absl::Status CudaDevice::WithFree(const absl::Status& status, uint64_t bytes) {
  if (ReasonOf(status) != Reason::kDeviceMemory) return status;
  const std::optional<uint64_t> free = FreeBytes();
  return WithText(status,
                  absl::StrCat(status.message(), "; ", bytes, " bytes were asked for, ",
                               free ? absl::StrCat(*free, " of ", info_.bytes, " are free")
                                    : "how many are free is not known (no NVML, and no context)"));
}

absl::StatusOr<std::unique_ptr<MemoryRegistration>> CudaDevice::Register(const DeviceMemory& host,
                                                                         bool read_only) {
  RETURN_IF_ERROR(Hold());
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                         (read_only ? CU_MEMHOSTREGISTER_READ_ONLY : 0);
  const CUresult registered = api_.cuMemHostRegister(host.data(), host.bytes(), flags);
  if (registered != CUDA_SUCCESS) {
    absl::Status status = CudaError(
        api_, registered, absl::StrCat("register ", host.bytes(), " bytes of host memory"));
    Letgo();
    return status;
  }
  return std::make_unique<CudaRegistration>(*this, host.data());
}

bool CudaDevice::WantsOpening(const DeviceMemory& memory) const {
  const auto* gpu = dynamic_cast<const CudaMemory*>(&memory);
  return gpu != nullptr && gpu->WantsOpening(info_.ordinal);
}

absl::Status CudaDevice::Open(const DeviceMemory& memory) {
  return dynamic_cast<const CudaMemory&>(memory).OpenFor(*this);
}

std::byte* CudaDevice::AddressOf(const DeviceMemory& memory) const {
  const auto* gpu = dynamic_cast<const CudaMemory*>(&memory);
  return gpu == nullptr ? memory.data() : gpu->AddressFor(info_.ordinal);
}

absl::Status CudaDevice::CanReach(const DeviceMemory& memory) const {
  const auto* gpu = dynamic_cast<const CudaMemory*>(&memory);
  if (gpu == nullptr || gpu->ReachedBy(info_.ordinal)) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
               absl::StrCat(Name(),
                            " cannot reach the other GPU's memory: there is no peer access "
                            "between them"));
}

bool CudaDevice::KernelsCanReach(const DeviceMemory& memory) const {
  const auto* gpu = dynamic_cast<const CudaMemory*>(&memory);
  return gpu == nullptr ? memory.registered() : gpu->KernelsReachIt(info_.ordinal);
}

std::optional<bool> CudaDevice::HasPeerAccess(int ordinal) const {
  int can = 0;
  if (api_.cuDeviceCanAccessPeer(&can, info_.ordinal, ordinal) != CUDA_SUCCESS) return std::nullopt;
  return can != 0;
}

bool CudaDevice::IsNear(const DeviceMemory& memory) const {
  const auto* gpu = dynamic_cast<const CudaMemory*>(&memory);
  return gpu != nullptr && absl::c_linear_search(near_, gpu->owner());
}

absl::Status CudaDevice::Release() {
  MutexLock lock(mutex_);
  if (holds_ > 0) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kFieldInvalid,
                 absl::StrCat("release ", Name(), ": ", holds_.load(),
                              " arenas, mappings of peers' arenas, registered host arenas or "
                              "staging of communicators use it; end the sessions that hold them, "
                              "and close communicators (ferryctl comms evict)"));
  }
  released_ = true;
  return absl::OkStatus();
}

void CudaDevice::Reclaim() {
  MutexLock lock(mutex_);
  released_ = false;
}

CudaDevice::Usage CudaDevice::usage() const {
  const uint64_t holds = holds_;
  return {holds > 0, released_, holds};
}

std::optional<uint64_t> CudaDevice::FreeBytes() {
  if (nvml_ != nullptr) {
    if (const auto memory = nvml_->MemoryOf(Name()); memory.has_value()) return memory->free;
  }
  MutexLock lock(mutex_);
  if (holds_ == 0) return std::nullopt;
  MakeCurrent();
  size_t free = 0;
  size_t total = 0;
  if (api_.cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return std::nullopt;
  return free;
}

std::unique_ptr<Copier> CudaDevice::MakeCopier(CopyUse use,
                                               std::function<void(absl::Time)> sms_busy) {
  return std::make_unique<CudaCopier>(*this, static_cast<size_t>(use), std::move(sms_busy));
}

}  // namespace ferry
