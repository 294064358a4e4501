// SPDX-License-Identifier: Apache-2.0
// checksum, delta_encode and delta_apply on the CPU: large tensors in many parts, deltas that do
// not fit, and the programs of docs/programs/ that send a delta.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compute/host/checksum_loops.h"
#include "compute/passes/passes.h"
#include "tests/compute/host/host_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;
using testing::Parsed;
using testing::RunOnHost;

uint32_t NumberIn(const Bytes& bytes) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data(), std::min(sizeof(number), bytes.size()));
  return number;
}

Checksum ChecksumOf(const Bytes& bytes) { return compute::ChecksumOf(bytes.data(), bytes.size()); }
Checksum ChecksumIn(const Bytes& bytes) {
  Checksum checksum;
  std::memcpy(&checksum.low, bytes.data(), sizeof(checksum.low));
  std::memcpy(&checksum.high, bytes.data() + sizeof(checksum.low), sizeof(checksum.high));
  return checksum;
}

// `old` becomes `new` by a delta that has room for `capacity` blocks.
std::string DeltaText(size_t bytes, size_t block, size_t capacity) {
  const size_t words = ((bytes + block - 1) / block + 31) / 32;
  const std::string type = absl::StrCat(" : u8[", bytes, "]\n");
  return absl::StrCat("program 1\nbuffer @old read_write ", bytes, " donated\nbuffer @new read ",
                      bytes, "\nbuffer @bitmap write ", words * 4, "\nbuffer @values write ",
                      capacity * block, "\nbuffer @count write 4\nbuffer @sum write 16\n",
                      "%old = input @old", type, "%new = input @new", type,
                      "%b, %v, %c, %s = delta_encode %old, %new : u32[", words, "], u8[", capacity,
                      ",", block, "], u32[], u64[2]\n",
                      "store @bitmap, %b\nstore @values, %v\nstore @count, %c\nstore @sum, %s\n",
                      "delta_apply @old, %b, %v, %c bytes=", bytes, "\n");
}

struct Case {
  size_t bytes;
  size_t block;
  std::vector<size_t> changed;  // blocks
};

std::vector<Bytes> BuffersOf(const Program& program, const Case& test) {
  std::vector<Bytes> buffers = testing::RandomBuffers(program, test.bytes);
  buffers[1] = buffers[0];
  for (const size_t block : test.changed) {
    const size_t end = std::min((block + 1) * test.block, test.bytes);
    buffers[1][end - 1] ^= std::byte{0x80};
  }
  return buffers;
}

TEST(DeltaTest, WhatIsAppliedIsWhatWasEncoded) {
  std::vector<size_t> all(600);
  std::iota(all.begin(), all.end(), 0);
  for (const Case& test :
       {Case{0, 64, {}}, Case{1, 64, {0}}, Case{64 * 33 + 5, 64, {0, 31, 32, 33}},
        Case{600 * 128, 128, all}, Case{5'000'003, 4096, {0, 7, 255, 256, 700, 1220}},
        Case{7'000'000, 256, {1, 5000, 20'000, 27'343}}}) {
    const Program program = Parsed(DeltaText(test.bytes, test.block, test.changed.size() + 3));
    const std::vector<Bytes> buffers = BuffersOf(program, test);
    for (const size_t threads : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(test.bytes, " bytes, ", threads, " threads"));
      const std::vector<Bytes> after = RunOnHost(Simplify(program), buffers, threads);
      EXPECT_TRUE(after[0] == buffers[1]);
      EXPECT_EQ(NumberIn(after[4]), test.changed.size());
      EXPECT_EQ(ChecksumIn(after[5]), ChecksumOf(buffers[1]));
      for (const size_t block : test.changed) {
        EXPECT_EQ(std::to_integer<int>(after[2][block / 8]) >> (block % 8) & 1, 1) << block;
      }
    }
    if (test.bytes < 100'000) {
      EXPECT_EQ(testing::DifferenceOf(program, buffers), "");
    }
  }
}

TEST(DeltaTest, WhatDoesNotFitIsNotApplied) {
  const Case test{64 * 100, 64, {3, 50, 99}};
  const Program program = Parsed(DeltaText(test.bytes, test.block, 2));
  const std::vector<Bytes> buffers = BuffersOf(program, test);
  const std::vector<Bytes> after = RunOnHost(Simplify(program), buffers);
  EXPECT_TRUE(after[0] == buffers[0]);
  EXPECT_EQ(NumberIn(after[4]), 3u);
  EXPECT_EQ(testing::DifferenceOf(program, buffers), "");
}

