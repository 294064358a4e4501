// SPDX-License-Identifier: Apache-2.0
// Streams and events. Each stream is a thread that runs what was queued, in order, later.
#include <pthread.h>

#include <chrono>
#include <thread>

#include "state.h"

namespace fake_cuda {
namespace {

constexpr auto kLook = std::chrono::microseconds(20);

void Run(std::shared_ptr<StreamQueue> queue) {
  pthread_setname_np(pthread_self(), "fake-stream");
  std::unique_lock lock(queue->mutex);
  while (true) {
    queue->changed.wait(lock, [&] { return !queue->work.empty() || queue->closing; });
    if (queue->work.empty()) return;
    std::function<void()> work = std::move(queue->work.front());
    queue->work.pop_front();
    queue->busy = true;
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    queue->busy = false;
    queue->changed.notify_all();
  }
}

bool Idle(StreamQueue& queue) {
  std::lock_guard lock(queue.mutex);
  return queue.work.empty() && !queue.busy;
}

void Close(StreamQueue& queue) {
  std::lock_guard lock(queue.mutex);
  queue.closing = true;
  queue.changed.notify_all();
}

bool Live(CUevent event) { return Get().events.count(event) != 0; }

}  // namespace

void AwaitConnection(const StreamQueue& queue) {
  State& state = Get();
  while (state.parked.load() >= state.connections && !queue.dropped.load()) {
    std::this_thread::sleep_for(kLook);
  }
}

void Enqueue(CUstream_st& stream, std::function<void()> work) {
  StreamQueue& queue = *stream.queue;
  std::lock_guard lock(queue.mutex);
  queue.work.push_back(std::move(work));
  queue.changed.notify_all();
}

void Drain(StreamQueue& queue) {
  std::unique_lock lock(queue.mutex);
  queue.changed.wait(lock, [&] { return queue.work.empty() && !queue.busy; });
}

CUresult MakeStream(CUcontext context, unsigned flags, int priority, CUstream* stream) {
  auto made = std::make_unique<CUstream_st>();
  made->context = context;
  made->flags = flags;
  made->priority = priority;
  made->queue = std::make_shared<StreamQueue>();
  std::thread(Run, made->queue).detach();
  *stream = made.release();
  Get().streams.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult FindStream(CUstream stream, CUstream_st** found) {
  State& state = Get();
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    if (context->default_stream == nullptr) MakeStream(context, 0, 0, &context->default_stream);
    *found = context->default_stream;
    return CUDA_SUCCESS;
  }
  if (state.streams.count(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  *found = stream;
  // Work of a stream of another context is accepted by the real one too; ours says what is wrong.
  return stream->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

void DropContextStreams(CUcontext context) {
  State& state = Get();
  std::vector<CUstream> all;
  {
    std::lock_guard lock(state.mutex);
    for (CUstream stream : state.streams) {
      if (stream->context == context) all.push_back(stream);
    }
    for (auto it = state.events.begin(); it != state.events.end();) {
      const auto here = it++;
      if ((*here)->context != context) continue;
      delete *here;
      state.events.erase(here);
    }
    for (CUstream stream : all) state.streams.erase(stream);
    context->default_stream = nullptr;
  }
  for (CUstream stream : all) {
    stream->queue->dropped = true;
    Close(*stream->queue);
    Drain(*stream->queue);
    delete stream;
  }
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return MakeStream(context, flags, priority, stream);
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(CUstream stream) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (state.streams.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  Close(*stream->queue);  // what is queued still runs
  delete stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  return Idle(*found->queue) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream stream) {
  State& state = Get();
  ++state.waits;
  std::shared_ptr<StreamQueue> queue;
  {
    std::lock_guard lock(state.mutex);
    CUstream_st* found = nullptr;
    if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
    if (found->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    queue = found->queue;
  }
  Drain(*queue);
  return state.sticky;
}

CUresult cuCtxSynchronize() {
  State& state = Get();
  ++state.waits;
  std::vector<std::shared_ptr<StreamQueue>> queues;
  {
    std::lock_guard lock(state.mutex);
    CUcontext context = nullptr;
    if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
    for (CUstream stream : state.streams) {
      if (stream->context == context) queues.push_back(stream->queue);
    }
  }
  for (const auto& queue : queues) Drain(*queue);
  return state.sticky;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return ReadyIn(context);
  }
  if (state.streams.count(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  *context = stream->context;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  *priority = found->priority;
  return CUDA_SUCCESS;
}

// Nothing is recorded: enough to see who asks whether a stream is captured.
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  (void)mode;
  if (stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (found->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  found->capturing = true;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (!found->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  found->capturing = false;
  *graph = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  // The default stream waits for every stream that was not made to leave it alone.
  if (stream == nullptr || stream == CU_STREAM_LEGACY) {
    for (const CUstream other : state.streams) {
      if (other->context == found->context && other->capturing &&
          (other->flags & CU_STREAM_NON_BLOCKING) == 0) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  *status = found->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUcontext context = nullptr;
  if (const CUresult result = ReadyIn(&context); result != CUDA_SUCCESS) return result;
  auto made = std::make_unique<CUevent_st>();
  made->context = context;
  made->flags = flags;
  made->state = std::make_shared<EventState>();
  *event = made.release();
  state.events.insert(*event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (state.events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (!Live(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context != found->context) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t number = ++event->state->asked;
  Enqueue(*found, [event = event->state, number, queue = found->queue.get()] {
    AwaitConnection(*queue);
    event->when_ns = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                           std::chrono::nanoseconds(1));
    event->done.store(number, std::memory_order_release);
  });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!Live(event)) return CUDA_ERROR_INVALID_HANDLE;
  return event->state->done.load(std::memory_order_acquire) >= event->state->asked
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
  ++Get().waits;
  while (true) {
    const CUresult result = cuEventQuery(event);
    if (result != CUDA_ERROR_NOT_READY) return result;
    std::this_thread::sleep_for(kLook);
  }
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  if (const CUresult result = Ready(); result != CUDA_SUCCESS) return result;
  if (!Live(start) || !Live(end)) return CUDA_ERROR_INVALID_HANDLE;
  if (start->state->done == 0 || end->state->done == 0) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(end->state->when_ns - start->state->when_ns) / 1e6F;
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  if (!Live(event) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Enqueue(*found,
          [event = event->state, number = event->state->asked.load(), queue = found->queue.get()] {
            while (event->done.load(std::memory_order_acquire) < number && !queue->dropped) {
              std::this_thread::sleep_for(kLook);
            }
          });
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  CUstream_st* found = nullptr;
  if (const CUresult result = FindStream(stream, &found); result != CUDA_SUCCESS) return result;
  Enqueue(*found, [function, data, queue = found->queue.get()] {
    AwaitConnection(*queue);
    function(data);
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
