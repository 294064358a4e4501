// SPDX-License-Identifier: Apache-2.0
// All sessions: opens them at hello, finds them by token, ends them when their socket closes, and
// lets go of what they owned once the last transfer does. Home: control.
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
#include "base/retry_after.h"
#include "base/token_bucket.h"
#include "daemon/attach.h"
#include "daemon/door.h"
#include "daemon/local_devices.h"
#include "daemon/session.h"

namespace ferry {

class SessionTable {
 public:
  struct Options {
    std::string node;
    Incarnation incarnation;
    SessionUse quota;
    absl::Duration default_deadline;
    size_t failures_kept = 16384;
    size_t sessions = 1024;
    size_t sessions_per_uid = 256;
    uint64_t session_kept_bytes = uint64_t{256} << 20;  // KeptBytes
    uint64_t uid_kept_bytes = uint64_t{1} << 30;        // of all sessions of a uid
    uint64_t gpu_bytes = UINT64_MAX;                    // of all arenas on one GPU
    uint64_t job_memory = UINT64_MAX;                   // of jobs, which is this process's own
    std::string domain_key;                             // DomainKey
    uint32_t first_session = 1;                         // id; they count up
  };
  // What sessions need from their surroundings. `send` is false if the client does not take the
  // packet.
  struct Hooks {
    std::function<bool(Door::ConnectionId, const AttachReply&, const std::vector<int>& fds)> send;
    std::function<void(Door::ConnectionId)> close;
    std::function<PostReply(Session&, PostBatch)> post;
    // Runs the task on control once what this batch of tasks caused is on its way.
    std::function<void(Task)> later;
    // The client of a session is gone: end its transfers.
    std::function<void(SessionId)> ended;
    // An arena is released; peers may have mapped it.
    std::function<void(ArenaId)> arena_gone;
    // A prepared batch shall end, of which this is a transfer.
    std::function<void(TransferId, const absl::Status& why)> end_prepared;
    // A process has a session (1), or one less (-1).
    std::function<void(const Credentials&, int)> sessions_changed = [](const Credentials&, int) {};
  };
  // How long a connection may take to say hello.
  static constexpr absl::Duration kHelloTimeout = absl::Seconds(10);

  SessionTable(Executor& control, LocalDevices& devices, Options options, Hooks hooks);
  ~SessionTable();

  // --- From attach.sock.
  void OnConnected(Door::ConnectionId connection, const Credentials& credentials);
  void OnCommand(Door::ConnectionId connection, const Credentials& credentials,
                 AttachCommand command, ReceivedFds fds);
  // As OnCommand, but this daemon had no descriptors left for those that came with it: refused, and
  // a session stays.
  void OnFdsLost(Door::ConnectionId connection, const Credentials& credentials,
                 const AttachCommand& command);
  // A packet that is no AttachRequest: told, then closed.
  void OnGarbage(Door::ConnectionId connection, const Credentials& credentials,
                 const absl::Status& why);
  void OnClosed(Door::ConnectionId connection);

  // --- From operators: as if the client had died, but that it may not resume the session. Nothing
  // happens to one that is closing already.
  void CloseByOperator(SessionId id);

  // --- From gRPC. The session of `token` if the caller is the process that attached and uses the
  // session's one connection. `alive(n)` says whether gRPC connection n still is what it was.
  absl::StatusOr<Session*> Authenticate(const std::string& token, const Credentials& credentials,
                                        int grpc_connection, const std::function<bool(int)>& alive);

  Session* Find(SessionId id);
  Arena* FindArena(ArenaId id);  // of any session; for launches

  // Memory of `bytes` (not 0) of a host device for a job of the session, against its quota and what
  // all jobs may have: one that another job has left, or a new arena that no client names. That has
  // no mapping until `mapped` is called, with OK. It is awaited until other jobs have given back
  // enough: of a session in the order of asking, of several the one next that was given some
  // longest ago. RESOURCE_EXHAUSTED if it would not fit though all jobs were over.
  using JobMemoryMapped = std::function<void(ArenaId, absl::Status)>;
  absl::StatusOr<ArenaId> TakeJobMemory(Session& session, LocalDevice& device, uint64_t bytes,
                                        JobMemoryMapped mapped);
  // It is mapped, or could not be, or is awaited; and no transfer uses it any more.
  void ReturnJobMemory(ArenaId id);
  // Whether it is to come when others have given back enough.
  bool AwaitsMemory(ArenaId id);
  // Of what is awaited: how much was asked for, how much there is, and who holds most.
  std::string JobMemoryText(ArenaId id);
  // Transfers of a session have ended: what waited for that is answered, freed arenas that no
  // transfer uses any more go, and if nothing is in flight any more and its client is gone, it
  // goes.
  void OnIdle(Session& session);
  void OnTime(absl::Time now);
  absl::Time NextTimer() const;
  // Of a prepared transfer what the engine does not know: the words of its batch.
  struct PreparedView {
    uint64_t firings = 0;       // that are over
    std::optional<bool> fired;  // whether the client has stored the next one, if that would matter
    std::string waits_for;
  };
  PreparedView ViewPrepared(const TransferEngine::Row& row);
  // Of all sessions there are: batches that may be fired. And firings of all there ever were.
  size_t prepared_armed() const;
  uint64_t prepared_firings() const;
  // The first transfer of each prepared batch of which no firing is under way.
  std::vector<TransferId> IdlePrepared() const;

