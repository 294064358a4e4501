// SPDX-License-Identifier: Apache-2.0
// Memory of jobs that send and receive by themselves: arenas that the daemon allocates, on any of
// its devices, and that no client can name. They count against the quota of their session and, all
// together, against `limits.job_memory`. What a job has left is kept as a spare for the next job of
// its session, until the room is needed. A request for which there is no room waits.
//
// Refuses what would not fit even if all jobs were over. Memory of a GPU is also within
// `limits.gpu_bytes`, which bounds all arenas of that GPU: while there is no room, what waits for
// it holds up only its own session. Home: control; memory is made on the memory threads of devices.
// Owner: SessionTable.
//
// Who is served: the requests of one session in the order of asking; among sessions the one that
// was given memory longest ago. The request whose turn is next is served first, even if a smaller
// one behind it would fit: otherwise a large request would wait for ever. Only a session whose own
// quota is used up holds up nobody else. Example, of 8,192 bytes in all: session 1 has 8,000 and
// asks for 8,000 more, then session 2 asks for 8,000. When the first job of session 1 is over,
// session 2 is next, because session 1 was given memory later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/local_devices.h"
#include "daemon/session/arena_table.h"
#include "daemon/session/session_map.h"
#include "device/host/host_memory.h"

namespace ferry {

class JobMemory {
 public:
  // `most`: bytes that all jobs together may have; `gpu_bytes`: that all arenas of a GPU may have.
  // All else must outlive the object.
  JobMemory(Executor& control, const SessionMap& sessions, ArenaTable& arenas, uint64_t most,
            uint64_t gpu_bytes)
      : control_(control),
        sessions_(sessions),
        arenas_(arenas),
        most_(most),
        gpu_bytes_(gpu_bytes) {}

  void SetGpuBytes(uint64_t bytes) {
    home_.Check();
    gpu_bytes_ = bytes;
  }

  // --- From jobs.
  // Takes `bytes` (not 0) of the device for a job of the session: a spare, or a new arena. A GPU
  // gives whole granules of 2 MiB.
  //
  // A new arena has no mapping until `mapped` is called with OK. If there is no room, the arena is
  // awaited, see the head of the file. RESOURCE_EXHAUSTED if the memory would not fit even if all
  // jobs were over.
  using Mapped = std::function<void(ArenaId, absl::Status)>;
  absl::StatusOr<ArenaId> Take(Session& session, LocalDevice& device, uint64_t bytes,
                               Mapped mapped);
  // Gives it back, whether it is mapped, could not be mapped, or is still awaited. No transfer may
  // use it any more.
  void Return(ArenaId id);
  // Whether the memory is awaited, see Take.
  bool Awaits(ArenaId id) const { return arenas_.Find(id)->awaited; }
  // For memory that is awaited: how much was asked for, how much there is, and who holds most. For
  // people.
  std::string TextOf(ArenaId id) const;

  // --- From those who have to do with arenas of clients.
  // As ArenaBook::Reserve, but spares of the session are let go of if that makes room.
  absl::Status Reserve(Session& session, uint64_t bytes, size_t count = 1);
  // Something was given back to a quota: gives memory to as many requests as there is room for.
  void OnFreed();
  // The session is about to be destroyed, with all arenas in its book. Call OnFreed once they are
  // let go of.
  void Forget(const Session& session);

  // Bytes of jobs' memory, spares included.
  uint64_t bytes() const { return bytes_; }
  // The session's spares: the one that was given back last is the last.
  std::vector<ArenaId> spares(SessionId session) const;

 private:
  // A request of Take that has got no memory yet.
  struct Awaited {
    ArenaId arena;
    uint64_t bytes = 0;
    LocalDevice* device = nullptr;
    Mapped mapped;
  };
  struct OfSession {
    std::vector<ArenaId> spares;
    uint64_t last_grant = 0;  // the value of `grants_` when memory was last given to a job of it
  };

  // OK if `bytes` would fit if no other job had any memory.
  absl::Status Check(Session& session, const LocalDevice& device, uint64_t bytes);
  // Whether the device may have arenas of `bytes` more. Spares are let go of to make room.
  bool MakeRoomOn(const LocalDevice& device, uint64_t bytes);
  // Whether jobs may have `bytes` more. Spares are let go of to make room.
  bool MakeRoom(uint64_t bytes);
  // Lets go of the memory that was left longest ago. The session must have a spare.
  void DropOldestSpare(Session& session);
  // A spare of the session, if one fits. It is none any more.
  std::optional<ArenaId> TakeSpare(SessionId session, const LocalDevice& device, uint64_t bytes);
  // Gives memory that is reserved, or that of `spare`, to the request.
  void Grant(Awaited& wait);
  void Adopt(Awaited& wait, ArenaId spare);
  // On the device's memory thread: makes the next pages of the mapping, and posts itself again
  // until all are there or one cannot be had.
  void MakePages(ArenaId id, LocalDevice* device,
                 absl::StatusOr<std::unique_ptr<HostMapping>> mapping, Mapped mapped);
  void OnMade(ArenaId id, LocalDevice& device,
              absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping, const Mapped& mapped);
  // The arena has `bytes` from now on, which are reserved.
  void Count(Arena& arena, uint64_t bytes);
  void LetGo(std::unique_ptr<Arena> arena);

  Executor& control_;
  const SessionMap& sessions_;
  ArenaTable& arenas_;
  const uint64_t most_;
  uint64_t gpu_bytes_;
  uint64_t bytes_ = 0;
  absl::btree_map<SessionId, OfSession> of_session_;  // sessions whose jobs ever had memory
  // By session, each in the order of asking; no deque is empty
  absl::btree_map<SessionId, std::deque<Awaited>> awaited_;
  uint64_t grants_ = 0;  // how often memory was given to a job
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
