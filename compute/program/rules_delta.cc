// SPDX-License-Identifier: Apache-2.0
// The rules of ops that take tensors as bytes.
#include <limits>

#include "absl/strings/str_cat.h"
#include "compute/program/delta.h"
#include "compute/program/rules.h"

namespace ferry::compute {

DeltaSizes DeltaSizesOf(const Program& program, const Node& node) {
  if (node.op == Op::kDeltaApply) {
    return DeltaSizesOf(static_cast<uint64_t>(node.attributes.Int(Attribute::kBytes)),
                        program.types[node.operands[1]]);
  }
  return DeltaSizesOf(*BytesOf(program.types[node.operands[0]]),
                      program.types[node.first_result + 1]);
}

namespace rules {
namespace {

Inference CheckWholeBytes(const TensorType& type) {
  if (ElementsOf(type).value_or(0) * InfoOf(type.dtype).bits % 8 == 0) return {};
  return Broken("bits", absl::StrCat("the bytes of ", ToString(type),
                                     " are read, and half of the last one is no element"));
}

// Whether `values` may be the blocks of a delta of `bytes`.
Inference CheckValues(const TensorType& values, uint64_t bytes) {
  const int64_t block = values.dims.size() == 2 ? values.dims[1] : 0;
  if (values.dtype != DType::kU8 || block < kLeastDeltaBlock || block > kMostDeltaBlock ||
      (block & (block - 1)) != 0) {
    return Broken("block", absl::StrCat("values are u8[capacity,block], a block is a power of two "
                                        "of bytes from ",
                                        kLeastDeltaBlock, " to ", kMostDeltaBlock, ", not ",
                                        ToString(values)));
  }
  if (DeltaSizesOf(bytes, values).blocks > std::numeric_limits<uint32_t>::max()) {
    return Broken("size", absl::StrCat(bytes, " bytes are more blocks of ", block,
                                       " bytes than a u32 counts"));
  }
  return {};
}

TensorType DeltaBitmapType(const DeltaSizes& sizes) {
  return {DType::kU32, {static_cast<int64_t>(sizes.words)}};
}

TensorType DeltaCountType() { return {DType::kU32, {}}; }
TensorType ChecksumType() { return {DType::kU64, {2}}; }

}  // namespace

Inference Checksum(const RuleInput& input) {
  if (Inference bad = CheckWholeBytes(*input.in[0]); !bad.ok()) return bad;
  return Results({ChecksumType()});
}

Inference DeltaEncode(const RuleInput& input) {
  if (*input.in[0] != *input.in[1]) {
    return Broken("same type", absl::StrCat("operands 0 and 1 are ", ToString(*input.in[0]),
                                            " and ", ToString(*input.in[1])));
  }
  if (Inference bad = CheckWholeBytes(*input.in[0]); !bad.ok()) return bad;
  if (Inference inference = MustSay(input); !inference.ok()) return inference;
  const TensorType& values = input.said[1];
  const uint64_t bytes = *BytesOf(*input.in[0]);
  if (Inference bad = CheckValues(values, bytes); !bad.ok()) return bad;
  return Results(
      {DeltaBitmapType(DeltaSizesOf(bytes, values)), values, DeltaCountType(), ChecksumType()});
}

Inference DeltaApply(const RuleInput& input) {
  const TensorType& values = *input.in[1];
  const auto bytes = static_cast<uint64_t>(input.attributes.Int(Attribute::kBytes));
  if (Inference bad = CheckValues(values, bytes); !bad.ok()) return bad;
  const TensorType bitmap = DeltaBitmapType(DeltaSizesOf(bytes, values));
  if (*input.in[0] != bitmap) {
    return Broken("bitmap", absl::StrCat("of ", bytes, " bytes in blocks of ", values.dims[1],
                                         " the bitmap is ", ToString(bitmap), ", not ",
                                         ToString(*input.in[0])));
  }
  if (*input.in[2] != DeltaCountType()) {
    return Broken("count", absl::StrCat("the count of blocks is ", ToString(DeltaCountType()),
                                        ", not ", ToString(*input.in[2])));
  }
  return {};
}

}  // namespace rules
}  // namespace ferry::compute
