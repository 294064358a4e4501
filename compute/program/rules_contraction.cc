// SPDX-License-Identifier: Apache-2.0
// The rules of products of matrices and of block formats.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/program/rules.h"

namespace ferry::compute::rules {
namespace {

using A = Attribute;

__int128 RoundUp(__int128 value, int64_t by) { return (value + by - 1) / by * by; }

// Elements of `data` in blocks along the last dimension, a scale each: MX (a power of two for 32,
// unless said) or NVFP4 (f8e4m3fn for 16 of f4e2m1fn). `block` 0: as the dimensions imply.
Inference CheckBlocks(const TensorType& data, const TensorType& scales, int64_t block,
                      bool padded) {
  const auto broken = [&](absl::string_view why) {
    return Broken("block format", absl::StrCat("data ", ToString(data), " with scales ",
                                               ToString(scales), ": ", why));
  };
  const bool mx = scales.dtype == DType::kF8E8M0FNU && Contains(dtypes::kSmallFloats, data.dtype);
  const bool nv = scales.dtype == DType::kF8E4M3FN && data.dtype == DType::kF4E2M1FN;
  if (!mx && !nv) return broken("no block format has these types");
  if (data.dims.empty() || scales.dims.size() != data.dims.size()) {
    return broken("both have the same number of dimensions, at least one");
  }
  const size_t last = data.dims.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    // Rows of scales may be padded too, as swizzling does, if the block is named.
    const bool fits = padded && block > 0 && i + 1 == last ? scales.dims[i] >= data.dims[i]
                                                           : scales.dims[i] == data.dims[i];
    if (!fits) return broken(absl::StrCat("dimension ", i, " differs"));
  }
  if (block == 0) {
    if (scales.dims[last] == 0 ? data.dims[last] == 0 : data.dims[last] % scales.dims[last] == 0) {
      return {};
    }
    return broken("the last dimension is no multiple of the scales'; name the block");
  }
  const int64_t wanted = data.dims[last] / block + (data.dims[last] % block != 0 ? 1 : 0);
  if (scales.dims[last] == wanted || (padded && scales.dims[last] > wanted)) return {};
  return broken(absl::StrCat("blocks of ", block, " need ", wanted, " scales a row"));
}

Inference CheckGlobal(const TensorType& global, DType type) {
  if (global == TensorType{type, {}}) return {};
  return Broken("global scale",
                absl::StrCat("the global scale is ", NameOf(type), "[], not ", ToString(global)));
}

bool IsIn(absl::Span<const int64_t> list, size_t value) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(value)) != list.end();
}

}  // namespace

Inference DotGeneral(const RuleInput& input) {
  const absl::Span<const int64_t> batch[] = {input.attributes.Ints(A::kLhsBatch),
                                             input.attributes.Ints(A::kRhsBatch)};
  const absl::Span<const int64_t> contract[] = {input.attributes.Ints(A::kLhsContract),
                                                input.attributes.Ints(A::kRhsContract)};
  for (const size_t side : {0, 1}) {
    const TensorType& type = *input.in[side];
    if (!Contains(input.info.dtypes, type.dtype)) {
      return Broken("type", absl::StrCat("no product has a factor of ", ToString(type)));
    }
    std::set<int64_t> seen;
    for (const auto& list : {batch[side], contract[side]}) {
      for (const int64_t dimension : list) {
        if (static_cast<size_t>(dimension) >= type.dims.size() || !seen.insert(dimension).second) {
          return Broken("dimensions",
                        absl::StrCat("batch [", absl::StrJoin(batch[side], ","), "] and contract [",
                                     absl::StrJoin(contract[side], ","),
                                     "] are not different dimensions of ", ToString(type)));
        }
      }
    }
    if (contract[side].size() != 1) {
      return Broken("dimensions", "lhs_contract and rhs_contract have one dimension each");
    }
  }
  const TensorType& lhs = *input.in[0];
  const TensorType& rhs = *input.in[1];
  if (batch[0].size() != batch[1].size()) {
    return Broken("dimensions", "lhs_batch and rhs_batch have as many dimensions");
  }
  bool fits = lhs.dims[contract[0][0]] == rhs.dims[contract[1][0]];
  TensorType result = {lhs.dtype, {}};
  for (size_t i = 0; i < batch[0].size(); ++i) {
    fits = fits && lhs.dims[batch[0][i]] == rhs.dims[batch[1][i]];
    result.dims.push_back(lhs.dims[batch[0][i]]);
  }
  if (!fits) {
    return Broken("shape", absl::StrCat("batch or contracted dimensions of ", ToString(lhs),
                                        " and ", ToString(rhs), " differ"));
  }
  for (const size_t side : {0, 1}) {
    for (size_t i = 0; i < input.in[side]->dims.size(); ++i) {
      if (!IsIn(batch[side], i) && !IsIn(contract[side], i)) {
        result.dims.push_back(input.in[side]->dims[i]);
      }
    }
  }
  const bool floating = InfoOf(lhs.dtype).floating;
  if (floating != InfoOf(rhs.dtype).floating) {
    return Broken("type", absl::StrCat("factors ", ToString(lhs), " and ", ToString(rhs),
                                       ": one is floating point, one an integer"));
  }
  const DTypeSet sums = floating ? dtypes::kFloats : dtypes::kIntegers;
  if (!input.said.empty()) {
    result.dtype = input.said[0].dtype;
  } else if (lhs.dtype != rhs.dtype || !Contains(sums, lhs.dtype)) {
    return MustSay(input);
  }
  const auto accumulate = input.attributes.Has(A::kAccumulate)
                              ? static_cast<DType>(input.attributes.Int(A::kAccumulate))
                              : result.dtype;
  for (const DType type : {result.dtype, accumulate}) {
    if (!Contains(sums, type)) {
      return Broken("type", absl::StrCat("products of ", ToString(lhs), " and ", ToString(rhs),
                                         " are not summed as ", NameOf(type)));
    }
  }
  return Results({result});
}

