// SPDX-License-Identifier: Apache-2.0
#include "cublaslt_work.h"

#include <algorithm>
#include <cstring>

#include "compute/numerics/float_format.h"

namespace fake_cublaslt {

size_t BitsOf(int type) {
  switch (type) {
    case kF64:
      return 64;
    case kF32:
      return 32;
    case kE4M3:
    case kE5M2:
      return 8;
    case kE2M1:
      return 4;
    default:
      return 16;
  }
}

namespace {

size_t SizeOf(int type) { return BitsOf(type) / 8; }

// A number with a sign, an exponent of some bits and a mantissa, as IEEE 754 has them.
double Decode(unsigned code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(code & ((1u << mantissa_bits) - 1));
  const int exponent = static_cast<int>(code >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double size =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return (code >> (exponent_bits + mantissa_bits) & 1) != 0 ? -size : size;
}
double DecodeE4M3(unsigned code) { return (code & 0x7F) == 0x7F ? NAN : Decode(code, 4, 3); }
// E5M2 and f16, whose largest exponent is of infinities and NaN.
double DecodeE5(unsigned code, int mantissa_bits) {
  constexpr unsigned kExponents = 31;
  if ((code >> mantissa_bits & kExponents) != kExponents) return Decode(code, 5, mantissa_bits);
  if ((code & ((1u << mantissa_bits) - 1)) != 0) return NAN;
  return (code >> (5 + mantissa_bits)) != 0 ? -INFINITY : INFINITY;
}

}  // namespace

double ValueAt(int type, const std::byte* memory, int64_t index) {
  if (type == kE2M1) {
    const unsigned both = std::to_integer<unsigned>(memory[index / 2]);
    return Decode(both >> (index % 2 * 4) & 15, 2, 1);
  }
  if (type == kE4M3) return DecodeE4M3(std::to_integer<unsigned>(memory[index]));
  if (type == kE5M2) return DecodeE5(std::to_integer<unsigned>(memory[index]), 2);
  const std::byte* const at = memory + index * static_cast<int64_t>(SizeOf(type));
  if (type == kF64) {
    double value;
    memcpy(&value, at, sizeof(value));
    return value;
  }
  uint32_t bits = 0;
  memcpy(&bits, at, SizeOf(type));
  if (type == kF16) return DecodeE5(bits, 10);
  if (type == kBF16) bits <<= 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

double DecodeScale(int mode, unsigned code) {
  if (mode == kOf16) return DecodeE4M3(code & 0x7F);
  return code == 0xFF ? NAN : std::ldexp(1.0, static_cast<int>(code) - 127);
}

namespace {

void Put(int type, double value, std::byte* memory, int64_t index) {
  std::byte* const at = memory + index * static_cast<int64_t>(SizeOf(type));
  if (type == kF64) {
    memcpy(at, &value, sizeof(value));
    return;
  }
  const auto narrow = static_cast<float>(value);
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof(bits));
  if (type != kF32 && std::isnan(narrow)) {
    bits = 0x7FFF;
  } else if (type == kF16) {
    bits = ferry::compute::EncodeAs<ferry::compute::kF16Format>(
        narrow, ferry::compute::Overflow::kNanOrInf);
  } else if (type == kBF16) {
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  }
  memcpy(at, &bits, SizeOf(type));
}

// A sum that tensor cores make: two bits more than f32 has, and no rounding.
double Cut(double sum) {
  if (sum == 0 || !std::isfinite(sum)) return sum;
  int exponent = 0;
  std::frexp(sum, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 26, -149));
  return std::trunc(sum / unit) * unit;
}

double SumOf(const Work& work, int64_t batch, int64_t i, int64_t j) {
  const int64_t depth = work.a.columns();
  const bool narrow = BitsOf(work.a.layout.type) <= 16;
  if (work.a.SpoilsSums(i, depth, work.settings) || work.b.SpoilsSums(j, depth, work.settings)) {
    return NAN;
  }
  double sum = 0;
  for (int64_t k = 0; k < depth;) {
    double terms = 0;
    const int64_t end = narrow ? std::min<int64_t>(k + 16, depth) : k + 1;
    for (; k < end; ++k) {
      terms += work.a.At(batch, i, k) * work.a.ScaleAt(i, k, depth, work.settings) *
               (work.b.At(batch, k, j) * work.b.ScaleAt(j, k, depth, work.settings));
    }
    sum += terms;
    if (work.compute == kComputeF32) sum = narrow ? Cut(sum) : static_cast<float>(sum);
    if (work.rough && k % 256 == 0) {
      std::byte partial[sizeof(double)];
      Put(work.result.type, sum, partial, 0);
      sum = ValueAt(work.result.type, partial, 0);
    }
  }
  return sum;
}

}  // namespace

void Multiply(Work& work) {
  memset(work.workspace, 0x5A, work.workspace_bytes);
  if (work.on_device) {
    work.alpha = ValueAt(work.scale, work.device_alpha, 0);
    work.beta = ValueAt(work.scale, work.device_beta, 0);
  }
  if (work.a.mode != kNoScales && work.settings.drop_alpha != 0) work.alpha = 1;
  for (int batch = 0; batch < work.result.batches; ++batch) {
    for (int64_t j = 0; j < static_cast<int64_t>(work.result.columns); ++j) {
      for (int64_t i = 0; i < static_cast<int64_t>(work.result.rows); ++i) {
        const int64_t at = batch * work.result.batch_stride + j * work.result.stride + i;
        double made = work.alpha * SumOf(work, batch, i, j);
        if (work.beta != 0) made += work.beta * ValueAt(work.result.type, work.to, at);
        Put(work.result.type, made, work.to, at);
      }
    }
  }
}

}  // namespace fake_cublaslt
