// SPDX-License-Identifier: Apache-2.0
// A product of floats whose sums have more terms than the library adds up well: the terms are cut
// into pieces of at most kTermsOfLibrary, each a product of its own. Each is added to the f32 sums
// of those before it; after kPiecesOfSum pieces these are added to sums in f64, and begin anew. So
// the result is within the bound of docs/numerics.md however many terms there are. Example: 70,000
// terms are 68 pieces of 1,024 and a rest of 368; the f64 sums are those of eight times 8 pieces,
// and of 5. The library has its fast code for left sides only whose rows lie one behind the other:
// where that pays, a piece of the left side is copied so before its call. Immutable; any thread
// runs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "compute/host/library_product.h"
#include "compute/host/onednn_matmul.h"
#include "compute/host/run_control.h"
#include "compute/host/workers.h"

namespace ferry::compute {

class PiecedProduct : public LibraryProduct {
 public:
  // Whole pieces of which the products are added up in f32. The rest's product goes to the last
  // such sum, in addition. Not more: with bf16 on a CPU with AMX, oneDNN 2.6.3, LibrarySumTest
  // loses 1.9 times what the bound allows with 32 pieces, 0.6 with 16, and 0.01 with 8. A likely
  // cause, not shown: the library adds a piece to the sum so far in blocks, and rounds each time.
  static constexpr uint64_t kPiecesOfSum = 8;

  // The product, to f32, of factors of more than kTermsOfLibrary terms. Null if the library has
  // none for the pieces, or if it does not pack all of them where that is asked for.
  static std::unique_ptr<PiecedProduct> Make(const LibraryFactors& factors,
                                             const OnednnMatmul::Options& options);

  uint64_t scratch_bytes() const override;
  uint64_t packed_bytes() const override;
  void Pack(const std::byte* right, std::byte* packed) const override;
  void Run(const std::byte* left, const std::byte* right, std::byte* out, std::byte* scratch,
           Workers* workers, RunControl& control,
           absl::FunctionRef<void(uint64_t first, uint64_t end)> over) const override;

 private:
  PiecedProduct(const LibraryFactors& factors, size_t parts);
  bool MakePieces(LibraryFactors factors, OnednnMatmul::Options options);

  uint64_t pieces() const { return whole_ + (rest_terms_ > 0 ? 1 : 0); }
  bool HasTotals() const { return whole_ > kPiecesOfSum; }
  uint64_t CallScratchBytes() const;  // of the longest call
  uint64_t CopyBytes() const;         // of a piece of the left side; 0: it is taken where it is
  // Copies the terms of `piece` of each row of the left side to one place.
  void CopyLeft(uint64_t piece, const std::byte* left, std::byte* to, Workers* workers) const;
  const OnednnMatmul& CallOf(uint64_t piece) const;
  // Adds the f32 sums of rows `first` to `end` of each batch to the f64 ones, the first ones in
  // place of what is there. The last time the sums become what they come to.
  void CloseSums(uint64_t first, uint64_t end, bool is_first, bool is_last, float* sums,
                 double* totals) const;

  const size_t parts_;  // of rows, which are copied beside each other
  const uint64_t batches_, rows_, columns_;
  const uint64_t left_bytes_;             // of an element
  const std::array<int64_t, 2> strides_;  // of the left side's batches and rows, in elements
  const bool copies_;                     // pieces of the left side
  uint64_t terms_;                        // of a piece: a multiple of 64
  uint64_t whole_;                        // pieces of so many terms
  uint64_t rest_terms_;                   // of one more piece; 0: there is none
  uint64_t left_piece_bytes_;             // from a piece of a row to the next one
  uint64_t right_piece_bytes_;
  std::unique_ptr<OnednnMatmul> first_;  // writes its sums
  std::unique_ptr<OnednnMatmul> next_;   // adds to them; null: there is one whole piece
  std::unique_ptr<OnednnMatmul> rest_;   // adds the rest to them; null: there is none
};

}  // namespace ferry::compute
