// SPDX-License-Identifier: Apache-2.0
// Block scales in tensor cores: only where a program allows it, and only by a library that was
// tried, on a GPU that is the CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/numerics/convert.h"
#include "compute/numerics/scale_layout.h"
#include "tests/compute/cuda/run/gpu_machine_fixture.h"
#include "tests/compute/product_text.h"

namespace ferry::compute {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kNative[] = "cuBLASLt 13.1.0, block scales by tensor cores";
constexpr char kDequantised[] = "cuBLASLt 13.1.0, block scales dequantised (";

struct Shape {
  std::string left = "f8e4m3fn", right = "f8e4m3fn", scales = "f8e8m0fnu", to = "f32";
  int64_t block = 32, m = 32, n = 48, k = 192;
  bool global = false;
  std::string accumulation = "native_block";
  int64_t more_rows = 0, more_columns = 0;  // of scales: what the blocks do not need
  bool swizzled = false;                    // so are the scales in their buffers
  std::string of_global = "f32";            // its type
};
const Shape kMx = {};
const Shape kMxMixed = {.left = "f8e5m2", .to = "bf16", .m = 144, .global = true};
const Shape kNv = {"f4e2m1fn", "f4e2m1fn", "f8e4m3fn", "f32", 16,
                   32,         160,        192,        true,  "native_block"};

std::string TextOf(const Shape& shape) {
  const auto bytes = [](const std::string& type, int64_t elements) {
    return BytesOf(*DTypeOf(type), static_cast<uint64_t>(elements));
  };
  const int64_t columns = shape.k / shape.block + shape.more_columns;
  std::string text = absl::StrCat("program 1\naccumulation ", shape.accumulation, "\n");
  std::string ops;
  const auto input = [&](const std::string& name, const std::string& type, int64_t rows,
                         int64_t of_row) {
    absl::StrAppend(&text, "buffer @", name, " read ", bytes(type, rows * of_row), "\n");
    absl::StrAppend(&ops, "%", name, " = input @", name, " : ", type, "[", rows, ",", of_row,
                    "]\n");
  };
  input("x", shape.left, shape.m, shape.k);
  input("w", shape.right, shape.n, shape.k);
  const auto scales = [&](const std::string& name, int64_t rows) {
    if (!shape.swizzled) return input(name, shape.scales, rows, columns);
    const uint64_t size =
        SwizzledScaleBytes(static_cast<uint64_t>(rows), static_cast<uint64_t>(columns));
    absl::StrAppend(&text, "buffer @", name, " read ", size, "\n");
    absl::StrAppend(&ops, "%", name, name, " = input @", name, " : ", shape.scales, "[", size,
                    "]\n%", name, " = unswizzle_scales %", name, name, " : ", shape.scales, "[",
                    rows, ",", columns, "]\n");
  };
  scales("s", shape.m + shape.more_rows);
  scales("t", shape.n + shape.more_rows);
  if (shape.global) {
    absl::StrAppend(&text, "buffer @g read ", bytes(shape.of_global, 1), "\n");
    absl::StrAppend(&ops, "%g = input @g : ", shape.of_global, "[]\n");
  }
  absl::StrAppend(&text, "buffer @y write ", bytes(shape.to, shape.m * shape.n), "\n", ops,
                  "%p = block_scaled_dot %x, %w, %s, %t", shape.global ? ", %g" : "",
                  " block=", shape.block, " : ", shape.to, "[", shape.m, ",", shape.n,
                  "]\nstore @y, %p\n");
  return text;
}

class NativeBlocksTest : public testing::GpuMachineFixture {
 protected:
  void SetUp() override {
    GpuMachineFixture::SetUp();
    arch_ = kGpuArchs[1];
  }
  void TearDown() override {
    machine_->Close();
    fake_cublaslt_configure(
        "version=130100;no_choice=0;no_blocks=0;drop_alpha=0;ignore_scales=0;plain_scales=0");
    EXPECT_EQ(Counts().handles, 0u);
    EXPECT_EQ(Counts().objects, 0u);
  }

  static fake_cublaslt_counts Counts() {
    fake_cublaslt_counts counts;
    fake_cublaslt_get_counts(&counts);
    return counts;
  }
  static Program ProgramOf(const Shape& shape) { return testing::ParsedProgram(TextOf(shape)); }

