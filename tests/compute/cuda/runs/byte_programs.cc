// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/byte_programs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/compute/parsed_program.h"

namespace ferry::compute::testing {
namespace {

std::string EncodeText(uint64_t bytes, uint64_t block, uint64_t capacity) {
  const uint64_t words = ((bytes + block - 1) / block + 31) / 32;
  return absl::StrCat("%b, %v, %c, %s = delta_encode %old, %new : u32[", words, "], u8[", capacity,
                      ",", block, "], u32[], u64[2]\n");
}

// The middle of the new bytes comes from elsewhere, the rest is as before.
Program Middle(uint64_t bytes, uint64_t block, uint64_t capacity, uint64_t offset) {
  const uint64_t begin = bytes / 3, end = begin + bytes / 5;
  const std::string type = absl::StrCat(" : u8[", bytes, "]\n");
  const auto slice = [&](const char* name, const char* from, uint64_t start, uint64_t limit) {
    return absl::StrCat("%", name, " = slice %", from, " start=[", start, "] limit=[", limit,
                        "]\n");
  };
  return ParsedProgram(absl::StrCat(
      "program 1\nbuffer @old read ", bytes + offset, "\nbuffer @other read ", bytes,
      "\nbuffer @data read_write ", bytes + offset, "\nbuffer @bitmap write 4096\nbuffer @values ",
      "write ", capacity * block + offset, "\nbuffer @count write 64\nbuffer @sum write 64\n",
      "%old = input @old offset=", offset, type, "%other = input @other", type,
      slice("x", "old", 0, begin), slice("y", "other", begin, end), slice("z", "old", end, bytes),
      "%new = concatenate %x, %y, %z dimension=0\n", EncodeText(bytes, block, capacity),
      "store @bitmap, %b offset=", offset, "\nstore @values, %v offset=", offset,
      "\nstore @count, %c offset=", offset, "\nstore @sum, %s offset=", offset,
      "\ndelta_apply @data, %b, %v, %c bytes=", bytes, " offset=", offset, "\n"));
}

}  // namespace

Program DeltaProgram(uint64_t bytes, uint64_t block, uint64_t capacity) {
  const uint64_t words = ((bytes + block - 1) / block + 31) / 32;
  const std::string type = absl::StrCat(" : u8[", bytes, "]");
  return ParsedProgram(absl::StrCat(
      "program 1\nbuffer @old read_write ", bytes, " donated\nbuffer @new read ", bytes,
      "\nbuffer @bitmap write ", words * 4, "\nbuffer @values write ", capacity * block,
      "\nbuffer @count write 4\nbuffer @sum write 16\nbuffer @is write 16\n", "%old = input @old",
      type, "\n%new = input @new", type, "\n", EncodeText(bytes, block, capacity),
      "store @bitmap, %b\nstore @values, %v\nstore @count, %c\nstore @sum, %s\n",
      "^a: delta_apply @old, %b, %v, %c bytes=", bytes, "\n%now = input @old", type,
      " after ^a\n%is = checksum %now\nstore @is, %is\n"));
}

std::vector<Program> BytePrograms() {
  std::vector<Program> programs;
  for (const uint64_t block : {64, 128, 256, 512, 1024, 2048, 4096}) {
    programs.push_back(Middle(block * 35 + block / 2 + 5, block, 12, 0));
  }
  programs.push_back(Middle(64 * 32 * 9 + 77, 64, 70, 0));  // several blocks of threads
  programs.push_back(Middle(64 * 32 * 9 + 77, 64, 7, 0));   // does not fit
  programs.push_back(Middle(128 * 40 + 1, 128, 20, 8));     // at odd addresses
  programs.push_back(Middle(512 * 10 + 511, 512, 20, 3));
  programs.push_back(DeltaProgram(64 * 40, 64, 40));
  programs.push_back(DeltaProgram(0, 64, 2));
  programs.push_back(DeltaProgram(1, 4096, 0));
  for (const char* type : {"u8[1]", "u8[70000]", "bf16[1027]", "f4e2m1fn[16,10]", "i64[0]"}) {
    programs.push_back(ParsedProgram(
        absl::StrCat("program 1\nbuffer @x read 70000\nbuffer @y write 16\n%x = input @x : ", type,
                     "\n%s = checksum %x\nstore @y, %s\n")));
  }
  for (const char* wanted : {"store @out, %b", "store @out, %v", "store @out, %c", "store @out, %s",
                             "store @out, %s strides=[3]", "accumulate @out, %v"}) {
    programs.push_back(ParsedProgram(absl::StrCat(
        "program 1\nbuffer @old read 700\nbuffer @new read 700\nbuffer @out read_write 1024\n",
        "%old = input @old : u8[700]\n%new = input @new : u8[700]\n", EncodeText(700, 64, 14),
        wanted, "\n")));
  }
  return programs;
}

}  // namespace ferry::compute::testing