Inference BlockScaledDot(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const TensorType& lhs = *input.in[0];
  const TensorType& rhs = *input.in[1];
  const TensorType& result = input.said[0];
  const int64_t block = input.attributes.Int(A::kBlock);
  if (Inference bad = CheckBlocks(lhs, *input.in[2], block, true); !bad.ok()) return bad;
  if (input.in.size() > 3) {
    if (Inference bad = CheckBlocks(rhs, *input.in[3], block, true); !bad.ok()) return bad;
  } else if (!Contains(dtypes::kFloats, rhs.dtype)) {
    return Broken("block format", absl::StrCat("the factor without scales is floating point of 16 "
                                               "bits or more, not ",
                                               ToString(rhs)));
  }
  if (!Contains(dtypes::kFloats, result.dtype)) {
    return Broken("result", absl::StrCat("the result is floating point of 16 bits or more, not ",
                                         ToString(result)));
  }
  // Programs of 0.2 have it in the result's type.
  if (input.in.size() > 4 && *input.in[4] != TensorType{result.dtype, {}}) {
    if (Inference bad = CheckGlobal(*input.in[4], DType::kF32); !bad.ok()) return bad;
  }
  const size_t rank = lhs.dims.size();
  const bool fits = (rank == 2 || rank == 3) && rhs.dims.size() == rank &&
                    lhs.dims[rank - 1] == rhs.dims[rank - 1] &&
                    (rank == 2 || lhs.dims[0] == rhs.dims[0]);
  if (!fits) {
    return Broken("shape", absl::StrCat("factors ", ToString(lhs), " and ", ToString(rhs),
                                        " are not [batch,]M,K and [batch,]N,K"));
  }
  TensorType expected = {result.dtype, lhs.dims};
  expected.dims[rank - 1] = rhs.dims[rank - 2];
  return Results({expected});
}

Inference QuantizeBlock(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const TensorType& data = input.said[0];
  const TensorType& scales = input.said[1];
  if (data.dims != input.in[0]->dims) {
    return Broken("shape",
                  absl::StrCat("quantised ", ToString(*input.in[0]), " is not ", ToString(data)));
  }
  if (Inference bad = CheckBlocks(data, scales, input.attributes.Int(A::kBlock), false);
      !bad.ok()) {
    return bad;
  }
  if (input.attributes.Has(A::kRounding) && scales.dtype != DType::kF8E8M0FNU) {
    return Broken("attributes",
                  absl::StrCat("rounding is for scales of f8e8m0fnu, not ", ToString(scales)));
  }
  if (input.in.size() > 1) {
    if (Inference bad = CheckGlobal(*input.in[1], DType::kF32); !bad.ok()) return bad;
  }
  return inference;
}

Inference DequantizeBlock(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  if (Inference bad =
          CheckBlocks(*input.in[0], *input.in[1], input.attributes.Int(A::kBlock), true);
      !bad.ok()) {
    return bad;
  }
  if (input.in.size() > 2) {
    if (Inference bad = CheckGlobal(*input.in[2], DType::kF32); !bad.ok()) return bad;
  }
  if (Contains(dtypes::kFloats, input.said[0].dtype)) {
    return Results({{input.said[0].dtype, input.in[0]->dims}});
  }
  return Broken("result", absl::StrCat("the result is floating point of 16 bits or more, not ",
                                       ToString(input.said[0])));
}

// Tiles of 128 rows by 4 scales.
Inference SwizzleScales(const RuleInput& input) {
  const TensorType& plain = *input.in[0];
  if (plain.dims.size() != 2) {
    return Broken("shape", absl::StrCat("plain scales are rows by blocks, not ", ToString(plain)));
  }
  // Both dimensions' product fits an int64_t even where one is 0 (CheckType).
  const __int128 bytes = RoundUp(plain.dims[0], 128) * RoundUp(plain.dims[1], 4);
  if (bytes > std::numeric_limits<int64_t>::max()) {
    return Broken("size", absl::StrCat("the tiles of ", ToString(plain), " overflow"));
  }
  return Results({{plain.dtype, {static_cast<int64_t>(bytes)}}});
}

Inference UnswizzleScales(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const TensorType& plain = input.said[0];
  const TensorType* in[] = {&plain};
  const Inference back = SwizzleScales({input.info, in, input.attributes, {}});
  if (!back.ok()) return back;
  if (back.results[0] == *input.in[0]) return inference;
  return Broken("shape", absl::StrCat("the tiles of ", ToString(plain), " are ",
                                      ToString(back.results[0]), ", not ", ToString(*input.in[0])));
}

}  // namespace ferry::compute::rules