  // Elements and scales such that results are near 1.
  static std::vector<Bytes> Contents(const Program& program, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> among(-1, 1);
    std::vector<Bytes> made;
    for (const Buffer& buffer : program.buffers) made.emplace_back(buffer.bytes, std::byte{0xA5});
    for (const Node& node : program.nodes) {
      if (node.op != Op::kInput) continue;
      const TensorType& type = program.types[node.first_result];
      Bytes& bytes = made[node.buffers[0]];
      const bool scale = node.buffers[0] == 2 || node.buffers[0] == 3;
      std::vector<float> values(bytes.size() * 8 / InfoOf(type.dtype).bits);
      for (float& value : values) {
        value = scale ? (0.05f + std::abs(among(random)) / 2)
                      : among(random) * (type.dtype == DType::kF4E2M1FN ? 3 : 1);
        if (type.dims.empty()) value = 0.4375f;
      }
      Convert(DType::kF32, testing::BytesOfValues(values).data(), type.dtype, bytes.data(),
              values.size());
    }
    return made;
  }
  // Every scale that no block needs is no number.
  static void SpoilPadding(const Shape& shape, std::vector<Bytes>& contents) {
    const auto needed = static_cast<uint64_t>(shape.k / shape.block);
    const uint64_t columns = needed + static_cast<uint64_t>(shape.more_columns);
    for (const auto& [buffer, rows] : {std::pair(2, shape.m), {3, shape.n}}) {
      Bytes& scales = contents[static_cast<size_t>(buffer)];
      Bytes spoiled(scales.size(),
                    std::byte{shape.scales == "f8e8m0fnu" ? uint8_t{0xFF} : uint8_t{0x7F}});
      for (uint64_t row = 0; row < static_cast<uint64_t>(rows); ++row) {
        for (uint64_t c = 0; c < needed; ++c) {
          const uint64_t at =
              shape.swizzled ? SwizzledScaleOffset(row, c, columns) : row * columns + c;
          spoiled[at] = scales[at];
        }
      }
      scales = std::move(spoiled);
    }
  }
  static size_t Launches(const GpuProgram& made) {
    const std::vector<GpuCommand>& all = made.plan().commands;
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const GpuCommand& command) {
      return command.kind == GpuCommand::Kind::kLaunch;
    }));
  }
  // Runs a program that was made, and compares with the reference.
  void Compare(const Program& program, const GpuProgram& made) {
    CompareRun(program, made, Contents(program, 7));
  }
};

TEST_F(NativeBlocksTest, ARightLibraryTakesTheScales) {
  for (const Shape& shape : {kMx, kMxMixed, kNv}) {
    const Program program = ProgramOf(shape);
    const GpuProgram made = Made(program);
    EXPECT_EQ(made.multiplier(), kNative);
    EXPECT_TRUE(made.native_blocks());
    EXPECT_THAT(ToText(made.plan()), HasSubstr("accumulation=native_block"));
    Compare(program, made);
  }
}

// As its alpha, in f32, so a product with a global scale that is only stored is stored by the
// library.
TEST_F(NativeBlocksTest, TheGlobalScaleIsTheLibrarys) {
  const GpuProgram made = Made(ProgramOf(kNv));
  const GpuCommand& last = made.plan().commands.back();
  ASSERT_EQ(last.kind, GpuCommand::Kind::kProduct);
  EXPECT_TRUE(last.product.factors.has_value());
  EXPECT_EQ(last.product.result.place.kind, GpuPlace::Kind::kBuffer);
  EXPECT_FALSE(Made(ProgramOf(kMx)).plan().commands.back().product.factors.has_value());
}

// Whatever the result's type is; texts of 0.2 have it in that type.
TEST_F(NativeBlocksTest, TheGlobalScaleIsMadeF32) {
  for (const char* accumulation : {"native_block", "exact_products"}) {
    for (const char* type : {"f32", "bf16"}) {
      Shape shape = kMxMixed;
      shape.accumulation = accumulation;
      shape.of_global = type;
      const Program program = ProgramOf(shape);
      Compare(program, Made(program));
    }
  }
}

