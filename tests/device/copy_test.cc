// SPDX-License-Identifier: Apache-2.0
#include "device/host/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

namespace ferry {
namespace {

std::vector<std::byte> RandomBytes(size_t size, uint32_t seed) {
  std::vector<std::byte> bytes(size);
  std::mt19937 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Copies pieces of random size and alignment that together have about `total` bytes, and checks
// them and the bytes between them.
template <typename Copy>
void CheckCopy(size_t total, size_t largest, uint32_t seed, Copy copy) {
  std::mt19937 random(seed);
  const std::vector<std::byte> source = RandomBytes(total + largest + 4096, seed);
  std::vector<std::byte> destination(source.size() + total / 2, std::byte{0xA5});
  std::vector<std::byte> expected = destination;
  std::vector<CopyPiece> pieces;
  size_t from = random() % 64, to = random() % 64;
  while (from < total) {
    const size_t size = random() % (largest + 1);
    if (to + size > destination.size()) break;
    pieces.push_back({destination.data() + to, source.data() + from, size});
    if (size > 0) std::memcpy(expected.data() + to, source.data() + from, size);
    from += size;
    to += size + random() % 3;
  }
  copy(pieces);
  EXPECT_TRUE(destination == expected) << "seed " << seed << ", total " << total;
}

TEST(Copy, AloneEverySizeAndAlignment) {
  for (size_t size = 0; size < 700; ++size) {
    CheckCopy(size, size / 2 + 1, static_cast<uint32_t>(size),
              [](const auto& pieces) { CopyAlone(pieces); });
  }
}

TEST(Copy, StreamsUnalignedPieces) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    CheckCopy(kStreamingBytes * 2, size_t{1} << (4 * seed), seed,
              [](const auto& pieces) { CopyAlone(pieces); });
  }
}

TEST(Copy, StreamsHeadsTailsAndBlocks) {
  // One large piece, so that all is streamed, beside one of each length around the kernel's steps.
  const std::vector<std::byte> source = RandomBytes(kStreamingBytes + 70'000, 1);
  for (size_t size : {511u, 512u, 513u, 575u, 576u, 4096u, 32767u, 32768u, 32831u, 65536u + 63u}) {
    for (size_t shift : {0u, 1u, 17u, 63u}) {
      std::vector<std::byte> destination(source.size() + 200'000, std::byte{0x5A});
      const size_t at = kStreamingBytes + 100'000 + shift;
      CopyAlone(std::vector<CopyPiece>{{destination.data(), source.data() + 3, kStreamingBytes},
                                       {destination.data() + at, source.data() + shift / 2, size}});
      EXPECT_EQ(std::memcmp(destination.data(), source.data() + 3, kStreamingBytes), 0);
      EXPECT_EQ(std::memcmp(destination.data() + at, source.data() + shift / 2, size), 0);
      EXPECT_EQ(destination[at - 1], std::byte{0x5A});
      EXPECT_EQ(destination[at + size], std::byte{0x5A});
    }
  }
}

void CopyBy(HostCopier& copier, const std::vector<CopyPiece>& pieces) {
  copier.Start(pieces);
  std::optional<absl::Status> over;
  while (!(over = copier.TakeOver()).has_value()) {
  }
  EXPECT_TRUE(over->ok());
  EXPECT_FALSE(copier.TakeOver().has_value());
}

TEST(HostCopier, SharesPiecesOfAnySize) {
  CopyHelper helper;
  HostCopier copier(helper);
  for (uint32_t seed = 0; seed < 12; ++seed) {
    CheckCopy(kSharedBytes + seed * 1'000'003, size_t{1} << (8 + seed), seed,
              [&](const auto& pieces) { CopyBy(copier, pieces); });
  }
}

TEST(HostCopier, ManyThreadsAtOnce) {
  CopyHelper helper;
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&helper, thread] {
      HostCopier copier(helper);
      for (uint32_t round = 0; round < 10; ++round) {
        CheckCopy(kSharedBytes * 2, size_t{300'000}, thread * 100 + round,
                  [&](const auto& pieces) { CopyBy(copier, pieces); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostCopier, NothingToCopy) {
  CopyHelper helper;
  HostCopier copier(helper);
  CopyBy(copier, {});
  CopyBy(copier, {{nullptr, nullptr, 0}});
}

TEST(HostCopier, StepsOfAllSizesEndInTheirOrder) {
  CopyHelper helper;
  HostCopier copier(helper);
  const std::vector<std::byte> source = RandomBytes(kSharedBytes, 3);
  const size_t steps = copier.limits().steps;
  const size_t sizes[] = {kSharedBytes,        8, kStreamingBytes,
                          kStreamingBytes + 1, 0, kSharedBytes - 3};
  std::vector<std::vector<std::byte>> destinations(60);
  size_t begun = 0;
  for (size_t over = 0; over < destinations.size(); ++over) {
    for (; begun < destinations.size() && begun - over < steps; ++begun) {
      destinations[begun].resize(sizes[begun * 7 % std::size(sizes)]);
      copier.Start(std::vector<CopyPiece>{
          {destinations[begun].data(), source.data(), destinations[begun].size()}});
    }
    while (!copier.TakeOver().has_value()) {
    }
    ASSERT_TRUE(std::equal(destinations[over].begin(), destinations[over].end(), source.begin()))
        << over;
  }
  EXPECT_FALSE(copier.TakeOver().has_value());
}

}  // namespace
}  // namespace ferry
