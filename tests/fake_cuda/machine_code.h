// SPDX-License-Identifier: Apache-2.0
// Kernels of the fake NVRTC, as the fake driver runs them. A kernel's machine code is kMachineCode,
// then its source, which ends with a 0.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fake_cuda {

inline const std::string kMachineCode = "FERRY FAKE GPU\n";

// A kernel that the host's compiler has made. The file that it is in is gone already.
class HostKernel {
 public:
  // Null if the source does not compile; then why is printed to stderr.
  static std::shared_ptr<HostKernel> Make(const std::string& source);
  ~HostKernel();
  HostKernel(const HostKernel&) = delete;
  HostKernel& operator=(const HostKernel&) = delete;

  // Copies the values that a launch is given.
  std::vector<uint64_t> Take(void** arguments) const;
  // Runs it, on the calling thread. Kernels of all GPUs of a process run one after the other.
  void Run(uint64_t blocks, uint32_t threads, std::vector<uint64_t>& values) const;

 private:
  HostKernel() = default;

  void* library_ = nullptr;
  bool waits_ = false;           // its threads wait for each other
  std::vector<unsigned> sizes_;  // of its parameters, in bytes
};

}  // namespace fake_cuda
