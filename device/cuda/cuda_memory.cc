// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "device/cuda/cuda_engine.h"

namespace ferry {
namespace {

absl::Status Invalid(absl::string_view doing, absl::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat(doing, ": ", why));
}

// Of a call that was given what a client or a peer sent. For some of that the driver has no word
// but the one that elsewhere means that the GPUs are lost, and with it nobody may end the daemon.
// If they are, the next call says so.
absl::Status HandleError(const CudaApi& api, CUresult result, absl::string_view doing) {
  if (result == CUDA_ERROR_UNKNOWN) return Invalid(doing, CudaErrorText(api, result));
  return CudaError(api, result, doing);
}

CUmemAllocationProp PropertiesOn(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMemory>> CudaMemory::Make(CudaDevice& device,
                                                               const MemoryShare& share,
                                                               std::vector<UniqueFd> fds,
                                                               bool ours) {
  std::unique_ptr<CudaMemory> memory(new CudaMemory(device));
  if (share.bytes == 0) return Invalid(absl::StrCat("map memory on ", device.Name()), "0 bytes");
  switch (share.kind) {
    case MemoryKind::kCudaAllocate:
      RETURN_IF_ERROR(memory->Allocate(share.bytes));
      break;
    case MemoryKind::kCudaVmm:
      RETURN_IF_ERROR(memory->Import(share, std::move(fds), ours));
      break;
    case MemoryKind::kCudaIpc:
      RETURN_IF_ERROR(memory->OpenIpc(share, ours));
      break;
    default:
      return Invalid(absl::StrCat("map memory on ", device.Name()),
                     "a GPU has no memfds; its memory is CUDA_ALLOCATE, CUDA_VMM or CUDA_IPC");
  }
  return memory;
}

absl::Status CudaMemory::Allocate(uint64_t bytes) {
  const CudaApi& api = device_.api_;
  const int ordinal = device_.info().ordinal;
  const std::string doing = absl::StrCat("allocate ", bytes, " bytes on ", device_.Name());
  CUmemAllocationProp properties = PropertiesOn(ordinal);
  int rdma = 0;
  api.cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                           ordinal);
  properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
  size_t granularity = 0;
  RETURN_IF_CUDA(api,
                 api.cuMemGetAllocationGranularity(&granularity, &properties,
                                                   CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                 doing);
  if (bytes > UINT64_MAX - granularity) return Invalid(doing, "more than there can be");
  const uint64_t whole = (bytes + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle = 0;
  RETURN_IF_CUDA(api, api.cuMemCreate(&handle, whole, &properties, 0), doing);
  handles_.push_back(handle);
  int fd = -1;
  RETURN_IF_CUDA(
      api,
      api.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      doing);
  fds_.emplace_back(fd);
  owner_ = ordinal;
  share_ = {MemoryKind::kCudaVmm, bytes, {whole}};
  RETURN_IF_ERROR(MapHandles(doing));
  // What another session left there is nobody's to read.
  const CUstream stream = device_.engines_[CudaDevice::kCopyEngines]->streams[0];
  RETURN_IF_CUDA(api, api.cuMemsetD8Async(address_, 0, whole, stream), doing);
  RETURN_IF_CUDA(api, api.cuStreamSynchronize(stream), doing);
  return absl::OkStatus();
}

absl::Status CudaMemory::Import(const MemoryShare& share, std::vector<UniqueFd> fds, bool ours) {
  const CudaApi& api = device_.api_;
  const std::string doing = absl::StrCat("import ", share.segment_bytes.size(), " allocations of ",
                                         share.bytes, " bytes on ", device_.Name());
  if (share.segment_bytes.empty() || share.segment_bytes.size() != fds.size()) {
    return Invalid(doing, absl::StrCat(fds.size(), " descriptors came"));
  }
  CUmemAllocationProp properties = PropertiesOn(device_.info().ordinal);
  size_t granularity = 0;
  RETURN_IF_CUDA(api,
                 api.cuMemGetAllocationGranularity(&granularity, &properties,
                                                   CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 doing);
  uint64_t sum = 0;
  for (const uint64_t bytes : share.segment_bytes) {
    if (bytes == 0 || bytes % granularity != 0 || bytes > UINT64_MAX / 2 - sum) {
      return Invalid(
          doing, absl::StrCat("a segment of ", bytes, " bytes; the granularity is ", granularity));
    }
    sum += bytes;
  }
  if (sum < share.bytes) return Invalid(doing, absl::StrCat("the segments have ", sum, " bytes"));
  for (const UniqueFd& fd : fds) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult imported = api.cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (imported == CUDA_ERROR_INVALID_DEVICE) {
      return Invalid(doing, "its GPU is not visible to this daemon");
    }
    if (imported != CUDA_SUCCESS) {
      return HandleError(api, imported,
                         absl::StrCat(doing, " (a descriptor of a GPU's allocation?)"));
    }
    handles_.push_back(handle);
    RETURN_IF_CUDA(api, api.cuMemGetAllocationPropertiesFromHandle(&properties, handle), doing);
    RETURN_IF_ERROR(CheckOwner(properties.location.id, ours));
    owner_ = properties.location.id;
  }
  fds_ = std::move(fds);
  share_ = share;
  return MapHandles(doing);
}

absl::Status CudaMemory::OpenHandle(const CudaDevice& device, const MemoryShare& share,
                                    CUdeviceptr* base) {
  const CudaApi& api = device.api_;
  const std::string doing = absl::StrCat("open an IPC handle on ", device.Name());
  CUipcMemHandle handle;
  if (share.ipc_handle.size() != sizeof(handle)) {
    return Invalid(
        doing, absl::StrCat("it has ", share.ipc_handle.size(), " bytes, not ", sizeof(handle)));
  }
  memcpy(&handle, share.ipc_handle.data(), sizeof(handle));
  const CUresult opened = api.cuIpcOpenMemHandle(base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (opened == CUDA_SUCCESS) return absl::OkStatus();
  *base = 0;
  const absl::Status why = HandleError(api, opened, doing);
  if (ReasonOf(why) == Reason::kDeviceMemory) return why;
  // Whatever the driver calls it: the handle is of no use here, now or later.
  return Invalid(absl::StrCat("legacy IPC works between processes of one PID namespace and of one "
                              "driver, while the owner keeps the memory; VMM descriptors have "
                              "none of these limits"),
                 why.message());
}

absl::Status CudaMemory::OpenIpc(const MemoryShare& share, bool ours) {
  const CudaApi& api = device_.api_;
  const std::string doing = absl::StrCat("open an IPC handle on ", device_.Name());
  CUdeviceptr base = 0;
  RETURN_IF_ERROR(OpenHandle(device_, share, &base));
  address_ = base;
  share_ = share;
  CUdeviceptr start = 0;
  size_t whole = 0;
  RETURN_IF_CUDA(api, api.cuMemGetAddressRange(&start, &whole, base), doing);
  if (share.ipc_offset > whole || share.bytes > whole - share.ipc_offset) {
    return Invalid(doing, absl::StrCat("the allocation has ", whole, " bytes, not ",
                                       share.ipc_offset, " + ", share.bytes));
  }
  RETURN_IF_CUDA(api, api.cuPointerGetAttribute(&owner_, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base),
                 doing);
  RETURN_IF_ERROR(CheckOwner(owner_, ours));
  // The driver copies between GPUs by itself, also where the handle is not open (WantsOpening).
  reached_by_.assign(device_.team_.begin(), device_.team_.end());
  Place(reinterpret_cast<std::byte*>(base + share.ipc_offset), share.bytes);
  return absl::OkStatus();
}

absl::Status CudaMemory::CheckOwner(int ordinal, bool ours) const {
  if (!ours || ordinal == device_.info().ordinal) return absl::OkStatus();
  return Invalid(absl::StrCat("map memory on ", device_.Name()),
                 absl::StrCat("it is memory of the driver's GPU ", ordinal));
}

absl::Status CudaMemory::MapHandles(const std::string& doing) {
  const CudaApi& api = device_.api_;
  const std::vector<uint64_t>& segments = share_.segment_bytes;
  const uint64_t range = std::accumulate(segments.begin(), segments.end(), uint64_t{0});
  RETURN_IF_CUDA(api, api.cuMemAddressReserve(&address_, range, 0, 0, 0), doing);
  range_ = range;
  uint64_t offset = 0;
  for (size_t i = 0; i < handles_.size(); ++i) {
    RETURN_IF_CUDA(api, api.cuMemMap(address_ + offset, segments[i], 0, handles_[i], 0), doing);
    ++mapped_;
    offset += segments[i];
  }
  absl::Status refused;
  for (const int ordinal : device_.team_) {
    int can = ordinal == owner_ ? 1 : 0;
    if (can == 0) api.cuDeviceCanAccessPeer(&can, ordinal, owner_);
    if (can == 0) continue;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult set = api.cuMemSetAccess(address_, range_, &access, 1);
    if (set == CUDA_SUCCESS) {
      reached_by_.push_back(ordinal);
    } else {
      refused = CudaError(api, set, doing);
    }
  }
  if (!ReachedBy(device_.info().ordinal)) {
    return refused.ok() ? Invalid(doing, absl::StrCat("the GPU cannot reach memory of the driver's "
                                                      "GPU ",
                                                      owner_, " (no peer access)"))
                        : refused;
  }
  Place(reinterpret_cast<std::byte*>(address_), share_.bytes);
  return absl::OkStatus();
}

bool CudaMemory::WantsOpening(int ordinal) const {
  if (share_.kind != MemoryKind::kCudaIpc || ordinal == device_.info().ordinal) return false;
  if (!ReachedBy(ordinal)) return false;
  MutexLock lock(mutex_);
  return FindOpening(ordinal) == nullptr;
}

absl::Status CudaMemory::OpenFor(CudaDevice& other) const {
  FERRY_CHECK(WantsOpening(other.info().ordinal));
  Opening opening{&other};
  absl::Status opened = other.Hold();
  if (opened.ok()) {
    opened = OpenHandle(other, share_, &opening.base);
    if (!opened.ok()) other.Letgo();
  }
  MutexLock lock(mutex_);
  openings_.push_back(opening);
  return opened;
}

const CudaMemory::Opening* CudaMemory::FindOpening(int ordinal) const {
  for (const Opening& opening : openings_) {
    if (opening.device->info().ordinal == ordinal) return &opening;
  }
  return nullptr;
}

std::byte* CudaMemory::AddressFor(int ordinal) const {
  if (share_.kind != MemoryKind::kCudaIpc || ordinal == device_.info().ordinal) return data();
  MutexLock lock(mutex_);
  const Opening* const opening = FindOpening(ordinal);
  if (opening == nullptr || opening->base == 0) return data();
  return reinterpret_cast<std::byte*>(opening->base + share_.ipc_offset);
}

CudaMemory::~CudaMemory() {
  const CudaApi& api = device_.api_;
  const auto expect = [&](CUresult result, const char* doing) {
    if (result == CUDA_SUCCESS) return;
    const absl::Status status = CudaError(api, result, absl::StrCat(doing, " ", device_.Name()));
    FERRY_LOG(warn, "cuda.unmap", "{}", std::string(status.message()));
  };
  for (const Opening& opening : openings_) {
    if (opening.base == 0) continue;
    opening.device->MakeCurrent();
    expect(api.cuIpcCloseMemHandle(opening.base), "close a further IPC handle of");
    opening.device->Letgo();
  }
  device_.MakeCurrent();
  if (share_.kind == MemoryKind::kCudaIpc) {
    if (address_ != 0) expect(api.cuIpcCloseMemHandle(address_), "close an IPC handle on");
  } else {
    uint64_t offset = 0;
    for (size_t i = 0; i < mapped_; ++i) {
      expect(api.cuMemUnmap(address_ + offset, share_.segment_bytes[i]), "unmap memory on");
      offset += share_.segment_bytes[i];
    }
    if (range_ != 0) expect(api.cuMemAddressFree(address_, range_), "give back addresses of");
    for (const CUmemGenericAllocationHandle handle : handles_) {
      expect(api.cuMemRelease(handle), "free memory on");
    }
  }
  device_.Letgo();
}

std::vector<int> CudaMemory::fds() const {
  std::vector<int> all;
  for (const UniqueFd& fd : fds_) all.push_back(fd.get());
  return all;
}

bool CudaMemory::ReachedBy(int ordinal) const {
  return std::find(reached_by_.begin(), reached_by_.end(), ordinal) != reached_by_.end();
}

bool CudaMemory::KernelsReachIt(int ordinal) const {
  if (share_.kind != MemoryKind::kCudaIpc) return ReachedBy(ordinal);
  if (ordinal == device_.info().ordinal) return true;
  MutexLock lock(mutex_);
  const Opening* const opening = FindOpening(ordinal);
  return opening != nullptr && opening->base != 0;
}

CudaRegistration::~CudaRegistration() {
  device_.MakeCurrent();
  const CUresult result = device_.api_.cuMemHostUnregister(data_);
  if (result != CUDA_SUCCESS) {
    const absl::Status status = CudaError(device_.api_, result, "unregister host memory");
    FERRY_LOG(warn, "cuda.unpin", "{}", std::string(status.message()));
  }
  device_.Letgo();
}

}  // namespace ferry
