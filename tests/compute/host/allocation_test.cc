// SPDX-License-Identifier: Apache-2.0
// All that a run needs is in its scratch: nothing above 64 KiB is allocated while it runs. This
// program's operator new is the test's, and so is the posix_memalign that oneDNN allocates by.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace {

std::atomic<bool> watched{false};
std::atomic<size_t> largest{0};

std::atomic<size_t> of_libraries{0};  // allocations

void* Aligned(size_t bytes, size_t alignment) {
  if (watched.load(std::memory_order_relaxed)) {
    size_t seen = largest.load();
    while (seen < bytes && !largest.compare_exchange_weak(seen, bytes)) continue;
  }
  const size_t whole = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, whole);
}

void* Allocate(size_t bytes, size_t alignment) {
  void* const memory = Aligned(bytes, alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

extern "C" int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  ++of_libraries;
  *memory = Aligned(bytes, alignment);
  return *memory == nullptr ? ENOMEM : 0;
}

void* operator new(size_t bytes) { return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
// Of std::inplace_merge and its kin: without it a sanitizer's own one would meet the delete below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace ferry::compute {
namespace {

// The largest allocation of a run by three threads.
size_t LargestOf(const std::string& text) {
  const ParsedText parsed = Parse("program 1\n" + text);
  for (const TextProblem& problem : parsed.problems) {
    ADD_FAILURE() << problem.line << ": " << problem.text;
  }
  EXPECT_EQ(ToStatus(parsed.program, Verify(parsed.program)), absl::OkStatus());
  constexpr size_t kThreads = 3;
  Workers workers(kThreads);
  const auto made = HostProgram::Make(Simplify(parsed.program), kThreads);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return 0;
  constexpr std::align_val_t kAlignment{64};
  std::vector<absl::Span<std::byte>> buffers;
  std::vector<std::byte*> owned;
  const auto allocate = [&](uint64_t bytes) {
    owned.push_back(static_cast<std::byte*>(operator new(bytes, kAlignment)));
    std::fill_n(owned.back(), bytes, std::byte{0x3C});
    return absl::MakeSpan(owned.back(), bytes);
  };
  for (const Buffer& buffer : parsed.program.buffers) buffers.push_back(allocate(buffer.bytes));
  const absl::Span<std::byte> scratch = allocate(made->scratch_bytes());
  largest = 0;
  watched = true;
  made->Run(buffers, scratch, &workers);
  watched = false;
  for (std::byte* memory : owned) operator delete(memory, kAlignment);
  return largest;
}

constexpr size_t kMost = size_t{64} << 10;
constexpr char kIn[] = "buffer @x read 2097152\n%x = input @x : f32[512,1024]\n";

TEST(AllocationTest, ItIsSeen) {
  watched = true;
  { const std::vector<std::byte> memory(kMost + 1); }
  watched = false;
  EXPECT_GT(largest, kMost);
}

TEST(AllocationTest, ALibrarysIsSeenToo) {
  const size_t before = of_libraries;
  LargestOf(
      "buffer @x read 1048576\nbuffer @y write 1048576\n%x = input @x : f32[512,512]\n"
      "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[0]\nstore @y, %p\n");
  EXPECT_GT(of_libraries, before);
}

TEST(AllocationTest, RunsTakeNothingLargeBesideTheirArena) {
  for (const std::string& rest : std::vector<std::string>{
           "buffer @y write 1048576\n%a = tanh %x\n%b = convert %a : bf16[512,1024]\nstore @y, "
           "%b\n",
           "buffer @y write 2048\n%r = reduce %x reduction=sum dimensions=[1]\nstore @y, %r\n",
           "buffer @y write 4096\n%r = reduce %x reduction=max dimensions=[0]\nstore @y, %r\n",
           "buffer @y write 2097152\n%t = transpose %x permutation=[1,0]\n%n = negate %t\n"
           "store @y, %n\n",
           "buffer @y write 2097152\n%c = cumulative_sum %x dimension=0\nstore @y, %c\n",
           "buffer @y write 2048\n%i = argmax %x dimension=1 : i32[512]\nstore @y, %i\n",
           "buffer @y write 524288\nbuffer @s write 16384\n"
           "%q, %s = quantize_block %x : f8e4m3fn[512,1024], f8e8m0fnu[512,32]\n"
           "store @y, %q\nstore @s, %s\n",
           "buffer @y write 4194304\n%c = concatenate %x, %x dimension=0\n%d = abs %c\nstore @y, "
           "%d\n",
           // By the library where it may make code, and by ourselves.
           "buffer @y write 1048576\n"
           "%p = dot_general %x, %x lhs_contract=[1] rhs_contract=[1] : f32[512,512]\nstore @y, "
           "%p\n",
           "buffer @y write 131072\n%h = convert %x : f16[512,1024]\n"
           "%l = slice %h start=[0,0] limit=[64,1024]\n"
           "%p = dot_general %l, %h lhs_contract=[1] rhs_contract=[1] : f32[64,512]\n"
           "store @y, %p\n",
       }) {
    // Buffers come first.
    const size_t ops = std::string(kIn).find('%');
    const size_t first = rest.find('%');
    const std::string text = std::string(kIn).substr(0, ops) + rest.substr(0, first) +
                             std::string(kIn).substr(ops) + rest.substr(first);
    EXPECT_LE(LargestOf(text), kMost) << text;
  }
}

}  // namespace
}  // namespace ferry::compute