// What it gets wrong, or lacks, is told, and the results are right.
TEST_F(NativeBlocksTest, AWrongLibraryIsNotUsed) {
  for (const auto& [settings, why] : std::vector<std::pair<std::string, std::string>>{
           {"drop_alpha=1", " and the global scale 0.375)"},
           {"ignore_scales=1", "] of a product of [32,128] by [128,64], f8e4m3fn by f8e4m3fn"},
           {"plain_scales=1", "it has "},
           {"no_blocks=1", "find out how by cuBLASLt 13.1.0: CUBLAS_STATUS_NOT_SUPPORTED)"},
       }) {
    fake_cublaslt_configure("drop_alpha=0;ignore_scales=0;plain_scales=0;no_blocks=0");
    fake_cublaslt_configure(settings.c_str());
    UseLibrary(FAKE_CUBLASLT_LIBRARY);  // nothing is known of it
    for (const Shape& shape : {kMx, kMxMixed, kNv}) {
      const Program program = ProgramOf(shape);
      const GpuProgram made = Made(program);
      EXPECT_THAT(made.multiplier(), AllOf(StartsWith(kDequantised), HasSubstr(why))) << settings;
      EXPECT_FALSE(made.native_blocks());
      EXPECT_THAT(ToText(made.plan()),
                  AllOf(HasSubstr("product cublaslt"), Not(HasSubstr("block="))));
      Compare(program, made);
    }
  }
}

// Its version is not looked at: it does not know what it is told.
TEST_F(NativeBlocksTest, ALibraryThatIsTooOldIsNotUsed) {
  std::string another = FAKE_CUBLASLT_LIBRARY;  // by a name by which it is not open yet
  another.insert(another.rfind('/'), "/./.");
  fake_cublaslt_configure("version=120604");
  UseLibrary(another);
  const Program program = ProgramOf(kMx);
  const GpuProgram made = Made(program);
  EXPECT_THAT(made.multiplier(),
              AllOf(StartsWith("cuBLASLt 12.6.4, block scales dequantised (multiply "),
                    EndsWith("describe it by cuBLASLt 12.6.4: CUBLAS_STATUS_INVALID_VALUE)")));
  Compare(program, made);
}

TEST_F(NativeBlocksTest, AGpuWithoutBlockScalesIsNotTried) {
  arch_ = kGpuArchs[0];
  const uint64_t before = Counts().products;
  const Program program = ProgramOf(kMx);
  const GpuProgram made = Made(program);
  EXPECT_EQ(made.multiplier(), absl::StrCat(kDequantised, "the tensor cores of sm_90a take none)"));
  EXPECT_EQ(Counts().products, before);
  Compare(program, made);
}

TEST_F(NativeBlocksTest, AProgramThatDoesNotAllowItIsNeverDoneSo) {
  const uint64_t before = Counts().products;
  for (const char* accumulation : {"exact_products", "fp8_tc", "fp8_tc_fast"}) {
    Shape shape = kMx;
    shape.accumulation = accumulation;
    const Program program = ProgramOf(shape);
    const GpuProgram made = Made(program);
    EXPECT_EQ(made.multiplier(), "cuBLASLt 13.1.0");
    EXPECT_THAT(ToText(made.plan()), Not(HasSubstr("block=")));
    EXPECT_EQ(Counts().products, before) << "nothing is tried";
  }
}

// To whole tiles of the order that tensor cores read, beyond them, or to rows alone: what is more
// than the blocks need does not count, whatever it is.
TEST_F(NativeBlocksTest, PaddedScalesAreTakenToo) {
  for (Shape shape : {kMx, kMxMixed, kNv}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {96, 0}, {112, 4}, {200, 7}}) {
      shape.k = shape.block == 32 ? 192 : 608;  // 6 and 38 blocks: no whole tiles
      shape.more_rows = rows;
      shape.more_columns = columns;
      const Program program = ProgramOf(shape);
      const GpuProgram made = Made(program);
      EXPECT_EQ(made.multiplier(), kNative) << rows << " " << columns;
      std::vector<Bytes> contents = Contents(program, 7);
      SpoilPadding(shape, contents);
      CompareRun(program, made, contents);
    }
  }
}

