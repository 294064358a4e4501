// SPDX-License-Identifier: Apache-2.0
// What a trainer does to the GPUs meanwhile: another process (PyTorch) multiplies bf16 matrices of
// 8192 on every GPU without a pause, and prints how fast. One thread, except for the reader.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

class GpuLoad {
 public:
  // Returns when all GPUs are busy. UNAVAILABLE if there is no python3 with torch and CUDA.
  static absl::StatusOr<std::unique_ptr<GpuLoad>> Start(int gpus);
  ~GpuLoad();

  // TFLOP/s of a GPU while `act` is done again and again; with a null `act`, while nothing else is
  // done.
  absl::StatusOr<double> RateWhile(const std::function<absl::Status()>& act);

 private:
  struct Sample {
    int64_t begin, end;  // CLOCK_MONOTONIC, ns
    double teraflops;
  };
  GpuLoad() = default;
  void Read();
  size_t SamplesIn(int64_t begin, double* sum);

  UniqueFd output_;
  std::unique_ptr<tools::ChildProcess> process_;
  std::thread reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Sample> samples_;
  bool ended_ = false;
};

}  // namespace ferry::bench
