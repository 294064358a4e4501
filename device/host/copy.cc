// SPDX-License-Identifier: Apache-2.0
#include "device/host/copy.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/mutex.h"

namespace ferry {
namespace {

// What the lane or the helper takes at a time: long enough that taking it costs nothing, short
// enough that what the lane is asked meanwhile waits some 50 us.
constexpr size_t kPartBytes = size_t{512} << 10;
// After so many a thread offers its core to whoever woke up there meanwhile: the client or daemon
// that a small transfer is about. Without that it may wait for the scheduler's tick, 4 ms where
// that comes 250 times a second, at each of its hops. More often than the scheduler's slices (1.4
// ms and more) would give the core away to those that compute.
constexpr unsigned kPartsToYield = 16;
// Under way at once, so that the helper finds the next one when it is done with its part of this.
constexpr size_t kSteps = 2;

#if defined(__x86_64__)

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// Pages that are copied side by side. Several streams at once keep more DRAM banks and hardware
// prefetchers at work than one does; 8 measured best, and no software prefetch.
constexpr size_t kStreams = 8;
// Below this a piece is not worth the alignment.
constexpr size_t kSmallestStreamed = 512;

// Copies as much of `size` as is whole lines; `to` is aligned to a line. Returns the bytes copied.
#define FERRY_STREAM_KERNEL(name, isa, Vector, load, store)                                     \
  __attribute__((target(isa))) size_t name(std::byte* to, const std::byte* from, size_t size) { \
    constexpr size_t kStep = 2 * kLine;                                                         \
    constexpr size_t kVectors = kStep / sizeof(Vector);                                         \
    const std::byte* const begin = from;                                                        \
    for (; size >= kStreams * kPage;                                                            \
         size -= kStreams * kPage, to += kStreams * kPage, from += kStreams * kPage) {          \
      for (size_t offset = 0; offset < kPage; offset += kStep) {                                \
        for (size_t stream = 0; stream < kStreams; ++stream) {                                  \
          const std::byte* source = from + stream * kPage + offset;                             \
          std::byte* destination = to + stream * kPage + offset;                                \
          Vector line[kVectors];                                                                \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < kVectors; ++i) line[i] =               \
              load(reinterpret_cast<const Vector*>(source) + i);                                \
          _Pragma("GCC unroll 8") for (size_t i = 0; i < kVectors; ++i)                         \
              store(reinterpret_cast<Vector*>(destination) + i, line[i]);                       \
        }                                                                                       \
      }                                                                                         \
    }                                                                                           \
    for (; size >= kLine; size -= kLine, to += kLine, from += kLine) {                          \
      _Pragma("GCC unroll 4") for (size_t i = 0; i < kLine / sizeof(Vector); ++i) store(        \
          reinterpret_cast<Vector*>(to) + i, load(reinterpret_cast<const Vector*>(from) + i));  \
    }                                                                                           \
    return static_cast<size_t>(from - begin);                                                   \
  }

FERRY_STREAM_KERNEL(StreamSse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128)
FERRY_STREAM_KERNEL(StreamAvx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_stream_si256)
FERRY_STREAM_KERNEL(StreamAvx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512)
#undef FERRY_STREAM_KERNEL

using StreamKernel = size_t (*)(std::byte*, const std::byte*, size_t);

StreamKernel PickKernel() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return StreamAvx512;
  if (__builtin_cpu_supports("avx2")) return StreamAvx2;
  return StreamSse2;
}

// Leaves its stores unordered: FinishStreaming comes before anybody is told.
void StreamPiece(std::byte* to, const std::byte* from, size_t size) {
  static const StreamKernel kernel = PickKernel();
  if (size < kSmallestStreamed) {
    std::memcpy(to, from, size);
    return;
  }
  const size_t head = -reinterpret_cast<uintptr_t>(to) % kLine;
  if (head != 0) std::memcpy(to, from, head);
  const size_t done = head + kernel(to + head, from + head, size - head);
  if (done < size) std::memcpy(to + done, from + done, size - done);
}

// Non-temporal stores are not ordered by a release store; only the fence does that.
void FinishStreaming() { _mm_sfence(); }

#else

void StreamPiece(std::byte* to, const std::byte* from, size_t size) { std::memcpy(to, from, size); }
void FinishStreaming() {}

#endif

size_t TotalSize(absl::Span<const CopyPiece> pieces) {
  size_t total = 0;
  for (const CopyPiece& piece : pieces) total += piece.size;
  return total;
}

void CopyTotal(absl::Span<const CopyPiece> pieces, size_t total) {
  if (total < kStreamingBytes) {
    for (const CopyPiece& piece : pieces) {
      if (piece.size != 0) std::memcpy(piece.destination, piece.source, piece.size);
    }
    return;
  }
  for (const CopyPiece& piece : pieces) {
    if (piece.size != 0) StreamPiece(piece.destination, piece.source, piece.size);
  }
  FinishStreaming();
}

}  // namespace

void CopyAlone(absl::Span<const CopyPiece> pieces) { CopyTotal(pieces, TotalSize(pieces)); }

// The helper's mutex guards what both threads look at; the rest is the lane's.
struct HostCopier::Queue {
  struct Step {
    bool queued = false;            // else it was over when it began. The lane's.
    std::vector<CopyPiece> pieces;  // not changed while anybody has a part
    uint64_t number = 0;
    size_t piece = 0;  // where the next part begins
    size_t offset = 0;
    size_t left = 0;  // bytes that nobody has taken yet
    int held = 0;     // parts that are being copied
  };
  // What somebody copies next; of no step if there is nothing.
  struct Part {
    Step* step = nullptr;
    size_t piece = 0;
    size_t offset = 0;
    size_t size = 0;
  };

