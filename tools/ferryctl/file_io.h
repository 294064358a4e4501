// SPDX-License-Identifier: Apache-2.0
// Reads and writes regular files by offset, and reads whole files; errors name the file. Any
// thread; an object is for one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ferry::tools {

// An error made of an errno: what was being done with which file.
absl::Status FileError(absl::string_view doing, const std::string& path, int error);

// Reads everything that comes from a file or a pipe.
absl::StatusOr<std::string> ReadToEnd(const std::string& path);

class InputFile {
 public:
  // Opens a regular file; NOT_FOUND if there is none.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  uint64_t bytes() const { return bytes_; }
  // Reads all `size` bytes, or returns an error; so does a file that was cut short meanwhile.
  absl::Status Read(uint64_t offset, void* to, size_t size) const;

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

// The path at the end of all links that `path` leads to. Nothing need be there.
absl::StatusOr<std::string> FollowLinks(const std::string& path);

// A file that takes the place of `path` on Commit. If `path` is a regular file, or a link to one,
// the new file keeps its mode, and its owner if this user may give it away. Anything else at `path`
// is refused (INVALID_ARGUMENT). Create finds out, as far as that can be known, whether Commit will
// be possible.
//
// Until Commit the file has no name, where the file system can do that: then nothing of it is left
// however this process ends. Else it has a name beside `path`, which is removed unless this process
// is killed.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();
  // Takes the disk space, so that a full disk is noticed before anything is moved.
  absl::Status Reserve(uint64_t bytes) const;
  absl::Status Write(uint64_t offset, const void* from, size_t size) const;
  absl::Status Commit();

 private:
  absl::Status Open(mode_t mode);
  std::string OwnPath() const;  // a path in /proc of the file without a name
  std::string PartName() const;
  explicit OutputFile(std::string path) : path_(std::move(path)) {}
  std::string path_;       // as given, for errors
  std::string target_;     // the file that `path_` is, or is a link to
  std::string temporary_;  // its name beside `target_`; empty while it has none
  UniqueFd fd_;
};

}  // namespace ferry::tools
