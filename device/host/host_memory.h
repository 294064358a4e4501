// SPDX-License-Identifier: Apache-2.0
// Memory of a host device: sealed memfds that clients or peer daemons hand in, mapped here.
// Blocking calls (mmap, munmap): the device's memory thread, or a start-up path; the accessors are
// for any thread.
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

  // Refuses what could raise SIGBUS under a copy: not a memfd, seals F_SEAL_SHRINK | F_SEAL_GROW |
  // F_SEAL_SEAL missing (MEMFD_UNSEALED), huge pages (FIELD_INVALID), shorter than `bytes`
  // (FIELD_INVALID), bytes == 0. A hole punched later reads as zeros: wrong bytes for its owner, a
  // fault for nobody. No address space: RESOURCE_EXHAUSTED/DEVICE_MEMORY. Takes the descriptor
  // either way.
  static absl::StatusOr<std::unique_ptr<HostMapping>> Map(UniqueFd memfd, uint64_t bytes,
                                                          Access access);
  // Makes a memfd of `bytes` (not 0) and maps it; its pages are made by MakePages, not to be
  // touched before. RESOURCE_EXHAUSTED/DEVICE_MEMORY if the system has none.
  static absl::StatusOr<std::unique_ptr<HostMapping>> Create(uint64_t bytes);
  // The next pages, zero, at most kPagesAtOnce bytes of them: a gibibyte takes up to a second, and
  // others have their turns on the thread meanwhile. True once all are there.
  // RESOURCE_EXHAUSTED/DEVICE_MEMORY if the system has none.
  absl::StatusOr<bool> MakePages();
  static constexpr uint64_t kPagesAtOnce = uint64_t{64} << 20;  // whole pages
  ~HostMapping() override;

  // Enters pages that exist into our page table, so that the first copy does not fault for each;
  // makes none: memory that its owner has not touched is left alone. Blocks for a while (0.1 s a
  // GiB).
  void Populate();

  int fd() const { return memfd_.get(); }
  MemoryShare share() const override { return {MemoryKind::kMemfd, bytes()}; }
  std::vector<int> fds() const override { return {fd()}; }

 private:
  HostMapping() = default;
  UniqueFd memfd_;
  uint64_t unmade_ = 0;  // bytes at the end whose pages are not there yet
};

}  // namespace ferry
