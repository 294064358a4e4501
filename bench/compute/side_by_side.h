// SPDX-License-Identifier: Apache-2.0
// Programs beside other computations of the same: medians of turns in which all come after each
// other, so that the machine's other work meets all. Single-threaded but for the programs' workers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry::bench {

inline constexpr size_t kTurns = 5;

struct Memory {
  explicit Memory(uint64_t size)
      : bytes(size),
        at(static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096))) {
    // Values around 1 of any type: none so small that it is an exception.
    for (uint64_t i = 0; i < size; ++i)
      at[i] = static_cast<std::byte>(i % 2 == 1 ? 0x3F : i * 37 % 64);
  }
  ~Memory() { std::free(at); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(at);
  }

  const uint64_t bytes;
  std::byte* const at;
};

class Prepared {
 public:
  Prepared(const std::string& text, size_t threads, std::vector<const Memory*> buffers)
      : program_(Made(text, threads)),
        workers_(threads),
        scratch_(program_.scratch_bytes() + 64),
        kept_memory_(program_.from_constants_bytes() + 64) {
    kept_.memory = {kept_memory_.at, program_.from_constants_bytes()};
    for (const Memory* memory : buffers) spans_.push_back({memory->at, memory->bytes});
  }
  // `keeps`: what is made of constant buffers stays for the next run.
  void Run(bool keeps = false) {
    program_.Run(spans_, {scratch_.at, program_.scratch_bytes()}, &workers_, nullptr,
                 keeps ? &kept_ : nullptr);
  }
  // Who computes its product.
  std::string who() const { return program_.ProductMakers().at(0).second; }

 private:
  static compute::HostProgram Made(const std::string& text, size_t threads) {
    compute::ParsedText parsed = compute::Parse(text);
    const auto status = compute::ToStatus(parsed.program, compute::Verify(parsed.program));
    if (!status.ok() || !parsed.problems.empty()) std::fprintf(stderr, "%s\n", text.c_str());
    FERRY_CHECK(parsed.problems.empty() && status.ok());
    auto made = compute::HostProgram::Make(compute::Simplify(parsed.program), threads);
    FERRY_CHECK(made.ok());
    return *std::move(made);
  }

  compute::HostProgram program_;
  compute::Workers workers_;
  Memory scratch_, kept_memory_;
  compute::HostProgram::FromConstants kept_;
  std::vector<absl::Span<std::byte>> spans_;
};

inline double SecondsOf(const std::function<void()>& run, size_t times) {
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < times; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(times);
}

inline double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  // A row each of `others`. `work`: what is done each time, in the unit.
  struct Other {
    std::string name;
    std::function<void()> run;
    double target = 0;  // of our speed by its own; 0: none
  };
  void Compare(const std::string& name, const std::string& unit, double work, size_t times,
               const std::function<void()>& ours, const std::vector<Other>& others) {
    std::vector<double> mine;
    std::vector<std::vector<double>> theirs(others.size());
    for (size_t turn = 0; turn <= kTurns; ++turn) {  // the first is to warm up
      // OpenMP's threads spin for some milliseconds after what they did, on a core that is ours
      // now.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const double own = SecondsOf(ours, times);
      if (turn > 0) mine.push_back(own);
      for (size_t i = 0; i < others.size(); ++i) {
        const double other = SecondsOf(others[i].run, times);
        if (turn > 0) theirs[i].push_back(other);
      }
    }
    for (size_t i = 0; i < others.size(); ++i) {
      const double own = work / MedianOf(mine);
      const double other = work / MedianOf(theirs[i]);
      const double target = others[i].target;
      const std::string verdict =
          target == 0
              ? "      -"
              : absl::StrFormat("%7.2f  %s", target, own / other >= target ? "ok" : "MISSED");
      std::printf("%-40s %9.1f %-8s %-18s %9.1f %7.2f %s\n", name.c_str(), own, unit.c_str(),
                  others[i].name.c_str(), other, own / other, verdict.c_str());
      std::fflush(stdout);
    }
  }
};

// `run` of each half.
inline void InHalves(compute::Workers& workers, size_t count,
                     const std::function<void(size_t, size_t)>& run) {
  const size_t parts = workers.threads();
  workers.Run(parts, [&](size_t part) {
    const size_t begin = count * part / parts;
    run(begin, count * (part + 1) / parts - begin);
  });
}

}  // namespace ferry::bench
