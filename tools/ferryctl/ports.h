// SPDX-License-Identifier: Apache-2.0
// Tries whether TCP ports answer, and whether they could be listened on, for `ferryctl doctor`.
// Blocks; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/ferryctl/findings.h"

namespace ferry::tools {

// The outcome of one connect to a port.
struct PortAnswer {
  enum class Kind { kAnswers, kRefused, kSilent, kNoName, kOther };
  Kind kind = Kind::kAnswers;
  std::string why;  // "" if the port answers
};

// Connects to each of "host:port" and closes at once; all together within `patience`, plus the time
// that looking up names takes. An address for all of a host's addresses ("0.0.0.0:7411") is tried
// at the host's loopback.
std::vector<PortAnswer> TryPorts(const std::vector<std::string>& addresses,
                                 absl::Duration patience);

// A finding about `setting` ("peer.listen") of a daemon that serves. `listen` is "" if it does not
// listen; then `lacks` says what cannot be had.
Finding ListensFinding(const std::string& setting, const std::string& listen,
                       const std::string& lacks, absl::Duration patience);
// The same without a daemon: could one listen there?
Finding CouldListenFinding(const std::string& setting, const std::string& listen);

// Findings about the ports of all peers that have an address.
Findings PeerPortFindings(const ferry::admin::v1::GetStatusResponse& status,
                          absl::Duration patience);

// The value of `listen` in `section` of the output of `ferryd --print-config`; "" if it has none.
std::string ListenOf(const std::string& printed, const std::string& section);

}  // namespace ferry::tools