  // Of the oldest step that has any.
  Part Take() {
    Step* step = nullptr;
    for (Step& one : steps) {
      if (one.left > 0 && (step == nullptr || one.number < step->number)) step = &one;
    }
    if (step == nullptr) return {};
    const Part part = {step, step->piece, step->offset, std::min(step->left, kPartBytes)};
    step->left -= part.size;
    ++step->held;
    size_t passed = part.size;
    while (step->piece < step->pieces.size() &&
           passed >= step->pieces[step->piece].size - step->offset) {
      passed -= step->pieces[step->piece++].size - step->offset;
      step->offset = 0;
    }
    step->offset += passed;
    return part;
  }

  static void Copy(const Part& part) {
    size_t offset = part.offset;
    for (size_t left = part.size, i = part.piece; left > 0; ++i, offset = 0) {
      const CopyPiece& piece = part.step->pieces[i];
      const size_t size = std::min(left, piece.size - offset);
      if (size > 0) StreamPiece(piece.destination + offset, piece.source + offset, size);
      left -= size;
    }
    FinishStreaming();
  }

  std::array<Step, kSteps> steps;  // by number, modulo
  uint64_t begun = 0;              // The lane's.
  uint64_t over = 0;               // The lane's.
};

struct CopyHelper::Impl {
  using Queue = HostCopier::Queue;
  using Part = Queue::Part;

  Part TakeAny() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (size_t i = 0; i < queues.size(); ++i) {
      const Part part = queues[turn++ % queues.size()]->Take();
      if (part.step != nullptr) return part;
    }
    return {};
  }

  void Run() {
    pthread_setname_np(pthread_self(), "ferry-copy");
    MutexLock lock(mutex);
    while (!stopping) {
      const Part part = TakeAny();
      if (part.step == nullptr) {
        wanted.wait(mutex);
        continue;
      }
      CopyPart(part);
      if (part.step->held == 0) let_go.notify_all();
    }
  }

  void CopyPart(const Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    mutex.Unlock();
    Queue::Copy(part);
    thread_local unsigned copied = 0;
    if (++copied % kPartsToYield == 0) std::this_thread::yield();
    mutex.Lock();
    --part.step->held;
  }

  Mutex mutex;
  std::condition_variable_any wanted;  // there are parts, or it stops
  std::condition_variable_any let_go;  // of a step
  std::vector<Queue*> queues ABSL_GUARDED_BY(mutex);
  size_t turn ABSL_GUARDED_BY(mutex) = 0;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::thread thread;
};

CopyHelper::CopyHelper() : impl_(std::make_unique<Impl>()) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

CopyHelper::~CopyHelper() {
  {
    MutexLock lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wanted.notify_one();
  impl_->thread.join();
}

HostCopier::HostCopier(CopyHelper& helper) : helper_(helper), queue_(std::make_unique<Queue>()) {
  // Nothing is allocated where bytes move. Memory that is not used yet costs nothing.
  for (Queue::Step& step : queue_->steps) step.pieces.reserve(limits().pieces);
  MutexLock lock(helper_.impl_->mutex);
  helper_.impl_->queues.push_back(queue_.get());
}

HostCopier::~HostCopier() {
  FERRY_CHECK(queue_->begun == queue_->over);
  MutexLock lock(helper_.impl_->mutex);
  auto& queues = helper_.impl_->queues;
  queues.erase(std::find(queues.begin(), queues.end(), queue_.get()));
}

const Copier::Limits& HostCopier::limits() const {
  home_.Check();
  // What comes in waits for two steps at most before it shares.
  static constexpr Limits kLimits = {size_t{4} << 20, size_t{16} << 10, kSteps, true};
  return kLimits;
}

void HostCopier::Start(absl::Span<const CopyPiece> pieces) {
  home_.Check();
  FERRY_CHECK(queue_->begun - queue_->over < kSteps);
  const uint64_t number = queue_->begun++;
  Queue::Step& step = queue_->steps[number % kSteps];
  const size_t total = TotalSize(pieces);
  if (total < kStreamingBytes) return CopyTotal(pieces, total);
  step.queued = true;
  step.pieces.assign(pieces.begin(), pieces.end());
  {
    MutexLock lock(helper_.impl_->mutex);
    step.number = number;
    step.piece = step.offset = 0;
    step.left = total;
  }
  if (total >= kSharedBytes) helper_.impl_->wanted.notify_one();
}

std::optional<absl::Status> HostCopier::TakeOver() {
  home_.Check();
  Queue& queue = *queue_;
  if (queue.over == queue.begun) return std::nullopt;
  Queue::Step& oldest = queue.steps[queue.over % kSteps];
  CopyHelper::Impl& helper = *helper_.impl_;
  if (oldest.queued) {
    MutexLock lock(helper.mutex);
    const Queue::Part part = queue.Take();
    if (part.step != nullptr) helper.CopyPart(part);
    // With nothing left to take the helper has at most a part of it.
    while (part.step == nullptr && oldest.held > 0) helper.let_go.wait(helper.mutex);
    if (oldest.left > 0 || oldest.held > 0) return std::nullopt;
    oldest.queued = false;
  }
  ++queue.over;
  return absl::OkStatus();
}

}  // namespace ferry
