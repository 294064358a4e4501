// SPDX-License-Identifier: Apache-2.0
// All clients of the daemon, as attach.sock brings them: opens a session at its client's hello,
// finds it by its token, ends it when its socket closes, and destroys it, with everything that it
// owned, once its last transfer is over. Answers each command of a client once. Refuses clients
// beyond the bounds in Options, and new sessions while the daemon drains. Home: control. Owner:
// Daemon.
//
// The table owns the sessions (SessionMap), their arenas by id (ArenaTable), and who registers
// arenas for clients (ArenaRegistrar) and for jobs (JobMemory). session_hello.cc has what decides
// who gets a session, session_table.cc the rest.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/retry_after.h"
#include "base/token_bucket.h"
#include "daemon/attach.h"
#include "daemon/door.h"
#include "daemon/local_devices.h"
#include "daemon/session/arena_registrar.h"
#include "daemon/session/arena_table.h"
#include "daemon/session/job_memory.h"
#include "daemon/session/session.h"
#include "daemon/session/session_map.h"
#include "daemon/session/session_sink.h"

namespace ferry {

class SessionTable {
 public:
  struct Options {
    std::string node;
    Incarnation incarnation;
    SessionUse quota;
    absl::Duration default_deadline;
    size_t failures_kept = 16384;   // statuses of failed transfers that are kept, for each session
    size_t sessions = 1024;         // most sessions at once
    size_t sessions_per_uid = 256;  // most sessions of one uid
    // Most bytes of records of one session, see RecordBytes
    uint64_t session_kept_bytes = uint64_t{256} << 20;
    uint64_t uid_kept_bytes = uint64_t{1} << 30;  // the same for all sessions of one uid
    uint64_t gpu_bytes = UINT64_MAX;              // most bytes of all arenas on one GPU
    // Most bytes of the memory of all jobs; it is this process's own
    uint64_t job_memory = UINT64_MAX;
    std::string domain_key;      // what DomainKey returned
    uint32_t first_session = 1;  // id of the first session; the next ones count up
  };
  // How long a connection may take to say hello.
  static constexpr absl::Duration kHelloTimeout = absl::Seconds(10);

  // All that is passed outlives the table.
  SessionTable(Executor& control, LocalDevices& devices, Options options, SessionSink& sink);
  ~SessionTable();

  // --- From attach.sock.
  void OnConnected(Door::ConnectionId connection, const Credentials& credentials);
  void OnCommand(Door::ConnectionId connection, const Credentials& credentials,
                 AttachCommand command, ReceivedFds fds);
  // Called instead of OnCommand when this daemon had no descriptors left for those that came with
  // the packet: the command is refused, the session stays.
  void OnFdsLost(Door::ConnectionId connection, const Credentials& credentials,
                 const AttachCommand& command);
  // A packet that is no AttachRequest: the client is told why, and the connection closed.
  void OnGarbage(Door::ConnectionId connection, const Credentials& credentials,
                 const absl::Status& why);
  void OnClosed(Door::ConnectionId connection);

  // --- From operators. Ends a session as if its client had died; the client also may not resume
  // it. Does nothing if the client is gone already.
  void CloseByOperator(SessionId id);

  // --- From gRPC. The session of `token`, if the caller is the process that attached and this is
  // the session's one gRPC connection. `alive(n)` must tell whether gRPC connection n is still
  // open.
  absl::StatusOr<Session*> Authenticate(const std::string& token, const Credentials& credentials,
                                        int grpc_connection, const std::function<bool(int)>& alive);

  // Posts a batch of transfers or of jobs, by whatever way it has come: SessionSink::Post.
  PostReply Post(Session& session, PostBatch batch) {
    home_.Check();
    return sink_.Post(session, std::move(batch));
  }

  Session* Find(SessionId id) {
    home_.Check();
    return sessions_.Find(id);
  }
  // An arena of any session; for launches. Null if there is none.
  Arena* FindArena(ArenaId id) {
    home_.Check();
    return arenas_.Find(id);
  }
  JobMemory& job_memory() {
    home_.Check();
    return job_memory_;
  }

  // Transfers of the session have ended. Answers requests that waited for that, unmaps arenas that
  // were freed and that no transfer uses any more. Destroys the session if its client is gone and
  // nothing of it is in flight.
  void OnIdle(Session& session);
  void OnTime(absl::Time now);
  // When OnTime wants to be called.
  absl::Time NextTimer() const;

