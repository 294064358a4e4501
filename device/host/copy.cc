// SPDX-License-Identifier: Apache-2.0
#include "device/host/copy.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ferry {
namespace {

// What a thread takes at a time when two share a copy: long enough that the cursor costs nothing,
// short enough that the wait for the other's last chunk (about 0.1 ms) does not show.
constexpr size_t kChunkBytes = size_t{1} << 20;

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

// Where a chunk begins. It ends where the next one begins.
struct ChunkStart {
  size_t piece = 0;
  size_t offset = 0;
};

}  // namespace

void CopyAlone(absl::Span<const CopyPiece> pieces) { CopyTotal(pieces, TotalSize(pieces)); }

struct CopyHelper::Impl {
  // True while somebody has the helper.
  std::atomic<bool> taken{false};
  // The job: written by the owner while the helper is idle.
  absl::Span<const CopyPiece> pieces;
  std::vector<ChunkStart> chunks;
  bool streaming = false;
  alignas(64) std::atomic<size_t> cursor{0};
  // Counts up with each job. The helper sleeps on it.
  alignas(64) std::atomic<uint32_t> job{0};
  // Whether the helper may touch the job. The owner opens, and shuts at its end if the helper has
  // not come in, so that one which wakes late never looks at a job that is over.
  enum Door : uint32_t { kShut, kOpen, kInside };
  alignas(64) std::atomic<uint32_t> door{kShut};
  std::atomic<bool> stopping{false};
  std::thread thread;

  void CutChunks() {
    chunks.clear();
    size_t room = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      size_t offset = 0;
      while (offset < pieces[i].size) {
        if (room == 0) {
          chunks.push_back({i, offset});
          room = kChunkBytes;
        }
        const size_t take = std::min(room, pieces[i].size - offset);
        offset += take;
        room -= take;
      }
    }
  }

  void CopyChunk(size_t index) {
    ChunkStart at = chunks[index];
    for (size_t left = kChunkBytes; left != 0 && at.piece < pieces.size();
         ++at.piece, at.offset = 0) {
      const CopyPiece& piece = pieces[at.piece];
      const size_t size = std::min(left, piece.size - at.offset);
      if (size == 0) continue;
      if (streaming) {
        StreamPiece(piece.destination + at.offset, piece.source + at.offset, size);
      } else {
        std::memcpy(piece.destination + at.offset, piece.source + at.offset, size);
      }
      left -= size;
    }
  }

  void Work() {
    for (size_t i; (i = cursor.fetch_add(1, std::memory_order_relaxed)) < chunks.size();) {
      CopyChunk(i);
    }
    if (streaming) FinishStreaming();
  }

  void Run() {
    pthread_setname_np(pthread_self(), "ferry-copy");
    uint32_t seen = 0;
    while (true) {
      job.wait(seen, std::memory_order_acquire);
      seen = job.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      uint32_t open = kOpen;
      if (!door.compare_exchange_strong(open, kInside, std::memory_order_acquire)) continue;
      Work();
      door.store(kShut, std::memory_order_release);
      door.notify_one();
    }
  }
};

CopyHelper::CopyHelper() : impl_(std::make_unique<Impl>()) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

CopyHelper::~CopyHelper() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->job.fetch_add(1, std::memory_order_release);
  impl_->job.notify_one();
  impl_->thread.join();
}

void CopyHelper::Copy(absl::Span<const CopyPiece> pieces) {
  const size_t total = TotalSize(pieces);
  if (total < kSharedBytes || impl_->taken.exchange(true, std::memory_order_acquire)) {
    CopyTotal(pieces, total);
    return;
  }
  Impl& impl = *impl_;
  impl.pieces = pieces;
  impl.streaming = total >= kStreamingBytes;
  impl.CutChunks();
  impl.cursor.store(0, std::memory_order_relaxed);
  impl.door.store(Impl::kOpen, std::memory_order_release);
  impl.job.fetch_add(1, std::memory_order_release);
  impl.job.notify_one();
  impl.Work();
  // A helper that has not come by now is not wanted any more; one that is inside has at most one
  // chunk.
  uint32_t seen = Impl::kOpen;
  if (!impl.door.compare_exchange_strong(seen, Impl::kShut, std::memory_order_acquire)) {
    while (seen == Impl::kInside) {
      impl.door.wait(Impl::kInside, std::memory_order_acquire);
      seen = impl.door.load(std::memory_order_acquire);
    }
  }
  impl.taken.store(false, std::memory_order_release);
}

const Copier::Limits& HostCopier::limits() const {
  // Between steps the lane runs other tasks, and what comes in waits for one step at most before it
  // shares. Shorter ones would wake the helper more often for the same bytes.
  static constexpr Limits kLimits = {size_t{8} << 20, size_t{16} << 10, 1};
  return kLimits;
}

void HostCopier::Start(absl::Span<const CopyPiece> pieces) {
  helper_.Copy(pieces);
  over_ = true;
}

std::optional<absl::Status> HostCopier::TakeOver() {
  if (!std::exchange(over_, false)) return std::nullopt;
  return absl::OkStatus();
}

}  // namespace ferry
