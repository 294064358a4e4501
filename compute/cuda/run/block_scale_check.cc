// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/block_scale_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/product_pieces.h"
#include "compute/numerics/convert.h"
#include "compute/numerics/scale_layout.h"
#include "device/cuda/cuda_stream.h"
#include "device/memory.h"

namespace ferry::compute {
namespace {

using Codes = std::vector<std::byte>;

struct Case {
  DType left, right, scales;
  int64_t block = 0, m = 0, n = 0, k = 0;
  DType result = DType::kF32;
  float global = 1;    // 1: there is none
  bool equal = false;  // all elements and scales are: sums lose most
};
// More than one tile of scales in both directions, and less than one; and sums as long as they
// become, to which others are added.
constexpr Case kCases[] = {
    {DType::kF8E4M3FN, DType::kF8E4M3FN, DType::kF8E8M0FNU, 32, 32, 64, 128},
    {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E8M0FNU, 32, 160, 144, 256, DType::kBF16, 0.375f},
    {DType::kF8E5M2, DType::kF8E4M3FN, DType::kF8E8M0FNU, 32, 144, 32, 512, DType::kF32, -2.5f},
    {DType::kF4E2M1FN, DType::kF4E2M1FN, DType::kF8E4M3FN, 16, 32, 64, 128},
    {DType::kF4E2M1FN, DType::kF4E2M1FN, DType::kF8E4M3FN, 16, 160, 192, 256, DType::kBF16, 0.375f},
    {DType::kF4E2M1FN, DType::kF4E2M1FN, DType::kF8E4M3FN, 16, 256, 32, 512, DType::kF32, -2.5f},
    {DType::kF8E4M3FN, DType::kF8E4M3FN, DType::kF8E8M0FNU, 32, 32, 32, 2 * kTermsOfBlocks,
     DType::kF32, 0.375f, true},
    {DType::kF4E2M1FN, DType::kF4E2M1FN, DType::kF8E4M3FN, 16, 32, 32, 2 * kTermsOfBlocks,
     DType::kF32, -2.5f, true},
};

std::string TextOf(const Case& of) {
  return absl::StrCat("a product of [", of.m, ",", of.k, "] by [", of.k, ",", of.n, "], ",
                      NameOf(of.left), " by ", NameOf(of.right), " to ", NameOf(of.result),
                      ", with scales of ", NameOf(of.scales), " for blocks of ", of.block,
                      of.global == 1 ? "" : absl::StrCat(" and the global scale ", of.global));
}

// A factor: elements of [-1, 1] with scales of 2^-4 to 1, or of [-6, 6] with an eighth of those
// scales. So sums are near 1, of which the bound is a small part.
struct Factor {
  Factor(DType type, int64_t rows, const Case& of, std::mt19937_64& random)
      : values(static_cast<size_t>(rows * of.k)) {
    const bool small = type == DType::kF4E2M1FN;
    const auto columns = static_cast<uint64_t>(of.k / of.block);
    std::vector<float> factors(static_cast<size_t>(rows) * columns);
    Codes plain(factors.size());
    for (size_t i = 0; i < factors.size(); ++i) {
      // As much of the generator as every standard library gives the same.
      const float scale = of.equal ? 1.125f
                                   : std::ldexp(1 + static_cast<float>(random() % 8) / 8,
                                                -static_cast<int>((small ? 4 : 1) + random() % 4));
      plain[i] = std::byte(EncodeFloat(of.scales, scale));
      factors[i] = DecodeFloat(of.scales, std::to_integer<uint32_t>(plain[i]));
    }
    scales.resize(SwizzledScaleBytes(static_cast<uint64_t>(rows), columns));
    SwizzleScales(plain.data(), static_cast<uint64_t>(rows), columns, scales.data());
    std::vector<float> elements(values.size());
    for (float& element : elements) {
      element = of.equal ? (small ? 1.5f : 1.125f)
                         : (small ? 6 : 1) * (static_cast<float>(random() % 2049) / 1024 - 1);
    }
    codes.resize(BytesOf(type, elements.size()));
    Convert(DType::kF32, reinterpret_cast<const std::byte*>(elements.data()), type, codes.data(),
            elements.size());
    Convert(type, codes.data(), DType::kF32, reinterpret_cast<std::byte*>(elements.data()),
            elements.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(elements[i]) *
                  static_cast<double>(factors[i / static_cast<size_t>(of.block)]);
    }
  }

