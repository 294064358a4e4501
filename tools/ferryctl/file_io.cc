// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/limit_text.h"
#include "base/status.h"

namespace ferry::tools {
namespace {

// The kernel moves at most 2 GiB a call; smaller pieces let a signal through.
constexpr size_t kMostPerCall = size_t{256} << 20;

absl::Status CannotReplace(const std::string& path, absl::string_view why) {
  return Error(
      absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
      absl::StrCat("create ", path, ": it ", why,
                   "; what is written takes the place of a regular file, or is a new one"));
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

constexpr int kMostLinks = 40;  // the kernel's bound

// An error if rename() could not replace the file `target`, which `path` leads to.
absl::Status CheckReplaceable(const std::string& path, const std::string& target,
                              const struct stat& file) {
  struct statx about {};
  if (statx(AT_FDCWD, target.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &about) == 0) {
    const uint64_t set = about.stx_attributes;
    if ((set & STATX_ATTR_MOUNT_ROOT) != 0) return CannotReplace(path, "is a mount point");
    if ((set & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0) {
      return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                   absl::StrCat("create ", path,
                                ": it is immutable or append-only; `chattr -i -a`"
                                " lets it be replaced"));
    }
  }
  struct stat directory {};
  if (stat(DirectoryOf(target).c_str(), &directory) != 0) return FileError("create", path, errno);
  const uid_t us = geteuid();
  if ((directory.st_mode & S_ISVTX) != 0 && us != 0 && us != directory.st_uid &&
      us != file.st_uid) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                 absl::StrCat("create ", path, ": it belongs to uid ", file.st_uid,
                              ", and its directory lets only owners replace their files"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FileError(absl::string_view doing, const std::string& path, int error) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  Reason reason = Reason::kInternal;
  if (error == ENOENT) {
    code = absl::StatusCode::kNotFound;
    reason = Reason::kFieldInvalid;
  } else if (error == EACCES || error == EPERM || error == EROFS) {
    code = absl::StatusCode::kPermissionDenied;
    reason = Reason::kNotAllowed;
  } else if (error == EISDIR || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG ||
             error == EINVAL || error == EXDEV) {
    code = absl::StatusCode::kInvalidArgument;
    reason = Reason::kFieldInvalid;
  } else if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == EMFILE ||
             error == ENFILE || error == ENOMEM) {
    // No quota of the daemon is meant, so none of its reasons fits.
    return absl::ResourceExhaustedError(
        absl::StrCat(doing, " ", path, ": ", strerror(error), LimitText(error)));
  } else if (error == EBUSY || error == ETXTBSY) {
    return absl::FailedPreconditionError(absl::StrCat(doing, " ", path, ": ", strerror(error)));
  } else if (error == EPIPE) {
    return absl::AbortedError(absl::StrCat(doing, " ", path, ": ", strerror(error)));
  }
  return ErrnoError(code, reason, absl::StrCat(doing, " ", path), error);
}

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
  // O_NONBLOCK: open() would wait at a pipe that nobody writes to.
  file.fd_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
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
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, "")),
      fd_(std::move(other.fd_)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  std::string at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    char to[PATH_MAX];
    const ssize_t size = readlink(at.c_str(), to, sizeof(to));
    if (size < 0) return at;  // no link, or nothing yet; opening it will show what else is wrong
    std::string next(to, static_cast<size_t>(size));
    at = next.empty() || next[0] == '/' ? std::move(next) : DirectoryOf(at) + next;
  }
  return FileError("create", path, ELOOP);
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  if (path.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 "write '': an empty path names no file");
  }
  OutputFile file(path);
  ASSIGN_OR_RETURN(file.target_, FollowLinks(path));
  std::optional<struct stat> old;
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) return CannotReplace(path, "exists and is not a regular file");
    // A link in /proc leads to a file whatever the link's text says, and even if the file has no
    // name any more.
    struct stat named;
    if (stat(file.target_.c_str(), &named) != 0 || named.st_dev != info.st_dev ||
        named.st_ino != info.st_ino) {
      return CannotReplace(path, "is a link to a file that has no name");
    }
    RETURN_IF_ERROR(CheckReplaceable(path, file.target_, info));
    old = info;
  } else if (errno != ENOENT) {
    return FileError("create", path, errno);
  }
  RETURN_IF_ERROR(file.Open(old ? old->st_mode & 0777 : 0666));
  if (old) {
    // Not every user may give a file away, or give it to a user whom his user namespace does not
    // know.
    if (fchown(file.fd_.get(), old->st_uid, old->st_gid) != 0 && errno != EPERM &&
        errno != EINVAL) {
      return FileError("keep the owner of", path, errno);
    }
    if (fchmod(file.fd_.get(), old->st_mode & 0777) != 0) {
      return FileError("keep the mode of", path, errno);
    }
  }
  return file;
}

absl::Status OutputFile::Open(mode_t mode) {
  fd_ = UniqueFd(open(DirectoryOf(target_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode));
  const bool nameable = !fd_.valid() || access(OwnPath().c_str(), F_OK) == 0;  // there is a /proc
  if (!nameable || (!fd_.valid() && (errno == EOPNOTSUPP || errno == EISDIR))) {
    temporary_ = PartName();
    fd_ = UniqueFd(
        open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!fd_.valid()) temporary_.clear();
  }
  return fd_.valid() ? absl::OkStatus() : FileError("create", path_, errno);
}

std::string OutputFile::OwnPath() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

std::string OutputFile::PartName() const {
  const std::string directory = DirectoryOf(target_);
  const std::string suffix = absl::StrCat(".part.", getpid());
  const size_t base = target_.find_last_of('/') == std::string::npos ? 0 : directory.size();
  return absl::StrCat(directory, target_.substr(base, NAME_MAX - suffix.size()), suffix);
}

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
  if (temporary_.empty()) {  // linkat replaces nothing, rename does
    const std::string part = PartName();
    if (linkat(AT_FDCWD, OwnPath().c_str(), AT_FDCWD, part.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return FileError("link", part, errno);
    }
    temporary_ = part;
  }
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return FileError("rename to", path_, errno);
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace ferry::tools
