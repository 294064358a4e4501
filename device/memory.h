// SPDX-License-Identifier: Apache-2.0
// Memory of a device as this process has it mapped: a HostMapping (device/host) or a CudaMemory
// (device/cuda). A MemoryShare, with descriptors beside it, says what the memory is made from and
// what another process needs to map it too.
//
// Made and destroyed where blocking is allowed: on the device's memory thread. Accessors are for
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ferry {

// Numbered as ferry.v1.ArenaMemory, which says what each kind is; its 0 means kMemfd.
enum class MemoryKind : uint8_t {
  kMemfd = 1,
  kCudaAllocate,
  kCudaVmm,
  kCudaIpc,
  kUnknown = 0xff,  // from a newer peer or client
};

struct MemoryShare {
  MemoryKind kind = MemoryKind::kMemfd;
  uint64_t bytes = 0;
  // kCudaVmm: length of each segment; each has a descriptor.
  std::vector<uint64_t> segment_bytes = {};
  std::string ipc_handle = {};  // kCudaIpc
  uint64_t ipc_offset = 0;
};

// What another device holds of a memory in order to reach it; destroyed before the memory is.
class MemoryRegistration {
 public:
  virtual ~MemoryRegistration() = default;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Where the memory begins for its device. The CPU may touch only a host device's memory.
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // What another process needs to map this memory. The descriptors stay this memory's.
  virtual MemoryShare share() const = 0;
  virtual std::vector<int> fds() const = 0;

  // Keeps the registration as long as the memory lives. Once, on a memory thread.
  void Keep(std::unique_ptr<MemoryRegistration> registration) {
    registration_ = std::move(registration);
  }
  // Whether Keep() was called; for threads that were told that it was.
  bool registered() const { return registration_ != nullptr; }

 protected:
  DeviceMemory() = default;
  void Place(std::byte* data, uint64_t bytes) {
    data_ = data;
    bytes_ = bytes;
  }
  // Destructors of derived classes call this before they unmap.
  void Unregister() { registration_.reset(); }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::unique_ptr<MemoryRegistration> registration_;
};

}  // namespace ferry
