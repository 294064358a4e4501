// SPDX-License-Identifier: Apache-2.0
// One session: joins the connection, the counters, the callbacks and the watch, and survives the
// daemon. When the daemon is lost, what was outstanding ends, and the session's own thread
// (reattach.cc) attaches to the next life of it. What was outstanding is never posted again by
// itself: bytes of it may have moved, and only the application knows whether the other end still
// waits.
//
// Any thread. Held by the application's handles (session, arenas, batches), so that those stay good
// after ferry_session_close; in a forked child it is never touched beyond Mine(), and never
// destroyed. Invariant: there is a connection, or a cause why there is none.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/connection.h"
#include "client/fork.h"
#include "client/life.h"
#include "client/over_callbacks.h"
#include "client/over_counters.h"
#include "client/stream_book.h"
#include "client/timelines.h"

namespace ferry::client {

class Session {
 public:
  using Ended = void (*)(void*, uint64_t, const ferry_status*);

  struct Options {
    std::string client_dir;
    std::string name;
    uint64_t timeout_ns = 0;
    int post_by = FERRY_POST_BY_ANY;
    bool reattach = true;
    uint64_t reattach_timeout_ns = kForever;
  };

  static StatusPtr Open(const Options& options, std::shared_ptr<Session>* session);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends everything. Once; not from a thread of the library.
  void Close();

  // Those of this process that are there.
  static std::vector<std::shared_ptr<Session>> All();

  // False in a forked child: nothing else may be called then, but the getters.
  bool Mine() const { return generation_ == ForkGeneration(); }
  // Null, or FORKED.
  StatusPtr CheckMine() const;
  // Null while the daemon is there; else FORKED, DAEMON_LOST, or that it was closed.
  StatusPtr Check() const;
  // Waits until Check() is null or will never be again.
  StatusPtr WaitAttached(uint64_t timeout_ns);
  // No daemon will carry anything of it any more.
  bool IsOver() const;
  // Once it is over: streams that wait for what nobody posted go on too.
  void EndStreams();
  // How the session ended, or how its daemon was lost the last time.
  StatusPtr LastLoss() const;

  // Of the latest daemon. Lives as long as the session.
  const Welcome& welcome() const { return *welcome_.load(); }
  // As the latest daemon has it; null: it has none of this id.
  const DeviceInfo* FindDevice(uint64_t device) const;
  bool reattaches() const { return options_.reattach; }
  int post_by() const { return options_.post_by; }
  Timelines& timelines() { return timelines_; }
  OverCallbacks& callbacks() { return callbacks_; }
  OverCounters& over_counters() { return over_counters_; }
  StreamBook& streams() { return streams_; }

  // The connection as it is now; why there is none.
  StatusPtr Connected(std::shared_ptr<Connection>* connection) const;
  // Connection `number`, if it is the session's or about to be.
  std::shared_ptr<Connection> Find(uint64_t number) const;
  // `error` of a call on `connection`, or how that ended if that is why.
  StatusPtr OrCause(const Connection& connection, StatusPtr error) const;

  // The answer of a call on `connection` counts only if the session still has that: `adopt` is run
  // then, and what it did is seen by whatever comes after a loss. Else how it was lost.
  template <typename Adopt>
  StatusPtr IfCurrent(const Connection& connection, Adopt adopt) {
    std::lock_guard lock(mutex_);
    if (connection_.get() != &connection) return Copy(cause_ != nullptr ? cause_ : loss_);
    adopt();
    return nullptr;
  }

  // What a daemon must be told again after a re-attach: an arena, or whatever is prepared once and
  // used often. `again` is run on the session's thread, in the order of Keep(), when the counters
  // go on and before any other call is let in. It may block for calls on the connection it is
  // given, and answers for its own failures; if the connection breaks, all is run again on the next
  // one. It must not use the session, which has no connection meanwhile. Forget() waits for it to
  // end.
  using Again = std::function<void(Connection& connection)>;
  uint64_t Keep(Again again);
  void Forget(uint64_t kept);

  // Of the session's quota, by our own count; the daemon's decides.
  uint64_t ArenaBytesLeft() const;
  std::string ArenaUse() const;  // "session 3 holds 4096 of 1048576 bytes, 1044480 are left"
  StatusPtr ResetTimeline(uint32_t timeline);
  // `life`: whose transfers they are.
  StatusPtr Post(const PostBatch& batch, PostAnswer* answer, std::shared_ptr<const Life>* life);
  // About transfers of `life`: fails once it has ended, as they have.
  StatusPtr Call(const Life& life, Method method, std::string request, std::string* response);
  StatusPtr Compile(uint64_t device, std::string_view text, ProgramInfo* program);
  // Gives back number `number` of `life`, the batch of these transfers.
  StatusPtr ReleasePrepared(const Life& life, uint32_t number, uint64_t first_id, uint64_t count);
  StatusPtr ListClusterDevices(std::vector<ClusterDeviceInfo>* devices);
  // Again after each re-attach.
  StatusPtr JoinDomain(const DomainMember& member);
  StatusPtr Watch(Ended ended, void* argument);

 private:
  explicit Session(const Options& options);

  StatusPtr Start();
  // Under mutex_: the session has no connection from here on; null if it had none.
  std::shared_ptr<Connection> EndConnection(StatusPtr cause);

  // reattach.cc: the session's thread.
  void Run();
  std::shared_ptr<Connection> Reattach(const std::string& loss);
  StatusPtr Attempt(std::shared_ptr<Connection>* made);
  void RunKept(Connection& connection);

  // watch.cc
  void RunWatch(Ended ended, void* argument);
  StatusPtr WatchOne(Connection& connection, Ended ended, void* argument);
  void TellLost(Connection& connection, Ended ended, void* argument);

  const uint64_t generation_ = ForkGeneration();
  const pid_t pid_ = getpid();
  const Options options_;
  Timelines timelines_;
  StreamBook streams_;
  OverCallbacks callbacks_;
  OverCounters over_counters_;
  int stop_ = -1;  // eventfd: Close() to the session's thread
  bool closed_ = false;
  std::thread thread_;
  // The thread's: of the connections so far, and of the lives that ended.
  uint64_t last_number_ = 1;
  uint64_t last_transfer_id_ = 0;
  std::atomic<const Welcome*> welcome_{nullptr};

  std::mutex kept_mutex_;  // guards kept_; held while one of them runs
  std::map<uint64_t, Again> kept_;
  uint64_t next_kept_ = 1;

  std::mutex joined_mutex_;  // guards joined_
  std::map<std::pair<std::string, uint64_t>, uint64_t>
      joined_;  // domain and device: what Keep gave

  mutable std::mutex mutex_;                 // guards what follows
  mutable std::condition_variable changed_;  // connection_ or over_
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Connection> opening_;  // the next one, on the session's thread
  StatusPtr cause_;                      // why there is no connection
  StatusPtr loss_;
  bool over_ = false;  // cause_ is for good
  // Names that the application was given stay where they are.
  std::vector<std::unique_ptr<const Welcome>> welcomes_;
  std::thread watch_;
  bool watching_ = false;
  std::deque<std::shared_ptr<Connection>> to_watch_;  // each that a watcher must see to its end
};

}  // namespace ferry::client