// Their buffers are the library's, whatever fills up rows.
TEST_F(NativeBlocksTest, ScalesThatComeSwizzledStayAsTheyAre) {
  for (Shape shape : {kMx, kMxMixed, kNv}) {
    shape.k = 256;
    shape.global = false;
    shape.swizzled = true;
    for (const int64_t more_rows : {0, 200}) {
      shape.more_rows = more_rows;
      const Program program = ProgramOf(shape);
      const GpuProgram made = Made(program);
      EXPECT_EQ(made.multiplier(), kNative);
      EXPECT_EQ(Launches(made), 0u) << ToText(made.plan());
      EXPECT_THAT(ToText(made.plan()), AllOf(HasSubstr(" scales @s "), HasSubstr(" scales @t ")));
      std::vector<Bytes> contents = Contents(program, 7);
      SpoilPadding(shape, contents);
      CompareRun(program, made, contents);
    }
  }
}

// What fills up a tile's columns would count, so such tiles are made anew. So they are where
// factors are dequantised.
TEST_F(NativeBlocksTest, SwizzledScalesOfPartsOfTilesAreRightToo) {
  for (const char* accumulation : {"native_block", "exact_products"}) {
    for (Shape shape : {kMx, kNv}) {
      shape.accumulation = accumulation;
      shape.swizzled = true;
      for (const int64_t more_columns : {0, 2, 7}) {
        shape.k = shape.block == 32 ? 192 : 608;
        shape.more_columns = more_columns;
        const Program program = ProgramOf(shape);
        const GpuProgram made = Made(program);
        EXPECT_EQ(made.native_blocks(), shape.accumulation == "native_block");
        std::vector<Bytes> contents = Contents(program, 7);
        SpoilPadding(shape, contents);
        CompareRun(program, made, contents);
      }
    }
  }
}

// Closed after so many terms that their bound holds, at tiles of scales; whatever came padded or
// swizzled, and where tiles of a piece do not follow each other.
TEST_F(NativeBlocksTest, LongSumsAreMadeInPieces) {
  for (const int64_t m : {32, 144}) {
    for (const bool swizzled : {false, true}) {
      for (Shape shape : {kMx, kNv}) {
        shape.m = m;
        shape.n = 16;
        shape.k = 3072 - 128 + (swizzled ? 0 : 32);  // pieces of 1,024, and less
        shape.swizzled = swizzled;
        shape.more_columns = swizzled ? 0 : 1;
        shape.more_rows = 1;
        const Program program = ProgramOf(shape);
        const GpuProgram made = Made(program);
        EXPECT_EQ(made.multiplier(), kNative);
        std::vector<int64_t> terms;
        for (const GpuCommand& command : made.plan().commands) {
          if (command.kind != GpuCommand::Kind::kProduct) continue;
          EXPECT_EQ(command.product.adds, !terms.empty());
          terms.push_back(command.product.k);
        }
        EXPECT_THAT(terms, ElementsAre(1024, 1024, shape.k - 2048));
        std::vector<Bytes> contents = Contents(program, 7);
        SpoilPadding(shape, contents);
        CompareRun(program, made, contents);
      }
    }
  }
}

// One running sum of the tensor cores would lose more than the bound: beside its first block each
// of the others is cut off a little.
TEST_F(NativeBlocksTest, ALongSumKeepsItsBound) {
  for (Shape shape : {kMx, kNv}) {
    shape.m = 16;
    shape.n = 16;
    shape.k = 66 * 1024;  // more pieces than go into one sum
    shape.global = false;
    const bool mx = shape.block == 32;
    const double element = mx ? 1.125 : 1.5;
    const double first = mx ? 1024 : 448;  // scale
    const double next = mx ? 1 : 1.125;
    const Program program = ProgramOf(shape);
    std::vector<Bytes> contents = Contents(program, 7);
    for (const size_t side : {0, 1}) {
      const std::string& type = side == 0 ? shape.left : shape.right;
      contents[side] = testing::ElementsOf(
          *DTypeOf(type), std::vector<double>(static_cast<size_t>(16 * shape.k), element));
      std::vector<double> scales(contents[side + 2].size(), next);
      for (size_t i = 0; i < scales.size(); i += scales.size() / 16) scales[i] = first;
      contents[side + 2] = testing::ElementsOf(*DTypeOf(shape.scales), scales);
    }
    const GpuProgram made = Made(program);
    EXPECT_TRUE(made.native_blocks());
    Memory memory = Bind(made, contents);
    GpuMachine::Aside aside;
    ASSERT_TRUE(Run(made, memory, aside).ok());
    const absl::Span<std::byte> result = memory.buffers[4];
    const std::vector<double> got =
        testing::NumbersOf(DType::kF32, Bytes(result.begin(), result.end()), 1);
    const auto blocks = static_cast<double>(shape.k / shape.block);
    const double exact = element * element * static_cast<double>(shape.block) *
                         (first * first + (blocks - 1) * next * next);
    EXPECT_NEAR(got[0], exact, exact * 0x1p-17);
  }
}

