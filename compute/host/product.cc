// SPDX-License-Identifier: Apache-2.0
#include "compute/host/product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint64_t kLeastOfLibrary = 1 << 20;  // below, making ready takes longer than the product
constexpr uint64_t kLeastOfPart = 1 << 16;
constexpr uint64_t kPanelBytes = 128 << 10;  // rows of the right side that stay in the caches
constexpr uint64_t kProductsAtOnce = uint64_t{1} << 22;
constexpr uint64_t kHeader = 64;  // of what is kept of a side

uint64_t Aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

View DenseView(const ProductFactor& factor) {
  const auto rows = static_cast<int64_t>(factor.rows());
  const auto depth = static_cast<int64_t>(factor.depth());
  return {0, {static_cast<int64_t>(factor.batches()), rows, depth}, {rows * depth, depth, 1}};
}

uint64_t ShareOf(uint64_t elements, uint64_t part, uint64_t parts) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(elements) * part / parts);
}

// The smallest exponent of some of a factor's elements.
int SmallestOf(DType type, const std::byte* elements, uint64_t first, uint64_t count) {
  elements += BytesOf(type, first);
  return type == DType::kF32 ? SmallestExponentOfF32(elements, count)
                             : SmallestExponentOfBF16(elements, count);
}

bool FitsI16(DType type) {
  return type == DType::kI16 || type == DType::kI8 || type == DType::kU8 || type == DType::kBool;
}

}  // namespace

Product::Product(WholeOp op, const std::vector<bool>& constant, size_t parts, uint64_t launches)
    : op_(std::move(op)),
      parts_(std::max<size_t>(parts, 1)),
      left_(ProductFactor(op_, 0)),
      right_(ProductFactor(op_, 1)),
      type_(op_.out_types[0].dtype),
      sum_type_(op_.node.attributes.Has(A::kAccumulate)
                    ? static_cast<DType>(op_.node.attributes.Int(A::kAccumulate))
                    : type_) {
  // In which terms are made and added: the sums' type says, as numerics.md does.
  if (!InfoOf(type_).floating) {
    const bool narrow = InfoOf(sum_type_).bits <= 32;
    const bool i16 = narrow && FitsI16(left_.factor.type()) && FitsI16(right_.factor.type());
    row_type_ = i16 ? RowType::kI16 : narrow ? RowType::kI32 : RowType::kI64;
    row_factor_ = i16 ? DType::kI16 : narrow ? DType::kI32 : DType::kI64;
  } else if (sum_type_ == DType::kF64 && op_.node.op == Op::kDotGeneral) {
    row_type_ = RowType::kF64;
    row_factor_ = DType::kF64;
  }
  for (Side* side : {&left_, &right_}) {
    const std::vector<size_t>& operands = side->factor.operands();
    side->keeps = std::all_of(operands.begin(), operands.end(),
                              [&](size_t operand) { return constant[operand]; });
  }
  FindLibrary(launches);
  PlanMemory();
}

void Product::FindLibrary(uint64_t launches) {
  const ProductFactor& left = left_.factor;
  const ProductFactor& right = right_.factor;
  const unsigned __int128 products = static_cast<unsigned __int128>(left.elements()) * right.rows();
  if (products < kLeastOfLibrary) return;
  const bool integers = row_type_ != RowType::kF32;
  if (integers && row_type_ != RowType::kI16) return;
  const bool has_global = op_.in_types.size() > 4;
  for (const DType to : {DType::kBF16, DType::kF32}) {
    if (to == DType::kBF16 && !integers && !(left.FitsBF16() && right.FitsBF16())) continue;
    LibraryFactors factors;
    for (Side* side : {&left_, &right_}) {
      const DType type = integers ? side->factor.type() : to;
      const std::optional<View>& in_memory = side->factor.in_memory();
      side->in_place =
          in_memory.has_value() && side->factor.type() == type && !side->factor.has_scales();
      side->dense = !in_memory.has_value();
      side->made_bytes = side->in_place ? 0 : Aligned(BytesOf(type, side->factor.elements()));
      (side == &left_ ? factors.left_type : factors.right_type) = type;
      (side == &left_ ? factors.left : factors.right) =
          in_memory.has_value() ? *in_memory : DenseView(side->factor);
    }
    library_factor_ = to;
    const bool short_sums = left.depth() <= static_cast<uint64_t>(kTermsOfLibrary);
    const bool same =
        integers ? type_ == DType::kI32 && sum_type_ == DType::kI32
                 : type_ == DType::kF32 || (type_ == to && to == DType::kBF16 && short_sums);
    direct_ = same && !has_global;
    library_sum_ = direct_ ? type_ : integers ? DType::kI32 : DType::kF32;
    library_ = LibraryProduct::Make(factors, library_sum_, right_.keeps, parts_, launches);
    right_.packed = library_ != nullptr && library_->packed_bytes() > 0;
    if (library_ == nullptr && right_.keeps) {
      library_ = LibraryProduct::Make(factors, library_sum_, false, parts_, launches);
    }
    drops_small_ = library_ != nullptr && LibraryProduct::DropsSmall(factors.left_type);
    if (library_ != nullptr || integers) return;
  }
}

