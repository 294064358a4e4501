// SPDX-License-Identifier: Apache-2.0
// Reads and writes files that have no length and no offsets: pipes, terminals, devices, and "-" for
// standard input and output. In order; errors name the file. Any thread; an object is for one
// thread at a time.
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
  // Opens the stream; for a pipe it waits for a writer.
  static absl::StatusOr<InputStream> Open(const std::string& path);
  // From here on Read stops waiting, with CANCELLED, once `fd` is readable. `fd` stays the
  // caller's.
  void StopAt(int fd) { stop_ = fd; }
  // Returns how many bytes came: `size`, or fewer at the end of the stream.
  absl::StatusOr<size_t> Read(void* to, size_t size) const;

 private:
  std::string path_;
  UniqueFd fd_;
  int stop_ = -1;
};

class OutputStream {
 public:
  // Opens the stream; for a pipe it waits for a reader.
  static absl::StatusOr<OutputStream> Open(const std::string& path);
  // Writes all of it. That nobody reads any more is an error, not a signal.
  absl::Status Write(const void* from, size_t size) const;

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace ferry::tools
