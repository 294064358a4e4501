// SPDX-License-Identifier: Apache-2.0
// Memory that the daemon sees too, of the host (arena.cc) or of a GPU (cuda_arena.cc). Any thread;
// owned by the application, which keeps the session's inside alive. The mapping lives as long as
// the handle, whatever becomes of session and daemon; a daemon that comes back is shown it again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/codec.h"
#include "client/cuda_memory.h"
#include "client/device_use.h"
#include "client/handle.h"
#include "client/include/ferry/ferry.h"
#include "client/status.h"

namespace ferry::client {
class Session;
}  // namespace ferry::client

struct ferry_arena : ferry::client::Handle<0x6172'656e'6100'0002> {
  ferry_arena(std::shared_ptr<ferry::client::Session> in, uint64_t on, uint64_t length, bool own)
      : session(std::move(in)), device(on), bytes(length), imported(own), use(on) {}

  const std::shared_ptr<ferry::client::Session> session;
  // What the daemon calls it, by now; 0: it does not know it. Read on a connection before a call on
  // that connection: it changes only when the session has none.
  std::atomic<uint64_t> id{0};
  const uint64_t device;
  void* data = nullptr;
  const uint64_t bytes;
  const bool imported;
  const ferry::client::DeviceUse use;
  ferry::client::ArenaMemory memory = ferry::client::ArenaMemory::kMemfd;
  int cuda_device = -1;  // the GPU's ordinal in this process; -1: host memory
  // The memfd, or the GPU's allocations. Descriptors are kept for the next daemon; -1: the session
  // will not be re-attached.
  std::vector<ferry::client::CudaSegment> segments;
  std::string ipc_handle;  // kCudaIpc
  uint64_t ipc_offset = 0;
  bool mapped = false;  // `data` is a mapping of ours, not the application's
  uint64_t kept = 0;    // at the session
  std::atomic<bool> released{false};

  mutable std::mutex mutex;          // guards what follows
  uint64_t connection = 0;           // the number of that which knows it as `id`
  ferry::client::StatusPtr refused;  // why id is 0
};

namespace ferry::client {

StatusPtr CreateArena(const std::shared_ptr<Session>& session, uint64_t device, uint64_t bytes,
                      unsigned flags, std::unique_ptr<ferry_arena>* arena);
StatusPtr ImportArena(const std::shared_ptr<Session>& session, uint64_t device, int memfd,
                      uint64_t bytes, std::unique_ptr<ferry_arena>* arena);
// Memory of the application on a GPU: by its pointer, or by descriptors of VMM allocations.
StatusPtr ImportCudaArena(const std::shared_ptr<Session>& session, uint64_t device, void* pointer,
                          uint64_t bytes, std::unique_ptr<ferry_arena>* arena);
StatusPtr ImportCudaSegments(const std::shared_ptr<Session>& session, uint64_t device,
                             const std::vector<CudaSegment>& segments,
                             std::unique_ptr<ferry_arena>* arena);
StatusPtr ReadArena(const ferry_arena& arena, uint64_t offset, void* to, uint64_t bytes);
StatusPtr WriteArena(const ferry_arena& arena, uint64_t offset, const void* from, uint64_t bytes);
// Gives it back to the daemon; an error changes nothing.
StatusPtr ReleaseArena(ferry_arena* arena);
// Gives back what was not, unmaps, frees.
void FreeArena(ferry_arena* arena);
// Null if the daemon knows it (or knew it until it was released); else why not.
StatusPtr CheckArena(const ferry_arena& arena);

// ---- shared by arena.cc and cuda_arena.cc ----

std::string MakingArena(uint64_t bytes, uint64_t device);
// Shows the arena to the daemon, and has it shown to the next ones. `fds`, one a segment, stay the
// caller's and are copied if they must be kept. With kCudaAllocate there are none, and the daemon's
// becomes the arena's one segment.
StatusPtr ShowArena(ferry_arena* arena, const std::vector<int>& fds);
// The rest of CreateArena on a GPU, `gpu` being the daemon's word of it.
StatusPtr CreateCudaArena(const std::shared_ptr<Session>& session, const DeviceInfo& gpu,
                          uint64_t bytes, std::unique_ptr<ferry_arena>* arena);

}  // namespace ferry::client
