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
  enum Slot { kAttach, kRpc, kGrpc, kSlots };

  ForkFds();
  ~ForkFds();
  ForkFds(const ForkFds&) = delete;
  ForkFds& operator=(const ForkFds&) = delete;

  // A new AF_UNIX socket of `type`, close-on-exec, listed from its first moment. -1: errno says
  // why.
  int Socket(Slot slot, int type);
  // A second descriptor of the socket of `from`, listed in slot `to`. -1: errno says why.
  int Duplicate(Slot from, Slot to);
  // Ends the slot's socket in both directions, if it has one, for all its descriptors.
  void Shutdown(Slot slot);
  // Closes the slot's socket, if it has one.
  void Close(Slot slot);
  // From here on somebody else closes the slot's socket.
  void Forget(Slot slot);

 private:
  friend struct ForkList;

  int fds_[kSlots] = {-1, -1, -1};
  ForkFds* next_ = nullptr;
  ForkFds* previous_ = nullptr;
};

// gRPC cannot be used by a child whose parent used it. True if this process may.
bool ClaimGrpc();

}  // namespace ferry::client
