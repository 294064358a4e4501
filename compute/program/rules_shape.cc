// SPDX-License-Identifier: Apache-2.0
// The rules of ops that move elements, and of reductions.
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

std::string ListText(absl::Span<const int64_t> list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

// Each names a dimension of `type`, none twice.
Inference CheckDimensions(const TensorType& type, absl::Span<const int64_t> dimensions) {
  std::set<int64_t> seen;
  for (const int64_t dimension : dimensions) {
    if (static_cast<size_t>(dimension) >= type.dims.size() || !seen.insert(dimension).second) {
      return Broken(
          "dimensions",
          absl::StrCat(ListText(dimensions), " are not different dimensions of ", ToString(type)));
    }
  }
  return {};
}

Inference CheckDimension(const RuleInput& input) {
  const int64_t dimension = input.attributes.Int(A::kDimension);
  return CheckDimensions(*input.in[0], absl::MakeConstSpan(&dimension, 1));
}

Inference CheckLength(const RuleInput& input, A attribute) {
  const auto list = input.attributes.Ints(attribute);
  if (list.size() == input.in[0]->dims.size()) return {};
  return Broken("attributes",
                absl::StrCat(InfoOf(attribute).name, " ", ListText(list),
                             " is not one number for each dimension of ", ToString(*input.in[0])));
}

// May the sum of elements of `type` be made in `accumulate`?
Inference CheckAccumulate(const RuleInput& input) {
  if (!input.attributes.Has(A::kAccumulate)) return {};
  const auto accumulate = static_cast<DType>(input.attributes.Int(A::kAccumulate));
  const DType type = input.in[0]->dtype;
  if (type != DType::kBool && Contains(dtypes::kNumbers, accumulate) &&
      InfoOf(accumulate).floating == InfoOf(type).floating &&
      InfoOf(accumulate).is_signed == InfoOf(type).is_signed &&
      InfoOf(accumulate).bits >= InfoOf(type).bits) {
    return {};
  }
  return Broken("accumulate", absl::StrCat(NameOf(accumulate), " does not hold sums of ",
                                           ToString(*input.in[0])));
}

}  // namespace

Inference BroadcastInDim(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const TensorType& from = *input.in[0];
  const TensorType& to = input.said[0];
  if (Inference bad = CheckLength(input, A::kDimensions); !bad.ok()) return bad;
  const auto dimensions = input.attributes.Ints(A::kDimensions);
  if (Inference bad = CheckDimensions(to, dimensions); !bad.ok()) return bad;
  bool fits = from.dtype == to.dtype;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    fits = fits && (from.dims[i] == 1 || from.dims[i] == to.dims[dimensions[i]]);
  }
  if (fits) return inference;
  return Broken("shape", absl::StrCat(ToString(from), " does not broadcast to ", ToString(to),
                                      " along ", ListText(dimensions)));
}

Inference Reshape(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  if (input.in[0]->dtype == input.said[0].dtype &&
      ElementsOf(*input.in[0]) == ElementsOf(input.said[0])) {
    return inference;
  }
  return Broken("shape", absl::StrCat(ToString(*input.in[0]), " and ", ToString(input.said[0]),
                                      " differ in type or number of elements"));
}

Inference Transpose(const RuleInput& input) {
  if (Inference bad = CheckLength(input, A::kPermutation); !bad.ok()) return bad;
  const auto permutation = input.attributes.Ints(A::kPermutation);
  if (Inference bad = CheckDimensions(*input.in[0], permutation); !bad.ok()) return bad;
  TensorType result = {input.in[0]->dtype, {}};
  for (const int64_t from : permutation) result.dims.push_back(input.in[0]->dims[from]);
  return Results({result});
}

Inference Slice(const RuleInput& input) {
  for (const A attribute : {A::kStart, A::kLimit}) {
    if (Inference bad = CheckLength(input, attribute); !bad.ok()) return bad;
  }
  const auto start = input.attributes.Ints(A::kStart);
  const auto limit = input.attributes.Ints(A::kLimit);
  const auto step = input.attributes.Ints(A::kStep);
  if (!step.empty()) {
    if (Inference bad = CheckLength(input, A::kStep); !bad.ok()) return bad;
  }
  TensorType result = *input.in[0];
  for (size_t i = 0; i < start.size(); ++i) {
    if (start[i] > limit[i] || limit[i] > input.in[0]->dims[i]) {
      return Broken("bounds", absl::StrCat("slice ", start[i], " to ", limit[i], " of dimension ",
                                           i, " of ", ToString(*input.in[0])));
    }
    const int64_t by = step.empty() ? 1 : step[i];
    result.dims[i] = (limit[i] - start[i]) / by + ((limit[i] - start[i]) % by != 0 ? 1 : 0);
  }
  return Results({result});
}

Inference DynamicSlice(const RuleInput& input) {
  const TensorType& value = *input.in[0];
  if (Inference bad = CheckLength(input, A::kSizes); !bad.ok()) return bad;
  if (input.in.size() != value.dims.size() + 1) {
    return Broken("operands", absl::StrCat(input.in.size() - 1, " starts for ", ToString(value)));
  }
  for (size_t i = 1; i < input.in.size(); ++i) {
    const TensorType& start = *input.in[i];
    if (start != *input.in[1] || !start.dims.empty() || !Contains(dtypes::kIntegers, start.dtype)) {
      return Broken("same type", absl::StrCat("starts are scalars of one integer type: ",
                                              ToString(*input.in[1]), " and ", ToString(start)));
    }
  }
  const auto sizes = input.attributes.Ints(A::kSizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > value.dims[i]) {
      return Broken("bounds", absl::StrCat("a slice of ", ListText(sizes), " does not fit into ",
                                           ToString(value)));
    }
  }
  return Results({{value.dtype, {sizes.begin(), sizes.end()}}});
}

