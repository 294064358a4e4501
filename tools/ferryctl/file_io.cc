// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry::tools {
namespace {

// The kernel moves at most 2 GiB a call; smaller pieces let a signal through.
constexpr size_t kMostPerCall = size_t{256} << 20;

absl::Status FileError(absl::string_view doing, const std::string& path, int error) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  Reason reason = Reason::kInternal;
  if (error == ENOENT) {
    code = absl::StatusCode::kNotFound;
    reason = Reason::kFieldInvalid;
  } else if (error == EACCES || error == EPERM || error == EROFS) {
    code = absl::StatusCode::kPermissionDenied;
    reason = Reason::kNotAllowed;
  } else if (error == EISDIR) {
    code = absl::StatusCode::kInvalidArgument;
    reason = Reason::kFieldInvalid;
  } else if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    // No quota of the daemon's, so none of its reasons.
    return absl::ResourceExhaustedError(absl::StrCat(doing, " ", path, ": ", strerror(error)));
  }
  return ErrnoError(code, reason, absl::StrCat(doing, " ", path), error);
}

}  // namespace

absl::StatusOr<std::string> ReadToEnd(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError("open", path, errno);
  std::string text;
  char buffer[64 << 10];
  while (true) {
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("read", path, errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  file.fd_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.fd_.valid()) return FileError("open", path, errno);
  struct stat info;
  if (fstat(file.fd_.get(), &info) != 0) return FileError("stat", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat("open ", path, ": not a regular file"));
  }
  file.bytes_ = static_cast<uint64_t>(info.st_size);
  return file;
}

absl::Status InputFile::Read(uint64_t offset, void* to, size_t size) const {
  char* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got =
        pread(fd_.get(), at, std::min(size, kMostPerCall), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("read", path_, errno);
    if (got == 0) {
      return Error(absl::StatusCode::kAborted, Reason::kFieldInvalid,
                   absl::StrCat("read ", path_, ": it became shorter while being read"));
    }
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      fd_(std::move(other.fd_)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat("create ", path, ": it exists and is not a regular file"));
  }
  OutputFile file(path);
  const size_t slash = path.find_last_of('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  file.fd_ = UniqueFd(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  if (!file.fd_.valid() && (errno == EOPNOTSUPP || errno == EISDIR)) {  // not this file system
    file.temporary_ = file.PartName();
    file.fd_ =
        UniqueFd(open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  }
  if (!file.fd_.valid()) return FileError("create", path, errno);
  return file;
}

std::string OutputFile::PartName() const { return absl::StrCat(path_, ".part.", getpid()); }

absl::Status OutputFile::Reserve(uint64_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (int error = posix_fallocate(fd_.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    return FileError(absl::StrCat("reserve ", bytes, " bytes for"), path_, error);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Write(uint64_t offset, const void* from, size_t size) const {
  const char* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put =
        pwrite(fd_.get(), at, std::min(size, kMostPerCall), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError("write", path_, errno);
    at += put;
    offset += static_cast<uint64_t>(put);
    size -= static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  if (temporary_.empty()) {  // linkat takes nobody's place, rename does
    const std::string us = absl::StrCat("/proc/self/fd/", fd_.get());
    const std::string part = PartName();
    if (linkat(AT_FDCWD, us.c_str(), AT_FDCWD, part.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return FileError("link", part, errno);
    }
    temporary_ = part;
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return FileError("rename to", path_, errno);
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace ferry::tools