TEST(DeltaTest, ACountThatIsNotTheBitmapsIsNotApplied) {
  const Program program = Parsed(
      "program 1\nbuffer @data read_write 200\nbuffer @bitmap read 4\nbuffer @count read 4\n"
      "buffer @values read 256\n%b = input @bitmap : u32[1]\n%c = input @count : u32[]\n"
      "%v = input @values : u8[4,64]\ndelta_apply @data, %b, %v, %c bytes=200\n");
  std::vector<Bytes> buffers = testing::RandomBuffers(program, 1);
  const auto run = [&](uint32_t bitmap, uint32_t count) {
    std::memcpy(buffers[1].data(), &bitmap, 4);
    std::memcpy(buffers[2].data(), &count, 4);
    EXPECT_EQ(testing::DifferenceOf(program, buffers), "");
    return RunOnHost(program, buffers)[0] != buffers[0];
  };
  EXPECT_TRUE(run(0x9, 2));
  EXPECT_FALSE(run(0x9, 1));
  EXPECT_FALSE(run(0x9, 3));
  EXPECT_TRUE(run(0xFFFFFFF9, 2));  // bits beyond the last block stand for nothing
  EXPECT_TRUE(run(0xF, 4));
}

TEST(DeltaTest, OperandsMayBeInTheBytesThatAreWrittenOver) {
  const Program program = Parsed(
      "program 1\nbuffer @data read_write 300 donated\n%b = input @data : u32[1]\n"
      "%c = constant splat=2 : u32[]\n%v = input @data offset=44 : u8[4,64]\n"
      "delta_apply @data, %b, %v, %c bytes=300\n");
  std::vector<Bytes> buffers = testing::RandomBuffers(program, 1);
  const uint32_t bitmap = 0xA;
  std::memcpy(buffers[0].data(), &bitmap, 4);
  EXPECT_EQ(testing::DifferenceOf(program, buffers), "");
  EXPECT_TRUE(RunOnHost(program, buffers)[0] != buffers[0]);
}

TEST(DeltaTest, TheFastChecksumIsTheChecksum) {
  const Bytes bytes = testing::RandomBytes(3000, 1);
  for (size_t begin = 0; begin < 20; ++begin) {
    for (const size_t size : {0, 1, 8, 63, 64, 65, 127, 1000, 2980}) {
      EXPECT_EQ(ChecksumPartFast(bytes.data() + begin, size, begin * 1000),
                ChecksumPart(bytes.data() + begin, size, begin * 1000));
    }
  }
}

// The program, with buffers in place of what it sends and receives.
Program WithoutTransfers(const std::string& name) {
  std::ifstream file(std::string(PROGRAMS_DIRECTORY "/") + name + ".program");
  EXPECT_TRUE(file.is_open()) << name;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string sizes[][2] = {
      {"bitmap", "32"}, {"values", "65536"}, {"count", "4"}, {"sum", "16"}};
  std::string changed, buffers;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const bool sends = absl::StartsWith(line, "send");
    const size_t receives = line.find("= recv");
    for (const auto& [key, size] : sizes) {
      if (!absl::StrContains(line, absl::StrCat("key=\"", key, "\""))) continue;
      absl::StrAppend(&buffers, "buffer @via_", key, sends ? " write " : " read ", size, "\n");
      absl::StrAppend(&changed,
                      sends ? absl::StrCat("store @via_", key, ", %", key)
                            : absl::StrCat(line.substr(0, receives), "= input @via_", key, " ",
                                           line.substr(line.find(": "))),
                      "\n");
    }
    if (!sends && receives == std::string::npos) absl::StrAppend(&changed, line, "\n");
    if (absl::StrContains(line, "buffer") && absl::StrContains(line, "write 1048576")) {
      absl::StrAppend(&changed, "# here\n");
    }
  }
  return Simplify(Parsed(changed.replace(changed.find("# here\n"), 7, buffers)));
}

TEST(DeltaTest, DocumentedProgramsSendADelta) {
  const Program sends = WithoutTransfers("delta_send");
  const Program receives = WithoutTransfers("delta_receive");
  Bytes weights = testing::RandomBytes(1 << 20, 1);
  const Bytes before = weights;
  const auto sync = [&](size_t blocks) {
    for (size_t i = 0; i < blocks; ++i) weights[i * 17 * 4096 % weights.size()] ^= std::byte{1};
    std::vector<Bytes> sent(sends.buffers.size());
    for (size_t i = 0; i < sent.size(); ++i) sent[i].resize(sends.buffers[i].bytes);
    sent[0] = weights;
    sent[1] = before;
    sent = RunOnHost(sends, sent);
    EXPECT_EQ(NumberIn(sent.back()), blocks);
    EXPECT_EQ(sent[1] == weights, blocks <= 16);
    std::vector<Bytes> got = {before};
    for (size_t i = 2; i < 6; ++i) got.push_back(sent[i]);
    got.emplace_back(1);
    got = RunOnHost(receives, got);
    EXPECT_EQ(got[0] == weights, blocks <= 16);
    return std::to_integer<int>(got.back()[0]);
  };
  EXPECT_EQ(sync(16), 1);
  weights = before;
  EXPECT_EQ(sync(17), 0);
}

}  // namespace
}  // namespace ferry::compute