  Codes codes;
  Codes scales;                // swizzled
  std::vector<double> values;  // [rows, k]: elements times their scales
};

GpuProduct ProductOf(const Case& of) {
  GpuProduct product;
  product.m = of.m;
  product.n = of.n;
  product.k = of.k;
  product.block = of.block;
  const auto matrix = [](DType type, int64_t row_stride) {
    GpuMatrix made;
    made.type = type;
    made.row_stride = row_stride;
    made.column_stride = 1;
    made.alignment = 256;
    return made;
  };
  product.left = matrix(of.left, of.k);
  product.right = matrix(of.right, of.k);
  product.result = matrix(of.result, of.n);
  for (GpuMatrix* factor : {&product.left, &product.right}) {
    factor->scales = GpuPlace();
    factor->scale_type = of.scales;
  }
  if (of.global != 1) product.factors = GpuPlace();
  product.workspace_bytes = kWorkspaceBytes;
  return product;
}

// The calls that a plan has for it. All that are pieces have at most 128 rows on each side, so that
// swizzled scales are those of the pieces, one behind the other.
std::vector<GpuProduct> CallsOf(const Case& of) {
  const GpuProduct product = ProductOf(of);
  return CallsOf(product, *PiecesOf(product, of.result));
}

// The GPU's memory, of which each piece begins at a multiple of 1,024 bytes.
class Pieces {
 public:
  Pieces(CudaStream& stream, std::byte* begin) : stream_(stream), at_(begin) {}
  std::byte* Take(uint64_t bytes) {
    std::byte* const piece = at_;
    at_ += (bytes + kTemporaryAlignment - 1) / kTemporaryAlignment * kTemporaryAlignment;
    return piece;
  }
  absl::StatusOr<std::byte*> Put(absl::Span<const std::byte> bytes) {
    std::byte* const piece = Take(bytes.size());
    RETURN_IF_ERROR(stream_.CopyBytes(piece, bytes.data(), bytes.size()));
    return piece;
  }

 private:
  CudaStream& stream_;
  std::byte* at_;
};
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // of all of a case, but the workspace

// What the library makes of the product.
absl::StatusOr<Codes> Multiply(const Case& of, const Factor& left, const Factor& right,
                               CublasLtProducts& products, CudaStream& stream, std::byte* memory) {
  Pieces pieces(stream, memory);
  CublasLtProducts::Memory at;
  at.workspace = pieces.Take(kWorkspaceBytes);
  ASSIGN_OR_RETURN(at.left, pieces.Put(left.codes));
  ASSIGN_OR_RETURN(at.right, pieces.Put(right.codes));
  ASSIGN_OR_RETURN(at.left_scales, pieces.Put(left.scales));
  ASSIGN_OR_RETURN(at.right_scales, pieces.Put(right.scales));
  const float factors[] = {of.global, 0, 1};
  ASSIGN_OR_RETURN(at.factors, pieces.Put(absl::MakeConstSpan(
                                   reinterpret_cast<const std::byte*>(factors), sizeof(factors))));
  // Not a number where the library writes nothing, or adds to what is there.
  Codes result(BytesOf(of.result, static_cast<uint64_t>(of.m * of.n)), std::byte{0xFF});
  ASSIGN_OR_RETURN(at.result, pieces.Put(result));
  for (const GpuProduct& call : CallsOf(of)) {
    CublasLtProducts::Memory of_call = at;
    of_call.left += call.left.place.offset;
    of_call.right += call.right.place.offset;
    of_call.left_scales += call.left.scales->offset;
    of_call.right_scales += call.right.scales->offset;
    RETURN_IF_ERROR(products.Queue(call, of_call, stream.handle()));
  }
  RETURN_IF_ERROR(stream.CopyBytes(result.data(), at.result, result.size()));
  RETURN_IF_ERROR(stream.Await());
  return result;
}

// The bound of docs/numerics.md for block scales in the tensor core.
absl::Status Compare(const Case& of, const Factor& left, const Factor& right, const Codes& result) {
  std::vector<float> got(static_cast<size_t>(of.m * of.n));
  Convert(of.result, result.data(), DType::kF32, reinterpret_cast<std::byte*>(got.data()),
          got.size());
  const double rounding = of.result == DType::kBF16 ? 0x1p-8 : 0x1p-24;
  for (int64_t i = 0; i < of.m; ++i) {
    for (int64_t j = 0; j < of.n; ++j) {
      const double* const a = &left.values[static_cast<size_t>(i * of.k)];
      const double* const b = &right.values[static_cast<size_t>(j * of.k)];
      double exact = 0;
      for (int64_t k = 0; k < of.k; ++k) exact += a[k] * b[k];
      exact *= static_cast<double>(of.global);
      const auto made = static_cast<double>(got[static_cast<size_t>(i * of.n + j)]);
      // What is not a number fails too.
      if (std::abs(made - exact) <= 1e-4 + (1e-5 + rounding) * std::abs(exact)) continue;
      return Error(absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
                   absl::StrCat("it has ", made, " instead of ", exact, " at [", i, ",", j, "] of ",
                                TextOf(of)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBlockScales(CudaDevice& device, CublasLtProducts& products) {
  for (const Case& of : kCases) {
    for (const GpuProduct& call : CallsOf(of)) RETURN_IF_ERROR(products.Ask(call));
  }
  CudaStream::Options options;
  options.staging_bytes = kPieceBytes + kWorkspaceBytes;
  options.kernel = false;
  options.background = true;
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaStream> stream, CudaStream::Make(device, options));
  std::mt19937_64 random(32);
  for (const Case& of : kCases) {
    const Factor left(of.left, of.m, of, random);
    const Factor right(of.right, of.n, of, random);
    ASSIGN_OR_RETURN(const Codes result,
                     Multiply(of, left, right, products, *stream, stream->staging()));
    RETURN_IF_ERROR(Compare(of, left, right, result));
  }
  return absl::OkStatus();
}

}  // namespace ferry::compute