void Product::PlanMemory() {
  const uint64_t results = left_.factor.batches() * left_.factor.rows() * right_.factor.rows();
  // By rows.
  uint64_t rows_bytes = 0;
  for (const Side* side : {&left_, &right_}) {
    rows_bytes += Aligned(BytesOf(row_factor_, side->factor.elements()));
    spare_bytes_ = std::max(spare_bytes_, Aligned(side->factor.SpareBytes(row_factor_)));
  }
  const uint64_t row = right_.factor.depth() * FactorBytesOf(row_type_);
  panel_ = std::max<uint64_t>(kPanelBytes / std::max<uint64_t>(row, 1), 8);
  panel_ = std::min(panel_, right_.factor.rows());
  rows_bytes += parts_ * Aligned(panel_ * SumBytesOf(row_type_));
  // By the library.
  uint64_t library_bytes = 0;
  if (library_ != nullptr) {
    for (const Side* side : {&left_, &right_}) {
      spare_bytes_ = std::max(spare_bytes_, Aligned(side->factor.SpareBytes(library_factor_)));
      if (!side->keeps || side->packed) library_bytes += side->made_bytes;
      if (!side->keeps) continue;
      from_constants_bytes_ +=
          kHeader + (side->packed ? library_->packed_bytes() : side->made_bytes);
    }
    if (!direct_) library_bytes += Aligned(BytesOf(library_sum_, results));
    library_bytes += library_->scratch_bytes();
  }
  scratch_bytes_ = parts_ * spare_bytes_ + std::max(rows_bytes, library_bytes);
}

std::string Product::Text() const {
  if (library_ == nullptr) return absl::StrCat("our own ", NameOf(row_factor_));
  const bool integers = row_type_ != RowType::kF32;
  return absl::StrCat("oneDNN ", NameOf(integers ? left_.factor.type() : library_factor_),
                      right_.packed ? ", packed" : "", from_constants_bytes_ > 0 ? ", kept" : "");
}

void Product::RunParts(Workers* workers, absl::FunctionRef<void(size_t)> part) const {
  if (workers != nullptr) return workers->Run(parts_, part);
  for (size_t i = 0; i < parts_; ++i) part(i);
}

double Product::GlobalOf(const std::vector<const std::byte*>& in) const {
  float global = 1;
  if (in.size() > 4) {
    Convert(op_.in_types[4].dtype, in[4], DType::kF32, reinterpret_cast<std::byte*>(&global), 1);
  }
  return static_cast<double>(global);
}

void Product::Finish(const std::byte* sums, DType from, uint64_t first, uint64_t count,
                     double global, std::byte* out) const {
  constexpr uint64_t kChunk = 256;
  std::array<double, kChunk> values;
  out += BytesOf(type_, first);
  auto* wide = reinterpret_cast<std::byte*>(values.data());
  for (uint64_t done = 0; done < count; done += kChunk) {
    const uint64_t some = std::min(kChunk, count - done);
    const std::byte* at = sums + BytesOf(from, done);
    std::byte* to = out + BytesOf(type_, done);
    if (!InfoOf(type_).floating) {
      // Modulo what `accumulate` holds, then to the result.
      Convert(from, at, sum_type_, wide, some);
      Convert(sum_type_, wide, type_, to, some);
    } else if (from == type_ && global == 1) {
      std::memcpy(to, at, BytesOf(type_, some));
    } else {
      Convert(from, at, DType::kF64, wide, some);
      for (uint64_t i = 0; i < some; ++i) values[i] *= global;
      Convert(DType::kF64, wide, type_, to, some);
    }
  }
}

