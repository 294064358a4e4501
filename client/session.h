// SPDX-License-Identifier: Apache-2.0
// One session: joins the sockets, the counters, the callbacks and the watch, and knows how it
// ended. Any thread. Held by the application's handles (session, arenas, batches), so that those
// stay good after ferry_session_close; in a forked child it is never touched beyond Mine(), and
// never destroyed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>

#include "client/attach.h"
#include "client/fork.h"
#include "client/over_callbacks.h"
#include "client/rpc.h"
#include "client/timelines.h"

struct ferry_prepared;

namespace ferry::client {

class Session {
 public:
  using Ended = void (*)(void*, uint64_t, const ferry_status*);

  struct Options {
    std::string client_dir;
    std::string name;
    uint64_t timeout_ns = 0;
    int post_by = FERRY_POST_BY_ANY;
  };

  static StatusPtr Open(const Options& options, std::shared_ptr<Session>* session);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends everything. Once; not from a thread of the library.
  void Close();

  // False in a forked child: nothing else may be called then, but the getters.
  bool Mine() const { return fds_.Mine(); }
  // Null while the session is there; else FORKED, DAEMON_LOST, or that it was closed.
  StatusPtr Check() const;

  const Welcome& welcome() const { return welcome_; }
  Timelines& timelines() { return timelines_; }
  OverCallbacks& callbacks() { return callbacks_; }

  StatusPtr RegisterArena(uint64_t device, uint64_t bytes, bool imported, int memfd, uint64_t* id);
  StatusPtr ReleaseArena(uint64_t id, uint64_t bytes);
  // Of the session's quota, by our own count; the daemon's decides.
  uint64_t ArenaBytesLeft() const;
  std::string ArenaUse() const;  // "session 3 holds 4096 of 1048576 bytes, 1044480 are left"
  StatusPtr ResetTimeline(uint32_t timeline);
  StatusPtr Post(const PostBatch& batch, PostAnswer* answer);
  StatusPtr ReleasePrepared(uint32_t number);
  // The application's prepared batches: what must be prepared again on another session.
  void Keep(ferry_prepared* prepared);
  void Forget(ferry_prepared* prepared);
  StatusPtr Call(Method method, std::string request, std::string* response);
  StatusPtr Watch(Ended ended, void* argument);

 private:
  Session();

  StatusPtr Start(const Options& options);
  // The first end counts. True if this was it.
  bool SetCause(StatusPtr cause);
  void Lose(const std::string& why);
  // `error`, or how the session ended if that is why.
  StatusPtr OrCause(StatusPtr error) const;
  StatusPtr Attach(uint64_t sequence, const std::string& packet, int fd,
                   AttachResponse::Kind expected, AttachResponse* response);
  StatusPtr PostBySocket(uint64_t sequence, const std::string& packet, PostAnswer* answer);
  void RunWatch(Ended ended, void* argument);

  ForkFds fds_;
  Timelines timelines_;
  OverCallbacks callbacks_;
  AttachSocket attach_;
  Rpc rpc_;
  PostStream posts_;
  Welcome welcome_;
  int post_by_ = FERRY_POST_BY_ANY;
  bool closed_ = false;
  std::atomic<uint64_t> arena_bytes_{0};

  mutable std::mutex mutex_;  // guards what follows
  StatusPtr cause_;
  std::unordered_set<ferry_prepared*> prepared_;
  mutable std::condition_variable ended_;  // cause_ is set
  std::thread watch_;
};

}  // namespace ferry::client
