// SPDX-License-Identifier: Apache-2.0
// Sends and receives, their groups, and what becomes of them on a stream.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <utility>

#include "state.h"

using namespace fake_nccl;

namespace fake_nccl {
namespace {

// What a rank is about to do, as the other one must see it.
struct Header {
  uint64_t number = 0;
  uint64_t sends = 0;
  uint64_t receives = 0;
};

bool SameSizes(ncclComm* comm, const Launch& launch, const Header& theirs) {
  Header mine{launch.number, 0, 0};
  for (const Operation& operation : launch.operations) {
    ++(operation.send ? mine.sends : mine.receives);
  }
  const auto name = [&] {
    return "launch " + std::to_string(launch.number) + " of rank " + std::to_string(comm->rank);
  };
  if (theirs.number != mine.number || theirs.sends != mine.receives ||
      theirs.receives != mine.sends) {
    Story(name() + " has " + std::to_string(mine.sends) + " sends and " +
          std::to_string(mine.receives) + " receives; the other rank's launch " +
          std::to_string(theirs.number) + " has " + std::to_string(theirs.sends) + " and " +
          std::to_string(theirs.receives));
  }
  // By pairs: what I send next, the other one receives next.
  std::vector<uint64_t> sizes[2];
  for (const Operation& operation : launch.operations) {
    sizes[operation.send].push_back(operation.bytes);
  }
  std::vector<uint64_t> buffer(std::max(mine.sends, mine.receives));
  std::vector<uint64_t> heard(buffer.size());
  sizes[1].resize(buffer.size());
  if (!buffer.empty() &&
      !comm->wire->Exchange(sizes[1].data(), heard.data(), buffer.size() * sizeof(uint64_t))) {
    return false;
  }
  for (size_t i = 0; i < mine.receives; ++i) {
    if (heard[i] == sizes[0][i]) continue;
    Story(name() + ": receive " + std::to_string(i) + " is of " + std::to_string(sizes[0][i]) +
          " bytes, what is sent has " + std::to_string(heard[i]));
  }
  return true;
}

void Run(ncclComm* comm, const Launch& launch) {
  while (!comm->stop && !Get().group_gate.empty() && access(Get().group_gate.c_str(), F_OK) == 0) {
    Nap();
  }
  const auto slice = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  while (!comm->stop && !Get().slice_gate.empty() && access(Get().slice_gate.c_str(), F_OK) == 0 &&
         std::chrono::steady_clock::now() < slice) {
    Nap();
  }
  Header mine{launch.number, 0, 0}, theirs;
  for (const Operation& operation : launch.operations) {
    ++(operation.send ? mine.sends : mine.receives);
  }
  if (!launch.never && !comm->stop && comm->wire->Exchange(&mine, &theirs, sizeof(mine)) &&
      SameSizes(comm, launch, theirs) && comm->wire->Move(launch.operations)) {
    return;
  }
  if (launch.never || Get().lost_peer) comm->async_error = kRemoteError;
  while (!comm->stop) Nap();  // as the real one
}

void CheckMemory(const Operation& operation) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto begin = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(operation.memory));
  if (Cuda().cuMemGetAddressRange(&base, &bytes, begin) != CUDA_SUCCESS ||
      begin + operation.bytes > base + bytes) {
    Story("an operation of " + std::to_string(operation.bytes) +
          " bytes on memory that is not all a GPU's");
  }
}

struct OnStream {
  ncclComm* comm;
  Launch launch;
};

void RunOnStream(void* data) {
  const std::unique_ptr<OnStream> work(static_cast<OnStream*>(data));
  Run(work->comm, work->launch);
  std::lock_guard lock(work->comm->mutex);
  --work->comm->on_stream;
  work->comm->changed.notify_all();
}

// What is registered; its address is the handle.
struct Memory {
  ncclComm* comm;
};

// A thread's open group.
struct Group {
  int depth = 0;
  std::map<std::pair<ncclComm*, CUstream>, std::vector<Operation>> operations;
};
// Initial-exec: ThreadSanitizer does not see how a library's own thread-local memory is freed.
[[gnu::tls_model("initial-exec")]] thread_local Group group;

ncclResult_t Add(ncclComm* comm, CUstream stream, int peer, int type, Operation operation) {
  CheckUsable(comm, "an operation");
  if (peer != 1 - comm->rank) Story("an operation with rank " + std::to_string(peer));
  if (type != 0 && type != 1) Story("only bytes are moved");
  CheckMemory(operation);
  if (group.depth == 0) return Start(comm, stream, {operation});
  group.operations[{comm, stream}].push_back(operation);
  return kSuccess;
}

}  // namespace

ncclResult_t Start(ncclComm* comm, CUstream stream, std::vector<Operation> operations) {
  static std::atomic<uint64_t> launches{0};
  const Use use(comm, "a launch");
  if (comm->stop) {
    CheckUsable(comm, "a launch");  // an abort that has begun since this launch was looked at
    SetLastError("the communicator was revoked");
    return kInvalidUsage;
  }
  CUcontext context = nullptr;
  if (Cuda().cuStreamGetCtx(stream, &context) != CUDA_SUCCESS || context != comm->context) {
    Story("a launch on a stream of another GPU");
  }
  const uint64_t count = ++launches;
  if (count == Get().stuck_launch) {
    if (!Get().stuck_mark.empty()) std::ofstream(Get().stuck_mark) << count;
    while (!comm->stop) Nap();
    SetLastError("aborted");
    return kInternalError;
  }
  {
    std::lock_guard lock(comm->mutex);
    ++comm->on_stream;
  }
  auto work = std::make_unique<OnStream>();
  work->comm = comm;
  work->launch = {++comm->launches, count == Get().async_error, std::move(operations)};
  // As the real one: a group may be of several GPUs, whichever is the thread's.
  CUcontext before = nullptr;
  Cuda().cuCtxGetCurrent(&before);
  Cuda().cuCtxSetCurrent(comm->context);
  if (Cuda().cuLaunchHostFunc(stream, RunOnStream, work.get()) != CUDA_SUCCESS) {
    Story("the stream takes nothing");
  }
  Cuda().cuCtxSetCurrent(before);
  work.release();
  return kSuccess;
}

}  // namespace fake_nccl

extern "C" {

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) Story("ncclGroupEnd without a group");
  if (--group.depth > 0) return kSuccess;
  ncclResult_t result = kSuccess;
  for (auto& [where, operations] : std::exchange(group.operations, {})) {
    const ncclResult_t started = Start(where.first, where.second, std::move(operations));
    if (result == kSuccess) result = started;
  }
  return result;
}

ncclResult_t ncclCommRegister(ncclComm* comm, void* memory, size_t bytes, void** handle) {
  const Use use(comm, "ncclCommRegister");
  CheckMemory({true, static_cast<char*>(memory), bytes});
  *handle = new Memory{comm};
  return kSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm* comm, void* handle) {
  const Use use(comm, "ncclCommDeregister");
  const std::unique_ptr<Memory> memory(static_cast<Memory*>(handle));
  if (memory == nullptr || memory->comm != comm) Story("memory of another communicator");
  return kSuccess;
}

ncclResult_t ncclSend(const void* memory, size_t count, int type, int peer, ncclComm* comm,
                      CUstream stream) {
  return Add(comm, stream, peer, type,
             {true, static_cast<char*>(const_cast<void*>(memory)), count});
}

ncclResult_t ncclRecv(void* memory, size_t count, int type, int peer, ncclComm* comm,
                      CUstream stream) {
  return Add(comm, stream, peer, type, {false, static_cast<char*>(memory), count});
}

}  // extern "C"
