// SPDX-License-Identifier: Apache-2.0
// What streams do: copies, fills, and words that are written and waited for.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "state.h"

namespace fake_cuda {

constexpr auto kLook = std::chrono::microseconds(20);

// Whether the setting names a file that exists.
bool Closed(std::string Settings::*gate) {
  State& state = Get();
  std::string path;
  {
    std::lock_guard lock(state.mutex);
    path = state.settings.*gate;
  }
  return !path.empty() && access(path.c_str(), F_OK) == 0;
}

void AwaitGate(const StreamQueue& queue) {
  while (!queue.dropped && (Get().held || Closed(&Settings::gate))) {
    std::this_thread::sleep_for(kLook);
  }
}

bool HasBadKernels() { return Closed(&Settings::bad_kernels); }

void AwaitOpenGate() {
  while (Closed(&Settings::open_gate)) std::this_thread::sleep_for(kLook);
}

namespace {

uintptr_t Address(CUdeviceptr pointer) { return static_cast<uintptr_t>(pointer); }

struct Bytes {
  uintptr_t to = 0;
  uintptr_t from = 0;
  size_t size = 0;
};

// Under mutex. Queues copies, which all must be possible.
CUresult Copy(CUstream_st& stream, std::vector<Bytes> copies, bool* wait) {
  State& state = Get();
  if (stream.capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const int device = stream.context->device;
  bool fatal = false;
  for (const Bytes& copy : copies) {
    if (copy.size == 0) continue;
    if (!MayTouch(device, copy.to, copy.size) || !MayTouch(device, copy.from, copy.size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Settings& settings = state.settings;
    if (settings.fail_copy > 0 && --settings.fail_copy == 0) {
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    if (settings.sticky > 0 && --settings.sticky == 0) fatal = true;
    ++state.copies;
    if (Pageable(copy.to, copy.size) || Pageable(copy.from, copy.size)) {
      ++state.pageable;
      *wait = true;
    }
  }
  const auto least = std::chrono::microseconds(state.settings.copy_us);
  Enqueue(stream, [copies = std::move(copies), queue = stream.queue.get(), least, fatal] {
    State& state = Get();
    AwaitConnection(*queue);
    for (const Bytes& copy : copies) {
      AwaitGate(*queue);
      if (least.count() > 0) std::this_thread::sleep_for(least);
      if (queue->dropped || state.sticky != CUDA_SUCCESS) return;
      memmove(reinterpret_cast<void*>(copy.to), reinterpret_cast<const void*>(copy.from),
              copy.size);
      state.bytes_copied += copy.size;
    }
    if (fatal) state.sticky = CUDA_ERROR_ECC_UNCORRECTABLE;
  });
  return CUDA_SUCCESS;
}

CUresult CopyOne(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool blocking) {
  State& state = Get();
  std::shared_ptr<StreamQueue> queue;
  bool wait = blocking;
  {
    std::lock_guard lock(state.mutex);
    CUstream_st* found = nullptr;
    if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
    if (const CUresult result = Copy(*found, {{Address(to), Address(from), bytes}}, &wait);
        result != CUDA_SUCCESS) {
      return result;
    }
    queue = found->queue;
  }
  // With pageable memory the real one stages, and the caller waits for it.
  if (wait) Drain(*queue);
  return state.sticky;
}

CUdeviceptr Pointer(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyOne(to, from, bytes, stream, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream) {
  if (to_context == nullptr || from_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return CopyOne(to, from, bytes, stream, false);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  if (!InRegion(Address(to))) return CUDA_ERROR_INVALID_VALUE;
  return CopyOne(to, Pointer(from), bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (!InRegion(Address(from))) return CUDA_ERROR_INVALID_VALUE;
  return CopyOne(Pointer(to), from, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (!InRegion(Address(to)) || !InRegion(Address(from))) return CUDA_ERROR_INVALID_VALUE;
  return CopyOne(to, from, bytes, stream, false);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyOne(to, from, bytes, nullptr, true);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  if (!InRegion(Address(to))) return CUDA_ERROR_INVALID_VALUE;
  return CopyOne(to, Pointer(from), bytes, nullptr, true);
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  if (!InRegion(Address(from))) return CUDA_ERROR_INVALID_VALUE;
  return CopyOne(Pointer(to), from, bytes, nullptr, true);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (!InRegion(Address(to)) || !InRegion(Address(from))) return CUDA_ERROR_INVALID_VALUE;
  return CopyOne(to, from, bytes, nullptr, true);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* first_entries,
                            size_t attribute_count, CUstream stream) {
  State& state = Get();
  // As documented: not the default stream, one set of attributes at least, the first for entry 0.
  if (stream == nullptr || count == 0 || attribute_count == 0 || attribute_count > count ||
      first_entries[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::shared_ptr<StreamQueue> queue;
  bool wait = false;
  {
    std::lock_guard lock(state.mutex);
    CUstream_st* found = nullptr;
    if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
    for (size_t i = 0; i < attribute_count; ++i) {
      if (attributes[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
          attributes[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
          attributes[i].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    std::vector<Bytes> copies;
    for (size_t i = 0; i < count; ++i) {
      if (sizes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
      copies.push_back({Address(to[i]), Address(from[i]), sizes[i]});
    }
    ++state.batches;
    if (const CUresult result = Copy(*found, std::move(copies), &wait); result != CUDA_SUCCESS) {
      return result;
    }
    queue = found->queue;
  }
  if (wait) Drain(*queue);
  return state.sticky;
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t bytes, CUstream stream) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (!InRegion(Address(pointer)) || !MayTouch(found->context->device, Address(pointer), bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Enqueue(*found, [pointer, value, bytes, queue = found->queue.get()] {
    AwaitConnection(*queue);
    if (!queue->dropped) memset(reinterpret_cast<void*>(Address(pointer)), value, bytes);
  });
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t words, CUstream stream) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (!InRegion(Address(pointer)) || Address(pointer) % sizeof(value) != 0 ||
      !MayTouch(found->context->device, Address(pointer), words * sizeof(value))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Enqueue(*found, [pointer, value, words, queue = found->queue.get()] {
    AwaitConnection(*queue);
    if (!queue->dropped) std::fill_n(reinterpret_cast<unsigned*>(Address(pointer)), words, value);
  });
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8(CUdeviceptr pointer, unsigned char value, size_t bytes) {
  const CUresult queued = cuMemsetD8Async(pointer, value, bytes, nullptr);
  return queued == CUDA_SUCCESS ? cuStreamSynchronize(nullptr) : queued;
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr pointer, cuuint64_t value,
                              unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (found->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (state.settings.no_stores) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER ||
      !IsDeviceWord(found->context->device, Address(pointer))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Enqueue(*found, [pointer, value, queue = found->queue.get()] {
    AwaitConnection(*queue);
    if (queue->dropped || Get().sticky != CUDA_SUCCESS) return;
    __atomic_store_n(reinterpret_cast<uint64_t*>(Address(pointer)), value, __ATOMIC_SEQ_CST);
  });
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr pointer, cuuint64_t value,
                             unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (found->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const bool flushes = (flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0;
  if (flushes && state.settings.no_flush) return CUDA_ERROR_NOT_SUPPORTED;
  flags &= ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
  if (flags > CU_STREAM_WAIT_VALUE_NOR || !IsDeviceWord(found->context->device, Address(pointer))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flushes) ++state.flushing_waits;
  Enqueue(*found, [pointer, value, flags, queue = found->queue.get()] {
    State& state = Get();
    const auto reached = [&] {
      const uint64_t now =
          __atomic_load_n(reinterpret_cast<uint64_t*>(Address(pointer)), __ATOMIC_SEQ_CST);
      switch (flags) {
        case CU_STREAM_WAIT_VALUE_GEQ:
          return static_cast<int64_t>(now - value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ:
          return now == value;
        case CU_STREAM_WAIT_VALUE_AND:
          return (now & value) != 0;
        default:
          return ~(now | value) != 0;
      }
    };
    AwaitConnection(*queue);
    if (reached()) return;
    ++state.parked;
    while (!reached() && !queue->dropped) std::this_thread::sleep_for(kLook);
    --state.parked;
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
