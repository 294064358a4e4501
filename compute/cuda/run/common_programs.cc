// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/common_programs.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/cuda/compile/cubin_cache.h"
#include "compute/cuda/compile/kernel_store.h"
#include "compute/cuda/compile/packaged_kernels.h"
#include "compute/cuda/kernel_compiler.h"
#include "compute/cuda/run/gpu_program.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::compute {
namespace {

// Elements that blocks of threads take without a rest, and some that they do not.
constexpr int64_t kElements[] = {int64_t{1} << 20, (int64_t{1} << 20) + 8};
constexpr int64_t kRowsOfBlocks[] = {1024, 1025};  // of 1,024 elements
constexpr int64_t kHeldRows[] = {2048, 4096, 5120, 8192};
constexpr int64_t kDeltaBlocks[] = {256, 512, 1024, 4096};

uint64_t Bytes(absl::string_view type, int64_t elements) {
  const int bits = InfoOf(*DTypeOf(type)).bits;
  return static_cast<uint64_t>(elements * bits / 8);
}

// Buffers of so many elements, in the order of `named`: "x" is read, others are written.
std::string Buffers(const std::vector<std::pair<std::string, uint64_t>>& named) {
  std::string text = "program 1\n";
  for (const auto& [name, bytes] : named) {
    absl::StrAppend(&text, "buffer @", name, name[0] == 'x' ? " read " : " write ", bytes, "\n");
  }
  return text;
}

void AddCasts(std::vector<std::pair<std::string, std::string>>& texts) {
  constexpr absl::string_view kWide[] = {"f32", "bf16", "f16"};
  constexpr absl::string_view kNarrow[] = {"f8e4m3fn", "f8e5m2"};
  const auto add = [&](absl::string_view from, absl::string_view to, absl::string_view mode) {
    for (const int64_t n : kElements) {
      texts.emplace_back(absl::StrCat("cast ", from, " ", to, mode),
                         absl::StrCat(Buffers({{"x", Bytes(from, n)}, {"y", Bytes(to, n)}}),
                                      "%x = input @x : ", from, "[", n, "]\n%y = convert %x", mode,
                                      " : ", to, "[", n, "]\nstore @y, %y\n"));
    }
  };
  for (const absl::string_view a : kWide) {
    for (const absl::string_view b : kWide) {
      if (a != b) add(a, b, "");
    }
    for (const absl::string_view b : kNarrow) {
      add(a, b, " mode=saturate");
      add(b, a, "");
    }
  }
}

// Into a buffer, and of two buffers.
void AddSums(std::vector<std::pair<std::string, std::string>>& texts) {
  for (const absl::string_view type : {"f32", "bf16", "f16"}) {
    for (const int64_t n : kElements) {
      const uint64_t bytes = Bytes(type, n);
      const std::string of = absl::StrCat(" : ", type, "[", n, "]\n");
      texts.emplace_back(
          absl::StrCat("add ", type),
          absl::StrCat(Buffers({{"x", bytes}, {"x2", bytes}, {"y", bytes}}), "%x = input @x", of,
                       "%z = input @x2", of, "%y = add %x, %z\nstore @y, %y\n"));
      const std::string to = absl::StrCat("buffer @y read_write ", Bytes("f32", n), "\n");
      const std::string wide =
          type == "f32" ? "" : absl::StrCat("%w = convert %x : f32[", n, "]\n");
      texts.emplace_back(absl::StrCat("accumulate ", type),
                         absl::StrCat(Buffers({{"x", bytes}}), to, "%x = input @x", of, wide,
                                      "accumulate @y, %", type == "f32" ? "x" : "w", "\n"));
    }
  }
}

void AddBlockFormats(std::vector<std::pair<std::string, std::string>>& texts) {
  for (const absl::string_view type : {"bf16", "f32"}) {
    for (const int64_t rows : kRowsOfBlocks) {
      const int64_t n = rows * 1024;
      const std::string whole = absl::StrCat("[", rows, ",1024]");
      const std::string scales = absl::StrCat("f8e8m0fnu[", rows, ",32]");
      const auto n8 = static_cast<uint64_t>(n);
      texts.emplace_back(absl::StrCat("quantise ", type),
                         absl::StrCat(Buffers({{"x", Bytes(type, n)}, {"y", n8}, {"s", n8 / 32}}),
                                      "%x = input @x : ", type, whole,
                                      "\n%q, %s = quantize_block %x block=32 : ", "f8e4m3fn", whole,
                                      ", ", scales, "\nstore @y, %q\nstore @s, %s\n"));
      texts.emplace_back(
          absl::StrCat("dequantise ", type),
          absl::StrCat(Buffers({{"x", n8}, {"x2", n8 / 32}, {"y", Bytes(type, n)}}),
                       "%q = input @x : f8e4m3fn", whole, "\n%s = input @x2 : ", scales,
                       "\n%y = dequantize_block %q, %s : ", type, whole, "\nstore @y, %y\n"));
    }
  }
}

void AddBytesOps(std::vector<std::pair<std::string, std::string>>& texts) {
  texts.emplace_back("checksum",
                     "program 1\nbuffer @x read 1048576\nbuffer @y write 16\n"
                     "%x = input @x : u8[1048576]\n%s = checksum %x\nstore @y, %s\n");
  for (const int64_t block : kDeltaBlocks) {
    constexpr int64_t kBytes = int64_t{1} << 24;
    const int64_t blocks = kBytes / block;
    const std::string delta =
        absl::StrCat("u32[", blocks / 32, "], u8[16,", block, "], u32[], u64[2]");
    const auto buffers = [&](const char* access) {
      return absl::StrCat("buffer @bitmap ", access, " ", blocks / 8, "\nbuffer @values ", access,
                          " ", 16 * block, "\nbuffer @count ", access, " 4\n");
    };
    for (const bool checksum : {false, true}) {
      texts.emplace_back(
          absl::StrCat("delta_encode ", block),
          absl::StrCat("program 1\nbuffer @old read ", kBytes, "\nbuffer @new read ", kBytes, "\n",
                       buffers("write"), checksum ? "buffer @sum write 16\n" : "",
                       "%o = input @old : u8[", kBytes, "]\n%n = input @new : u8[", kBytes,
                       "]\n%b, %v, %c, %s = delta_encode %o, %n : ", delta,
                       "\nstore @bitmap, %b\nstore @values, %v\nstore @count, %c\n",
                       checksum ? "store @sum, %s\n" : ""));
    }
    texts.emplace_back(
        absl::StrCat("delta_apply ", block),
        absl::StrCat(
            "program 1\nbuffer @data read_write ", kBytes, "\n", buffers("read"),
            "%b = input @bitmap : u32[", blocks / 32, "]\n%v = input @values : u8[16,", block,
            "]\n%c = input @count : u32[]\ndelta_apply @data, %b, %v, %c bytes=", kBytes, "\n"));
  }
}

// As docs/programs writes them, of bf16 and of f32.
void AddNorms(std::vector<std::pair<std::string, std::string>>& texts) {
  constexpr char kSoftmax[] =
      "%m = reduce %x reduction=max dimensions=[1]\n"
      "%mb = broadcast_in_dim %m dimensions=[0] : f32[64,N]\n%d = subtract %x, %mb\n"
      "%e = exponential %d\n%s = reduce %e reduction=sum dimensions=[1]\n"
      "%sb = broadcast_in_dim %s dimensions=[0] : f32[64,N]\n%y = divide %e, %sb\n";
  constexpr char kRmsNorm[] =
      "%q = multiply %x, %x\n%s = reduce %q reduction=sum dimensions=[1]\n"
      "%n = constant splat=SHARE : f32[64]\n%e = constant splat=0.00001 : f32[64]\n"
      "%v = multiply %s, %n\n%w = add %v, %e\n%r = rsqrt %w\n"
      "%rb = broadcast_in_dim %r dimensions=[0] : f32[64,N]\n%y = multiply %x, %rb\n";
  constexpr char kWeighted[] =
      "%q = multiply %x, %x\n%s = reduce %q reduction=sum dimensions=[1]\n"
      "%n = constant splat=SHARE : f32[64]\n%e = constant splat=0.00001 : f32[64]\n"
      "%v = multiply %s, %n\n%m = add %v, %e\n%r = rsqrt %m\n"
      "%rb = broadcast_in_dim %r dimensions=[0] : f32[64,N]\n%u = multiply %x, %rb\n"
      "%w = input @w : f32[N]\n%wb = broadcast_in_dim %w dimensions=[1] : f32[64,N]\n"
      "%y = multiply %u, %wb\n";
  for (const int64_t row : kHeldRows) {
    const std::string share = absl::StrFormat("%.17g", 1.0 / static_cast<double>(row));
    for (const char* body : {kSoftmax, kRmsNorm, kWeighted}) {
      for (const absl::string_view type : {"bf16", "f32"}) {
        const bool narrow = type == "bf16";
        const uint64_t bytes = Bytes(type, 64 * row);
        const std::string text = absl::StrCat(
            Buffers({{"x", bytes}, {"y", bytes}}),
            body == kWeighted ? absl::StrCat("buffer @w read ", 4 * row, "\n") : "",
            narrow ? "%h = input @x : bf16[64,N]\n%x = convert %h : f32[64,N]\n"
                   : "%x = input @x : f32[64,N]\n",
            body, narrow ? "%c = convert %y : bf16[64,N]\nstore @y, %c\n" : "store @y, %y\n");
        texts.emplace_back(
            absl::StrCat(body == kSoftmax   ? "softmax "
                         : body == kRmsNorm ? "rmsnorm "
                                            : "weighted rmsnorm ",
                         type, " ", row),
            absl::StrReplaceAll(text, {{"N]", absl::StrCat(row, "]")}, {"SHARE", share}}));
      }
    }
  }
}

}  // namespace

