// SPDX-License-Identifier: Apache-2.0
// What fork() leaves behind. A child must not keep its parent's session alive: the sockets of every
// connection are listed here, and the child's copies are closed before fork() returns in the child.
// A child must get an error instead of a hang from locks and threads that did not come along: each
// session remembers the generation in which it was opened, the number of forks between the process
// and the one that loaded the library. Memory that a child inherits stays mapped, like all memory.
// Any thread. The list's lock is held across fork(), and never while code of the application runs.
#pragma once

#include <cstdint>

namespace ferry::client {

// How many forks lie between this process and the one that loaded the library.
uint64_t ForkGeneration();

// The sockets of one connection. Not movable: the list points to it.
class ForkFds {
 public:
  // kGrpc is a second descriptor of the socket kRpc.
  enum Which { kAttach, kRpc, kGrpc, kAll };

  ForkFds();
  ~ForkFds();
  ForkFds(const ForkFds&) = delete;
  ForkFds& operator=(const ForkFds&) = delete;

  // A new AF_UNIX socket of `type`, close-on-exec, listed from its first moment. -1: errno says
  // why.
  int Socket(Which which, int type);
  // A second descriptor of the socket of `from`, listed as `to`. -1: errno says why.
  int Duplicate(Which from, Which to);
  // Ends this socket in both directions, if there is one, for all its descriptors.
  void Shutdown(Which which);
  // Closes this socket, if there is one.
  void Close(Which which);
  // From here on somebody else closes this socket.
  void Forget(Which which);

 private:
  friend struct ForkList;

  int fds_[kAll] = {-1, -1, -1};
  ForkFds* next_ = nullptr;
  ForkFds* previous_ = nullptr;
};

// gRPC cannot be used by a child whose parent used it. True if this process may.
bool ClaimGrpc();

}  // namespace ferry::client
