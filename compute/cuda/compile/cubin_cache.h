// SPDX-License-Identifier: Apache-2.0
// Machine code of kernels in a directory, one file for each kernel, named by its KernelKey. Any
// number of processes may share the directory: a file is there wholly or not at all. A file is
// believed only if its checksum is right; else it is removed, and its kernel is not known. If
// others than its owner may write to the directory, nothing in it is believed.
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
    kReadOnly,  // what a package brings: the files may be root's, and stay as they are
    kOwn,       // the daemon's: made with mode 0700 if it is not there
  };
  // `most_bytes`: bound on all files together; an addition removes the files that were not read for
  // longest. Each of several objects that add, also of other processes, may exceed it by a 64th.
  // FAILED_PRECONDITION/CONFIG_INVALID, with why, if the directory cannot be used.
  static absl::StatusOr<CubinCache> Open(const std::string& path, Access access,
                                         uint64_t most_bytes = kMostBytes);
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;

  std::optional<CompiledKernel> Find(const std::string& key);
  // Adds a kernel; kOwn only. RESOURCE_EXHAUSTED if there is no room for it.
  absl::Status Add(const std::string& key, const CompiledKernel& kernel);

  // How many files were found to be wrong: tells tests that none was, or that those were.
  uint64_t corrupt() const { return corrupt_; }
  // Bytes of all files, as far as this object knows: other processes may add and remove files.
  uint64_t bytes() const { return bytes_; }

 private:
  CubinCache(std::string path, UniqueFd directory, Access access, uint64_t most_bytes)
      : path_(std::move(path)),
        directory_(std::move(directory)),
        access_(access),
        most_bytes_(most_bytes) {}
  // Counts the bytes of all files, and removes the oldest ones while they are too many.
  void Sweep();

  std::string path_;
  UniqueFd directory_;
  Access access_;
  uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  uint64_t added_ = 0;  // bytes, since this object has looked at all files last
  uint64_t corrupt_ = 0;
};

}  // namespace ferry::compute
