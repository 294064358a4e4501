// SPDX-License-Identifier: Apache-2.0
// A process that does nothing but to initialize CUDA and to open a GPU's context: what every client
// pays before libferry has its turn. Holds the context as long as the object lives. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/gpu/reporter.h"

namespace ferry::bench {

struct CudaStart {
  absl::Duration init;     // opening libcuda, and cuInit
  absl::Duration context;  // of the primary context
};
// Of this process, once; nothing if there is no such GPU.
std::optional<CudaStart> StartCuda(int device);

class BareProgram {
 public:
  // `self` and the device run RunBareProgram.
  static absl::StatusOr<BareProgram> Start(const std::string& self, int device);

  absl::Duration init() const { return times_.init; }
  absl::Duration context() const { return times_.context; }

 private:
  BareProgram(Reporter process, const CudaStart& times)
      : process_(std::move(process)), times_(times) {}

  Reporter process_;
  CudaStart times_;
};

// Writes both times to the socket, and waits until it is closed.
int RunBareProgram(int device, int socket);

}  // namespace ferry::bench
