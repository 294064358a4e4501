// SPDX-License-Identifier: Apache-2.0
// CubinCache: machine code of kernels in a directory, a file for each, named by its KernelKey. Any
// number of processes may share the directory: a file is there wholly or not at all, and what it
// says is believed only if its checksum is right. A file that is wrong is removed, and its kernel
// is not known. Of a directory to which others than its owner may write nothing is believed.
//
// File: 8 bytes kMagic, 32 of SHA-256 of what follows, then the kernel as compile_wire.h has it.
// Single-threaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "compute/cuda/kernel_compiler.h"

namespace ferry::compute {

class CubinCache {
 public:
  enum class Access : uint8_t {
    kReadOnly,  // what a package brings; the files may be root's, and stay as they are
    kOwn,       // made if it is not there, with mode 0700
  };
  // `most_bytes`: of all files; who adds more removes those that were not read for longest.
  // FAILED_PRECONDITION/CONFIG_INVALID if the directory cannot be used, with why.
  static absl::StatusOr<CubinCache> Open(const std::string& path, Access access,
                                         uint64_t most_bytes = kMostBytes);
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;

  std::optional<CompiledKernel> Find(const std::string& key);
  // RESOURCE_EXHAUSTED if there is no room for it. Only of one's own.
  absl::Status Add(const std::string& key, const CompiledKernel& kernel);

  // Files that were there and wrong.
  uint64_t corrupt() const { return corrupt_; }
  // Of all files, as far as this object knows: others may add and remove some.
  uint64_t bytes() const { return bytes_; }

 private:
  CubinCache(std::string path, UniqueFd directory, Access access, uint64_t most_bytes)
      : path_(std::move(path)),
        directory_(std::move(directory)),
        access_(access),
        most_bytes_(most_bytes) {}
  // Looks at all files: what they have together, then, of the oldest, as many go as are too many.
  void Sweep();

  std::string path_;
  UniqueFd directory_;
  Access access_;
  uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  uint64_t corrupt_ = 0;
};

}  // namespace ferry::compute
