// SPDX-License-Identifier: Apache-2.0
#include "client/cuda_memory.h"

#include <unistd.h>

#include "client/cuda_api.h"

namespace ferry::client {
namespace {

StatusPtr ContextOf(int device, const std::string& doing, Cuda** cuda, CUcontext* context) {
  FERRY_CLIENT_RETURN_IF_ERROR(Cuda::Get(cuda));
  return (*cuda)->PrimaryContext(device, doing, context);
}

uint64_t Total(const std::vector<CudaSegment>& segments) {
  uint64_t total = 0;
  for (const CudaSegment& segment : segments) total += segment.bytes;
  return total;
}

StatusPtr MapOne(Cuda* cuda, const CudaSegment& segment, uint64_t address,
                 const std::string& doing) {
  CUmemGenericAllocationHandle handle;
  FERRY_CLIENT_CUDA(cuda, doing, cuMemImportFromShareableHandle, &handle,
                    reinterpret_cast<void*>(static_cast<intptr_t>(segment.fd)),
                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  StatusPtr error =
      cuda->Check(cuda->cuMemMap(address, segment.bytes, 0, handle, 0), doing, "cuMemMap");
  cuda->cuMemRelease(handle);  // the mapping keeps its own reference
  return error;
}

// The segments of the VMM mappings that begin at `pointer`; `first` is a reference to the first of
// them.
StatusPtr DescribeMappings(Cuda* cuda, CUdeviceptr pointer, uint64_t bytes,
                           CUmemGenericAllocationHandle first, const std::string& doing,
                           std::vector<CudaSegment>* segments) {
  CUmemGenericAllocationHandle handle = first;
  for (uint64_t done = 0; done < bytes;) {
    const CUdeviceptr at = pointer + done;
    if (done != 0) {
      FERRY_CLIENT_CUDA(cuda, doing, cuMemRetainAllocationHandle, &handle,
                        reinterpret_cast<void*>(at));
    }
    CUdeviceptr base = 0;
    size_t size = 0;
    int fd = -1;
    StatusPtr error =
        cuda->Check(cuda->cuMemGetAddressRange(&base, &size, at), doing, "cuMemGetAddressRange");
    if (error == nullptr && base != at) {
      error =
          BadField(doing, "pointer",
                   "is " + std::to_string(at - base) +
                       " bytes behind the begin of its mapping of " + std::to_string(size) +
                       " bytes; import the mapping from its begin, and use ranges of that arena");
    }
    if (error == nullptr) {
      error = cuda->Check(cuda->cuMemExportToShareableHandle(
                              &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                          doing, "cuMemExportToShareableHandle");
      if (error != nullptr) {
        error->message +=
            "; memory of cuMemCreate can be shared only if it was asked for with "
            "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR";
      }
    }
    cuda->cuMemRelease(handle);
    if (error != nullptr) return error;
    segments->push_back({fd, size});
    done += size;
  }
  return nullptr;
}

// Copies on a stream of its own, and waits until that is done. The default stream, and every stream
// that waits for it, may be parked until the application has done what this copy is for.
template <typename Copy>
StatusPtr CopyApart(int device, const std::string& doing, Copy copy) {
  Cuda* cuda;
  CUcontext context;
  FERRY_CLIENT_RETURN_IF_ERROR(ContextOf(device, doing, &cuda, &context));
  const CurrentContext current(cuda, context);
  CUstream stream;
  FERRY_CLIENT_CUDA(cuda, doing, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  StatusPtr error = copy(cuda, stream);
  if (error == nullptr) {
    error = cuda->Check(cuda->cuStreamSynchronize(stream), doing, "cuStreamSynchronize");
  }
  cuda->cuStreamDestroy(stream);
  return error;
}

}  // namespace

StatusPtr FindCudaDevice(const std::string& uuid, const std::string& doing, int* device) {
  Cuda* cuda;
  FERRY_CLIENT_RETURN_IF_ERROR(Cuda::Get(&cuda));
  return cuda->FindDevice(uuid, doing, device);
}

StatusPtr MapSegments(int device, const std::vector<CudaSegment>& segments,
                      const std::string& doing, uint64_t* address) {
  Cuda* cuda;
  CUcontext context;
  FERRY_CLIENT_RETURN_IF_ERROR(ContextOf(device, doing, &cuda, &context));
  const CurrentContext current(cuda, context);
  const uint64_t total = Total(segments);
  CUdeviceptr begin = 0;
  FERRY_CLIENT_CUDA(cuda, doing, cuMemAddressReserve, &begin, total, 0, 0, 0);
  std::vector<CudaSegment> mapped;
  uint64_t at = begin;
  StatusPtr error;
  for (const CudaSegment& segment : segments) {
    error = MapOne(cuda, segment, at, doing);
    if (error != nullptr) break;
    mapped.push_back({-1, segment.bytes});
    at += segment.bytes;
  }
  if (error == nullptr) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    error = cuda->Check(cuda->cuMemSetAccess(begin, total, &access, 1), doing, "cuMemSetAccess");
  }
  if (error != nullptr) {
    for (uint64_t done = begin; const CudaSegment& segment : mapped) {
      cuda->cuMemUnmap(done, segment.bytes);
      done += segment.bytes;
    }
    cuda->cuMemAddressFree(begin, total);
    return error;
  }
  *address = begin;
  return nullptr;
}

void UnmapSegments(uint64_t address, const std::vector<CudaSegment>& segments) {
  Cuda* cuda;
  if (Cuda::Get(&cuda) != nullptr) return;
  uint64_t at = address;
  for (const CudaSegment& segment : segments) {
    cuda->cuMemUnmap(at, segment.bytes);
    at += segment.bytes;
  }
  cuda->cuMemAddressFree(address, at - address);
}

StatusPtr DescribePointer(int device, const void* pointer, uint64_t bytes, const std::string& doing,
                          CudaPointer* described) {
  Cuda* cuda;
  CUcontext context;
  FERRY_CLIENT_RETURN_IF_ERROR(ContextOf(device, doing, &cuda, &context));
  const CurrentContext current(cuda, context);
  const auto at = reinterpret_cast<CUdeviceptr>(pointer);
  CUmemorytype type{};
  int ordinal = -1;
  if (cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS ||
      type != CU_MEMORYTYPE_DEVICE) {
    return BadField(doing, "pointer", "is not one to memory of a GPU");
  }
  FERRY_CLIENT_CUDA(cuda, doing, cuPointerGetAttribute, &ordinal,
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
  if (ordinal != device) {
    return BadField(doing, "pointer",
                    "is to memory of CUDA device " + std::to_string(ordinal) +
                        " of this process, and the arena's device is CUDA device " +
                        std::to_string(device));
  }
  CUmemGenericAllocationHandle handle;
  if (cuda->cuMemRetainAllocationHandle(&handle, const_cast<void*>(pointer)) == CUDA_SUCCESS) {
    StatusPtr error = DescribeMappings(cuda, at, bytes, handle, doing, &described->segments);
    if (error == nullptr) return nullptr;
    for (const CudaSegment& segment : described->segments) close(segment.fd);
    described->segments.clear();
    return error;
  }
  CUdeviceptr base = 0;
  size_t size = 0;
  FERRY_CLIENT_CUDA(cuda, doing, cuMemGetAddressRange, &base, &size, at);
  if (at - base > size || bytes > size - (at - base)) {
    return BadField(doing, "bytes",
                    "is " + std::to_string(bytes) + ", and the pointer's allocation has only " +
                        std::to_string(size - (at - base)) + " bytes from there");
  }
  CUipcMemHandle ipc;
  StatusPtr error = cuda->Check(cuda->cuIpcGetMemHandle(&ipc, base), doing, "cuIpcGetMemHandle");
  if (error != nullptr) {
    return BadField(error->message, "pointer",
                    "is to what cannot be shared: memory of a stream-ordered pool "
                    "(cudaMallocAsync), or managed memory");
  }
  described->ipc_handle.assign(ipc.reserved, sizeof(ipc.reserved));
  described->ipc_offset = at - base;
  return nullptr;
}

StatusPtr CopyToDevice(int device, uint64_t to, const void* from, uint64_t bytes,
                       const std::string& doing) {
  return CopyApart(device, doing, [&](Cuda* cuda, CUstream stream) -> StatusPtr {
    FERRY_CLIENT_CUDA(cuda, doing, cuMemcpyHtoDAsync, to, from, bytes, stream);
    return nullptr;
  });
}

StatusPtr CopyFromDevice(int device, void* to, uint64_t from, uint64_t bytes,
                         const std::string& doing) {
  return CopyApart(device, doing, [&](Cuda* cuda, CUstream stream) -> StatusPtr {
    FERRY_CLIENT_CUDA(cuda, doing, cuMemcpyDtoHAsync, to, from, bytes, stream);
    return nullptr;
  });
}

StatusPtr SynchronizeDevice(int device, const std::string& doing) {
  Cuda* cuda;
  CUcontext context;
  FERRY_CLIENT_RETURN_IF_ERROR(ContextOf(device, doing, &cuda, &context));
  const CurrentContext current(cuda, context);
  FERRY_CLIENT_CUDA(cuda, doing, cuCtxSynchronize);
  return nullptr;
}

}  // namespace ferry::client
