// SPDX-License-Identifier: Apache-2.0
// Which cuBLASLt a process multiplies matrices by, if any. Constant; any thread.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ferry::compute {

struct CublasLtApi;

class CublasLtLibrary {
 public:
  static constexpr absl::string_view kNone = "none";
  // `library`: a name or a path; empty: the newest that CUDA has installed; kNone: our own kernels
  // multiply. `driver`: the CUDA version of the driver, such as 13000.
  CublasLtLibrary(std::string library, int driver)
      : library_(std::move(library)), driver_(driver) {}

  // Opens it at the first call, which may block for as long as reading 500 MiB takes.
  // UNAVAILABLE/NOT_READY if there is none, with why.
  absl::StatusOr<const CublasLtApi*> Get() const;

 private:
  const std::string library_;
  const int driver_;
};

}  // namespace ferry::compute
