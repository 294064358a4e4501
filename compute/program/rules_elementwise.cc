// SPDX-License-Identifier: Apache-2.0
// The rules of elementwise ops and of changes of type.
#include <utility>

#include "absl/strings/str_cat.h"
#include "compute/program/rules.h"

namespace ferry::compute::rules {
namespace {

// All operands from `from` on are of one type.
Inference CheckSame(const RuleInput& input, size_t from) {
  for (size_t i = from + 1; i < input.in.size(); ++i) {
    if (*input.in[i] != *input.in[from]) {
      return Broken("same type",
                    absl::StrCat("operands ", from, " and ", i, " are ", ToString(*input.in[from]),
                                 " and ", ToString(*input.in[i])));
    }
  }
  return {};
}

bool IsScalar(const TensorType& type) { return type.dims.empty(); }

}  // namespace

Inference Elementwise(const RuleInput& input) {
  if (Inference bad = CheckSame(input, 0); !bad.ok()) return bad;
  return Results({*input.in[0]});
}

Inference IsFinite(const RuleInput& input) { return Results({{DType::kBool, input.in[0]->dims}}); }

Inference Compare(const RuleInput& input) {
  if (Inference bad = CheckSame(input, 0); !bad.ok()) return bad;
  if (input.attributes.Has(Attribute::kTotalOrder) && !InfoOf(input.in[0]->dtype).floating) {
    return Broken("attributes",
                  absl::StrCat("total_order is for floating point, not ", ToString(*input.in[0])));
  }
  return Results({{DType::kBool, input.in[0]->dims}});
}

Inference Select(const RuleInput& input) {
  if (Inference bad = CheckSame(input, 1); !bad.ok()) return bad;
  if (!IsScalar(*input.in[0]) && input.in[0]->dims != input.in[1]->dims) {
    return Broken("shape",
                  absl::StrCat("the predicate is ", ToString(*input.in[0]),
                               ", neither a scalar nor shaped as ", ToString(*input.in[1])));
  }
  return Results({*input.in[1]});
}

Inference Clamp(const RuleInput& input) {
  const TensorType& value = *input.in[1];
  for (const size_t i : {0, 2}) {
    const TensorType& bound = *input.in[i];
    if (bound.dtype != value.dtype || (!IsScalar(bound) && bound.dims != value.dims)) {
      return Broken("same type", absl::StrCat("bound ", ToString(bound), " of ", ToString(value),
                                              ": neither a scalar of its type nor the same"));
    }
  }
  return Results({value});
}

Inference ConvertType(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const TensorType& to = input.said[0];
  if (to.dims != input.in[0]->dims) {
    return Broken("shape", absl::StrCat("convert keeps the shape: from ", ToString(*input.in[0]),
                                        " to ", ToString(to)));
  }
  const bool small = Contains(dtypes::kSmallFloats | dtypes::kScales, to.dtype);
  if (input.attributes.Has(Attribute::kMode) && !small) {
    return Broken("attributes",
                  absl::StrCat("mode is for 8-bit and 4-bit floating point, not ", ToString(to)));
  }
  if (input.attributes.Has(Attribute::kRounding) && to.dtype != DType::kF8E8M0FNU) {
    return Broken("attributes", absl::StrCat("rounding is for f8e8m0fnu, not ", ToString(to)));
  }
  return inference;
}

Inference BitcastConvert(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const TensorType& from = *input.in[0];
  const TensorType& to = input.said[0];
  const auto broken = [&] {
    return Broken("bits",
                  absl::StrCat("the bits of ", ToString(from), " are not those of ", ToString(to)));
  };
  if (!Contains(dtypes::kNoBool, to.dtype)) return broken();
  // The narrower one has one more dimension, last: how many of it make a wide one.
  const bool narrows = InfoOf(to.dtype).bits < InfoOf(from.dtype).bits;
  const TensorType& wide = narrows ? from : to;
  const TensorType& narrow = narrows ? to : from;
  TensorType expected = {narrow.dtype, wide.dims};
  const int ratio = InfoOf(wide.dtype).bits / InfoOf(narrow.dtype).bits;
  if (ratio > 1) expected.dims.push_back(ratio);
  if (narrow != expected) return broken();
  return inference;
}

}  // namespace ferry::compute::rules
