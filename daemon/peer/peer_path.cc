// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"
#include "base/printable.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr int kMostLinks = 40;  // as many as the kernel follows
constexpr int kLook = O_PATH | O_NOFOLLOW | O_CLOEXEC;

absl::Status Refused(const std::string& path, absl::string_view why) {
  return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
               absl::StrCat("connect to ", Printable(path), ": ", why));
}

// Names that are still to be entered; the next one is the last.
void Push(absl::string_view path, std::vector<std::string>& names) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  names.insert(names.end(), parts.rbegin(), parts.rend());
}

}  // namespace

absl::Status CheckPeerPath(const std::string& path, absl::FunctionRef<bool(uid_t)> trusts) {
  if (path.empty() || path[0] != '/' || path.find('\0') != std::string::npos) {
    return Refused(path, "it is no absolute path");
  }
  std::vector<std::string> names;
  Push(path, names);
  if (names.empty()) return Refused(path, "it is no socket");
  UniqueFd at(open("/", kLook | O_DIRECTORY));
  uint64_t mount = 0;  // the mount that `at` is on
  for (int links = 0; !names.empty();) {
    const std::string name = std::move(names.back());
    names.pop_back();
    UniqueFd next(openat(at.get(), name.c_str(), kLook));
    struct statx info;
    if (!next.valid() || statx(next.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                               STATX_TYPE | STATX_UID | STATX_MNT_ID, &info) != 0) {
      return ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                        absl::StrCat("connect to ", Printable(path)), errno);
    }
    if (names.empty() && S_ISSOCK(info.stx_mode)) {
      // In a directory of all users (/tmp) another user's file system may be mounted on a file too.
      if (mount == 0 || info.stx_mnt_id == mount) return absl::OkStatus();
      return Refused(path, "something is mounted there");
    }
    if (info.stx_uid != 0 && !trusts(info.stx_uid)) {
      return Refused(path, absl::StrCat(Printable(name), " on the way there is of uid ",
                                        info.stx_uid, ", which peer.uids does not list"));
    }
    if (!S_ISLNK(info.stx_mode)) {
      at = std::move(next);
      mount = (info.stx_mask & STATX_MNT_ID) != 0 ? info.stx_mnt_id : 0;
      continue;
    }
    char target[PATH_MAX];
    const ssize_t length = readlinkat(next.get(), "", target, sizeof(target));
    if (length <= 0 || ++links > kMostLinks) return Refused(path, "it has a link to nowhere");
    if (target[0] == '/') at.Reset(open("/", kLook | O_DIRECTORY)), mount = 0;
    Push(absl::string_view(target, static_cast<size_t>(length)), names);
  }
  return Refused(path, "it is no socket");
}

}  // namespace ferry
