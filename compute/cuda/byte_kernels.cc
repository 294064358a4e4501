// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/byte_kernels.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/cuda/kernel_text.h"

namespace ferry::compute {
namespace {

// As in kernels/bytes.cuh.
constexpr uint32_t kByteThreads = 256;
constexpr uint64_t kByteWarps = kByteThreads / 32;
constexpr uint64_t kTileBytes = kByteThreads * 16 * 4;

constexpr uint64_t kUnits = 4096;    // blocks of threads that keep every GPU busy
constexpr uint64_t kMostWords = 32;  // of the bitmap, one for each thread of a warp

uint64_t Quotient(uint64_t count, uint64_t part) { return (count + part - 1) / part; }

// How the words of a bitmap are divided.
struct Division {
  uint64_t words = 1;  // of a warp
  uint64_t units = 1;  // blocks of threads
};
Division Divide(const DeltaSizes& sizes) {
  Division made;
  made.words = std::clamp<uint64_t>(sizes.words / (kUnits * kByteWarps), 1, kMostWords);
  made.units = std::max<uint64_t>(Quotient(sizes.words, made.words * kByteWarps), 1);
  return made;
}

// One launch: a call of a function of kernels/bytes.cuh.
class Call {
 public:
  explicit Call(std::string function) : function_(std::move(function)) {
    text_.AddGlobal("#include \"bytes.cuh\"\n");
  }
  Call& Read(uint32_t place) { return Point(false, KernelArgument::Kind::kBuffer, place); }
  Call& Write(uint32_t place) { return Point(true, KernelArgument::Kind::kBuffer, place); }
  Call& ReadScratch(uint32_t i) { return Point(false, KernelArgument::Kind::kScratch, i); }
  Call& WriteScratch(uint32_t i) { return Point(true, KernelArgument::Kind::kScratch, i); }
  Call& Nothing() {
    arguments_.push_back("nullptr");
    return *this;
  }
  Call& Number(uint64_t number) {
    arguments_.push_back(text_.Number(static_cast<int64_t>(number)));
    return *this;
  }
  void AddTo(KernelCode& code, uint64_t units) {
    text_.Add(absl::StrCat(function_, "(", absl::StrJoin(arguments_, ", "), ");"));
    code.launches.push_back(text_.Finish(units, kByteThreads));
  }

 private:
  Call& Point(bool written, KernelArgument::Kind kind, uint32_t index) {
    arguments_.push_back(text_.Pointer(written, kind, index, 0));
    return *this;
  }

  KernelText text_{/*wide=*/true, /*baked=*/false};
  std::string function_;
  std::vector<std::string> arguments_;
};

// "Name<a, b>"
template <typename... Arguments>
std::string Function(absl::string_view name, Arguments... arguments) {
  return absl::StrCat(name, "<", absl::StrJoin(std::make_tuple(arguments...), ", "), ">");
}

uint32_t Least(uint32_t a, uint32_t b) { return std::min({a, b, 16u}); }

// Places: the bytes, the checksum.
KernelCode WriteChecksum(uint64_t bytes, absl::Span<const uint32_t> alignments) {
  KernelCode code;
  const uint64_t units = std::clamp<uint64_t>(Quotient(bytes, kTileBytes), 1, kUnits);
  code.scratch = {units * 16};
  Call(Function("SumBytes", Least(alignments[0], 16)))
      .Read(0)
      .Number(bytes)
      .Number(units)
      .WriteScratch(0)
      .AddTo(code, units);
  Call(Function("AddUp", 4, Least(alignments[1], 16)))
      .Nothing()
      .ReadScratch(0)
      .Number(units)
      .Number(bytes)
      .Nothing()
      .Write(1)
      .AddTo(code, 1);
  return code;
}

// Places: old and new bytes, then the four results.
KernelCode WriteDeltaEncode(const DeltaSizes& sizes, const DeltaWanted& wanted,
                            absl::Span<const uint32_t> alignments) {
  enum : uint32_t { kBefore, kAfter, kBitmap, kValues, kCount, kChecksum };
  KernelCode code;
  const Division division = Divide(sizes);
  code.scratch = {(division.units + 1) * 8};
  if (wanted.checksum) code.scratch.push_back(division.units * 16);
  const uint32_t word_align = Least(alignments[kBitmap], 16);
  Call compare(Function("CompareBlocks", sizes.block,
                        Least(alignments[kBefore], alignments[kAfter]), word_align,
                        wanted.checksum ? "true" : "false"));
  compare.Read(kBefore).Read(kAfter).Number(sizes.bytes).Number(division.words);
  compare.Write(kBitmap).WriteScratch(0);
  (wanted.checksum ? compare.WriteScratch(1) : compare.Nothing()).AddTo(code, division.units);

  Call add(Function("AddUp", Least(alignments[kCount], 16), Least(alignments[kChecksum], 16)));
  add.WriteScratch(0);
  wanted.checksum ? add.ReadScratch(1) : add.Nothing();
  add.Number(division.units).Number(sizes.bytes);
  wanted.count ? add.Write(kCount) : add.Nothing();
  (wanted.checksum ? add.Write(kChecksum) : add.Nothing()).AddTo(code, 1);

  if (!wanted.values || sizes.capacity == 0) return code;
  Call(Function("MoveBlocks", sizes.block, Least(alignments[kAfter], alignments[kValues]),
                word_align, "true"))
      .Read(kBitmap)
      .ReadScratch(0)
      .Number(division.units)
      .Number(division.words)
      .Number(sizes.bytes)
      .Number(sizes.capacity)
      .Read(kAfter)
      .Write(kValues)
      .AddTo(code, division.units);
  return code;
}

// Places: bitmap, values, count, and the bytes that are written over.
KernelCode WriteDeltaApply(const DeltaSizes& sizes, absl::Span<const uint32_t> alignments) {
  enum : uint32_t { kBitmap, kValues, kCount, kData };
  KernelCode code;
  if (sizes.capacity == 0 || sizes.blocks == 0) return code;  // there is nothing to write
  const Division division = Divide(sizes);
  code.scratch = {(division.units + 1) * 8};
  const uint32_t word_align = Least(alignments[kBitmap], 16);
  Call(Function("CountBlocks", sizes.block, word_align))
      .Read(kBitmap)
      .Number(sizes.bytes)
      .Number(division.words)
      .WriteScratch(0)
      .AddTo(code, division.units);
  Call(Function("AddUp", 4, 8))
      .WriteScratch(0)
      .Nothing()
      .Number(division.units)
      .Number(sizes.bytes)
      .Nothing()
      .Nothing()
      .AddTo(code, 1);
  Call(Function("ApplyBlocks", sizes.block, Least(alignments[kValues], alignments[kData]),
                word_align, Least(alignments[kCount], 16)))
      .Read(kBitmap)
      .ReadScratch(0)
      .Read(kCount)
      .Number(division.units)
      .Number(division.words)
      .Number(sizes.bytes)
      .Number(sizes.capacity)
      .Read(kValues)
      .Write(kData)
      .AddTo(code, division.units);
  return code;
}

}  // namespace

KernelCode WriteBytesOp(const Program& program, const Node& node, const DeltaWanted& wanted,
                        absl::Span<const uint32_t> alignments) {
  if (node.op == Op::kChecksum) {
    return WriteChecksum(*BytesOf(program.types[node.operands[0]]), alignments);
  }
  const DeltaSizes sizes = DeltaSizesOf(program, node);
  return node.op == Op::kDeltaEncode ? WriteDeltaEncode(sizes, wanted, alignments)
                                     : WriteDeltaApply(sizes, alignments);
}

}  // namespace ferry::compute