Product::Found Product::MakeSide(const Side& side, const std::vector<const std::byte*>& in,
                                 std::byte* made, std::byte* spare, Workers* workers) const {
  const bool integers = row_type_ != RowType::kF32;
  const DType to = integers ? side.factor.type() : library_factor_;
  if (side.in_place && !drops_small_) return {255, 1};
  std::vector<Found> found(parts_);
  RunParts(workers, [&](size_t part) {
    ProductFactor::Filled filled;
    if (side.in_place) {
      filled.first = side.factor.elements() * part / parts_;
      filled.count = side.factor.elements() * (part + 1) / parts_ - filled.first;
    } else {
      filled =
          side.factor.Fill(in, to, side.dense, made, spare + part * spare_bytes_, part, parts_);
    }
    found[part] = {255, filled.exact};
    if (!drops_small_) return;
    const std::byte* const at = side.in_place ? in[side.factor.operands()[0]] : made;
    found[part].smallest = SmallestOf(to, at, filled.first, filled.count);
  });
  Found all{255, 1};
  for (const Found& one : found) {
    all.smallest = std::min(all.smallest, one.smallest);
    all.exact = all.exact != 0 && one.exact != 0;
  }
  return all;
}

bool Product::MayBeByLibrary(const Found& left, const Found& right) const {
  if (row_type_ != RowType::kF32) return true;
  constexpr int kBias = 127;
  constexpr int kSpare = 24;  // what is dropped is no more than a rounding of what is not
  const bool small = left.smallest == 0 || right.smallest == 0 ||
                     left.smallest + right.smallest - kBias < 1 + kSpare;
  return !(drops_small_ && small) && left.exact != 0 && right.exact != 0;
}

bool Product::RunByLibrary(const std::vector<const std::byte*>& in, std::byte* out,
                           std::byte* scratch, std::byte* from_constants, bool is_filled,
                           Workers* workers, RunControl& control) const {
  std::byte* const spare = scratch;
  scratch += parts_ * spare_bytes_;
  std::array<const std::byte*, 2> factors;
  std::array<Found, 2> found;
  for (size_t i = 0; i < 2; ++i) {
    const Side& side = i == 0 ? left_ : right_;
    const std::byte* const plain = in[side.factor.operands()[0]];
    if (!side.keeps) {
      found[i] =
          IsLookedAtLater(side) ? Found{255, 1} : MakeSide(side, in, scratch, spare, workers);
      factors[i] = side.in_place ? plain : scratch;
      scratch += side.made_bytes;
      continue;
    }
    std::byte* const header = from_constants;
    std::byte* const body = from_constants + kHeader;
    from_constants += kHeader + (side.packed ? library_->packed_bytes() : side.made_bytes);
    if (!is_filled) {
      found[i] = MakeSide(side, in, side.packed ? scratch : body, spare, workers);
      std::memcpy(header, &found[i], sizeof(Found));
      if (side.packed) library_->Pack(side.in_place ? plain : scratch, body);
    }
    std::memcpy(&found[i], header, sizeof(Found));
    if (side.packed) scratch += side.made_bytes;
    factors[i] = side.packed || !side.in_place ? body : plain;
  }
  if (!MayBeByLibrary(found[0], found[1])) return false;
  const double global = GlobalOf(in);
  const uint64_t rows = left_.factor.rows();
  const uint64_t columns = right_.factor.rows();
  std::byte* const sums = direct_ ? out : scratch;
  if (!direct_) {
    scratch += Aligned(BytesOf(library_sum_, left_.factor.batches() * rows * columns));
  }
  std::array<std::atomic<int32_t>, 2> smallest = {found[0].smallest, found[1].smallest};
  library_->Run(factors[0], factors[1], sums, scratch, workers, control,
                [&](uint64_t first, uint64_t end) {
                  for (size_t i = 0; i < 2; ++i) {  // as many parts of each factor as of rows
                    const Side& side = i == 0 ? left_ : right_;
                    if (!IsLookedAtLater(side)) continue;
                    const uint64_t begin = ShareOf(side.factor.elements(), first, rows);
                    const uint64_t count = ShareOf(side.factor.elements(), end, rows) - begin;
                    const int32_t one = SmallestOf(library_factor_, factors[i], begin, count);
                    int32_t least = smallest[i];
                    while (one < least && !smallest[i].compare_exchange_weak(least, one)) continue;
                  }
                  if (direct_) return;
                  for (uint64_t batch = 0; batch < left_.factor.batches(); ++batch) {
                    const uint64_t at = (batch * rows + first) * columns;
                    Finish(sums + BytesOf(library_sum_, at), library_sum_, at,
                           (end - first) * columns, global, out);
                  }
                });
  found[0].smallest = smallest[0];
  found[1].smallest = smallest[1];
  return control.stopped() || MayBeByLibrary(found[0], found[1]);
}

