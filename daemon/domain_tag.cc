// SPDX-License-Identifier: Apache-2.0
#include "daemon/domain_tag.h"

#include "absl/strings/str_cat.h"
#include "base/hmac.h"

namespace ferry {
namespace {

std::string Tag(absl::string_view key, absl::string_view kind, absl::string_view of) {
  return HmacSha256(key, absl::StrCat("ferry domain ", kind, of)).substr(0, kDomainTagBytes);
}

}  // namespace

std::string DomainKey(absl::string_view secret, absl::string_view boot_id) {
  return secret.empty() ? HmacSha256(boot_id, "ferry domains of a host")
                        : HmacSha256(secret, "ferry domains of a cluster");
}

std::string TagOfName(absl::string_view key, absl::string_view name) {
  return Tag(key, "named ", name);
}

std::string TagOfUid(absl::string_view key, uid_t uid) {
  return Tag(key, "of uid ", absl::StrCat(uid));
}

}  // namespace ferry
