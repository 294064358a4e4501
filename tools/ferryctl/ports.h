// SPDX-License-Identifier: Apache-2.0
// Whether TCP ports answer, and whether they could be listened on: what `ferryctl doctor` tries.
// Blocking; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/ferryctl/findings.h"

namespace ferry::tools {

// What a connection to a port came to.
struct PortAnswer {
  enum class Kind { kAnswers, kRefused, kSilent, kNoName, kOther };
  Kind kind = Kind::kAnswers;
  std::string why;  // unless it answers
};

// Connects to each of "host:port" and closes at once, all in `patience` beside what looking names
// up takes. An address that is all of a host's ("0.0.0.0:7411") is tried at its loopback.
std::vector<PortAnswer> TryPorts(const std::vector<std::string>& addresses,
                                 absl::Duration patience);

// Of `setting` ("peer.listen") of a daemon that serves; `listen` is "" where it listens on none,
// and `lacks` says what is not to be had then.
Finding ListensFinding(const std::string& setting, const std::string& listen,
                       const std::string& lacks, absl::Duration patience);
// The same where there is no daemon: could one listen there?
Finding CouldListenFinding(const std::string& setting, const std::string& listen);

// Of the ports of all peers that have an address.
Findings PeerPortFindings(const ferry::admin::v1::GetStatusResponse& status,
                          absl::Duration patience);

// The value of `listen` in `section` of what `ferryd --print-config` printed; "" if there is none.
std::string ListenOf(const std::string& printed, const std::string& section);

}  // namespace ferry::tools
