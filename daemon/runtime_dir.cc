// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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

// A lack of descriptors or memory is not blamed on the runtime directory, because another one would
// not help.
absl::Status Failed(const char* doing, const std::string& path, int error) {
  if (error != EMFILE && error != ENFILE && error != ENOMEM) {
    return Refused(doing, path, strerror(error));
  }
  return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kNotReady,
                    absl::StrCat(doing, path), error);
}

// Checks that this user owns it.
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

// Makes the directory `name` in `parent`; `path` is for messages.
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

// Only this user may open the lock file, because whoever can open it can lock it.
absl::StatusOr<UniqueFd> Lock(int directory, const std::string& path,
                              const LockPatience& patience) {
  UniqueFd lock(
      openat(directory, "lock", O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!lock.valid()) return Failed("open ", path, errno);
  RETURN_IF_ERROR(CheckOwner(lock.get(), "lock ", path));
  if (fchmod(lock.get(), 0600) != 0) return Failed("set the mode of ", path, errno);
  constexpr int kLookMilliseconds = 10;  // the kernel signals no free lock together with a timeout
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

// The directories above the runtime directory, from the root on. Whoever may write in one of them
// can replace the next one by a directory of his own, whatever was checked of that. So only root
// and this process's user may write there, and each directory is opened by its name in the one
// before it.
class PathAbove {
 public:
  // `path` is for messages.
  explicit PathAbove(const std::string& path) : path_(path) {}

  // Opens the directory `above`, an absolute path; makes what is missing of it.
  absl::StatusOr<UniqueFd> Open(const std::string& above) {
    RETURN_IF_ERROR(EnterRoot());
    Push(above);
    while (!names_.empty()) {
      const std::string name = std::move(names_.back());
      names_.pop_back();
      if (!name.empty() && name != ".") RETURN_IF_ERROR(Enter(name));
    }
    return std::move(at_);
  }

 private:
  static constexpr int kMostLinks = 40;  // as many as the kernel follows

  void Push(absl::string_view path) {
    const std::vector<std::string> parts = absl::StrSplit(path, '/');
    names_.insert(names_.end(), parts.rbegin(), parts.rend());
  }

  absl::Status Enter(const std::string& name) {
    const std::string where = name == ".."
                                  ? std::filesystem::path(where_).parent_path().string()
                                  : absl::StrCat(absl::StripSuffix(where_, "/"), "/", name);
    constexpr int kFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd next(openat(at_.get(), name.c_str(), kFlags));
    if (!next.valid() && errno == ENOENT) {
      if (mkdirat(at_.get(), name.c_str(), 0755) != 0 && errno != EEXIST) {
        return Failed("make the directory ", where, errno);
      }
      next.Reset(openat(at_.get(), name.c_str(), kFlags));
    }
    struct stat info;
    if (!next.valid() || fstat(next.get(), &info) != 0) return Failed("open ", where, errno);
    if (S_ISLNK(info.st_mode)) return Follow(next.get(), info, where);
    if (!S_ISDIR(info.st_mode)) return Refused("open ", where, "it is no directory");
    RETURN_IF_ERROR(CheckDirectory(next.get(), info, where));
    at_ = std::move(next);
    where_ = where;
    return absl::OkStatus();
  }

  absl::Status EnterRoot() {
    at_.Reset(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    where_ = "/";
    struct stat info;
    if (!at_.valid() || fstat(at_.get(), &info) != 0) return Failed("open ", where_, errno);
    // The owner of the root directory has power over everything below it; in some containers that
    // is not root.
    owner_of_all_ = info.st_uid;
    return CheckDirectory(at_.get(), info, where_);
  }

  absl::Status Follow(int link, const struct stat& info, const std::string& where) {
    if (!Trusted(info.st_uid)) return Unsafe("the link ", where, BelongsTo(info.st_uid));
    if (++links_ > kMostLinks) return Failed("open ", where, ELOOP);
    char target[PATH_MAX];
    const ssize_t size = readlinkat(link, "", target, sizeof(target));
    if (size < 0) return Failed("read the link ", where, errno);
    Push(absl::string_view(target, static_cast<size_t>(size)));
    return size > 0 && target[0] == '/' ? EnterRoot() : absl::OkStatus();
  }

  absl::Status CheckDirectory(int directory, const struct stat& info, const std::string& where) {
    if (!Trusted(info.st_uid)) return Unsafe("the directory ", where, BelongsTo(info.st_uid));
    // As in /tmp: nobody can replace what another user owns.
    if ((info.st_mode & S_ISVTX) != 0) return absl::OkStatus();
    const bool others = (info.st_mode & S_IWOTH) != 0;
    if (!others && ((info.st_mode & S_IWGRP) == 0 || OwnersAlone(directory, info))) {
      return absl::OkStatus();
    }
    return Unsafe("the directory ", where,
                  absl::StrFormat("may be written by %s (its mode is %04o; chmod %s-w %s)",
                                  others ? "everybody" : absl::StrCat("gid ", info.st_gid),
                                  info.st_mode & 07777, others ? "go" : "g", where));
  }

  bool Trusted(uid_t owner) const {
    return owner == 0 || owner == geteuid() || owner == owner_of_all_;
  }

  // Whether the group of a directory is the one that distributions make for each user, which nobody
  // else is in; umask 002 is usual then. An access control list might name anybody.
  static bool OwnersAlone(int directory, const struct stat& info) {
    const std::string by_number = absl::StrCat("/proc/self/fd/", directory);
    if (getxattr(by_number.c_str(), "system.posix_acl_access", nullptr, 0) > 0) return false;
    const passwd* const user = getpwuid(info.st_uid);
    if (user == nullptr || user->pw_gid != info.st_gid) return false;
    const std::string name = user->pw_name;
    const group* const group = getgrgid(info.st_gid);
    if (group == nullptr || name != group->gr_name) return false;
    for (char** member = group->gr_mem; *member != nullptr; ++member) {
      if (name != *member) return false;
    }
    return true;
  }

  static std::string BelongsTo(uid_t owner) {
    const passwd* const user = getpwuid(owner);
    return absl::StrCat("belongs to uid ", owner,
                        user == nullptr ? "" : absl::StrCat(" (", user->pw_name, ")"));
  }

  absl::Status Unsafe(const char* kind, const std::string& where, const std::string& why) const {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kConfigInvalid,
                 absl::StrCat("take the runtime directory ", path_, ": ", kind, where,
                              " on the way to it ", why,
                              ", who could put another one in its place; choose a "
                              "node.runtime_dir (--runtime-dir) below directories in which only "
                              "root and uid ",
                              geteuid(), " may write, as in /run or /tmp"));
  }

  const std::string& path_;
  UniqueFd at_;
  std::string where_;
  std::vector<std::string> names_;  // still to be entered; the next one is the last
  int links_ = 0;
  uid_t owner_of_all_ = 0;
};

}  // namespace

absl::StatusOr<UniqueFd> TakeRuntimeDir(const std::string& path, SocketAccess client,
                                        SocketAccess admin, const LockPatience& patience) {
  const std::filesystem::path whole{std::string(absl::StripSuffix(path, "/"))};
  const std::string name = whole.filename();
  if (!whole.is_absolute() || name.empty() || name == "." || name == "..") {
    return Refused("take the runtime directory ", path, "it is not of the form /run/ferry");
  }
  ASSIGN_OR_RETURN(const UniqueFd parent, PathAbove(path).Open(whole.parent_path()));
  ASSIGN_OR_RETURN(const UniqueFd directory, MakeDirectory(parent.get(), name.c_str(), path, 0755));
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
