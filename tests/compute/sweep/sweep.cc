// SPDX-License-Identifier: Apache-2.0
// Converts all 2^32 f32 to every narrower floating type in every mode, and compares with the
// oracle: ferry_numerics_sweep [THREADS]. What a code is given to is an interval of f32, whose ends
// the oracle says; so it is asked once a code, not once a value.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/compute/numerics/elements.h"
#include "tests/compute/numerics/oracle.h"

namespace ferry::compute::testing {
namespace {

constexpr uint32_t kInfinity = 0x7F800000;
constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kRun = 1u << 16;  // f32 at a time

// What the magnitudes 0 to infinity become, in order: codes from `first` bits on.
struct Step {
  uint32_t first;
  uint32_t code;
};

struct Sweep {
  DType type;
  ConvertMode mode;
  std::vector<Step> positive;
  std::vector<Step> negative;
  uint32_t nan;
};

uint32_t BitsOf(long double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<long double>(narrow) != value) std::abort();  // the ends of intervals are f32
  return std::bit_cast<uint32_t>(narrow);
}

Sweep Nearest(const Definition& definition, const NearestOracle& oracle, Overflow overflow) {
  Sweep sweep{definition.type, {overflow}, {{0, 0}}, {}, definition.nan};
  for (uint32_t code = 0; code <= definition.max; ++code) {
    const uint32_t midpoint = BitsOf(oracle.Midpoint(code));
    const uint32_t next = code == definition.max ? oracle.Beyond(overflow) : code + 1;
    sweep.positive.push_back({midpoint + (code % 2 == 0 ? 1 : 0), next});
  }
  for (Step step : sweep.positive) {
    step.code |= 1u << (definition.bits - 1);
    sweep.negative.push_back(step);
  }
  return sweep;
}

Sweep Scales(ConvertMode mode) {
  Sweep sweep{DType::kF8E8M0FNU, mode, {}, {}, 255};
  // No interval begins elsewhere than at or just above a power of two or 1.5 times one.
  std::vector<uint32_t> ends = {0, 1, kInfinity};
  for (int k = -127; k <= 127; ++k) {
    for (const long double end : {std::ldexp(1.0L, k), std::ldexp(1.5L, k)}) {
      ends.push_back(BitsOf(end));
      ends.push_back(BitsOf(end) + 1);
    }
  }
  std::sort(ends.begin(), ends.end());
  for (const uint32_t end : ends) {
    const auto value = std::bit_cast<float>(end);
    sweep.positive.push_back({end, EncodeE8M0(value, mode)});
    sweep.negative.push_back({end, EncodeE8M0(-value, mode)});
  }
  return sweep;
}

// The f32 of `bits`, which count up and are all of one sign.
bool Check(const Sweep& sweep, const std::vector<uint32_t>& bits, Bytes& out) {
  Convert(DType::kF32, reinterpret_cast<const std::byte*>(bits.data()), sweep.type, out.data(),
          bits.size(), sweep.mode);
  const auto* bytes = reinterpret_cast<const uint8_t*>(out.data());
  const int width = InfoOf(sweep.type).bits;
  const std::vector<Step>& steps = bits[0] < kSign ? sweep.positive : sweep.negative;
  const auto above = [](uint32_t magnitude, const Step& step) { return magnitude < step.first; };
  auto next = std::upper_bound(steps.begin(), steps.end(), bits[0] & ~kSign, above);
  for (uint32_t i = 0; i < bits.size(); ++i) {
    const uint32_t magnitude = bits[i] & ~kSign;
    while (next != steps.end() && next->first <= magnitude) ++next;
    const uint32_t expected = magnitude > kInfinity ? sweep.nan : std::prev(next)->code;
    const uint32_t got = width == 4   ? bytes[i / 2] >> (i % 2 * 4) & 0xF
                         : width == 8 ? bytes[i]
                                      : bytes[2 * i] | bytes[2 * i + 1] << 8;
    if (got == expected) continue;
    std::fprintf(stderr, "f32 %08x to %s, overflow %d, rounding %d: %x, should be %x\n", bits[i],
                 std::string(NameOf(sweep.type)).c_str(), static_cast<int>(sweep.mode.overflow),
                 static_cast<int>(sweep.mode.scale_rounding), got, expected);
    return false;
  }
  return true;
}

int Main(int threads) {
  std::vector<Sweep> sweeps;
  for (const Definition& definition : Definitions()) {
    const NearestOracle oracle(definition);
    for (const Overflow overflow : {Overflow::kNanOrInf, Overflow::kSaturate}) {
      sweeps.push_back(Nearest(definition, oracle, overflow));
    }
  }
  for (const ConvertMode mode : Modes()) sweeps.push_back(Scales(mode));
  std::atomic<uint64_t> next_run = 0;
  std::atomic<bool> wrong = false;
  const auto work = [&] {
    std::vector<uint32_t> bits(kRun);
    Bytes out(kRun * 2);
    while (!wrong) {
      const uint64_t begin = next_run.fetch_add(1) * kRun;
      if (begin >> 32 != 0) return;
      for (uint32_t i = 0; i < kRun; ++i) bits[i] = static_cast<uint32_t>(begin) + i;
      for (const Sweep& sweep : sweeps) {
        if (!Check(sweep, bits, out)) wrong = true;
      }
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  if (!wrong) std::printf("all 2^32 f32 to %zu types and modes: as the oracle\n", sweeps.size());
  return wrong ? 1 : 0;
}

}  // namespace
}  // namespace ferry::compute::testing

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (argc > 2 || threads < 1) {
    std::fprintf(stderr, "ferry_numerics_sweep [THREADS]\n");
    return 2;
  }
  return ferry::compute::testing::Main(threads);
}
