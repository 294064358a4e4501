// SPDX-License-Identifier: Apache-2.0
// Compiled kernels that a package brings: a directory as CubinCache has it, which is only read. A
// file is named by a KernelKey with kPackagedVersion in place of NVRTC's version, so that it is
// found wherever NVRTC is another one, or missing: source, headers and options are in the key, and
// what made the code of them is the package's matter. The file "nvrtc" has its version, which says
// what drivers load the code. Pure but for reading files; any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ferry::compute {

inline constexpr absl::string_view kPackagedVersion = "packaged";
inline constexpr char kPackagedVersionFile[] = "nvrtc";

// The directory, where it is installed relative to the program that runs. Empty if it is not there.
std::string FindPackagedKernels();

// Whether a driver of this version of CUDA, such as "13.0", loads what is in the directory: its
// major version is that of the directory's NVRTC, or a later one.
// FAILED_PRECONDITION/CONFIG_INVALID says why not.
absl::Status CheckPackagedKernels(const std::string& directory, absl::string_view driver);

}  // namespace ferry::compute
