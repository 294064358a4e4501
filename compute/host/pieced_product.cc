// SPDX-License-Identifier: Apache-2.0
#include "compute/host/pieced_product.h"

#include <algorithm>
#include <cstring>

#include "compute/dtype.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kUnit = 64;  // of a piece's terms: all pieces begin as aligned as the first

// With fewer columns a copy of the left side takes longer than it saves.
constexpr uint64_t kColumnsWorthACopy = 64;

uint64_t DividedUp(uint64_t whole, uint64_t by) { return (whole + by - 1) / by; }

}  // namespace

std::unique_ptr<PiecedProduct> PiecedProduct::Make(const LibraryFactors& factors,
                                                   const OnednnMatmul::Options& options) {
  std::unique_ptr<PiecedProduct> made(new PiecedProduct(factors, options.parts));
  if (!made->MakePieces(factors, options)) return nullptr;
  return made;
}

PiecedProduct::PiecedProduct(const LibraryFactors& factors, size_t parts)
    : parts_(parts),
      batches_(static_cast<uint64_t>(factors.left.dims[0])),
      rows_(static_cast<uint64_t>(factors.left.dims[1])),
      columns_(static_cast<uint64_t>(factors.right.dims[1])),
      left_bytes_(BytesOf(factors.left_type, 1)),
      strides_({factors.left.strides[0], factors.left.strides[1]}),
      copies_(factors.left.strides[2] == 1 && columns_ >= kColumnsWorthACopy) {
  const auto depth = static_cast<uint64_t>(factors.left.dims[2]);
  const uint64_t least = DividedUp(depth, uint64_t{kTermsOfLibrary});
  terms_ = DividedUp(DividedUp(depth, least), kUnit) * kUnit;
  whole_ = depth / terms_;
  rest_terms_ = depth % terms_;
  left_piece_bytes_ =
      BytesOf(factors.left_type, terms_ * static_cast<uint64_t>(factors.left.strides[2]));
  right_piece_bytes_ =
      BytesOf(factors.right_type, terms_ * static_cast<uint64_t>(factors.right.strides[2]));
}

bool PiecedProduct::MakePieces(LibraryFactors factors, OnednnMatmul::Options options) {
  const auto make = [&](uint64_t terms) {
    const auto depth = static_cast<int64_t>(terms);
    factors.left.dims[2] = factors.right.dims[2] = depth;
    if (copies_) {
      factors.left.strides = {static_cast<int64_t>(rows_) * depth, depth, 1};
    }
    return OnednnMatmul::Make(factors, options);
  };
  first_ = make(terms_);
  if (first_ == nullptr) return false;
  const bool is_packed = first_->packed_bytes() > 0;
  options.adds = true;
  options.packed = is_packed;
  if (rest_terms_ > 0) {
    rest_ = make(rest_terms_);
    if (rest_ == nullptr || (rest_->packed_bytes() > 0) != is_packed) return false;
  }
  if (whole_ == 1) return true;
  options.packed_as = is_packed ? first_.get() : nullptr;
  next_ = make(terms_);
  return next_ != nullptr;
}

uint64_t PiecedProduct::CallScratchBytes() const {
  uint64_t most = 0;
  for (const auto* call : {&first_, &next_, &rest_}) {
    if (*call != nullptr) most = std::max(most, (*call)->scratch_bytes());
  }
  return most;
}

uint64_t PiecedProduct::scratch_bytes() const {
  const uint64_t totals = HasTotals() ? batches_ * rows_ * columns_ * sizeof(double) : 0;
  return CallScratchBytes() + CopyBytes() + totals;
}

uint64_t PiecedProduct::CopyBytes() const {
  const uint64_t bytes = batches_ * rows_ * terms_ * left_bytes_;
  return copies_ ? DividedUp(bytes, kUnit) * kUnit : 0;
}

uint64_t PiecedProduct::packed_bytes() const {
  return whole_ * first_->packed_bytes() + (rest_ != nullptr ? rest_->packed_bytes() : 0);
}

void PiecedProduct::Pack(const std::byte* right, std::byte* packed) const {
  for (uint64_t piece = 0; piece < pieces(); ++piece) {
    CallOf(piece).Pack(right + piece * right_piece_bytes_, packed + piece * first_->packed_bytes());
  }
}

const OnednnMatmul& PiecedProduct::CallOf(uint64_t piece) const {
  if (piece == whole_) return *rest_;
  return piece % kPiecesOfSum == 0 ? *first_ : *next_;
}

void PiecedProduct::CopyLeft(uint64_t piece, const std::byte* left, std::byte* to,
                             Workers* workers) const {
  const uint64_t all = batches_ * rows_;
  const uint64_t bytes = (piece < whole_ ? terms_ : rest_terms_) * left_bytes_;
  left += piece * left_piece_bytes_;
  const auto copy = [&](size_t part) {
    for (uint64_t row = all * part / parts_; row < all * (part + 1) / parts_; ++row) {
      const auto at = static_cast<uint64_t>(static_cast<int64_t>(row / rows_) * strides_[0] +
                                            static_cast<int64_t>(row % rows_) * strides_[1]);
      std::memcpy(to + row * bytes, left + at * left_bytes_, bytes);
    }
  };
  if (workers != nullptr) return workers->Run(parts_, copy);
  for (size_t part = 0; part < parts_; ++part) copy(part);
}

void PiecedProduct::Run(const std::byte* left, const std::byte* right, std::byte* out,
                        std::byte* scratch, Workers* workers, RunControl& control,
                        absl::FunctionRef<void(uint64_t first, uint64_t end)> over) const {
  auto* const sums = reinterpret_cast<float*>(out);
  auto* const totals = reinterpret_cast<double*>(scratch + CallScratchBytes() + CopyBytes());
  std::byte* const copy = scratch + CallScratchBytes();
  const uint64_t packed = first_->packed_bytes();
  const uint64_t right_step = packed > 0 ? packed : right_piece_bytes_;
  for (uint64_t piece = 0; piece < pieces() && !control.stopped(); ++piece) {
    const bool is_last = piece + 1 == pieces();
    const bool is_full = (piece + 1) % kPiecesOfSum == 0 && piece + 1 < whole_;
    if (copies_) CopyLeft(piece, left, copy, workers);
    CallOf(piece).Run(copies_ ? copy : left + piece * left_piece_bytes_, right + piece * right_step,
                      out, scratch, workers, control, [&](uint64_t first, uint64_t end) {
                        if (HasTotals() && (is_full || is_last)) {
                          CloseSums(first, end, piece < kPiecesOfSum, is_last, sums, totals);
                        }
                        if (is_last) over(first, end);
                      });
  }
}

void PiecedProduct::CloseSums(uint64_t first, uint64_t end, bool is_first, bool is_last,
                              float* sums, double* totals) const {
  for (uint64_t batch = 0; batch < batches_; ++batch) {
    const uint64_t last = (batch * rows_ + end) * columns_;
    for (uint64_t i = (batch * rows_ + first) * columns_; i < last; ++i) {
      totals[i] = is_first ? sums[i] : totals[i] + sums[i];
      if (is_last) sums[i] = static_cast<float>(totals[i]);
    }
  }
}

}  // namespace ferry::compute
