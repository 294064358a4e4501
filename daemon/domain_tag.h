// SPDX-License-Identifier: Apache-2.0
// What stands for a domain from its posting on, in matching, on the wire and in what people see: a
// keyed hash, so that the name, which is a job's secret, stays in its session. Pure. Any thread.
//
// A uid's own domain and one that a client names have different tags whatever the name is: no
// client can say another user's.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// A string holds so many without memory of its own, and keys are copied a lot.
inline constexpr size_t kDomainTagBytes = 15;

// The key of all daemons that can have a link to each other: of the cluster's secret, or without
// one of the host, which all who find each other share then.
std::string DomainKey(absl::string_view secret, absl::string_view boot_id);
std::string TagOfName(absl::string_view key, absl::string_view name);
std::string TagOfUid(absl::string_view key, uid_t uid);

}  // namespace ferry