void Product::RunByRows(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
                        Workers* workers, RunControl& control) const {
  std::byte* const spare = scratch;
  scratch += parts_ * spare_bytes_;
  std::array<const std::byte*, 2> factors;
  for (size_t i = 0; i < 2; ++i) {
    const ProductFactor& factor = (i == 0 ? left_ : right_).factor;
    if (factor.is_dense() && factor.type() == row_factor_ && !factor.has_scales()) {
      factors[i] = in[factor.operands()[0]];
      continue;
    }
    RunParts(workers, [&](size_t part) {
      factor.Fill(in, row_factor_, true, scratch, spare + part * spare_bytes_, part, parts_);
    });
    factors[i] = scratch;
    scratch += Aligned(BytesOf(row_factor_, factor.elements()));
  }
  const uint64_t rows = left_.factor.rows();
  const uint64_t columns = right_.factor.rows();
  const uint64_t depth = left_.factor.depth();
  const uint64_t each = depth * FactorBytesOf(row_type_);
  const uint64_t all = left_.factor.batches() * rows;
  if (all * columns == 0) return;
  const uint64_t products = std::max<uint64_t>(all * columns * depth, 1);
  const size_t parts = std::clamp<uint64_t>(products / kLeastOfPart, 1, parts_);
  const RowKernel kernel = RowKernelOf(row_type_);
  const double global = GlobalOf(in);
  const DType sum = row_factor_ == DType::kI16 ? DType::kI32 : row_factor_;
  const auto run = [&](size_t part) {
    std::byte* const sums = scratch + part * Aligned(panel_ * SumBytesOf(row_type_));
    const uint64_t end = all * (part + 1) / parts;
    uint64_t done = 0;  // products since it was asked whether to go on
    for (uint64_t first = all * part / parts; first < end;) {
      const uint64_t batch = first / rows;
      const uint64_t last = std::min(end, (batch + 1) * rows);
      const std::byte* const others = factors[1] + batch * columns * each;
      for (uint64_t j = 0; j < columns; j += panel_) {
        const uint64_t count = std::min(panel_, columns - j);
        for (uint64_t row = first; row < last; ++row) {
          if ((done += count * depth) >= kProductsAtOnce) {
            if (control.Stops()) return;
            done = 0;
          }
          kernel(factors[0] + row * each, others + j * each, count, depth, sums);
          Finish(sums, sum, row * columns + j, count, global, out);
        }
      }
      first = last;
    }
  };
  if (parts > 1 && workers != nullptr) return workers->Run(parts, run);
  for (size_t i = 0; i < parts; ++i) run(i);
}

void Product::Run(const std::vector<const std::byte*>& in, std::byte* out, std::byte* scratch,
                  std::byte* from_constants, bool is_filled, Workers* workers,
                  RunControl& control) const {
  if (library_ != nullptr &&
      RunByLibrary(in, out, scratch, from_constants, is_filled, workers, control)) {
    return;
  }
  RunByRows(in, out, scratch, workers, control);
}

}  // namespace ferry::compute
