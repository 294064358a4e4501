// SPDX-License-Identifier: Apache-2.0
// A fake libnccl for tests: communicators of two ranks, in two processes or two threads, over the
// fake CUDA's streams. A rank is a socket to the other rank. A launch runs when the streams of both
// ends have come to it. It waits for that as long as the real one would: until it is aborted from
// outside.
//
// The fake is as strict as NCCL is silent. Where the real one would hang or return garbage, this
// one ends the process with a story: different operations at the two ends, two threads in one
// communicator, use beside or after an abort, a stream of another GPU, memory that the GPU may not
// touch.
//
// Settings, in FERRY_FAKE_NCCL when the library is first used, as "version=22703;open_gate=/tmp/g":
//
//   version=N        what ncclGetVersion answers (default 22809; 21803 in
//                    libferry_fake_nccl_2_18.so, which has no ncclCommRevoke)
//   comm_mib=N       GPU memory that a communicator takes (default 8)
//   open_gate=PATH   while the file exists, openings wait after the ranks have met
//   group_gate=PATH  while the file exists, launches do not begin
//   slice_gate=PATH  while the file exists, launches begin 5 ms later, as beside another process's
//                    kernels
//   abort_gate=PATH  while the file exists, aborts stop launches and do not return
//   fail_open=N      the Nth opening fails
//   hang_open=N      no opening with its leader's Nth unique id returns by itself
//   async_error=N    the Nth launch never runs, and ncclCommGetAsyncError reports it
//   stuck_launch=N   the Nth launch does not return from ncclGroupEnd by itself
//   stuck_mark=PATH  a file that is made when a launch sticks
//   lost_peer=1      a peer's death is reported by ncclCommGetAsyncError, as over sockets; else, as
//                    over NVLink, it is not noticed
//
// Each process counts its openings and launches; the warm-up of a communicator is a launch.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
struct ncclComm;
typedef struct ncclComm* ncclComm_t;
typedef int ncclResult_t;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t;
}

namespace fake_nccl {

inline constexpr ncclResult_t kSuccess = 0;
inline constexpr ncclResult_t kSystemError = 2;
inline constexpr ncclResult_t kInternalError = 3;
inline constexpr ncclResult_t kInvalidArgument = 4;
inline constexpr ncclResult_t kInvalidUsage = 5;
inline constexpr ncclResult_t kRemoteError = 6;

#ifdef FAKE_NCCL_2_18
inline constexpr int kVersion = 21803;
#else
inline constexpr int kVersion = 22809;
#endif

struct Settings {
  int version = kVersion;
  uint64_t comm_mib = 8;
  std::string open_gate, group_gate, slice_gate, abort_gate, stuck_mark;
  uint64_t fail_open = 0, hang_open = 0, async_error = 0, stuck_launch = 0;
  bool lost_peer = false;
};
const Settings& Get();

// The functions of the driver that are called, from the library that FERRY_CUDA_LIBRARY names.
struct Driver {
  decltype(&::cuCtxGetCurrent) cuCtxGetCurrent = nullptr;
  decltype(&::cuCtxGetDevice) cuCtxGetDevice = nullptr;
  decltype(&::cuStreamGetCtx) cuStreamGetCtx = nullptr;
  decltype(&::cuDeviceGetUuid) cuDeviceGetUuid = nullptr;
  decltype(&::cuMemAlloc) cuMemAlloc = nullptr;
  decltype(&::cuMemFree) cuMemFree = nullptr;
  decltype(&::cuMemGetAddressRange) cuMemGetAddressRange = nullptr;
  decltype(&::cuLaunchHostFunc) cuLaunchHostFunc = nullptr;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent = nullptr;
};
const Driver& Cuda();

// Prints what the caller did wrong, and ends the process.
[[noreturn]] void Story(const std::string& text);
void SetLastError(const std::string& text);
// Sleeps between two looks at what nobody signals: a gate's file, an abort, the other process.
void Nap();

struct Operation {
  bool send = false;
  char* memory = nullptr;
  uint64_t bytes = 0;
};

// The socket to the other rank. Every call gives up when `stop` is set. False, or a short count,
// means that it gave up or that the other end is gone.
class Wire {
 public:
  explicit Wire(const std::atomic<bool>& stop) : stop_(stop) {}
  ~Wire();
  // Rank 0 waits at the path, rank 1 connects to it.
  bool Meet(const std::string& path, int rank);
  bool Exchange(const void* mine, void* theirs, size_t bytes);
  // Carries out all sends and all receives at once; each kind in its order.
  bool Move(const std::vector<Operation>& operations);

 private:
  // Waits until the socket can be read, or, with `writing`, written.
  bool Ready(bool writing);
  bool Write(const void* data, size_t bytes);
  bool Read(void* data, size_t bytes);

  const std::atomic<bool>& stop_;
  int fd_ = -1;
};

struct Launch {
  uint64_t number = 0;
  bool never = false;  // the launch must fail asynchronously
  std::vector<Operation> operations;
};

}  // namespace fake_nccl

struct ncclComm {
  int rank = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  std::atomic<bool> stop{false};      // revoked or aborting: calls that wait give up
  std::atomic<bool> aborting{false};  // the real one may have freed the communicator by now
  std::unique_ptr<fake_nccl::Wire> wire;
  std::atomic<ncclResult_t> async_error{0};
  std::atomic<int> in_call{0};  // threads that launch or open
  std::atomic<bool> gone{false};
  uint64_t launches = 0;
  std::mutex mutex;
  std::condition_variable changed;
  int on_stream = 0;  // launches that are not over
};

namespace fake_nccl {

// Ends the process if the communicator is null, is being aborted, or was aborted.
void CheckUsable(const ncclComm* comm, const std::string& call);

// Ends the process if the communicator may not be used any more, or another thread uses it now.
class Use {
 public:
  Use(ncclComm* comm, const char* call);
  ~Use();

 private:
  ncclComm* const comm_;
};

// Queues a launch. What is wrong with it is found here or when it runs.
ncclResult_t Start(ncclComm* comm, CUstream stream, std::vector<Operation> operations);

}  // namespace fake_nccl
