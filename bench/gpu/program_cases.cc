// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/program_cases.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ferry::bench {
namespace {

std::string Header(const ProgramCase& made) {
  std::string text = "program 1\n";
  for (const auto& [name, bytes] : made.buffers) {
    absl::StrAppend(&text, "buffer @", name, name == "x" ? " read " : " write ", bytes, "\n");
  }
  return text;
}

// Defines %key and %counter, of which rng_bits makes what is random.
constexpr char kRandomStream[] =
    "%key = constant splat=7 : u64[]\n%counter = constant splat=0 : u64[]\n";

// Random bits, of which some are 0 and some are 1.
struct Bits {
  uint32_t mask;
  uint32_t ones;
};
constexpr Bits kAnyBits = {0xFFFFFFFF, 0};
// f32, and pairs of bf16: of both signs, from 0.5 to 2.
constexpr Bits kF32 = {0x80FFFFFF, 0x3F000000};
constexpr Bits kBf16 = {0x80FF80FF, 0x3F003F00};
// Four f8e4m3fn below 2, of both signs, and four f8e8m0fnu of 1/8 to 1.
constexpr Bits kF8 = {0xBFBFBFBF, 0};
constexpr Bits kScales = {0x03030303, 0x7C7C7C7C};

// Has a buffer be filled with random bits before the case is measured: what zeros take is no
// measure.
void FillAtRandom(ProgramCase& made, const std::string& name, Bits bits) {
  uint64_t bytes = 0;
  for (const auto& [buffer, size] : made.buffers) bytes += buffer == name ? size : 0;
  const std::string type = absl::StrCat("u32[", bytes / 4, "]\n");
  const size_t number = made.filled.size();
  const auto value = [number](const char* of) { return absl::StrCat("%", of, number); };
  std::string text = absl::StrCat(
      value("r"), " = rng_bits %key, %counter : ", type, value("a"),
      " = constant splat=", bits.mask, " : ", type, value("o"), " = constant splat=", bits.ones,
      " : ", type, value("m"), " = and ", value("r"), ", ", value("a"), "\n", value("v"), " = or ",
      value("m"), ", ", value("o"), "\nstore @", name, ", ", value("v"), "\n");
  if (made.fill.empty()) made.fill = absl::StrCat("program 1\n", kRandomStream);
  // Buffers come first in a text.
  made.fill.insert(made.fill.find('\n') + 1,
                   absl::StrCat("buffer @", name, " write ", bytes, "\n"));
  made.fill += text;
  made.filled.push_back(name);
}

// Eight ops on each element, and a conversion.
ProgramCase Chain() {
  constexpr uint64_t kElements = uint64_t{64} << 20;
  ProgramCase made{"8 elementwise ops, f32 to bf16, 64 Mi elements",
                   "",
                   {{"x", 4 * kElements}, {"y", 2 * kElements}},
                   1.0};
  const std::string type = absl::StrCat("f32[", kElements, "]");
  made.text =
      absl::StrCat(Header(made), "%x = input @x : ", type, "\n%a = constant splat=0.5 : ", type,
                   "\n%b = constant splat=1.25 : ", type, "\n");
  std::string last = "x";
  int number = 0;
  for (const char* op :
       {"multiply", "add", "maximum", "subtract", "multiply", "add", "minimum", "multiply"}) {
    const std::string next = absl::StrCat("v", number);
    absl::StrAppend(&made.text, "%", next, " = ", op, " %", last, ", %",
                    number % 2 == 0 ? "a" : "b", "\n");
    last = next;
    ++number;
  }
  absl::StrAppend(&made.text, "%c = convert %", last, " : bf16[", kElements, "]\nstore @y, %c\n");
  FillAtRandom(made, "x", kF32);
  made.torch = "chain";
  return made;
}

ProgramCase Softmax() {
  constexpr uint64_t kBytes = uint64_t{8192} * 8192 * 2;
  ProgramCase made{"row softmax, bf16[8192,8192]", "", {{"x", kBytes}, {"y", kBytes}}, 0.95};
  made.text = absl::StrCat(
      Header(made),
      "%h = input @x : bf16[8192,8192]\n%x = convert %h : f32[8192,8192]\n"
      "%m = reduce %x reduction=max dimensions=[1]\n"
      "%mb = broadcast_in_dim %m dimensions=[0] : f32[8192,8192]\n%d = subtract %x, %mb\n"
      "%e = exponential %d\n%s = reduce %e reduction=sum dimensions=[1]\n"
      "%sb = broadcast_in_dim %s dimensions=[0] : f32[8192,8192]\n%q = divide %e, %sb\n"
      "%y = convert %q : bf16[8192,8192]\nstore @y, %y\n");
  FillAtRandom(made, "x", kBf16);
  made.torch = "softmax";
  return made;
}

ProgramCase RmsNorm() {
  constexpr uint64_t kBytes = uint64_t{8192} * 8192 * 2;
  ProgramCase made{"RMSNorm, bf16[8192,8192]", "", {{"x", kBytes}, {"y", kBytes}}, 0.95};
  made.text = absl::StrCat(
      Header(made),
      "%h = input @x : bf16[8192,8192]\n%x = convert %h : f32[8192,8192]\n"
      "%q = multiply %x, %x\n%s = reduce %q reduction=sum dimensions=[1]\n"
      "%n = constant splat=0.0001220703125 : f32[8192]\n%e = constant splat=0.00001 : f32[8192]\n"
      "%v = multiply %s, %n\n%w = add %v, %e\n%r = rsqrt %w\n"
      "%rb = broadcast_in_dim %r dimensions=[0] : f32[8192,8192]\n%y = multiply %x, %rb\n"
      "%c = convert %y : bf16[8192,8192]\nstore @y, %c\n");
  FillAtRandom(made, "x", kBf16);
  made.torch = "norm";
  return made;
}

ProgramCase Quantise() {
  constexpr uint64_t kElements = uint64_t{512} << 20;
  ProgramCase made{"quantise bf16 to MXFP8, 1 GiB",
                   "",
                   {{"x", 2 * kElements}, {"y", kElements}, {"s", kElements / 32}},
                   0.9};
  made.text = absl::StrCat(Header(made), "%x = input @x : bf16[65536,8192]\n",
                           "%q, %s = quantize_block %x block=32 : f8e4m3fn[65536,8192], "
                           "f8e8m0fnu[65536,256]\nstore @y, %q\nstore @s, %s\n");
  FillAtRandom(made, "x", kBf16);
  return made;
}

ProgramCase Dequantise() {
  constexpr uint64_t kElements = uint64_t{512} << 20;
  ProgramCase made{"dequantise MXFP8 to bf16, 1 GiB",
                   "",
                   {{"x", kElements}, {"s", kElements / 32}, {"y", 2 * kElements}},
                   0.9};
  made.text = absl::StrCat("program 1\nbuffer @x read ", kElements, "\nbuffer @s read ",
                           kElements / 32, "\nbuffer @y write ", 2 * kElements,
                           "\n%x = input @x : f8e4m3fn[65536,8192]\n"
                           "%s = input @s : f8e8m0fnu[65536,256]\n"
                           "%y = dequantize_block %x, %s : bf16[65536,8192]\nstore @y, %y\n");
  FillAtRandom(made, "x", kF8);
  FillAtRandom(made, "s", kScales);
  return made;
}

ProgramCase Transpose() {
  constexpr uint64_t kBytes = uint64_t{16384} * 16384 * 2;
  ProgramCase made{"transpose, bf16[16384,16384]", "", {{"x", kBytes}, {"y", kBytes}}, 0.85};
  made.text = absl::StrCat(Header(made), "%x = input @x : bf16[16384,16384]\n",
                           "%t = transpose %x permutation=[1,0]\nstore @y, %t\n");
  FillAtRandom(made, "x", kAnyBits);
  return made;
}

// What attention makes of one product, and what goes into one: queries, keys and values of 8,192
// tokens, from three buffers into one, and back.
ProgramCase Projections(bool concatenates) {
  constexpr uint64_t kPart = uint64_t{8192} * 4096 * 2;
  ProgramCase made{
      concatenates ? "concatenate QKV, bf16[8192,3x4096]" : "slice QKV, bf16[8192,3x4096]",
      "",
      {},
      0.9};
  std::string body = concatenates ? "" : "%x = input @x : bf16[8192,12288]\n";
  if (!concatenates) made.buffers.push_back({"x", 3 * kPart});
  for (int i = 0; i < 3; ++i) {
    made.buffers.push_back({absl::StrCat("p", i), kPart});
    if (concatenates) {
      absl::StrAppend(&body, "%p", i, " = input @p", i, " : bf16[8192,4096]\n");
    } else {
      absl::StrAppend(&body, "%p", i, " = slice %x start=[0,", 4096 * i, "] limit=[8192,",
                      4096 * (i + 1), "] : bf16[8192,4096]\nstore @p", i, ", %p", i, "\n");
    }
  }
  if (concatenates) {
    made.buffers.push_back({"y", 3 * kPart});
    body += "%y = concatenate %p0, %p1, %p2 dimension=1\nstore @y, %y\n";
  }
  made.text = "program 1\n";
  for (const auto& [name, bytes] : made.buffers) {
    const bool read = concatenates ? name != "y" : name == "x";
    absl::StrAppend(&made.text, "buffer @", name, read ? " read " : " write ", bytes, "\n");
  }
  made.text += body;
  if (!concatenates) FillAtRandom(made, "x", kAnyBits);
  for (int i = 0; i < (concatenates ? 3 : 0); ++i) {
    FillAtRandom(made, absl::StrCat("p", i), kAnyBits);
  }
  return made;
}

// A delta of 16 GiB of random bytes, of which one block of 4 KiB in 50 has changed.
constexpr uint64_t kDeltaBytes = uint64_t{16} << 30;
constexpr uint64_t kDeltaBlocks = kDeltaBytes / 4096;
constexpr uint64_t kDeltaRoom = kDeltaBlocks / 45;
constexpr uint64_t kDeltaChanged = (kDeltaBlocks + 49) / 50;
std::string DeltaTypes() {
  return absl::StrCat("u32[", kDeltaBlocks / 32, "], u8[", kDeltaRoom, ",4096], u32[], u64[2]");
}
// Defines %one, by block: 1 if it has changed, else 0.
std::string ChangedBlocks() {
  const std::string column = absl::StrCat("u32[", kDeltaBlocks, "]");
  return absl::StrCat(
      "%i = iota dimension=0 : ", column, "\n%by = constant splat=50 : ", column,
      "\n%r = remainder %i, %by\n%none = constant splat=0 : ", column,
      "\n%changed = compare %r, %none direction=eq\n%one = convert %changed : ", column, "\n");
}
// Defines %random.
std::string RandomBits(const std::string& type) {
  return absl::StrCat(kRandomStream, "%random = rng_bits %key, %counter : ", type, "\n");
}
std::string DeltaBuffer(absl::string_view name, absl::string_view access, uint64_t bytes) {
  return absl::StrCat("buffer @", name, " ", access, " ", bytes, "\n");
}

ProgramCase DeltaEncode(bool checksum) {
  const std::string type = absl::StrCat("u32[", kDeltaBlocks, ",1024]");
  ProgramCase made{
      checksum ? "delta of 16 GiB, 2 % changed, with checksum" : "delta of 16 GiB, 2 % changed",
      "",
      {{"old", kDeltaBytes},
       {"new", kDeltaBytes},
       {"bitmap", kDeltaBlocks / 8},
       {"values", kDeltaRoom * 4096},
       {"count", 4}},
      0.9};
  if (checksum) made.buffers.push_back({"sum", 16});
  made.text = "program 1\n";
  for (const auto& [name, bytes] : made.buffers) {
    made.text += DeltaBuffer(name, name == "old" || name == "new" ? "read" : "write", bytes);
  }
  absl::StrAppend(&made.text, "%old = input @old : ", type, "\n%new = input @new : ", type,
                  "\n%b, %v, %c, %s = delta_encode %old, %new : ", DeltaTypes(),
                  "\nstore @bitmap, %b\nstore @values, %v\nstore @count, %c\n",
                  checksum ? "store @sum, %s\n" : "");
  made.fill = absl::StrCat("program 1\n", DeltaBuffer("old", "write", kDeltaBytes),
                           DeltaBuffer("new", "write", kDeltaBytes), ChangedBlocks(),
                           RandomBits(type), "%add = broadcast_in_dim %one dimensions=[0] : ", type,
                           "\n%new = add %random, %add\nstore @old, %random\nstore @new, %new\n");
  made.filled = {"old", "new"};
  return made;
}

// By its time, of a copy of all; or, `of_changes`, of a copy of what changes.
ProgramCase DeltaApply(bool of_changes) {
  ProgramCase made{of_changes ? "apply that delta, of what changes"
                              : "apply that delta, us, of a copy of 16 GiB",
                   "",
                   {{"data", kDeltaBytes},
                    {"bitmap", kDeltaBlocks / 8},
                    {"values", kDeltaRoom * 4096},
                    {"count", 4}},
                   of_changes ? 0.5 : 0.1};
  if (of_changes) {
    made.counted = 2 * kDeltaChanged * 4096;
  } else {
    made.whole_copy = kDeltaBytes;
  }
  const std::string delta = absl::StrCat(DeltaBuffer("bitmap", "read", kDeltaBlocks / 8),
                                         DeltaBuffer("values", "read", kDeltaRoom * 4096),
                                         DeltaBuffer("count", "read", 4));
  made.text = absl::StrCat(
      "program 1\n", DeltaBuffer("data", "read_write", kDeltaBytes), delta,
      "%b = input @bitmap : u32[", kDeltaBlocks / 32, "]\n%v = input @values : u8[", kDeltaRoom,
      ",4096]\n%c = input @count : u32[]\ndelta_apply @data, %b, %v, %c bytes=", kDeltaBytes, "\n");
  const std::string bits = absl::StrCat("u32[", kDeltaBlocks / 32, ",32]");
  made.fill = absl::StrCat(
      "program 1\n", absl::StrReplaceAll(delta, {{" read ", " write "}}), ChangedBlocks(),
      RandomBits(absl::StrCat("u32[", kDeltaRoom * 1024, "]")), "%bits = reshape %one : ", bits,
      "\n%at = iota dimension=1 : ", bits, "\n%shifted = shift_left %bits, %at\n",
      "%words = reduce %shifted reduction=sum dimensions=[1]\nstore @bitmap, %words\n",
      "store @values, %random\n%all = constant splat=", kDeltaChanged, " : u32[]\n",
      "store @count, %all\n");
  made.filled = {"bitmap", "values", "count"};
  return made;
}

ProgramCase Checksum() {
  ProgramCase made{"checksum of 2 GiB", "", {{"x", uint64_t{2} << 30}, {"y", 16}}, 0.9};
  made.text = absl::StrCat(Header(made), "%x = input @x : u8[", uint64_t{2} << 30,
                           "]\n%s = checksum %x\nstore @y, %s\n");
  FillAtRandom(made, "x", kAnyBits);
  return made;
}

// Each column, or each row, is added up: as fast one way as the other. `ops`: after two ops on each
// element.
ProgramCase Sums(int dimension, bool ops) {
  constexpr uint64_t kSide = 16384;
  ProgramCase made{absl::StrCat(ops ? "2 ops and sums" : "sums", " over dimension ", dimension,
                                ", f32[16384,16384]"),
                   "",
                   {{"x", 4 * kSide * kSide}, {"y", 4 * kSide}},
                   0.9};
  made.text = absl::StrCat(Header(made), "%x = input @x : f32[16384,16384]\n",
                           ops ? "%a = abs %x\n%m = multiply %a, %x\n" : "", "%s = reduce ",
                           ops ? "%m" : "%x", " reduction=sum dimensions=[", dimension,
                           "]\nstore @y, %s\n");
  FillAtRandom(made, "x", kF32);
  return made;
}

}  // namespace

