// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/executor.h"
#include "base/status.h"

namespace ferry {
namespace {

absl::Status Refused(const char* doing, const std::string& path, const std::string& why) {
  return Error(absl::StatusCode::kPermissionDenied, Reason::kConfigInvalid,
               absl::StrCat(doing, path, ": ", why,
                            "; choose another node.runtime_dir (--runtime-dir), or give uid ",
                            geteuid(), " the right to this one"));
}

// What another runtime directory would not mend is not said to be its fault.
absl::Status Failed(const char* doing, const std::string& path, int error) {
  if (error != EMFILE && error != ENFILE && error != ENOMEM) {
    return Refused(doing, path, strerror(error));
  }
  return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kNotReady,
                    absl::StrCat(doing, path), error);
}

// It is what this user has made.
absl::Status CheckOwner(int fd, const char* doing, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed(doing, path, errno);
  if (info.st_uid == geteuid()) return absl::OkStatus();
  return Refused(doing, path, absl::StrCat("it belongs to uid ", info.st_uid));
}

gid_t GroupOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? info.st_gid : SocketAccess::kOwnGroup;
}

// `name` in `parent`; `path` is for messages.
absl::StatusOr<UniqueFd> MakeDirectory(int parent, const char* name, const std::string& path,
                                       mode_t mode, gid_t group = SocketAccess::kOwnGroup) {
  constexpr char kDoing[] = "make the directory ";
  if (mkdirat(parent, name, mode) != 0 && errno != EEXIST) {
    return Failed(kDoing, path, errno);
  }
  UniqueFd directory(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) {
    if (errno != ELOOP && errno != ENOTDIR) return Failed(kDoing, path, errno);
    return Refused(kDoing, path, "there is something else, or a link");
  }
  RETURN_IF_ERROR(CheckOwner(directory.get(), kDoing, path));
  if (group != SocketAccess::kOwnGroup && GroupOf(directory.get()) != group &&
      fchown(directory.get(), SocketAccess::kOwnUser, group) != 0) {
    return Failed(absl::StrCat("give gid ", group, " the directory ").c_str(), path, errno);
  }
  if (fchmod(directory.get(), mode) != 0) {
    return Failed("set the mode of the directory ", path, errno);
  }
  return directory;
}

// Only this user may lock it: to open it is enough for that.
absl::StatusOr<UniqueFd> Lock(int directory, const std::string& path,
                              const LockPatience& patience) {
  UniqueFd lock(
      openat(directory, "lock", O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!lock.valid()) return Failed("open ", path, errno);
  RETURN_IF_ERROR(CheckOwner(lock.get(), "lock ", path));
  if (fchmod(lock.get(), 0600) != 0) return Failed("set the mode of ", path, errno);
  constexpr int kLookMilliseconds = 10;  // nobody tells when a lock is free within a time
  const absl::Time give_up = MonotonicNow() + patience.most;
  bool told = false;
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (MonotonicNow() < give_up) {
      if (!std::exchange(told, true) && patience.waits) patience.waits(path);
      poll(nullptr, 0, kLookMilliseconds);
      continue;
    }
    return Error(
        absl::StatusCode::kAlreadyExists, Reason::kConfigInvalid,
        absl::StrCat("lock ", path,
                     ": another daemon serves this runtime directory; stop it or choose another"));
  }
  return lock;
}

}  // namespace

absl::StatusOr<UniqueFd> TakeRuntimeDir(const std::string& path, SocketAccess client,
                                        SocketAccess admin, const LockPatience& patience) {
  const std::filesystem::path whole{std::string(absl::StripSuffix(path, "/"))};
  std::error_code error;
  std::filesystem::create_directories(whole.parent_path(), error);
  if (error) return Refused("make the directory ", path, error.message());
  const UniqueFd parent(open(whole.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid()) return Failed("open the directory above ", path, errno);
  ASSIGN_OR_RETURN(const UniqueFd directory,
                   MakeDirectory(parent.get(), whole.filename().c_str(), path, 0755));
  ASSIGN_OR_RETURN(UniqueFd lock, Lock(directory.get(), absl::StrCat(path, "/lock"), patience));
  const struct {
    const char* name;
    SocketAccess access;
  } parts[] = {{"client", client}, {"admin", admin}, {"peer", 0666}};
  for (const auto& [name, access] : parts) {
    RETURN_IF_ERROR(MakeDirectory(directory.get(), name, absl::StrCat(path, "/", name),
                                  access.directory_mode(), access.group)
                        .status());
  }
  return lock;
}

}  // namespace ferry
