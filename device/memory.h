// SPDX-License-Identifier: Apache-2.0
// Memory of a device as this process has it mapped, whatever the device: HostMapping (device/host)
// and CudaMemory (device/cuda). What it is made from, and what another process needs to map the
// same, is a MemoryShare with descriptors beside it.
//
// Made and destroyed where blocking is allowed: the device's memory thread. Accessors are for any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ferry {

// Numbered as in ferry.v1.ArenaMemory, which says what each is, and where 0 is kMemfd.
enum class MemoryKind : uint8_t {
  kMemfd = 1,
  kCudaAllocate,
  kCudaVmm,
  kCudaIpc,
  kUnknown = 0xff,  // of a newer peer or client
};

struct MemoryShare {
  MemoryKind kind = MemoryKind::kMemfd;
  uint64_t bytes = 0;
  std::vector<uint64_t> segment_bytes = {};  // kCudaVmm: a descriptor each
  std::string ipc_handle = {};               // kCudaIpc
  uint64_t ipc_offset = 0;
};

// What another device holds of a memory to reach it; gone before the memory is.
class MemoryPin {
 public:
  virtual ~MemoryPin() = default;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // An address of the device's own: only a host device's can be touched by the CPU.
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // For another process. The descriptors stay this memory's.
  virtual MemoryShare share() const = 0;
  virtual std::vector<int> fds() const = 0;

  // Once, on a memory thread.
  void Keep(std::unique_ptr<MemoryPin> pin) { pin_ = std::move(pin); }
  // Whoever was told that it was kept.
  bool pinned() const { return pin_ != nullptr; }

 protected:
  DeviceMemory() = default;
  void Place(std::byte* data, uint64_t bytes) {
    data_ = data;
    bytes_ = bytes;
  }
  // For destructors, before they unmap.
  void Unpin() { pin_.reset(); }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::unique_ptr<MemoryPin> pin_;
};

}  // namespace ferry