std::vector<CommonProgram> CommonPrograms() {
  std::vector<std::pair<std::string, std::string>> texts;
  AddCasts(texts);
  AddSums(texts);
  AddBlockFormats(texts);
  AddBytesOps(texts);
  AddNorms(texts);
  std::vector<CommonProgram> programs;
  for (auto& [name, text] : texts) {
    ParsedText parsed = Parse(text);
    FERRY_CHECK(parsed.problems.empty() && Verify(parsed.program).empty());
    programs.push_back({std::move(name), Simplify(parsed.program)});
  }
  return programs;
}

absl::Status PackCommonKernels(const std::string& directory, const CompileChild::Options& compiler,
                               absl::Span<const GpuArch> archs) {
  ASSIGN_OR_RETURN(CubinCache package, CubinCache::Open(directory, CubinCache::Access::kOwn));
  std::set<std::string> wanted = {kPackagedVersionFile};
  CompileChild child(compiler);
  ASSIGN_OR_RETURN(const std::string version, child.Version());
  for (const CommonProgram& common : CommonPrograms()) {
    for (const GpuArch& arch : archs) {
      ASSIGN_OR_RETURN(const GpuPlan plan, GpuProgram::Plan(common.program, arch));
      for (const GpuKernel& kernel : plan.kernels) {
        const std::string key = PackagedKey(kernel, arch);
        wanted.insert(key);
        if (package.Find(key)) continue;
        ASSIGN_OR_RETURN(const CompiledKernel made, child.Compile(StoredSource(kernel), arch));
        RETURN_IF_ERROR(package.Add(key, made));
      }
    }
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!wanted.contains(entry.path().filename().string())) {
      std::filesystem::remove(entry.path(), error);
    }
  }
  std::ofstream file(absl::StrCat(directory, "/", kPackagedVersionFile));
  file << version << "\n";
  file.close();
  if (file) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
               absl::StrCat("write ", directory, "/", kPackagedVersionFile));
}

}  // namespace ferry::compute
