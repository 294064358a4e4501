// SPDX-License-Identifier: Apache-2.0
// Memory of a host device: sealed memfds that clients or peer daemons hand in, mapped here. Its
// calls block (mmap, munmap): only on the device's memory thread, or at start-up. Accessors are for
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "device/memory.h"

namespace ferry {

class HostMapping : public DeviceMemory {
 public:
  enum class Access { kReadWrite, kReadOnly };

  // Maps a memfd. Refuses what CheckMemfd() refuses, so that no copy raises SIGBUS. A hole that is
  // punched later reads as zeros: wrong bytes for its owner, a fault for nobody.
  // RESOURCE_EXHAUSTED/DEVICE_MEMORY if no address space is left. Takes the descriptor in any case.
  static absl::StatusOr<std::unique_ptr<HostMapping>> Map(UniqueFd memfd, uint64_t bytes,
                                                          Access access);
  // Makes a memfd of `bytes` (not 0) and maps it. MakePages() then makes its pages, which must not
  // be touched before. RESOURCE_EXHAUSTED/DEVICE_MEMORY if the system has no memory.
  static absl::StatusOr<std::unique_ptr<HostMapping>> Create(uint64_t bytes);
  // Makes the next pages, zeroed, at most kPagesAtOnce bytes. A gibibyte takes up to a second, so
  // other users of the thread get their turns in between. True once all pages are there.
  // RESOURCE_EXHAUSTED/DEVICE_MEMORY if the system has no memory.
  absl::StatusOr<bool> MakePages();
  static constexpr uint64_t kPagesAtOnce = uint64_t{64} << 20;  // whole pages
  ~HostMapping() override;

  // Enters pages that exist into this process's page table, so that the first copy does not fault
  // on each. Makes no pages: memory that its owner has not touched is left alone. Blocks for 0.1 s
  // a GiB.
  void Populate();

  int fd() const { return memfd_.get(); }
  MemoryShare share() const override { return {MemoryKind::kMemfd, bytes()}; }
  std::vector<int> fds() const override { return {fd()}; }

 private:
  HostMapping() = default;
  UniqueFd memfd_;
  uint64_t unmade_ = 0;  // bytes at the end whose pages are not made yet
};

}  // namespace ferry
