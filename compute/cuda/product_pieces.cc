// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/product_pieces.h"

#include <algorithm>
#include <utility>

#include "compute/numerics/scale_layout.h"

namespace ferry::compute {
namespace {

// Pieces are multiples of these, so that all begin at aligned places; and of blocks with scales at
// tiles of scales: of 4 columns, each for 32 elements at most.
constexpr int64_t kUnit = 64;
constexpr int64_t kUnitOfBlocks = 128;
// Elements of results that a GPU is busy with; with fewer, several pieces are made at a time.
constexpr int64_t kBusyWith = int64_t{4} << 20;

bool IsNarrow(DType type) { return type == DType::kBF16 || type == DType::kF16; }

int64_t MostTerms(const GpuProduct& product, DType result) {
  const DType factors = product.left.type;
  if (product.block > 0) return IsNarrow(result) ? kTermsOfRounded : kTermsOfBlocks;
  if (!IsNarrow(factors)) return kTermsOfWide;
  if (IsNarrow(result)) return kTermsOfRounded;
  return factors == DType::kF16 ? kTermsOfF16 : kTermsOfBf16;
}

// How many parts of `most` a whole has.
int64_t PartsOf(int64_t whole, int64_t most) { return (whole + most - 1) / most; }

// To what is known of where it begins.
void Align(GpuMatrix& matrix) {
  while (matrix.place.offset % matrix.alignment != 0) matrix.alignment /= 2;
}

// The factor from term `first` on.
void MoveTo(int64_t first, GpuMatrix& factor) {
  const auto elements = static_cast<uint64_t>(first * factor.column_stride);
  factor.place.offset += BytesOf(factor.type, elements);
  Align(factor);
}

// A call for a piece of blocks with scales.
GpuProduct BlocksOf(const GpuProduct& product, const ProductPieces& pieces, int64_t piece) {
  GpuProduct call = product;
  call.k = piece < pieces.whole ? pieces.length : pieces.rest;
  call.adds = piece >= pieces.sums;
  for (const auto& [factor, rows] : {std::pair(&call.left, product.m), {&call.right, product.n}}) {
    MoveTo(piece * pieces.length, *factor);
    factor->scales->offset += static_cast<uint64_t>(piece) *
                              SwizzledScaleBytes(static_cast<uint64_t>(rows),
                                                 static_cast<uint64_t>(pieces.length / call.block));
  }
  const int64_t sum = piece < pieces.whole ? piece % pieces.sums : 0;
  call.result.place.offset +=
      BytesOf(call.result.type, static_cast<uint64_t>(sum * product.m * product.n));
  Align(call.result);
  return call;
}

}  // namespace

std::optional<ProductPieces> PiecesOf(const GpuProduct& product, DType result) {
  const int64_t most = MostTerms(product, result);
  if (product.k <= most) return ProductPieces{product.k, 1, 0, 1};
  ProductPieces pieces;
  const int64_t unit = product.block > 0 ? kUnitOfBlocks : kUnit;
  pieces.length = PartsOf(PartsOf(product.k, PartsOf(product.k, most)), unit) * unit;
  pieces.whole = product.k / pieces.length;
  pieces.rest = product.k % pieces.length;
  const bool alone = product.batches > 1 || product.block > 0;
  if (alone && pieces.whole > kPiecesOfBatch) return std::nullopt;
  if (product.batches > 1) return pieces;
  const int64_t least = PartsOf(pieces.whole, kPiecesOfSum);
  if (product.block > 0) pieces.sums = least;
  if (product.block > 0) return pieces;
  const int64_t busy = kBusyWith / product.m / product.n;
  pieces.sums = std::clamp(busy, least, pieces.whole);
  return pieces;
}

std::vector<GpuProduct> CallsOf(const GpuProduct& product, const ProductPieces& pieces) {
  if (pieces.one()) return {product};
  std::vector<GpuProduct> calls;
  if (product.block > 0) {
    const int64_t count = pieces.whole + (pieces.rest > 0 ? 1 : 0);
    for (int64_t i = 0; i < count; ++i) calls.push_back(BlocksOf(product, pieces, i));
    return calls;
  }
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
