// SPDX-License-Identifier: Apache-2.0
// All 2^32 f32 (or every STEP-th) by each function of one argument, as this CPU computes it,
// against float64: ferry_function_sweep [THREADS [STEP]]. Prints the table of docs/numerics.md.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "compute/host/cpu.h"
#include "tests/compute/host/function_errors.h"

namespace ferry::compute::testing {
namespace {

WorstUnits SweepAll(const FunctionCase& one, int threads, uint64_t step) {
  constexpr uint64_t kRun = uint64_t{1} << 16;  // at a time
  Mutex mutex;
  WorstUnits worst;
  std::atomic<uint64_t> next = 0;
  const auto work = [&] {
    std::vector<uint32_t> codes;
    while (true) {
      const uint64_t begin = next.fetch_add(kRun) * step;
      if (begin >> 32 != 0) return;
      codes.clear();
      for (uint64_t i = 0; i < kRun && (begin + i * step) >> 32 == 0; ++i) {
        codes.push_back(static_cast<uint32_t>(begin + i * step));
      }
      const WorstUnits found = WorstOf(one, kF32Function, codes);
      MutexLock lock(mutex);
      worst.Add(found);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  return worst;
}

int SweepMain(int threads, uint64_t step) {
  bool good = true;
  std::printf("units in the last place, every %sf32; %s\n",
              step == 1 ? "" : (std::to_string(step) + "th ").c_str(),
              DescribeCpu(static_cast<size_t>(threads)).c_str());
  for (const FunctionCase& one : kFunctionCases) {
    const WorstUnits worst = SweepAll(one, threads, step);
    const bool within = worst.units <= one.bound;
    std::printf("%-28s %5.2f at %-14g bound %g%s\n", std::string(InfoOf(one.op).name).c_str(),
                worst.units, worst.at, one.bound, within ? "" : "  EXCEEDED");
    std::fflush(stdout);
    good = good && within;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace ferry::compute::testing

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int step = argc > 2 ? std::atoi(argv[2]) : 1;
  if (argc > 3 || threads < 1 || step < 1) {
    std::fprintf(stderr, "ferry_function_sweep [THREADS [STEP]]\n");
    return 2;
  }
  return ferry::compute::testing::SweepMain(threads, static_cast<uint64_t>(step));
}
