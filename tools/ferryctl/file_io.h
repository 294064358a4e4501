// SPDX-License-Identifier: Apache-2.0
// Whole reads and writes of regular files by offset, with errors that name the file. Any thread;
// one at a time per object.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ferry::tools {

class InputFile {
 public:
  // A regular file; NOT_FOUND if there is none.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  uint64_t bytes() const { return bytes_; }
  // All of it, or an error: a file that shrinks under us is one.
  absl::Status Read(uint64_t offset, void* to, size_t size) const;

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

// Writes beside `path` and takes its place on Commit, so that a failure leaves no half of a file.
// What is not committed is removed.
class OutputFile {
 public:
  // Reserves the space at once: a full disk is known before anything is moved.
  static absl::StatusOr<OutputFile> Create(const std::string& path, uint64_t bytes);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();
  absl::Status Write(uint64_t offset, const void* from, size_t size) const;
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, UniqueFd fd);
  std::string path_;
  std::string temporary_;  // empty once committed
  UniqueFd fd_;
};

}  // namespace ferry::tools
