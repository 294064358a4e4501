// SPDX-License-Identifier: Apache-2.0
#include "daemon/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/fd.h"
#include "base/status.h"

namespace ferry {

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  const auto bad = [&](const std::string& what) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                 absl::StrCat("read the secret in ", path, " (peer.secret_file): ", what));
  };
  // O_NONBLOCK: a pipe of that name is refused instead of waited for.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file.valid() || fstat(file.get(), &about) != 0) return bad(strerror(errno));
  if (!S_ISREG(about.st_mode)) return bad("it is not a plain file");
  if (about.st_uid != 0 && about.st_uid != geteuid()) {
    return bad(absl::StrCat("it belongs to uid ", about.st_uid, "; it must be root's or of uid ",
                            geteuid()));
  }
  if ((about.st_mode & (S_IWGRP | S_IRWXO)) != 0) {
    return bad(absl::StrFormat("its mode %04o lets others at it; `chmod 0600 %s`",
                               static_cast<unsigned>(about.st_mode & 07777), path));
  }
  std::string secret(kMaxSecretBytes + 1, '\0');
  size_t size = 0;
  while (size < secret.size()) {
    const ssize_t got = read(file.get(), secret.data() + size, secret.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return bad(strerror(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size < kMinSecretBytes || size > kMaxSecretBytes) {
    return bad(absl::StrCat("it has ", size < kMinSecretBytes ? "" : "more than ",
                            std::min(size, kMaxSecretBytes), " bytes; it needs ", kMinSecretBytes,
                            " to ", kMaxSecretBytes,
                            ", as `head -c 32 /dev/urandom > ferry.secret` makes"));
  }
  secret.resize(size);
  return secret;
}

}  // namespace ferry
