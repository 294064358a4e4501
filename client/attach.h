// SPDX-License-Identifier: Apache-2.0
// attach.sock: the session itself. Open() says hello on the caller's thread; Start() makes the
// session's one thread, which reads answers and sees the daemon go; Request() may then be called
// from any thread. Owned by the session. Invariant: a request ends with its answer, with its
// timeout, or with the socket.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
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
      : fds_(fds), lost_(std::move(lost)) {}
  ~AttachSocket();  // Stop()

  // `memfd` and `doorbell` (may be -1) become the caller's.
  StatusPtr Open(const std::string& dir, const std::string& name, uint64_t deadline_ns,
                 Welcome* welcome, int* memfd, int* doorbell);
  StatusPtr Start();
  // Ends the thread and closes the socket: the daemon takes everything back. Not from the thread
  // itself.
  void Stop();

  uint64_t NextSequence();
  // Sends `packet` (encoded with `sequence`) and, if it is not -1, `fd`; waits for the answer.
  StatusPtr Request(uint64_t sequence, const std::string& packet, int fd, AttachResponse* response);
  bool draining() const;

 private:
  struct Pending {
    AttachResponse* response;
    bool answered = false;
    std::condition_variable changed;
  };

  StatusPtr Send(const std::string& packet, int fd, uint64_t deadline_ns);
  void Watch();
  void Dispatch(AttachResponse response);

  ForkFds* const fds_;
  const std::function<void(std::string)> lost_;
  int fd_ = -1;
  int stop_ = -1;  // eventfd
  std::thread thread_;

  mutable std::mutex mutex_;  // guards what follows
  uint64_t sequence_ = 0;
  std::map<uint64_t, Pending*> pending_;
  std::condition_variable idle_;  // pending_ is empty
  bool closed_ = false;
  bool draining_ = false;
};

}  // namespace ferry::client
