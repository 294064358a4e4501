// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/product_pieces.h"

#include <algorithm>

namespace ferry::compute {
namespace {

constexpr int64_t kUnit = 64;  // pieces are multiples of it, so that all begin at aligned places
// Elements of results that a GPU is busy with; with fewer, several pieces are made at a time.
constexpr int64_t kBusyWith = int64_t{4} << 20;

bool IsNarrow(DType type) { return type == DType::kBF16 || type == DType::kF16; }

int64_t MostTerms(DType factors, DType result) {
  if (!IsNarrow(factors)) return kTermsOfWide;
  if (IsNarrow(result)) return kTermsOfRounded;
  return factors == DType::kF16 ? kTermsOfF16 : kTermsOfBf16;
}

// How many parts of `most` a whole has.
int64_t PartsOf(int64_t whole, int64_t most) { return (whole + most - 1) / most; }

// The factor from term `first` on.
void MoveTo(int64_t first, GpuMatrix& factor) {
  const auto elements = static_cast<uint64_t>(first * factor.column_stride);
  factor.place.offset += BytesOf(factor.type, elements);
  while (factor.place.offset % factor.alignment != 0) factor.alignment /= 2;
}

}  // namespace

std::optional<ProductPieces> PiecesOf(const GpuProduct& product, DType result) {
  const int64_t most = MostTerms(product.left.type, result);
  if (product.k <= most || product.block > 0) return ProductPieces{product.k, 1, 0, 1};
  ProductPieces pieces;
  pieces.length = PartsOf(PartsOf(product.k, PartsOf(product.k, most)), kUnit) * kUnit;
  pieces.whole = product.k / pieces.length;
  pieces.rest = product.k % pieces.length;
  if (product.batches > 1) {
    if (pieces.whole > kPiecesOfBatch) return std::nullopt;
    return pieces;
  }
  const int64_t least = PartsOf(pieces.whole, kPiecesOfSum);
  const int64_t busy = kBusyWith / product.m / product.n;
  pieces.sums = std::clamp(busy, least, pieces.whole);
  return pieces;
}

std::vector<GpuProduct> CallsOf(const GpuProduct& product, const ProductPieces& pieces) {
  if (pieces.one()) return {product};
  std::vector<GpuProduct> calls;
  const auto add = [&](int64_t first, int64_t terms, int64_t count) {
    GpuProduct call = product;
    call.k = terms;
    call.adds = first > 0;
    MoveTo(first, call.left);
    MoveTo(first, call.right);
    if (count > 1) {  // of a product without batches
      call.batches = count;
      call.left.batch_stride = terms * call.left.column_stride;
      call.right.batch_stride = terms * call.right.column_stride;
      call.result.batch_stride = product.m * product.n;
    }
    calls.push_back(call);
  };
  for (int64_t piece = 0; piece < pieces.whole; piece += pieces.sums) {
    add(piece * pieces.length, pieces.length, std::min(pieces.sums, pieces.whole - piece));
  }
  if (pieces.rest > 0) add(pieces.whole * pieces.length, pieces.rest, 1);
  return calls;
}

}  // namespace ferry::compute
