// SPDX-License-Identifier: Apache-2.0
// A peer in a process of its own, which can be killed and stopped: this test's binary once more.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

class PeerProcess {
 public:
  // Starts it; `ours` is what it sends to and receives from.
  PeerProcess(const std::string& kind, const UcxAddressBlob& ours);
  ~PeerProcess();  // SIGKILL

  const UcxAddressBlob& address() const { return address_; }
  // Tells it to launch one op of `bytes`; returns when it has.
  void Send(uint64_t tag, uint64_t bytes) { Command('s', tag, bytes); }
  void Receive(uint64_t tag, uint64_t bytes) { Command('r', tag, bytes); }
  void Kill();
  void Stop();
  void Continue();

 private:
  void Command(char what, uint64_t tag, uint64_t bytes);
  pid_t pid_ = -1;
  UniqueFd socket_;
  UcxAddressBlob address_;
};

// The other side of it: what main() of the peer runs.
int RunPeer(const std::string& kind, int socket);

}  // namespace ferry
