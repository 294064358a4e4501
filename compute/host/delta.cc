// SPDX-License-Identifier: Apache-2.0
#include "compute/host/delta.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compute/host/checksum_loops.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kMostParts = 1024;  // what is kept of each takes little memory
constexpr uint64_t kLeastPart = uint64_t{1} << 20;

// Some bytes as parts of equal size, which are multiples of a unit; the last part is shorter.
class Parts {
 public:
  Parts(uint64_t bytes, uint64_t unit) : bytes_(bytes) {
    const uint64_t each = std::max(kLeastPart, bytes / kMostParts + 1);
    each_ = (each + unit - 1) / unit * unit;
  }
  size_t count() const { return static_cast<size_t>((bytes_ + each_ - 1) / each_); }
  uint64_t Begin(size_t part) const { return std::min(part * each_, bytes_); }
  uint64_t End(size_t part) const { return Begin(part + 1); }

  // Calls `run` with each part, until the run stops.
  void Run(ByteWork work, absl::FunctionRef<void(size_t)> run) const {
    const auto one = [&](size_t part) {
      if (!work.control.Stops()) run(part);
    };
    if (work.workers != nullptr) return work.workers->Run(count(), one);
    for (size_t part = 0; part < count(); ++part) one(part);
  }

 private:
  uint64_t bytes_;
  uint64_t each_;
};

uint32_t WordAt(const std::byte* words, uint64_t index) {
  uint32_t word;
  std::memcpy(&word, words + index * sizeof(word), sizeof(word));
  return word;
}

// Word `index` of a bitmap, without bits that stand for no block.
uint32_t BlocksAt(const DeltaSizes& sizes, const std::byte* bitmap, uint64_t index) {
  const uint64_t left = sizes.blocks - index * kBlocksOfWord;
  const uint32_t word = WordAt(bitmap, index);
  return left >= kBlocksOfWord ? word : word & ((uint32_t{1} << left) - 1);
}

// What changed in a part.
struct Changed {
  uint64_t blocks = 0;
  Checksum checksum;
};

// Before each part: how many blocks have changed. Returns how many have in all.
uint64_t SumUp(std::vector<Changed>& parts) {
  uint64_t blocks = 0;
  for (Changed& part : parts) blocks += std::exchange(part.blocks, blocks);
  return blocks;
}

// Calls `block` with the offset, the size and the rank of each block between two bytes whose bit is
// set; `rank`: of the first one.
template <typename Block>
void ForEachBlock(const DeltaSizes& sizes, const std::byte* bitmap, uint64_t begin, uint64_t end,
                  uint64_t rank, Block block) {
  for (uint64_t at = begin; at < end; at += sizes.BytesOfWord()) {
    for (uint32_t word = BlocksAt(sizes, bitmap, at / sizes.BytesOfWord()); word != 0;
         word &= word - 1) {
      const uint64_t offset = at + static_cast<uint64_t>(std::countr_zero(word)) * sizes.block;
      block(offset, std::min(sizes.block, sizes.bytes - offset), rank++);
    }
  }
}

// Sets the bits of the blocks between two bytes that differ.
Changed Compare(const DeltaSizes& sizes, const std::byte* before, const std::byte* after,
                uint64_t begin, uint64_t end, const DeltaResults& out) {
  Changed changed;
  for (uint64_t at = begin; at < end; at += sizes.BytesOfWord()) {
    uint32_t word = 0;
    for (uint64_t i = 0; i < kBlocksOfWord; ++i) {
      const uint64_t offset = at + i * sizes.block;
      if (offset >= end) break;
      const uint64_t bytes = std::min(sizes.block, end - offset);
      if (std::memcmp(before + offset, after + offset, bytes) != 0) word |= uint32_t{1} << i;
      if (out.checksum != nullptr) {
        changed.checksum += ChecksumPartFast(after + offset, bytes, offset / kChecksumWord);
      }
    }
    changed.blocks += static_cast<uint64_t>(std::popcount(word));
    std::memcpy(out.bitmap + at / sizes.BytesOfWord() * sizeof(word), &word, sizeof(word));
  }
  return changed;
}