  void SetDraining(bool draining);
  // Takes from `options` the limits of sessions that attach from now on, and the bounds of the
  // number of sessions, of a uid's sessions, and of a GPU's arenas. Everything else stays as it
  // was.
  void SetLimits(const Options& options);
  // Sessions whose client is connected; all sessions, those whose client is gone too.
  size_t open() const { return by_connection_.size(); }
  size_t size() const { return sessions_.size(); }
  std::vector<Session*> List() {
    home_.Check();
    return sessions_.List();
  }
  // For questions that are asked of all sessions.
  const SessionMap& all() const { return sessions_; }

  struct Counts {
    // Sessions that were opened; clients that were refused.
    uint64_t opened = 0, refused = 0;
    // How the opened sessions ended: without (closed) or with (lost) transfers in flight.
    uint64_t closed = 0, lost = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  void OnHello(Door::ConnectionId connection, const Credentials& credentials, uint64_t sequence,
               const AttachHello& hello, ReceivedFds fds);
  // Whether the client may have a session, as far as descriptors have no say.
  absl::Status CheckHello(Door::ConnectionId connection, const Credentials& credentials,
                          const AttachHello& hello) const;
  // The timelines of a new session: new pages, or the pages that its client has kept.
  absl::StatusOr<std::unique_ptr<TimelinePages>> PagesFor(const AttachHello& hello,
                                                          ReceivedFds fds) const;
  Session& Open(Door::ConnectionId connection, const Credentials& credentials,
                const AttachHello& hello, std::unique_ptr<TimelinePages> pages);
  AttachWelcome WelcomeTo(const Session& session) const;
  void OnRegister(Door::ConnectionId connection, Session& session, uint64_t sequence,
                  const AttachRegisterArena& request, ReceivedFds fds);
  void OnRelease(Door::ConnectionId connection, Session& session, uint64_t sequence,
                 const AttachReleaseArena& request);
  void OnReleasePrepared(Door::ConnectionId connection, Session& session, uint64_t sequence,
                         uint32_t batch);
  void OnPost(Door::ConnectionId connection, Session& session, uint64_t sequence, PostBatch batch);
  void Reply(Door::ConnectionId connection, const AttachReply& reply,
             const std::vector<int>& fds = {});
  void Refuse(Door::ConnectionId connection, uint64_t sequence, absl::Status why);
  // Refuses a connection, and closes it, with its session if it has one.
  void TurnAway(Door::ConnectionId connection, uint64_t sequence, const Credentials& credentials,
                absl::Status why);
  bool Known(Door::ConnectionId connection) const {
    return before_hello_.contains(connection) || by_connection_.contains(connection);
  }
  void Destroy(Session& session);
  // An id that no session has, or had lately.
  SessionId NewId();
  // Whether one more session of the uid gets its lines in the log: kLoggedAtOnce at once,
  // kLoggedASecond in the long run.
  bool MayLog(uid_t uid);
  static constexpr double kLoggedAtOnce = 512;
  static constexpr double kLoggedASecond = 1;

  Executor& control_;
  LocalDevices& devices_;
  Options options_;  // constant but for what SetLimits takes
  SessionSink& sink_;
  bool draining_ = false;
  absl::node_hash_map<uid_t, RecordBytes>
      records_by_uid_;  // record bytes of each uid that has sessions
  SessionMap sessions_;
  ArenaTable arenas_;
  JobMemory job_memory_;
  ArenaRegistrar registrar_;
  RetryAfter sessions_closed_;
  // The pages of sessions that operators have closed (device and inode number), the oldest first.
  static constexpr size_t kMostClosed = 1024;
  std::deque<std::pair<dev_t, ino_t>> closed_by_operators_;
  absl::flat_hash_map<Door::ConnectionId, SessionId> by_connection_;
  absl::flat_hash_map<std::string, SessionId> by_token_;
  // A connection that has not said hello, and when it must have.
  struct Stranger {
    Credentials credentials;
    absl::Time deadline;
  };
  absl::btree_map<Door::ConnectionId, Stranger> before_hello_;
  uint32_t next_session_;
  absl::flat_hash_map<uid_t, TokenBucket> log_;
  Counts counts_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
