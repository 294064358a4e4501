// SPDX-License-Identifier: Apache-2.0
// The domain tag: a keyed hash that stands for a domain in matching, on the wire and in whatever
// people see, from the posting of a transfer on. The domain's name is a job's secret and stays in
// its session. Pure. Any thread.
//
// The tag of a uid's own domain never equals the tag of a domain that a client names, whatever the
// name is. So no client can name another user's domain.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// A tag fits into a std::string without memory of its own, because match keys are copied a lot.
inline constexpr size_t kDomainTagBytes = 15;

// The hash key that all daemons share which can have a link to each other. It is made of the
// cluster's secret; if `secret` is empty, of the host's boot id, because only daemons of one host
// find each other then.
std::string DomainKey(absl::string_view secret, absl::string_view boot_id);
std::string TagOfName(absl::string_view key, absl::string_view name);
std::string TagOfUid(absl::string_view key, uid_t uid);

}  // namespace ferry
