// SPDX-License-Identifier: Apache-2.0
// Opening and ending communicators.
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "state.h"

using namespace fake_nccl;

struct ncclConfig_t {  // as far as it is looked at
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
};

namespace {

struct Hello {
  char magic[8] = {'f', 'a', 'k', 'e', 'n', 'c', 'c', 'l'};
  int rank = 0;
  int version = 0;
  int max_ctas = 0;
  CUuuid gpu = {};
};

void AwaitGate(const std::string& gate, const std::atomic<bool>& stop) {
  while (!gate.empty() && access(gate.c_str(), F_OK) == 0 && !stop) {
    Nap();
  }
}

ncclResult_t Fail(ncclResult_t result, const std::string& why) {
  SetLastError(why);
  return result;
}

ncclResult_t Open(ncclComm* comm, const std::string& path, const ncclConfig_t* config) {
  static std::atomic<uint64_t> openings{0};
  const uint64_t number = ++openings;
  if (number == Get().fail_open) return Fail(kSystemError, "the test wants this opening to fail");
  // By the id, not by what this process has opened: an attempt may be aborted before it comes here.
  const bool hangs = path.substr(path.rfind('-') + 1) == std::to_string(Get().hang_open);
  while (hangs && !comm->stop) Nap();
  comm->wire = std::make_unique<Wire>(comm->stop);
  Hello mine, theirs;
  mine.rank = comm->rank;
  mine.version = Get().version;
  mine.max_ctas = config == nullptr ? 0 : config->maxCTAs;
  CUdevice device = 0;
  if (Cuda().cuCtxGetDevice(&device) != CUDA_SUCCESS) Story("an opening without a context");
  Cuda().cuDeviceGetUuid(&mine.gpu, device);
  while (!comm->wire->Meet(path, comm->rank) ||
         !comm->wire->Exchange(&mine, &theirs, sizeof(mine))) {
    // As the real one: it waits for who was to come, and a peer that is gone is not noticed.
    if (Get().lost_peer) return Fail(kRemoteError, "the other rank is gone");
    while (!comm->stop) Nap();
    return Fail(kInternalError, "aborted");
  }
  if (memcmp(mine.magic, theirs.magic, sizeof(mine.magic)) != 0 || theirs.rank == mine.rank) {
    Story("both ranks of a communicator are " + std::to_string(mine.rank));
  }
  if (theirs.version != mine.version) Story("the ranks have different versions");
  if (theirs.max_ctas != mine.max_ctas) Story("the ranks have different maxCTAs");
  if (memcmp(&mine.gpu, &theirs.gpu, sizeof(mine.gpu)) == 0) {
    return Fail(kInvalidUsage, "Duplicate GPU detected: both ranks are on one");
  }
  AwaitGate(Get().open_gate, comm->stop);
  if (comm->stop) return Fail(kInternalError, "aborted");
  if (Cuda().cuMemAlloc(&comm->memory, Get().comm_mib << 20) != CUDA_SUCCESS) {
    return Fail(kSystemError, "out of memory");
  }
  return kSuccess;
}

// Frees it, but for the handle: who uses that afterwards is told so.
void Bury(ncclComm* comm) {
  {
    std::unique_lock lock(comm->mutex);
    comm->changed.wait(lock, [&] { return comm->on_stream == 0 && comm->in_call == 0; });
  }
  comm->gone = true;
  comm->wire.reset();
  CUcontext before = nullptr;
  Cuda().cuCtxGetCurrent(&before);
  Cuda().cuCtxSetCurrent(comm->context);
  if (comm->memory != 0) Cuda().cuMemFree(comm->memory);
  Cuda().cuCtxSetCurrent(before);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> made{0};
  // Processes that were killed leave their files, and numbers of processes come again.
  static const auto begun = std::chrono::system_clock::now().time_since_epoch().count();
  const char* const directory = getenv("TMPDIR");
  const std::string path = std::string(directory == nullptr ? "/tmp" : directory) + "/fake-nccl-" +
                           std::to_string(getpid()) + "-" + std::to_string(begun) + "-" +
                           std::to_string(++made);
  memset(id->internal, 0, sizeof(id->internal));
  path.copy(id->internal, sizeof(id->internal) - 1);
  return kSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm** out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (ranks != 2) Story("only communicators of two ranks are known");
  if (rank < 0 || rank > 1) return Fail(kInvalidArgument, "no such rank");
  if (config != nullptr && config->magic != 0xcafebeef) Story("the configuration is not NCCL's");
  if (config != nullptr && config->blocking != 1) Story("only blocking communicators are known");
  // Never deleted: its handle may be used after its end.
  static std::mutex mutex;
  static auto* const all = new std::vector<ncclComm*>;
  auto* const comm = new ncclComm;
  {
    std::lock_guard lock(mutex);
    all->push_back(comm);
  }
  comm->rank = rank;
  if (Cuda().cuCtxGetCurrent(&comm->context) != CUDA_SUCCESS || comm->context == nullptr) {
    Story("ncclCommInitRankConfig without a current context");
  }
  const Use use(comm, "ncclCommInitRankConfig");
  // There before the call comes back: by it the call can be aborted.
  __atomic_store_n(out, comm, __ATOMIC_RELEASE);
  const ncclResult_t opened = Open(comm, id.internal, config);
  if (opened != kSuccess && !comm->stop) __atomic_store_n(out, nullptr, __ATOMIC_RELEASE);
  return opened;
}

#ifndef FAKE_NCCL_2_18
ncclResult_t ncclCommRevoke(ncclComm* comm, int) {
  CheckUsable(comm, "ncclCommRevoke");
  comm->stop = true;
  return kSuccess;
}
#endif

ncclResult_t ncclCommAbort(ncclComm* comm) {
  CheckUsable(comm, "ncclCommAbort");
  comm->aborting = true;
  comm->stop = true;
  const std::atomic<bool> never{false};
  AwaitGate(Get().abort_gate, never);
  Bury(comm);
  return kSuccess;
}

}  // extern "C"
