// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/cubin_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/cuda/compile/compile_wire.h"

namespace ferry::compute {
namespace {

constexpr absl::string_view kMagic = "FERRYCU1";
constexpr size_t kKeyDigits = 64;
constexpr char kUnfinished[] = "unfinished-";  // how files begin that are not there wholly
constexpr int64_t kUnfinishedSeconds = 3600;   // who has left one for so long is gone
constexpr uint64_t kShare = 64;  // of the bound that is added before all is counted again

std::string Sum(absl::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

bool IsKey(absl::string_view name) {
  return name.size() == kKeyDigits &&
         std::all_of(name.begin(), name.end(), [](unsigned char digit) {
           return absl::ascii_isdigit(digit) || (digit >= 'a' && digit <= 'f');
         });
}

absl::Status Unusable(const std::string& path, absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
               absl::StrCat("use ", path, " for compiled kernels: ", why));
}

absl::Status CheckOwner(int fd, const std::string& path, bool own) {
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return ErrnoError(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                      absl::StrCat("use ", path, " for compiled kernels"), errno);
  }
  if (info.st_uid != geteuid() && (own || info.st_uid != 0)) {
    return Unusable(path, absl::StrCat("it belongs to uid ", info.st_uid,
                                       ", who could put other kernels there; choose another one"));
  }
  if ((info.st_mode & 022) != 0) {
    return Unusable(path,
                    "others may write there, and could put other kernels there; "
                    "take that from them (chmod go-w), or choose another one");
  }
  return absl::OkStatus();
}

std::optional<std::string> ReadAll(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0 ||
      static_cast<uint64_t>(info.st_size) > kMostFrame) {
    return std::nullopt;
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = pread(fd, bytes.data() + got, bytes.size() - got, static_cast<off_t>(got));
    if (more == 0 || (more < 0 && errno != EINTR)) return std::nullopt;
    if (more > 0) got += static_cast<size_t>(more);
  }
  return bytes;
}

std::optional<CompiledKernel> KernelFrom(const std::optional<std::string>& bytes) {
  const size_t head = kMagic.size() + SHA256_DIGEST_LENGTH;
  if (!bytes || bytes->size() < head || !absl::StartsWith(*bytes, kMagic)) return std::nullopt;
  const absl::string_view payload = absl::string_view(*bytes).substr(head);
  if (absl::string_view(*bytes).substr(kMagic.size(), SHA256_DIGEST_LENGTH) != Sum(payload)) {
    return std::nullopt;
  }
  absl::StatusOr<CompiledKernel> kernel = DecodeAnswer(payload);
  if (!kernel.ok()) return std::nullopt;
  return *std::move(kernel);
}

// Not synchronised to the disk, which a client would wait for: after a crash of the machine the
// checksum tells what did not get there.
bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

absl::StatusOr<CubinCache> CubinCache::Open(const std::string& path, Access access,
                                            uint64_t most_bytes) {
  const bool own = access == Access::kOwn;
  if (own && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                      absl::StrCat("make ", path, " for compiled kernels"), errno);
  }
  UniqueFd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) {
    return ErrnoError(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                      absl::StrCat("open ", path, " for compiled kernels"), errno);
  }
  RETURN_IF_ERROR(CheckOwner(directory.get(), path, own));
  CubinCache cache(path, std::move(directory), access, most_bytes);
  if (own) cache.Sweep();
  return cache;
}

std::optional<CompiledKernel> CubinCache::Find(const std::string& key) {
  if (!IsKey(key)) return std::nullopt;
  const UniqueFd file(
      openat(directory_.get(), key.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::optional<CompiledKernel> kernel = KernelFrom(ReadAll(file.get()));
  if (!kernel) ++corrupt_;
  if (access_ == Access::kReadOnly) return kernel;
  if (!kernel) {
    unlinkat(directory_.get(), key.c_str(), 0);
    return kernel;
  }
  const timespec now[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};  // when it was read last
  futimens(file.get(), now);
  return kernel;
}

absl::Status CubinCache::Add(const std::string& key, const CompiledKernel& kernel) {
  if (!IsKey(key) || access_ == Access::kReadOnly) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("keep a kernel in ", path_, ": ", key, " cannot be kept there"));
  }
  const std::string payload = EncodeAnswer(kernel);
  const std::string bytes = absl::StrCat(kMagic, Sum(payload), payload);
  if (bytes.size() > most_bytes_ || bytes.size() > kMostFrame) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kBatchTooLarge,
                 absl::StrCat("keep a kernel in ", path_, ": it has ", bytes.size(), " bytes"));
  }
  static std::atomic<uint64_t> number{0};
  const std::string name = absl::StrCat(kUnfinished, getpid(), "-", ++number);
  const UniqueFd file(openat(directory_.get(), name.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written = file.valid() && WriteAll(file.get(), bytes) &&
                       renameat(directory_.get(), name.c_str(), directory_.get(), key.c_str()) == 0;
  if (!written) {
    const int error = errno;
    if (file.valid()) unlinkat(directory_.get(), name.c_str(), 0);
    return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kNotReady,
                      absl::StrCat("keep a kernel in ", path_), error);
  }
  bytes_ += bytes.size();
  added_ += bytes.size();
  if (bytes_ > most_bytes_ || added_ > most_bytes_ / kShare) Sweep();
  return absl::OkStatus();
}

void CubinCache::Sweep() {
  const int fd = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> all(fd < 0 ? nullptr : fdopendir(fd), closedir);
  if (all == nullptr) return;
  std::vector<std::tuple<int64_t, int64_t, uint64_t, std::string>> files;  // by when it was read
  bytes_ = added_ = 0;
  while (const dirent* entry = readdir(all.get())) {
    struct stat info;
    const bool unfinished = absl::StartsWith(entry->d_name, kUnfinished);
    if ((!unfinished && !IsKey(entry->d_name)) ||
        fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (unfinished) {
      if (time(nullptr) - info.st_mtime > kUnfinishedSeconds) unlinkat(fd, entry->d_name, 0);
      continue;
    }
    const auto bytes = static_cast<uint64_t>(info.st_size);
    files.emplace_back(info.st_mtim.tv_sec, info.st_mtim.tv_nsec, bytes, entry->d_name);
    bytes_ += bytes;
  }
  if (bytes_ <= most_bytes_) return;
  std::sort(files.begin(), files.end());
  // An eighth of it is free afterwards, so that not every kernel that comes looks at all.
  for (const auto& [seconds, nanoseconds, bytes, name] : files) {
    if (bytes_ <= most_bytes_ - most_bytes_ / 8) break;
    if (unlinkat(fd, name.c_str(), 0) == 0) bytes_ -= bytes;
  }
}

}  // namespace ferry::compute
