// SPDX-License-Identifier: Apache-2.0
// Files that have no length and no offsets: pipes, terminals, devices, and "-" for standard input
// and output. Read and written in order, with errors that name them. Any thread; one at a time per
// object.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ferry::tools {

// Whether `path` is "-", or leads to something that is neither a regular file nor a directory.
bool IsStream(const std::string& path);

class InputStream {
 public:
  // Of a pipe that nobody writes to, waits for who does.
  static absl::StatusOr<InputStream> Open(const std::string& path);
  // From here on a wait for bytes is given up, CANCELLED, once `fd` can be read. It stays the
  // caller's.
  void StopAt(int fd) { stop_ = fd; }
  // How many bytes came: `size` of them, or fewer at the end of the stream.
  absl::StatusOr<size_t> Read(void* to, size_t size) const;

 private:
  std::string path_;
  UniqueFd fd_;
  int stop_ = -1;
};

class OutputStream {
 public:
  // Of a pipe that nobody reads, waits for who does.
  static absl::StatusOr<OutputStream> Open(const std::string& path);
  // All of it. Nobody reads any more: an error, not a signal.
  absl::Status Write(const void* from, size_t size) const;

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace ferry::tools