// So many calls would take longer than to dequantise.
TEST_F(NativeBlocksTest, TooManyPiecesAreDequantised) {
  Shape shape = kMx;
  shape.m = 16;
  shape.n = 16;
  shape.k = int64_t{1} << 19;
  const GpuProgram made = Made(ProgramOf(shape));
  EXPECT_FALSE(made.native_blocks());
  EXPECT_THAT(ToText(made.plan()), HasSubstr("product cublaslt"));
}

// Scales that the product's own step makes are in memory before anything is made of them.
TEST_F(NativeBlocksTest, ScalesMayBeComputed) {
  for (const char* accumulation : {"native_block", "exact_products"}) {
    for (Shape shape : {kMx, kNv}) {
      shape.accumulation = accumulation;
      std::string text = TextOf(shape);
      for (const char* name : {"s", "t"}) {
        const std::string input = absl::StrCat("input @", name, " : ");
        absl::StrReplaceAll({{absl::StrCat("%", name, " = ", input, shape.scales),
                              absl::StrCat("%", name, "8 = ", input, "u8")}},
                            &text);
      }
      const auto dims = [&](int64_t rows) {
        return absl::StrCat(" : ", shape.scales, "[", rows, ",", shape.k / shape.block, "]\n");
      };
      absl::StrReplaceAll(
          {{"%p = ", absl::StrCat("%s = bitcast_convert %s8", dims(shape.m),
                                  "%t = bitcast_convert %t8", dims(shape.n), "%p = ")}},
          &text);
      const Program program = testing::ParsedProgram(text);
      std::vector<Bytes> contents = Contents(ProgramOf(shape), 7);
      CompareRun(program, Made(program), contents);
    }
  }
}

TEST_F(NativeBlocksTest, ALibraryIsTriedOnce) {
  EXPECT_EQ(Made(ProgramOf(kMx)).multiplier(), kNative);
  const uint64_t before = Counts().products;
  EXPECT_GT(before, 0u);
  EXPECT_EQ(Made(ProgramOf(kNv)).multiplier(), kNative);
  EXPECT_EQ(Counts().products, before);
}

// That says nothing of what it multiplies.
TEST_F(NativeBlocksTest, ATryThatFailsIsMadeAgain) {
  fake_cublaslt_configure("fail_queue=2");
  const Program program = ProgramOf(kMx);
  const absl::Status status = GpuProgram::Make(program, arch_, store_, multiplier_.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), StartsWith("try block scales: multiply "));
  EXPECT_EQ(Made(program).multiplier(), kNative);
}

TEST_F(NativeBlocksTest, AProductThatTheLibraryRefusesIsDequantised) {
  Shape shape = kMx;
  shape.n = 40;  // no multiple of 16
  const Program program = ProgramOf(shape);
  const GpuProgram made = Made(program);
  EXPECT_THAT(made.multiplier(),
              AllOf(StartsWith(absl::StrCat(kDequantised, "multiply 1 x [32,192] by [192,40]")),
                    HasSubstr("scales of f8e8m0fnu for blocks of 32"),
                    EndsWith("CUBLAS_STATUS_NOT_SUPPORTED)")));
  Compare(program, made);
}

TEST_F(NativeBlocksTest, BlocksThatTensorCoresLackAreDequantised) {
  Shape shape = kMx;
  shape.block = 64;
  const Program program = ProgramOf(shape);
  const GpuProgram made = Made(program);
  EXPECT_EQ(made.multiplier(),
            absl::StrCat(kDequantised,
                         "of none the types, the sizes and the scales are those that they take)"));
  Compare(program, made);
}

}  // namespace
}  // namespace ferry::compute
