// SPDX-License-Identifier: Apache-2.0
// attach.sock: what makes the daemon's session. Connect() and SayHello() once, then Request() from
// any thread. Whoever waits for an answer reads for all (leader and followers), so that a lone
// caller is answered on its own thread, and no other one wakes for it: the session's thread, in
// WaitForEnd(), waits for the socket's end only. Owned by the connection. Invariant: one thread
// reads at a time; a request ends with its answer, with its timeout, or with the socket.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "client/codec.h"
#include "client/fork.h"
#include "client/status.h"

namespace ferry::client {

// `dir`/`name` as an address, or INVALID_ARGUMENT if it does not fit. Connects within
// `deadline_ns`.
StatusPtr ConnectUnix(const std::string& dir, const char* name, int type, ForkFds* fds,
                      ForkFds::Slot slot, uint64_t deadline_ns, int* fd);

class AttachSocket {
 public:
  explicit AttachSocket(ForkFds* fds) : fds_(fds), buffer_(new char[kMaxPacket]) {}
  ~AttachSocket();  // Stop()

  StatusPtr Connect(const std::string& dir, uint64_t deadline_ns);
  // `resume` null: a new session, whose `memfd` becomes the caller's. Else `*memfd` goes along. The
  // `doorbell` (may be -1) becomes the caller's.
  StatusPtr SayHello(const std::string& dir, const std::string& name, uint64_t deadline_ns,
                     const Resumption* resume, Welcome* welcome, int* memfd, int* doorbell);
  // The socket is of no use any more: all that wait for it end. Also while it is being opened.
  void Break(const std::string& why);
  // True once it is broken, or the daemon has closed it.
  bool broken();
  // Why the socket ended, once it has; "" if `stop` was readable first. One thread. `pings`: the
  // daemon answers them; one that does not in time is lost, whether anybody else asks it or not.
  // Break() interrupts it.
  std::string WaitForEnd(int stop, bool pings);
  // Of one that has ended: why the daemon said it would close it; null if it said nothing.
  StatusPtr told();
  // Closes the socket: the daemon takes everything back. Not during WaitForEnd().
  void Stop();

  uint64_t NextSequence() { return sequence_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // Sends `packet` (encoded with `sequence`) and `fds`, which stay the caller's; waits for the
  // answer. A descriptor beside it becomes the caller's, in `received` (-1: there was none), or is
  // closed if that is null.
  StatusPtr Request(uint64_t sequence, const std::string& packet, std::span<const int> fds,
                    uint64_t deadline_ns, AttachResponse* response, int* received);

 private:
  struct Pending {
    AttachResponse* response;
    int* received;
    bool sent = false;  // waits for its answer, and can read
    bool answered = false;
    std::condition_variable changed;
  };

  void Ping();
  StatusPtr Send(const std::string& packet, std::span<const int> fds, uint64_t deadline_ns);
  // Reads one packet, if one comes in time, and gives it to whom it is for.
  void ReadOne(std::unique_lock<std::mutex>* lock, int flags);
  void End(std::string why);  // under mutex_

  ForkFds* const fds_;
  int fd_ = -1;
  std::atomic<uint64_t> sequence_{0};
  const std::unique_ptr<char[]> buffer_;  // of kMaxPacket; the reader's

  std::mutex mutex_;  // guards what follows
  std::map<uint64_t, Pending*> pending_;
  std::condition_variable idle_;  // pending_ is empty
  bool reading_ = false;
  std::condition_variable unread_;  // reading_ is false
  bool closed_ = false;
  std::string why_;  // closed
  StatusPtr told_;
};

}  // namespace ferry::client
