// SPDX-License-Identifier: Apache-2.0
// Arenas on GPUs: memory that the daemon allocates and this process maps, and memory of the
// application's own.
#include <unistd.h>

#include "client/arena.h"
#include "client/session.h"

namespace ferry::client {
namespace {

std::string ImportingArena(uint64_t device) {
  return "importing memory of a GPU as an arena on device " + std::to_string(device);
}

StatusPtr FindGpu(const Session& session, uint64_t device, const std::string& doing, int* ordinal) {
  FERRY_CLIENT_RETURN_IF_ERROR(session.Check());
  const DeviceInfo* known = session.FindDevice(device);
  if (known == nullptr || known->kind != kGpuDevice) {
    return Error(kNotFound, kReasonDeviceUnknown,
                 doing + ": it is not a GPU of this node's daemon");
  }
  return FindCudaDevice(known->uuid, doing, ordinal);
}

// `field` names the argument that says how many there are.
StatusPtr CheckSegments(const std::vector<CudaSegment>& segments, const char* field,
                        const std::string& doing) {
  if (!segments.empty() && segments.size() <= kMostFds) return nullptr;
  return BadField(doing, field,
                  "says " + std::to_string(segments.size()) +
                      " allocations, and an arena may have 1 to " + std::to_string(kMostFds) +
                      "; import it in parts, each from where an allocation begins");
}

// Gives the arena to the application, or frees it.
StatusPtr Finish(std::unique_ptr<ferry_arena> made, StatusPtr error,
                 std::unique_ptr<ferry_arena>* arena) {
  if (error == nullptr) {
    *arena = std::move(made);
  } else {
    FreeArena(made.release());
  }
  return error;
}

StatusPtr MapArena(ferry_arena* arena, const std::vector<CudaSegment>& segments,
                   const std::string& doing) {
  uint64_t address = 0;
  FERRY_CLIENT_RETURN_IF_ERROR(MapSegments(arena->cuda_device, segments, doing, &address));
  arena->data = reinterpret_cast<void*>(address);
  arena->mapped = true;
  return nullptr;
}

// The descriptors stay the caller's.
StatusPtr ShowSegments(ferry_arena* arena, const std::vector<CudaSegment>& segments) {
  std::vector<int> fds;
  for (const CudaSegment& segment : segments) {
    fds.push_back(segment.fd);
    arena->segments.push_back({-1, segment.bytes});
  }
  return ShowArena(arena, fds);
}

}  // namespace

StatusPtr CreateCudaArena(const std::shared_ptr<Session>& session, const DeviceInfo& gpu,
                          uint64_t bytes, std::unique_ptr<ferry_arena>* arena) {
  const std::string doing = MakingArena(bytes, gpu.id);
  int ordinal;
  FERRY_CLIENT_RETURN_IF_ERROR(FindCudaDevice(gpu.uuid, doing, &ordinal));
  auto made = std::make_unique<ferry_arena>(session, gpu.id, bytes, false);
  made->cuda_device = ordinal;
  made->memory = ArenaMemory::kCudaAllocate;
  StatusPtr error = ShowArena(made.get(), {});
  if (error == nullptr) {
    error = MapArena(made.get(), made->segments, doing);
    int& fd = made->segments[0].fd;
    if (!session->reattaches()) {
      close(fd);
      fd = -1;
    }
  }
  return Finish(std::move(made), std::move(error), arena);
}

StatusPtr ImportCudaSegments(const std::shared_ptr<Session>& session, uint64_t device,
                             const std::vector<CudaSegment>& segments,
                             std::unique_ptr<ferry_arena>* arena) {
  const std::string doing = ImportingArena(device);
  int ordinal;
  FERRY_CLIENT_RETURN_IF_ERROR(FindGpu(*session, device, doing, &ordinal));
  FERRY_CLIENT_RETURN_IF_ERROR(CheckSegments(segments, "count", doing));
  uint64_t bytes = 0;
  for (const CudaSegment& segment : segments) bytes += segment.bytes;
  auto made = std::make_unique<ferry_arena>(session, device, bytes, true);
  made->cuda_device = ordinal;
  made->memory = ArenaMemory::kCudaVmm;
  StatusPtr error =
      MapArena(made.get(), segments, doing + " (" + std::to_string(bytes) + " bytes)");
  if (error == nullptr) error = ShowSegments(made.get(), segments);
  return Finish(std::move(made), std::move(error), arena);
}

StatusPtr ImportCudaArena(const std::shared_ptr<Session>& session, uint64_t device, void* pointer,
                          uint64_t bytes, std::unique_ptr<ferry_arena>* arena) {
  const std::string doing = ImportingArena(device);
  if (bytes == 0) {
    return BadField(doing, "bytes", "is 0");
  }
  int ordinal;
  FERRY_CLIENT_RETURN_IF_ERROR(FindGpu(*session, device, doing, &ordinal));
  CudaPointer described;
  FERRY_CLIENT_RETURN_IF_ERROR(DescribePointer(ordinal, pointer, bytes, doing, &described));
  auto made = std::make_unique<ferry_arena>(session, device, bytes, true);
  made->cuda_device = ordinal;
  made->data = pointer;
  made->ipc_handle = described.ipc_handle;
  made->ipc_offset = described.ipc_offset;
  StatusPtr error;
  if (described.ipc_handle.empty()) {
    made->memory = ArenaMemory::kCudaVmm;
    error = CheckSegments(described.segments, "bytes", doing);
    if (error == nullptr) error = ShowSegments(made.get(), described.segments);
  } else {
    made->memory = ArenaMemory::kCudaIpc;
    error = ShowArena(made.get(), {});
  }
  for (const CudaSegment& segment : described.segments) close(segment.fd);
  return Finish(std::move(made), std::move(error), arena);
}

}  // namespace ferry::client
