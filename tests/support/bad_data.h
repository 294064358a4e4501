// SPDX-License-Identifier: Apache-2.0
// Data connections of route `tcp` that a malicious peer opens: they mostly prove that they belong
// to its link, and then send valid and invalid messages, from a seed. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tests/support/nonsense.h"

namespace ferry::testing {

class BadData {
 public:
  // `port`: the other daemon's peer port on 127.0.0.1. `devices` are the bad peer's, `theirs` the
  // other daemon's.
  BadData(uint16_t port, std::vector<uint64_t> devices, std::vector<uint64_t> theirs,
          Nonsense& nonsense);

  // There is a new link with this key. Connections of the link before stay open for a while.
  void OnLink(const std::string& key);
  // Sends one thing. `tags`: of transfers that exist.
  void Step(const std::vector<uint64_t>& tags);

 private:
  void Connect();
  void Dial(const std::string& preamble);
  std::string Message(const std::vector<uint64_t>& tags);
  void Read(int socket);

  const uint16_t port_;
  const std::vector<uint64_t> devices_, theirs_;
  Nonsense& nonsense_;
  std::string key_;
  uint64_t serial_ = 0;
  std::vector<UniqueFd> open_;
  std::vector<UniqueFd> forgotten_;  // connections that are neither used nor closed any more
  std::vector<uint64_t> heard_;      // tags that the other end has said
};

}  // namespace ferry::testing