  void SetDraining(bool draining);
  // Takes from `options` what is of sessions that attach from now on, and the bounds of all
  // sessions, of a uid's and of a GPU's arenas; what else is in it stays as it was.
  void SetLimits(const Options& options);
  size_t open() const { return by_connection_.size(); }
  size_t size() const { return sessions_.size(); }
  std::vector<Session*> List() {
    std::vector<Session*> all;
    for (auto& [id, session] : sessions_) all.push_back(session.get());
    return all;
  }
  // The sessions that hold most, of one device or of all, for RESOURCE_EXHAUSTED: "session 3
  // (trainer) 12884901888 bytes, ...".
  std::string LargestHolders(const LocalDevice* device = nullptr) const;

  struct Counts {
    uint64_t opened = 0, refused = 0;
    uint64_t closed = 0,
             lost = 0;  // how those that were opened ended: without or with transfers in flight
  };
  const Counts& counts() const { return counts_; }

 private:
  void OnHello(Door::ConnectionId connection, const Credentials& credentials, uint64_t sequence,
               const AttachHello& hello, ReceivedFds fds);
  // Whether the client may have a session, as far as descriptors have no say.
  absl::Status CheckHello(Door::ConnectionId connection, const Credentials& credentials,
                          const AttachHello& hello) const;
  // What a session is told with: new pages, or those that its client kept.
  absl::StatusOr<std::unique_ptr<TimelinePages>> PagesFor(const AttachHello& hello,
                                                          ReceivedFds fds) const;
  // What its client is told, at once and when it tries to resume it.
  static absl::Status ClosedByOperator();
  Session& Open(Door::ConnectionId connection, const Credentials& credentials,
                const AttachHello& hello, std::unique_ptr<TimelinePages> pages);
  AttachWelcome WelcomeTo(const Session& session) const;
  void OnRegister(Door::ConnectionId connection, SessionId session, uint64_t sequence,
                  const AttachRegisterArena& request, ReceivedFds fds);
  void OnMapped(Door::ConnectionId connection, SessionId session, uint64_t sequence,
                const AttachRegisterArena& request,
                absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping);
  // Whether this session may have such an arena of the device now.
  absl::Status CheckRegister(const Session& session, const LocalDevice& device,
                             const AttachRegisterArena& request, const ReceivedFds& fds) const;
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
  void LetGo(std::unique_ptr<Arena> arena);
  // --- job_memory.cc
  struct AwaitedMemory {
    ArenaId arena;
    uint64_t bytes = 0;
    LocalDevice* device = nullptr;
    JobMemoryMapped mapped;
  };
  // As Session::ReserveArena; memory that jobs have left makes room.
  absl::Status Reserve(Session& session, uint64_t bytes, size_t slots = 1);
  // Whether so much would fit if no other job had any.
  absl::Status CheckJobMemory(Session& session, uint64_t bytes);
  // Whether jobs may have so much more; what others have left makes room.
  bool MakeRoomForJobs(uint64_t bytes);
  void DropOldestSpare(Session& session);
  // What a job of the session has left, if that fits.
  std::optional<ArenaId> TakeSpare(Session& session, const LocalDevice& device, uint64_t bytes);
  // Gives what is awaited to as many as there is room for.
  void GrantJobMemory();
  void Grant(AwaitedMemory& wait);
  // On the device's memory thread: the next pages, until all are there or there are no more.
  void MakePages(ArenaId id, LocalDevice* device,
                 absl::StatusOr<std::unique_ptr<HostMapping>> mapping, JobMemoryMapped mapped);
  void OnJobMemory(ArenaId id, LocalDevice& device,
                   absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping,
                   const JobMemoryMapped& mapped);
  // Gives it what `spare` has.
  void Adopt(AwaitedMemory& wait, ArenaId spare);
  void Count(Arena& arena, LocalDevice& device, uint64_t bytes);
  void Destroy(Session& session);
  size_t SessionsOf(uid_t uid) const;
  // One that no session has, nor had lately.
  SessionId NewId();
  // Whether one more session of the uid gets its lines in the log; so many at once, and in the long
  // run so many a second.
  bool MayLog(uid_t uid);
  static constexpr double kLoggedAtOnce = 512;
  static constexpr double kLoggedASecond = 1;

  Executor& control_;
  LocalDevices& devices_;
  Options options_;  // constant but for what SetLimits sets
  const Hooks hooks_;
  bool draining_ = false;
  absl::node_hash_map<uid_t, KeptBytes> kept_by_uid_;  // of uids that have sessions
  absl::btree_map<SessionId, std::unique_ptr<Session>> sessions_;
  RetryAfter sessions_closed_;
  // The pages of sessions that operators have closed, the oldest first, as fstat tells files.
  static constexpr size_t kMostClosed = 1024;
  std::deque<std::pair<dev_t, ino_t>> closed_by_operators_;
  absl::flat_hash_map<Door::ConnectionId, SessionId> by_connection_;
  absl::flat_hash_map<std::string, SessionId> by_token_;
  absl::flat_hash_map<ArenaId, Arena*> arenas_;
  struct Stranger {
    Credentials credentials;
    absl::Time deadline;
  };
  absl::btree_map<Door::ConnectionId, Stranger> before_hello_;
  uint32_t next_session_;
  absl::flat_hash_map<uid_t, TokenBucket> log_;
  uint64_t next_arena_ = 1;
  uint64_t job_memory_ = 0;                                               // that jobs have, or left
  absl::btree_map<SessionId, std::deque<AwaitedMemory>> awaited_memory_;  // none is empty
  uint64_t grants_ = 0;                                                   // of memory to jobs
  uint64_t past_firings_ = 0;  // of sessions that are gone
  Counts counts_;
};

}  // namespace ferry
