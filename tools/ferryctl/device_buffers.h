// SPDX-License-Identifier: Apache-2.0
// Memory of a device that the daemon owns, as this process reads and writes it. On a host device
// that is the arena itself. A GPU's arena has an arena of a host device beside it, and transfers
// within the daemon copy between the two. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/client.h"

namespace ferry::tools {

class DeviceBuffers {
 public:
  // `device`: of the session's daemon; an id that it does not own is the daemon's to refuse.
  // `patience`: bounds each copy. FAILED_PRECONDITION/DEVICE_UNKNOWN for a GPU of a daemon without
  // a host device. The session must outlive the object.
  static absl::StatusOr<DeviceBuffers> Make(ferry_session* session, uint64_t device, uint64_t bytes,
                                            absl::Duration patience);

  // The device's memory, for bindings.
  const ArenaPtr& arena() const { return arena_; }
  // What stands for it here, of as many bytes.
  std::byte* data() const;
  // Brings what is at data() to the device, and back. Nothing is to be done on a host device.
  absl::Status Upload() const { return Copy(host_device_, host_, device_, arena_, "upload"); }
  absl::Status Download() const { return Copy(device_, arena_, host_device_, host_, "download"); }

 private:
  absl::Status Copy(uint64_t from, const ArenaPtr& source, uint64_t to, const ArenaPtr& destination,
                    const char* what) const;

  ferry_session* session_ = nullptr;
  uint64_t device_ = 0;
  uint64_t host_device_ = 0;
  uint64_t bytes_ = 0;
  absl::Duration patience_;
  ArenaPtr arena_;
  ArenaPtr host_;  // null: the device is a host's
};

}  // namespace ferry::tools
