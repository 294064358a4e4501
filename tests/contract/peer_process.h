// SPDX-License-Identifier: Apache-2.0
// A peer in a process of its own (this test's binary once more), which a test can kill and stop.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

class PeerProcess {
 public:
  // Starts the process, and gives it the address `ours` to exchange with.
  PeerProcess(const std::string& kind, const UcxAddressBlob& ours);
  ~PeerProcess();  // SIGKILL

  const UcxAddressBlob& address() const { return address_; }
  // Has the peer launch one op of `bytes`; returns when it has.
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

// What main() of the peer runs. Returns its exit status.
int RunPeer(const std::string& kind, int socket);

}  // namespace ferry
