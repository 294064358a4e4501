// SPDX-License-Identifier: Apache-2.0
// attach.sock: the session itself. Open() says hello on the caller's thread; Start() makes the
// session's one thread, which sees the daemon go; Request() may then be called from any thread.
// Whoever waits for an answer reads for all (leader and followers), so that a lone caller is
// answered on its own thread, and no other one wakes for it: the session's thread waits for the
// socket's end only. Owned by the session. Invariant: one thread reads at a time; a request ends
// with its answer, with its timeout, or with the socket.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

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
  // `lost` is called once, on the socket's thread, when the daemon has closed it.
  AttachSocket(ForkFds* fds, std::function<void(std::string why)> lost)
      : fds_(fds), lost_(std::move(lost)), buffer_(new char[kMaxPacket]) {}
  ~AttachSocket();  // Stop()

  // `memfd` and `doorbell` (may be -1) become the caller's.
  StatusPtr Open(const std::string& dir, const std::string& name, uint64_t deadline_ns,
                 Welcome* welcome, int* memfd, int* doorbell);
  StatusPtr Start();
  // Ends the thread and closes the socket: the daemon takes everything back. Not from the thread
  // itself.
  void Stop();

  uint64_t NextSequence() { return sequence_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // Sends `packet` (encoded with `sequence`) and, if it is not -1, `fd`; waits for the answer.
  StatusPtr Request(uint64_t sequence, const std::string& packet, int fd, uint64_t deadline_ns,
                    AttachResponse* response);

 private:
  struct Pending {
    AttachResponse* response;
    bool sent = false;  // waits for its answer, and can read
    bool answered = false;
    std::condition_variable changed;
  };

  StatusPtr Send(const std::string& packet, int fd, uint64_t deadline_ns);
  void Watch();
  // Reads one packet, if one comes in time, and gives it to whom it is for.
  void ReadOne(std::unique_lock<std::mutex>* lock, int flags);
  void End(std::string why);  // under mutex_

  ForkFds* const fds_;
  const std::function<void(std::string)> lost_;
  int fd_ = -1;
  int stop_ = -1;  // eventfd
  std::thread thread_;
  std::atomic<uint64_t> sequence_{0};
  const std::unique_ptr<char[]> buffer_;  // of kMaxPacket; the reader's

  std::mutex mutex_;  // guards what follows
  std::map<uint64_t, Pending*> pending_;
  std::condition_variable idle_;  // pending_ is empty
  bool reading_ = false;
  std::condition_variable unread_;  // reading_ is false
  bool closed_ = false;
  std::string why_;  // closed
};

}  // namespace ferry::client
