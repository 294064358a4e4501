// SPDX-License-Identifier: Apache-2.0
// An arena: memory of the host (arena.cc) or of a GPU (cuda_arena.cc) that the daemon sees too. Any
// thread; owned by the application, whose handle keeps the session's inside alive. The mapping
// lives as long as the handle, whatever becomes of session and daemon. A daemon that comes back is
// shown the arena again.
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
  // The arena's id at the session's present daemon; 0: that daemon does not know the arena. A call
  // takes its connection first and then reads `id`: the id changes only while the session has no
  // connection.
  std::atomic<uint64_t> id{0};
  const uint64_t device;
  void* data = nullptr;
  const uint64_t bytes;
  const bool imported;
  const ferry::client::DeviceUse use;
  ferry::client::ArenaMemory memory = ferry::client::ArenaMemory::kMemfd;
  int cuda_device = -1;  // the GPU's ordinal in this process; -1: host memory
  // The memfd, or the GPU's allocations. The descriptors are kept for the next daemon; a descriptor
  // is -1 if the session will not be re-attached.
  std::vector<ferry::client::CudaSegment> segments;
  std::string ipc_handle;  // kCudaIpc
  uint64_t ipc_offset = 0;
  bool mapped = false;   // `data` is a mapping that the library made, not the application
  uint64_t told_as = 0;  // what Session::TellAgain gave; 0: nothing
  std::atomic<bool> released{false};

  mutable std::mutex mutex;  // guards what follows
  uint64_t connection = 0;   // number of the connection whose daemon knows the arena as `id`
  ferry::client::StatusPtr refused;  // why id is 0
};

namespace ferry::client {

StatusPtr CreateArena(const std::shared_ptr<Session>& session, uint64_t device, uint64_t bytes,
                      unsigned flags, std::unique_ptr<ferry_arena>* arena);
StatusPtr ImportArena(const std::shared_ptr<Session>& session, uint64_t device, int memfd,
                      uint64_t bytes, std::unique_ptr<ferry_arena>* arena);
// Arenas over the application's memory on a GPU: by its pointer, or by descriptors of VMM
// allocations.
StatusPtr ImportCudaArena(const std::shared_ptr<Session>& session, uint64_t device, void* pointer,
                          uint64_t bytes, std::unique_ptr<ferry_arena>* arena);
StatusPtr ImportCudaSegments(const std::shared_ptr<Session>& session, uint64_t device,
                             const std::vector<CudaSegment>& segments,
                             std::unique_ptr<ferry_arena>* arena);
StatusPtr ReadArena(const ferry_arena& arena, uint64_t offset, void* to, uint64_t bytes);
StatusPtr WriteArena(const ferry_arena& arena, uint64_t offset, const void* from, uint64_t bytes);
// Gives the arena back to the daemon; after an error nothing has changed.
StatusPtr ReleaseArena(ferry_arena* arena);
// Gives the arena back if that was not done, unmaps its memory and frees the handle.
void FreeArena(ferry_arena* arena);
// Null if the daemon knows the arena, or knew it until it was released; else why the daemon does
// not.
StatusPtr CheckArena(const ferry_arena& arena);

// ---- shared by arena.cc and cuda_arena.cc ----

std::string MakingArena(uint64_t bytes, uint64_t device);
// Shows the arena to the daemon, and arranges that the next daemons are shown it too. `fds` has one
// descriptor for each segment; they stay the caller's, and are copied if they must be kept. With
// kCudaAllocate there are no `fds`: the daemon's allocation becomes the arena's only segment.
StatusPtr ShowArena(ferry_arena* arena, const std::vector<int>& fds);
// The part of CreateArena for a GPU. `gpu`: what the daemon says of it.
StatusPtr CreateCudaArena(const std::shared_ptr<Session>& session, const DeviceInfo& gpu,
                          uint64_t bytes, std::unique_ptr<ferry_arena>* arena);

}  // namespace ferry::client
