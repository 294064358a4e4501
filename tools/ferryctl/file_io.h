// SPDX-License-Identifier: Apache-2.0
// Whole reads of files, reads and writes of regular ones by offset, with errors that name the file.
// Any thread; one at a time per object.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ferry::tools {

// `error`, of errno, as an error that says what was done with which file.
absl::Status FileError(absl::string_view doing, const std::string& path, int error);

// All that comes from a file or a pipe.
absl::StatusOr<std::string> ReadToEnd(const std::string& path);

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

// The path at the end of all links that `path` leads to, whether there is something or not.
absl::StatusOr<std::string> FollowLinks(const std::string& path);

// Takes the place of `path` on Commit: of the regular file that it is, or is a link to, whose mode
// it keeps, and whose owner if it may; what is no regular file is refused (INVALID_ARGUMENT).
// Whether it can do so Create finds out, as far as that can be known before. Until
// then it has no name, where the file system can do that, so that nothing is left of it however we
// end; else one beside the file, removed unless we are killed.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();
  // So that a full disk is known before anything is moved.
  absl::Status Reserve(uint64_t bytes) const;
  absl::Status Write(uint64_t offset, const void* from, size_t size) const;
  absl::Status Commit();

 private:
  absl::Status Open(mode_t mode);
  std::string OwnPath() const;  // by which a file without a name gets one
  std::string PartName() const;
  explicit OutputFile(std::string path) : path_(std::move(path)) {}
  std::string path_;       // as it was given, for errors
  std::string target_;     // what that is a link to, or the same
  std::string temporary_;  // its name beside `target_`; empty while it has none
  UniqueFd fd_;
};

}  // namespace ferry::tools
