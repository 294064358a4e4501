// SPDX-License-Identifier: Apache-2.0
// The state of the fake libcuda in one process. Made at first use and never destroyed, because
// stream threads may outlive main. `mutex` guards everything except atomics and the streams' own
// queues.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fake_cuda {

class HostKernel;

inline constexpr size_t kGranularity = size_t{2} << 20;

struct Settings {
  int devices = 2;
  uint32_t seed = 0;
  uint64_t memory = uint64_t{1} << 30;
  int version = 13000;
  bool no_peer = false;
  bool ipc_at_home = false;
  bool no_vmm = false;
  bool no_rdma = false;
  bool no_flush = false;
  bool no_stores = false;
  int capability = 90;
  int nvlinks = 18;
  int nvlinks_down = 0;
  bool nvswitch = false;
  bool virtual_gpus = false;
  bool exclusive = false;
  bool prohibited = false;
  uint64_t copy_us = 0;
  uint64_t kernel_us = 0;  // waited before a kernel starts, as beside another process's
  std::string gate;
  std::string open_gate;
  std::string bad_kernels;
  uint64_t fail_copy = 0;
  uint64_t fail_import = 0;
  uint64_t unknown_handle = 0;
  uint64_t fail_map = 0;
  uint64_t fail_context = 0;
  uint64_t sticky = 0;
};

}  // namespace fake_cuda

// The driver's handles, as it declares them.
struct CUctx_st {
  int device = 0;
  int retained = 0;  // how often it is retained; 0: there is no context
  CUstream default_stream = nullptr;
  std::set<int> peers;  // peers enabled by cuCtxEnablePeerAccess
  int lock = -1;        // descriptor of the lock of exclusive-process mode
};

// The queue of a stream. It outlives the stream's handle until it is empty.
struct StreamQueue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool busy = false;
  bool closing = false;
  std::atomic<bool> dropped{false};  // its context is gone, so waits end
};

struct CUstream_st {
  CUcontext context = nullptr;
  int priority = 0;
  unsigned flags = 0;
  bool capturing = false;
  std::shared_ptr<StreamQueue> queue;
};

struct EventState {
  std::atomic<uint64_t> asked{0};
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> when_ns{0};
};

// A loaded image; its one kernel is known by its name.
struct CUmod_st {
  CUcontext context = nullptr;
  std::shared_ptr<fake_cuda::HostKernel> kernel;  // null: the image of ferry_gather
};
struct CUfunc_st {
  CUmodule module = nullptr;
  unsigned most_shared = 48 << 10;  // bytes of dynamic shared memory that a launch may ask for
};

struct CUevent_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<EventState> state;
};

namespace fake_cuda {

// Physical memory of a device: a memfd, whose name says which device, so that another process can
// import it.
struct Physical {
  int fd = -1;
  size_t bytes = 0;
  int device = 0;    // number in the machine
  bool ours = true;  // allocated by this process, so that it counts
  bool rdma = false;
  CUmemAllocationHandleType exportable = CU_MEM_HANDLE_TYPE_NONE;
  ~Physical();
};

// Mapped device memory; by its first address.
struct Mapping {
  size_t bytes = 0;
  std::shared_ptr<Physical> physical;
  std::set<int> access;  // devices of the machine that may touch it
  bool vmm = false;
  bool ipc = false;
  CUcontext context = nullptr;  // the context with which it goes; null if `vmm`
  uint64_t buffer_id = 0;       // unique among the process's allocations; 0 if `vmm`
};

struct Registration {
  size_t bytes = 0;
  CUcontext context = nullptr;
  bool allocated = false;  // true if allocated by cuMemHostAlloc
};

struct State {
  State();
  std::mutex mutex;
  Settings settings;
  std::atomic<bool> held{false};
  std::atomic<CUresult> sticky{CUDA_SUCCESS};
  bool initialized = false;
  int connections = 8;
  std::vector<int> visible;                          // from ordinal to device of the machine
  std::vector<uint64_t> used;                        // allocated bytes, by device of the machine
  std::vector<std::unique_ptr<CUctx_st>> primaries;  // by ordinal
  std::set<CUcontext> contexts;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::map<CUmodule, CUfunc_st> modules;
  // All device addresses are inside one region that nothing else uses, so that a stale address is
  // noticed.
  std::byte* region = nullptr;
  size_t region_bytes = size_t{256} << 30;
  std::map<uintptr_t, size_t> reserved;  // by cuMemAddressReserve and for cuMemAlloc
  uintptr_t last_reserved = 0;
  std::map<uintptr_t, Mapping> mappings;
  std::map<uintptr_t, Registration> registered;
  std::map<CUmemGenericAllocationHandle, std::pair<std::shared_ptr<Physical>, int>> handles;
  CUmemGenericAllocationHandle next_handle = 0x1000;
  std::atomic<int> parked{0};
  uint64_t flushing_waits = 0;  // guarded by `mutex`
  std::atomic<uint64_t> copies{0}, batches{0}, pageable{0}, bytes_copied{0}, launches{0}, waits{0};
  std::atomic<uint64_t> early_launches{0};
  std::atomic<uint64_t> shared_bytes{0};
  std::atomic<uint64_t> attributes{0};
};

State& Get();

// Errors that a call reports before it looks at its arguments.
CUresult Ready();                      // unless initialized, and without a sticky error
CUresult ReadyIn(CUcontext* context);  // as Ready, and unless a live context is current
CUcontext Current();

// 16 bytes that name a device of the machine, the same in every process.
void UuidOf(int device, unsigned char* uuid);
// Where the device is in the machine.
inline unsigned PciBusOf(int device) { return static_cast<unsigned>(device) + 1; }
inline int NumaNodeOf(int device) { return device / 2; }

// The following are called with `mutex` held. Memory.
bool InRegion(uintptr_t address);
uintptr_t Reserve(size_t bytes, size_t alignment);  // 0: there is no space left
// The mapping that contains the address; null if there is none.
Mapping* FindMapping(uintptr_t address, uintptr_t* base);
// Whether `device` may copy these bytes: all must be mapped with access; host memory is always
// allowed.
bool MayTouch(int device, uintptr_t address, size_t bytes);
// Whether these bytes are host memory that is not registered.
bool Pageable(uintptr_t address, size_t bytes);
// Whether a device can read and write the word: it is mapped device memory or registered host
// memory.
bool IsDeviceWord(int device, uintptr_t address);
CUresult Allocate(int device, size_t bytes, std::shared_ptr<Physical>* made);
// The memory behind a descriptor of another process; null if it is not memory of a GPU.
std::shared_ptr<Physical> Import(int fd);
void Place(uintptr_t address, const Physical& physical, int protection);
void Forget(std::map<uintptr_t, Mapping>::iterator mapping);
void DropContextMemory(CUcontext context);
void DropContextStreams(CUcontext context);

// Streams. A null `stream` is the context's default stream.
CUresult FindStream(CUstream stream, CUstream_st** found);
void Enqueue(CUstream_st& stream, std::function<void()> work);
// Waits while a test holds copies back.
void AwaitGate(const StreamQueue& queue);
void AwaitOpenGate();
// Whether kernels of programs touch what they must not.
bool HasBadKernels();
void Drain(StreamQueue& queue);
CUresult MakeStream(CUcontext context, unsigned flags, int priority, CUstream* stream);
// Waits until streams may run although some are parked.
void AwaitConnection(const StreamQueue& queue);

void Apply(Settings& settings, const std::string& text);

}  // namespace fake_cuda
