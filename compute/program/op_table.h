// SPDX-License-Identifier: Apache-2.0
// The table of all ops. To add an op, add a row here and its rule in one of rules_*.cc; the text
// form, the wire, verification, the fingerprint and the cost follow from these.
//
// X(enumerator, name, buffers, operands, results, must, may, dtypes, effect, cost, rule)
//   name       StableHLO's name if it has the op; docs/programs.md says what is narrower here
//   buffers    number of buffers that the op names
//   operands   {least, most}
//   results    number of results; kAsOperands: as many as operands
//   must, may  attributes that the op must have, and may have
//   dtypes     allowed types of the first operand, or of the result if there is no operand
//   effect     the most that the op does
//   cost       see CostBasis in op.h
#pragma once

// clang-format off
#define FERRY_OPS(X) \
  /* source */ \
  X(kInput, "input", 1, Exactly(0), 1, 0, Bit(A::kOffset) | Bit(A::kStrides), kAll, Effect::kDataflow, kFree, Declared) \
  X(kConstant, "constant", 0, Exactly(0), 1, 0, Bit(A::kSplat) | Bit(A::kValues), kAll, Effect::kPure, kFree, Constant) \
  X(kEmpty, "empty", 0, Exactly(0), 1, 0, 0, kAll, Effect::kDataflow, kFree, Declared) \
  X(kIota, "iota", 0, Exactly(0), 1, Bit(A::kDimension), 0, kNumbers, Effect::kPure, kFree, Iota) \
  X(kRngBits, "rng_bits", 0, Exactly(2), 1, 0, 0, kU64, Effect::kPure, Flops(10), RngBits) \
  /* elementwise */ \
  X(kAdd, "add", 0, Exactly(2), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kSubtract, "subtract", 0, Exactly(2), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kMultiply, "multiply", 0, Exactly(2), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kDivide, "divide", 0, Exactly(2), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kMaximum, "maximum", 0, Exactly(2), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kMinimum, "minimum", 0, Exactly(2), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kPower, "power", 0, Exactly(2), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kRemainder, "remainder", 0, Exactly(2), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kAnd, "and", 0, Exactly(2), 1, 0, 0, kBits, Effect::kPure, Flops(1), Elementwise) \
  X(kOr, "or", 0, Exactly(2), 1, 0, 0, kBits, Effect::kPure, Flops(1), Elementwise) \
  X(kXor, "xor", 0, Exactly(2), 1, 0, 0, kBits, Effect::kPure, Flops(1), Elementwise) \
  X(kNot, "not", 0, Exactly(1), 1, 0, 0, kBits, Effect::kPure, Flops(1), Elementwise) \
  X(kShiftLeft, "shift_left", 0, Exactly(2), 1, 0, 0, kIntegers, Effect::kPure, Flops(1), Elementwise) \
  X(kShiftRightLogical, "shift_right_logical", 0, Exactly(2), 1, 0, 0, kIntegers, Effect::kPure, Flops(1), Elementwise) \
  X(kShiftRightArithmetic, "shift_right_arithmetic", 0, Exactly(2), 1, 0, 0, kIntegers, Effect::kPure, Flops(1), Elementwise) \
  X(kNegate, "negate", 0, Exactly(1), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kAbs, "abs", 0, Exactly(1), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kSign, "sign", 0, Exactly(1), 1, 0, 0, kNumbers, Effect::kPure, Flops(1), Elementwise) \
  X(kFloor, "floor", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Flops(1), Elementwise) \
  X(kCeil, "ceil", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Flops(1), Elementwise) \
  X(kRoundNearestEven, "round_nearest_even", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Flops(1), Elementwise) \
  X(kSqrt, "sqrt", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kRsqrt, "rsqrt", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kCbrt, "cbrt", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kExponential, "exponential", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kExponentialBase2, "exponential_base_two", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kExponentialMinusOne, "exponential_minus_one", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kLog, "log", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kLogBase2, "log_base_two", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kLogPlusOne, "log_plus_one", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kSine, "sine", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kCosine, "cosine", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kTanh, "tanh", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kLogistic, "logistic", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kErf, "erf", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Transcendental(), Elementwise) \
  X(kFma, "fma", 0, Exactly(3), 1, 0, 0, kFloats, Effect::kPure, Flops(2), Elementwise) \
  X(kIsFinite, "is_finite", 0, Exactly(1), 1, 0, 0, kFloats, Effect::kPure, Flops(1), IsFinite) \
  X(kCompare, "compare", 0, Exactly(2), 1, Bit(A::kDirection), Bit(A::kTotalOrder), kComparable, Effect::kPure, Flops(1), Compare) \
  X(kSelect, "select", 0, Exactly(3), 1, 0, 0, kBool, Effect::kPure, Flops(1), Select) \
  X(kClamp, "clamp", 0, Exactly(3), 1, 0, 0, kNumbers, Effect::kPure, Flops(2), Clamp) \
  /* types */ \
  X(kConvert, "convert", 0, Exactly(1), 1, 0, Bit(A::kMode) | Bit(A::kRounding), kAll, Effect::kPure, kFree, ConvertType) \
  X(kBitcastConvert, "bitcast_convert", 0, Exactly(1), 1, 0, 0, kNoBool, Effect::kPure, kFree, BitcastConvert) \
  X(kQuantizeBlock, "quantize_block", 0, Between(1, 2), 2, 0, Bit(A::kRounding) | Bit(A::kBlock), kFloats, Effect::kPure, FlopsOfOperand(3), QuantizeBlock) \
  X(kDequantizeBlock, "dequantize_block", 0, Between(2, 3), 1, 0, Bit(A::kBlock), kSmallFloats, Effect::kPure, FlopsOfOperand(1), DequantizeBlock) \
  X(kSwizzleScales, "swizzle_scales", 0, Exactly(1), 1, 0, 0, kScales, Effect::kPure, kFree, SwizzleScales) \
  X(kUnswizzleScales, "unswizzle_scales", 0, Exactly(1), 1, 0, 0, kScales, Effect::kPure, kFree, UnswizzleScales) \
  /* shape */ \
  X(kBroadcastInDim, "broadcast_in_dim", 0, Exactly(1), 1, 0, Bit(A::kDimensions), kAll, Effect::kPure, kFree, BroadcastInDim) \
  X(kReshape, "reshape", 0, Exactly(1), 1, 0, 0, kAll, Effect::kPure, kFree, Reshape) \
  X(kTranspose, "transpose", 0, Exactly(1), 1, 0, Bit(A::kPermutation), kAll, Effect::kPure, kFree, Transpose) \
  X(kSlice, "slice", 0, Exactly(1), 1, 0, Bit(A::kStart) | Bit(A::kLimit) | Bit(A::kStep), kAll, Effect::kPure, kFree, Slice) \
  X(kDynamicSlice, "dynamic_slice", 0, Between(1, 1 + kMaxRank), 1, 0, Bit(A::kSizes), kAll, Effect::kPure, kFree, DynamicSlice) \
  X(kPad, "pad", 0, Exactly(2), 1, 0, Bit(A::kLow) | Bit(A::kHigh) | Bit(A::kInterior), kAll, Effect::kPure, kFree, Pad) \
  X(kConcatenate, "concatenate", 0, Between(1, kMaxOperands), 1, Bit(A::kDimension), 0, kAll, Effect::kPure, kFree, Concatenate) \
  X(kReverse, "reverse", 0, Exactly(1), 1, 0, Bit(A::kDimensions), kAll, Effect::kPure, kFree, Reverse) \
  X(kGatherRows, "gather_rows", 0, Exactly(2), 1, 0, 0, kAll, Effect::kPure, kFree, GatherRows) \
  /* reduce */ \
  X(kReduce, "reduce", 0, Exactly(1), 1, Bit(A::kReduction), Bit(A::kDimensions) | Bit(A::kAccumulate), kArithmetic, Effect::kPure, FlopsOfOperand(1), Reduce) \
  X(kArgmax, "argmax", 0, Exactly(1), 1, Bit(A::kDimension), 0, kNumbers, Effect::kPure, FlopsOfOperand(1), Argmax) \
  X(kCumulativeSum, "cumulative_sum", 0, Exactly(1), 1, Bit(A::kDimension), Bit(A::kAccumulate), kNumbers, Effect::kPure, FlopsOfOperand(1), CumulativeSum) \
  /* bytes */ \
  X(kChecksum, "checksum", 0, Exactly(1), 1, 0, 0, kNoBool, Effect::kPure, FlopsOfOperand(2), Checksum) \
  X(kDeltaEncode, "delta_encode", 0, Exactly(2), 4, 0, 0, kNoBool, Effect::kPure, FlopsOfOperand(2), DeltaEncode) \
  /* contraction */ \
  X(kDotGeneral, "dot_general", 0, Exactly(2), 1, 0, Bit(A::kAccumulate) | Bit(A::kLhsBatch) | Bit(A::kRhsBatch) | Bit(A::kLhsContract) | Bit(A::kRhsContract), kFactors, Effect::kPure, kContraction, DotGeneral) \
  X(kBlockScaledDot, "block_scaled_dot", 0, Between(3, 5), 1, 0, Bit(A::kBlock), kSmallFloats, Effect::kPure, kContraction, BlockScaledDot) \
  /* effects */ \
  X(kStore, "store", 1, Exactly(1), 0, 0, Bit(A::kOffset) | Bit(A::kStrides), kAll, Effect::kSideEffecting, kFree, Nothing) \
  X(kAccumulate, "accumulate", 1, Exactly(1), 0, 0, Bit(A::kOffset) | Bit(A::kStrides), kNumbers, Effect::kSideEffecting, FlopsOfOperand(1), Nothing) \
  X(kCopy, "copy", 2, Exactly(0), 0, Bit(A::kBytes), Bit(A::kOffset) | Bit(A::kSourceOffset), kAll, Effect::kSideEffecting, kFree, Nothing) \
  X(kDeltaApply, "delta_apply", 1, Exactly(3), 0, Bit(A::kBytes), Bit(A::kOffset), kU32, Effect::kSideEffecting, kFree, DeltaApply) \
  X(kSend, "send", 0, Exactly(1), 0, Bit(A::kKey), Bit(A::kDevice) | Bit(A::kPeer) | Bit(A::kParts), kAll, Effect::kSideEffecting, kFree, Nothing) \
  X(kRecv, "recv", 0, Exactly(0), 1, Bit(A::kKey), Bit(A::kDevice) | Bit(A::kPeer) | Bit(A::kParts), kAll, Effect::kSideEffecting, kFree, Declared) \
  /* control */ \
  X(kBarrier, "barrier", 0, Between(1, kMaxOperands), kAsOperands, 0, 0, kAll, Effect::kDataflow, kFree, AsOperands) \
  X(kKeep, "keep", 0, Between(1, kMaxOperands), 0, 0, 0, kAll, Effect::kSideEffecting, kFree, Nothing) \
  X(kRepeat, "repeat", 0, Between(0, kMaxOperands), kAsOperands, Bit(A::kTrips), 0, kAll, Effect::kPure, kFree, AsOperands)
// clang-format on
