// SPDX-License-Identifier: Apache-2.0
// Registers the memory that clients share, and releases it again. Refuses devices that the node
// does not have, memory or descriptors of the wrong kind, and what does not fit in the session's
// quota or in `limits.gpu_bytes`. Home: control; memory is mapped on the memory thread of its
// device. Owner: SessionTable.
//
// Invariant: from Register until its answer the bytes are reserved in the session's quota, and
// count as `coming_bytes` of the device. If the memory cannot be mapped, both are given back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/attach.h"
#include "daemon/door.h"
#include "daemon/local_devices.h"
#include "daemon/session/arena_table.h"
#include "daemon/session/job_memory.h"
#include "daemon/session/session_map.h"
#include "device/memory.h"

namespace ferry {

class ArenaRegistrar {
 public:
  struct Options {
    std::string node;                 // name of this node, for errors
    uint64_t gpu_bytes = UINT64_MAX;  // most bytes of all arenas on one GPU
  };
  // All of it must outlive the registrar.
  struct Parts {
    Executor& control;
    LocalDevices& devices;
    const SessionMap& sessions;
    ArenaTable& arenas;
    JobMemory& job_memory;
  };
  ArenaRegistrar(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  // What the client is told of its new arena. It gets the descriptors too; they are the arena's.
  struct Registered {
    AttachArenaRegistered answer;
    std::vector<int> fds;
  };
  // Maps the memory and makes it an arena of the session. `done` is called once, on control: at
  // once with why it was refused, or when the memory is mapped, or could not be. It is not called
  // if the session's client is gone by then.
  using Done = std::function<void(absl::StatusOr<Registered>)>;
  void Register(Session& session, const AttachRegisterArena& request, ReceivedFds fds, Done done);
  // The client gives the arena up. Refuses as ArenaBook's Take and Free.
  absl::Status Release(Session& session, const AttachReleaseArena& request);

  // The bound for arenas that are registered from now on.
  void SetGpuBytes(uint64_t most) {
    home_.Check();
    options_.gpu_bytes = most;
  }

 private:
  // Whether the session may register such an arena of the device now, as far as its quota has no
  // say.
  absl::Status Check(const LocalDevice& device, const AttachRegisterArena& request,
                     const ReceivedFds& fds) const;
  void OnMapped(SessionId session, const AttachRegisterArena& request,
                absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping, const Done& done);

  const Parts parts_;
  Options options_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