void PutChecksum(const Checksum& checksum, std::byte* out) {
  std::memcpy(out, &checksum.low, sizeof(checksum.low));
  std::memcpy(out + sizeof(checksum.low), &checksum.high, sizeof(checksum.high));
}

// The rows of values from `count` on are 0. Part `part` of `parts` does some of them.
void ClearRows(const DeltaSizes& sizes, uint64_t count, size_t part, size_t parts,
               std::byte* values) {
  if (count >= sizes.capacity) return;
  const uint64_t rows = sizes.capacity - count;
  const uint64_t begin = count + rows / parts * part;
  const uint64_t end = part + 1 == parts ? sizes.capacity : begin + rows / parts;
  std::memset(values + begin * sizes.block, 0, (end - begin) * sizes.block);
}

}  // namespace

void RunChecksum(const std::byte* data, uint64_t bytes, ByteWork work, std::byte* out) {
  const Parts parts(bytes, kChecksumWord);
  std::vector<Checksum> sums(parts.count());
  parts.Run(work, [&](size_t part) {
    const uint64_t begin = parts.Begin(part);
    sums[part] = ChecksumPartFast(data + begin, parts.End(part) - begin, begin / kChecksumWord);
  });
  Checksum all;
  for (const Checksum& sum : sums) all += sum;
  PutChecksum(WholeChecksum(all, bytes), out);
}

void RunDeltaEncode(const DeltaSizes& sizes, const std::byte* before, const std::byte* after,
                    ByteWork work, const DeltaResults& out) {
  const Parts parts(sizes.bytes, sizes.BytesOfWord());
  std::vector<Changed> changed(parts.count());
  parts.Run(work, [&](size_t part) {
    changed[part] = Compare(sizes, before, after, parts.Begin(part), parts.End(part), out);
  });
  if (work.control.stopped()) return;
  if (out.checksum != nullptr) {
    Checksum all;
    for (const Changed& part : changed) all += part.checksum;
    PutChecksum(WholeChecksum(all, sizes.bytes), out.checksum);
  }
  const auto count = static_cast<uint32_t>(SumUp(changed));
  if (out.count != nullptr) std::memcpy(out.count, &count, sizeof(count));
  if (out.values == nullptr) return;
  if (parts.count() == 0) return ClearRows(sizes, 0, 0, 1, out.values);
  parts.Run(work, [&](size_t part) {
    ForEachBlock(sizes, out.bitmap, parts.Begin(part), parts.End(part), changed[part].blocks,
                 [&](uint64_t offset, uint64_t bytes, uint64_t rank) {
                   if (rank >= sizes.capacity) return;
                   std::byte* const row = out.values + rank * sizes.block;
                   std::memcpy(row, after + offset, bytes);
                   std::memset(row + bytes, 0, sizes.block - bytes);
                 });
    ClearRows(sizes, count, part, parts.count(), out.values);
  });
}

void RunDeltaApply(const DeltaSizes& sizes, const std::byte* bitmap, const std::byte* values,
                   const std::byte* count, ByteWork work, std::byte* data) {
  const Parts parts(sizes.bytes, sizes.BytesOfWord());
  std::vector<Changed> changed(parts.count());
  parts.Run(work, [&](size_t part) {
    for (uint64_t at = parts.Begin(part); at < parts.End(part); at += sizes.BytesOfWord()) {
      const uint32_t word = BlocksAt(sizes, bitmap, at / sizes.BytesOfWord());
      changed[part].blocks += static_cast<uint64_t>(std::popcount(word));
    }
  });
  const uint64_t blocks = SumUp(changed);
  if (work.control.stopped() || blocks != WordAt(count, 0) || blocks > sizes.capacity) return;
  parts.Run(work, [&](size_t part) {
    ForEachBlock(sizes, bitmap, parts.Begin(part), parts.End(part), changed[part].blocks,
                 [&](uint64_t offset, uint64_t bytes, uint64_t rank) {
                   if (rank >= sizes.capacity) return;  // a client may change the bitmap meanwhile
                   std::memcpy(data + offset, values + rank * sizes.block, bytes);
                 });
  });
}

}  // namespace ferry::compute
