// SPDX-License-Identifier: Apache-2.0
// The versions of ferryd's two protocols: with other daemons and with clients. Each end says which
// it speaks; where the two ranges have a version in common, both speak the highest one of these.
// When a number is raised: docs/versions.md, "Protocols".
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace ferry {

// The versions that one end speaks, both of them included.
struct ProtocolVersions {
  uint32_t oldest = 0;
  uint32_t newest = 0;

  // What the other end says may have its newest version below its oldest one.
  bool Meet(const ProtocolVersions& other) const {
    return other.oldest <= newest && other.newest >= oldest;
  }
  // "version 3", "versions 3 to 5".
  std::string ToString() const {
    return oldest == newest ? absl::StrCat("version ", newest)
                            : absl::StrCat("versions ", oldest, " to ", newest);
  }
};

// Between daemons: proto/ferry/peer/v1.
inline constexpr ProtocolVersions kPeerProtocol{3, 3};
// Between daemon and client: proto/ferry/v1.
inline constexpr ProtocolVersions kClientProtocol{2, 2};

}  // namespace ferry
