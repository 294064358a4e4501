// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/packaged_kernels.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry::compute {
namespace {

// Relative to the folder of a program that is installed.
constexpr char kKernelPlace[] = "../share/ferry/kernels";

// 0 if there is none.
int MajorOf(absl::string_view version) {
  int major = 0;
  return absl::SimpleAtoi(version.substr(0, version.find('.')), &major) ? major : 0;
}

}  // namespace

std::string FindPackagedKernels() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "";
  const std::filesystem::path path = (own.parent_path() / kKernelPlace).lexically_normal();
  return std::filesystem::exists(path / kPackagedVersionFile, error) ? path.string() : "";
}

absl::Status CheckPackagedKernels(const std::string& directory, absl::string_view driver) {
  std::string version;
  std::ifstream(std::filesystem::path(directory) / kPackagedVersionFile) >> version;
  const int made = MajorOf(version);
  const auto refuse = [&](const std::string& why) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                 absl::StrCat("use the compiled kernels in ", directory, ": ", why));
  };
  if (made == 0) return refuse("they do not say which NVRTC has made them");
  if (MajorOf(driver) >= made) return absl::OkStatus();
  return refuse(absl::StrCat("they are of CUDA ", version, ", and the driver is of CUDA ", driver));
}

}  // namespace ferry::compute
