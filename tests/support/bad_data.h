// SPDX-License-Identifier: Apache-2.0
// The data connections of route `tcp` that a bad peer opens: they prove that they are of its link,
// mostly, and then say sense and nonsense, from a seed. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tests/support/nonsense.h"

namespace ferry::testing {

class BadData {
 public:
  // `port`: of the other daemon on 127.0.0.1, for its peers. `devices`: ours, `theirs`: its.
  BadData(uint16_t port, std::vector<uint64_t> devices, std::vector<uint64_t> theirs,
          Nonsense& nonsense);

  // A new link, with this key: what was open is of the one before, and stays open for a while.
  void OnLink(const std::string& key);
  // One thing that is said. `tags`: of transfers that there are.
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
  std::vector<UniqueFd> forgotten_;  // that it neither uses nor closes
  std::vector<uint64_t> heard_;      // tags that the other end has said
};

}  // namespace ferry::testing