std::vector<ProgramCase> ProgramCases() {
  return {Chain(),         Softmax(),          RmsNorm(),         Quantise(),
          Dequantise(),    Transpose(),        Projections(true), Projections(false),
          Sums(0, false),  Sums(1, false),     Sums(0, true),     Sums(1, true),
          Checksum(),      DeltaEncode(false), DeltaEncode(true), DeltaApply(false),
          DeltaApply(true)};
}

std::string UnknownProgram(int number, uint64_t mebi) {
  const std::string type = absl::StrCat("f32[", mebi << 20, "]");
  std::string text = absl::StrCat("program 1\nbuffer @x read ", mebi << 22, "\nbuffer @y write ",
                                  mebi << 21, "\n%v0 = input @x : ", type,
                                  "\n%a = constant splat=", number, ".5 : ", type, "\n");
  for (int i = 1; i <= 39; ++i) {
    absl::StrAppend(&text, "%v", i, " = ", i % 2 == 0 ? "add" : "multiply", " %v", i - 1, ", %a\n");
  }
  return absl::StrCat(text, "%c = convert %v39 : bf16[", mebi << 20, "]\nstore @y, %c\n");
}

ProgramCase TinyProgram() {
  ProgramCase made{"10 tiny ops, prepared", "", {{"x", 16}, {"y", 16}}, 20};
  made.text = absl::StrCat(Header(made), "%v0 = input @x : f32[4]\n");
  for (int i = 1; i <= 10; ++i) {
    absl::StrAppend(&made.text, "%v", i, " = add %v", i - 1, ", %v0\n");
  }
  absl::StrAppend(&made.text, "store @y, %v10\n");
  return made;
}

}  // namespace ferry::bench