Inference Pad(const RuleInput& input) {
  const TensorType& value = *input.in[0];
  if (*input.in[1] != TensorType{value.dtype, {}}) {
    return Broken("same type", absl::StrCat("padding ", ToString(*input.in[1]), " of ",
                                            ToString(value), " is no scalar of its type"));
  }
  TensorType result = value;
  for (const A attribute : {A::kLow, A::kHigh, A::kInterior}) {
    const auto list = input.attributes.Ints(attribute);
    if (list.empty()) continue;  // zeros
    if (Inference bad = CheckLength(input, attribute); !bad.ok()) return bad;
    for (size_t i = 0; i < list.size(); ++i) {
      const int64_t gaps = attribute == A::kInterior ? std::max<int64_t>(value.dims[i] - 1, 0) : 1;
      const __int128 dim = result.dims[i] + static_cast<__int128>(list[i]) * gaps;
      if (dim > std::numeric_limits<int64_t>::max()) {
        return Broken("size",
                      absl::StrCat("dimension ", i, " of padded ", ToString(value), " overflows"));
      }
      result.dims[i] = static_cast<int64_t>(dim);
    }
  }
  return Results({result});
}

Inference Concatenate(const RuleInput& input) {
  if (Inference bad = CheckDimension(input); !bad.ok()) return bad;
  const auto dimension = static_cast<size_t>(input.attributes.Int(A::kDimension));
  TensorType result = *input.in[0];
  for (size_t i = 1; i < input.in.size(); ++i) {
    TensorType other = *input.in[i];
    __int128 sum = result.dims[dimension];
    if (dimension < other.dims.size()) {
      sum += other.dims[dimension];
      other.dims[dimension] = result.dims[dimension];
    }
    if (other != result) {
      return Broken("shape", absl::StrCat("operands 0 and ", i, " are ", ToString(*input.in[0]),
                                          " and ", ToString(*input.in[i]),
                                          ": they may differ in dimension ", dimension, " only"));
    }
    if (sum > std::numeric_limits<int64_t>::max()) {
      return Broken("size", "the concatenated dimension overflows");
    }
    result.dims[dimension] = static_cast<int64_t>(sum);
  }
  return Results({result});
}

Inference Reverse(const RuleInput& input) {
  if (Inference bad = CheckDimensions(*input.in[0], input.attributes.Ints(A::kDimensions));
      !bad.ok()) {
    return bad;
  }
  return Results({*input.in[0]});
}

Inference GatherRows(const RuleInput& input) {
  const TensorType& rows = *input.in[0];
  const TensorType& indices = *input.in[1];
  if (!Contains(dtypes::kIntegers, indices.dtype)) {
    return Broken("type", absl::StrCat("indices are integers, not ", ToString(indices)));
  }
  if (rows.dims.empty() || (rows.dims[0] == 0 && ElementsOf(indices) != 0u)) {
    return Broken("shape", absl::StrCat(ToString(rows), " has no rows for ", ToString(indices)));
  }
  TensorType result = {rows.dtype, indices.dims};
  result.dims.insert(result.dims.end(), rows.dims.begin() + 1, rows.dims.end());
  return Results({result});
}

Inference Reduce(const RuleInput& input) {
  const auto dimensions = input.attributes.Ints(A::kDimensions);
  if (Inference bad = CheckDimensions(*input.in[0], dimensions); !bad.ok()) return bad;
  if (Inference bad = CheckAccumulate(input); !bad.ok()) return bad;
  const auto reduction = static_cast<Reduction>(input.attributes.Int(A::kReduction));
  const bool logical = reduction == Reduction::kAny || reduction == Reduction::kAll;
  if (logical != (input.in[0]->dtype == DType::kBool)) {
    return Broken("type", absl::StrCat("any and all are of bool, the others of numbers, not of ",
                                       ToString(*input.in[0])));
  }
  TensorType result = {input.in[0]->dtype, {}};
  for (size_t i = 0; i < input.in[0]->dims.size(); ++i) {
    if (std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(i)) ==
        dimensions.end()) {
      result.dims.push_back(input.in[0]->dims[i]);
    }
  }
  return Results({result});
}

Inference Argmax(const RuleInput& input) {
  if (Inference bad = CheckDimension(input); !bad.ok()) return bad;
  const int64_t dimension = input.attributes.Int(A::kDimension);
  TensorType result = {input.said.empty() ? DType::kI32 : input.said[0].dtype, input.in[0]->dims};
  const int64_t length = result.dims[dimension];
  result.dims.erase(result.dims.begin() + dimension);
  if (result.dtype != DType::kI32 && result.dtype != DType::kI64) {
    return Broken("result", absl::StrCat("indices are i32 or i64, not ", ToString(result)));
  }
  if (length == 0 && ElementsOf(result) != 0u) {
    return Broken("shape", absl::StrCat("nothing is the largest of ", ToString(*input.in[0])));
  }
  if (result.dtype == DType::kI32 && length > std::numeric_limits<int32_t>::max()) {
    return Broken("size", absl::StrCat("i32 does not count ", ToString(*input.in[0])));
  }
  return Results({result});
}

Inference CumulativeSum(const RuleInput& input) {
  if (Inference bad = CheckDimension(input); !bad.ok()) return bad;
  if (Inference bad = CheckAccumulate(input); !bad.ok()) return bad;
  return Results({*input.in[0]});
}

}  // namespace ferry::compute::rules
