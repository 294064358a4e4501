// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/stream_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "tools/ferryctl/file_io.h"

namespace ferry::tools {
namespace {

// The most that Linux lets everybody have; the default is 64 KiB.
constexpr int kPipeBytes = 1 << 20;

// `standard` stands for "-". It is duplicated, so that closing it closes nobody else's.
absl::StatusOr<UniqueFd> OpenStream(const std::string& path, int standard, int flags) {
  UniqueFd fd(path == "-" ? fcntl(standard, F_DUPFD_CLOEXEC, 0)
                          : open(path.c_str(), flags | O_CLOEXEC));
  if (!fd.valid()) return FileError("open", path, errno);
  fcntl(fd.get(), F_SETPIPE_SZ, kPipeBytes);  // if it is a pipe, and we may
  return fd;
}

}  // namespace

bool IsStream(const std::string& path) {
  if (path == "-") return true;
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

absl::StatusOr<InputStream> InputStream::Open(const std::string& path) {
  InputStream stream;
  stream.path_ = path;
  ASSIGN_OR_RETURN(stream.fd_, OpenStream(path, STDIN_FILENO, O_RDONLY));
  return stream;
}

absl::StatusOr<size_t> InputStream::Read(void* to, size_t size) const {
  size_t have = 0;
  while (have < size) {
    pollfd wait[] = {{fd_.get(), POLLIN, 0}, {stop_, POLLIN, 0}};  // poll ignores -1
    if (poll(wait, 2, -1) < 0 && errno != EINTR) return FileError("read", path_, errno);
    if (wait[1].revents != 0) return absl::CancelledError("read " + path_ + ": stopped");
    if (wait[0].revents == 0) continue;
    const ssize_t got = read(fd_.get(), static_cast<char*>(to) + have, size - have);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return FileError("read", path_, errno);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  return have;
}

absl::StatusOr<OutputStream> OutputStream::Open(const std::string& path) {
  signal(SIGPIPE, SIG_IGN);
  OutputStream stream;
  stream.path_ = path;
  ASSIGN_OR_RETURN(stream.fd_, OpenStream(path, STDOUT_FILENO, O_WRONLY));
  return stream;
}

absl::Status OutputStream::Write(const void* from, size_t size) const {
  const char* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put = write(fd_.get(), at, size);
    // Another process that shares the descriptor has made it non-blocking.
    if (put < 0 && errno == EAGAIN) {
      pollfd wait = {fd_.get(), POLLOUT, 0};
      poll(&wait, 1, -1);
      continue;
    }
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError("write", path_, errno);
    at += put;
    size -= static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

}  // namespace ferry::tools
