// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/host_copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"

namespace ferry::tools {
namespace {

// `bytes` is a multiple of 64 and both ends are aligned to as much.
void Stream(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 64) {
    for (size_t j = 0; j < 64; j += 16) {
      const __m128i value = _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + j));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j), value);
    }
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace

Pages::Pages(size_t bytes) : bytes_(bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Pages::Fill() const {
  FERRY_CHECK(data_ != nullptr);
  std::memset(data_, 0x5a, bytes_);
}

absl::Duration TimeMemcpy(std::byte* to, const std::byte* from, size_t bytes) {
  const absl::Time start = absl::Now();
  std::memcpy(to, from, bytes);
  asm volatile("" : : "r"(to) : "memory");
  return absl::Now() - start;
}

absl::Duration TimeStreamingCopy(std::byte* to, const std::byte* from, size_t bytes, int threads) {
  const absl::Time start = absl::Now();
  const size_t share = bytes / static_cast<size_t>(threads) / 64 * 64;
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    const size_t at = share * static_cast<size_t>(i);
    const size_t size = i + 1 == threads ? (bytes - at) / 64 * 64 : share;
    others.emplace_back([=] { Stream(to + at, from + at, size); });
  }
  Stream(to, from, threads == 1 ? bytes / 64 * 64 : share);
  for (std::thread& thread : others) thread.join();
  std::memcpy(to + bytes / 64 * 64, from + bytes / 64 * 64, bytes % 64);
  return absl::Now() - start;
}

}  // namespace ferry::tools
