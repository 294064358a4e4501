// SPDX-License-Identifier: Apache-2.0
// attach.sock: the socket whose connection is the daemon's session. Connect() and SayHello() once,
// then Request() from any thread. One of the threads that wait for answers reads for all of them
// (leader and followers), so a lone caller gets its answer on its own thread and no other thread
// wakes. The session's thread, in WaitForEnd(), waits for the socket's end only. Owned by the
// connection. Invariant: one thread reads at a time; a request ends with its answer, with its
// timeout, or with the socket.
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

// Connects to `dir`/`name` within `deadline_ns`. INVALID_ARGUMENT if the path does not fit an
// address.
StatusPtr ConnectUnix(const std::string& dir, const char* name, int type, ForkFds* fds,
                      ForkFds::Which which, uint64_t deadline_ns, int* fd);

class AttachSocket {
 public:
  explicit AttachSocket(ForkFds* fds) : fds_(fds), buffer_(new char[kMaxPacket]) {}
  ~AttachSocket();  // calls Stop()

  StatusPtr Connect(const std::string& dir, uint64_t deadline_ns);
  // `resume` null: opens a new session, and `memfd` receives the timelines' memfd, which becomes
  // the caller's. Else resumes a session, and `*memfd` is sent along. `doorbell` (may be -1)
  // becomes the caller's.
  StatusPtr SayHello(const std::string& dir, const std::string& name, uint64_t deadline_ns,
                     const Resumption* resume, Welcome* welcome, int* memfd, int* doorbell);
  // Marks the socket as lost: all that wait for it end. May be called while the socket is being
  // opened.
  void Break(const std::string& why);
  // True if Break() was called or the daemon has closed the socket.
  bool broken();
  // Waits for the end of the socket and returns why it ended; "" if the descriptor `stop` became
  // readable first. One thread. Pings the daemon meanwhile: one that does not answer in time is
  // lost, although nobody else asks it anything. Break() interrupts the wait.
  std::string WaitForEnd(int stop);
  // After the end: why the daemon said that it would close the socket; null if it said nothing.
  StatusPtr told();
  // Closes the socket; the daemon then takes back all that the session has. Not during
  // WaitForEnd().
  void Stop();

  uint64_t NextSequence() { return sequence_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // Sends `packet`, which was encoded with `sequence`, and `fds`, which stay the caller's; waits
  // for the answer. A descriptor that comes with the answer goes to `received` and becomes the
  // caller's (-1: none came); if `received` is null it is closed.
  StatusPtr Request(uint64_t sequence, const std::string& packet, std::span<const int> fds,
                    uint64_t deadline_ns, AttachResponse* response, int* received);

 private:
  struct Pending {
    AttachResponse* response;
    int* received;
    bool sent = false;  // the packet is sent: this caller waits and may read
    bool answered = false;
    std::condition_variable changed;
  };

  void Ping();
  StatusPtr Send(const std::string& packet, std::span<const int> fds, uint64_t deadline_ns);
  // Reads one packet, if one comes in time, and hands it to the request that it answers.
  void ReadOne(std::unique_lock<std::mutex>* lock, int flags);
  void End(std::string why);  // under mutex_

  ForkFds* const fds_;
  int fd_ = -1;
  std::atomic<uint64_t> sequence_{0};
  const std::unique_ptr<char[]> buffer_;  // kMaxPacket bytes, for whoever reads

  std::mutex mutex_;  // guards what follows
  std::map<uint64_t, Pending*> pending_;
  std::condition_variable idle_;  // notified when pending_ becomes empty
  bool reading_ = false;
  std::condition_variable unread_;  // notified when reading_ becomes false
  bool closed_ = false;
  std::string why_;  // why the socket is closed
  // What the daemon said before it closed the socket.
  StatusPtr told_;
};

}  // namespace ferry::client
