// SPDX-License-Identifier: Apache-2.0
// One session: joins the connection, the counters, the callbacks and the watch, and outlives the
// daemon. When the daemon is lost, all that is outstanding ends, and the session's own thread
// (reattach.cc) attaches to the next life of the daemon. The library never posts again what was
// outstanding: bytes of it may have moved, and only the application knows whether the other end
// still waits.
//
// Any thread. Held by the application's handles (session, arenas, batches), so that these stay good
// after ferry_session_close. In a forked child only Mine() and getters are called, and the session
// is never destroyed. Invariant: there is a connection, or a cause why there is none.
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
    bool reattach = true;
    uint64_t reattach_timeout_ns = kForever;
  };

  static StatusPtr Open(const Options& options, std::shared_ptr<Session>* session);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends the session. Once; not from a thread of the library.
  void Close();

  // The sessions of this process that are open.
  static std::vector<std::shared_ptr<Session>> All();

  // False in a forked child, where only getters may be called.
  bool Mine() const { return generation_ == ForkGeneration(); }
  // Null, or FORKED.
  StatusPtr CheckMine() const;
  // Null while the daemon is there; else FORKED, DAEMON_LOST, or that the session was closed.
  StatusPtr Check() const;
  // Waits until Check() is null, or can never be null again.
  StatusPtr WaitAttached(uint64_t timeout_ns);
  // True if no daemon will carry anything of this session any more.
  bool IsOver() const;
  // Once the session is over: lets streams go on that wait for values that nobody has posted.
  void EndStreams();
  // How the session ended; or, if it has not ended, how its daemon was lost the last time.
  StatusPtr LastLoss() const;

  // What the latest daemon said at the attach. Lives as long as the session.
  const Welcome& welcome() const { return *welcome_.load(); }
  // The device as the latest daemon has it; null if that has no such device.
  const DeviceInfo* FindDevice(uint64_t device) const;
  bool reattaches() const { return options_.reattach; }
  Timelines& timelines() { return timelines_; }
  OverCallbacks& callbacks() { return callbacks_; }
  OverCounters& over_counters() { return over_counters_; }
  StreamBook& streams() { return streams_; }

  // The present connection; else the error that says why there is none.
  StatusPtr Connected(std::shared_ptr<Connection>* connection) const;
  // Connection `number`, if it is the session's present or next one; else null.
  std::shared_ptr<Connection> Find(uint64_t number) const;
  // The error of a call on `connection`: how the connection ended if that is why the call failed,
  // else `error`.
  StatusPtr OrCause(const Connection& connection, StatusPtr error) const;

  // Takes the answer of a call on `connection` only if that is still the session's connection: runs
  // `adopt` then, whose effects whatever comes after a loss sees. Else returns how the connection
  // was lost.
  template <typename Adopt>
  StatusPtr IfCurrent(const Connection& connection, Adopt adopt) {
    std::lock_guard lock(mutex_);
    if (connection_.get() != &connection) return Copy(cause_ != nullptr ? cause_ : loss_);
    adopt();
    return nullptr;
  }

  // Registers what each next daemon must be told after a re-attach: an arena, or something that is
  // prepared once and used often. `again` runs on the session's thread, in the order of
  // TellAgain(), when the counters go on and before any other call is let in. It may block for
  // calls on the connection that it is given, and handles its own failures. If that connection
  // breaks, all are run again on the next one. `again` must not use the session, which has no
  // connection meanwhile. Forget() waits until it has returned.
  using Again = std::function<void(Connection& connection)>;
  uint64_t TellAgain(Again again);
  void Forget(uint64_t told);

  // Bytes of the session's quota of arenas that are left by the library's own count; the daemon
  // decides.
  uint64_t ArenaBytesLeft() const;
  std::string ArenaUse() const;  // "session 3 holds 4096 of 1048576 bytes, 1044480 are left"
  StatusPtr ResetTimeline(uint32_t timeline);
  // Posts; `life` is set to the life that the transfers belong to.
  StatusPtr Post(const PostBatch& batch, PostAnswer* answer, std::shared_ptr<const Life>* life);
  // A call about transfers of `life`. Fails if that life has ended, as the transfers have.
  StatusPtr Call(const Life& life, Method method, std::string request, std::string* response);
  StatusPtr Compile(uint64_t device, std::string_view text, ProgramInfo* program);
  // Gives back prepared batch `number` of `life`, which has these transfers.
  StatusPtr ReleasePrepared(const Life& life, uint32_t number, uint64_t first_id, uint64_t count);
  StatusPtr ListClusterDevices(std::vector<ClusterDeviceInfo>* devices);
  // Joins, and joins again after each re-attach.
  StatusPtr JoinDomain(const DomainMember& member);
  StatusPtr Watch(Ended ended, void* argument);

 private:
  explicit Session(const Options& options);

  StatusPtr Start();
  // Under mutex_: takes away the session's connection. Returns it; null if there was none.
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
  int stop_ = -1;  // eventfd by which Close() stops the session's thread
  bool closed_ = false;
  std::thread thread_;
  // Of the session's thread: the number of the last connection; the highest transfer id of ended
  // lives.
  uint64_t last_number_ = 1;
  uint64_t last_transfer_id_ = 0;
  std::atomic<const Welcome*> welcome_{nullptr};

  std::mutex told_mutex_;  // guards told_; held while an entry runs
  std::map<uint64_t, Again> told_;
  uint64_t next_told_ = 1;

  std::mutex joined_mutex_;  // guards joined_
  std::map<std::pair<std::string, uint64_t>, uint64_t>
      joined_;  // by domain and device: what TellAgain() gave

  mutable std::mutex mutex_;                 // guards what follows
  mutable std::condition_variable changed_;  // notified when connection_ or over_ changes
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Connection> opening_;  // the next connection, while the session's thread opens it
  StatusPtr cause_;                      // why there is no connection
  StatusPtr loss_;                       // how the latest daemon was lost
  bool over_ = false;                    // the session is over: cause_ is final
  // Every Welcome stays, because the application may hold names from it.
  std::vector<std::unique_ptr<const Welcome>> welcomes_;
  std::thread watch_;
  bool watching_ = false;
  // Connections that a watcher must see to their end.
  std::deque<std::shared_ptr<Connection>> to_watch_;
};

}  // namespace ferry::client
