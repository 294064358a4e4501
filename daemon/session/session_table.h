// SPDX-License-Identifier: Apache-2.0
// All sessions of the daemon: opens a session at its client's hello, finds it by its token, ends it
// when its socket closes, and destroys it, with everything that it owned, once its last transfer is
// over. Refuses clients and arenas beyond the bounds in Options, and new sessions while the daemon
// drains. Home: control.
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
#include "daemon/session/session.h"

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
    // Most bytes of records of one session, see KeptBytes
    uint64_t session_kept_bytes = uint64_t{256} << 20;
    uint64_t uid_kept_bytes = uint64_t{1} << 30;  // the same for all sessions of one uid
    uint64_t gpu_bytes = UINT64_MAX;              // most bytes of all arenas on one GPU
    // Most bytes of the memory of all jobs; it is this process's own
    uint64_t job_memory = UINT64_MAX;
    std::string domain_key;      // what DomainKey returned
    uint32_t first_session = 1;  // id of the first session; the next ones count up
  };
  // What sessions need of the daemon's other parts. `send` sends a packet; false if the client does
  // not take it.
  struct Hooks {
    std::function<bool(Door::ConnectionId, const AttachReply&, const std::vector<int>& fds)> send;
    std::function<void(Door::ConnectionId)> close;
    // TransferDriver or JobTable take a batch.
    std::function<PostReply(Session&, PostBatch)> post;
    // Runs the task on control once what this batch of tasks has caused is on its way.
    std::function<void(Task)> later;
    // The client of a session is gone: its transfers and jobs must end.
    std::function<void(SessionId)> ended;
    // An arena was released; peers that have mapped it must be told.
    std::function<void(ArenaId)> arena_gone;
    // The prepared batch that this transfer belongs to must end.
    std::function<void(TransferId, const absl::Status& why)> end_prepared;
    // A process has one session more (1) or less (-1).
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
  // Called instead of OnCommand when this daemon had no descriptors left for those that came with
  // the packet: the command is refused, the session stays.
  void OnFdsLost(Door::ConnectionId connection, const Credentials& credentials,
                 const AttachCommand& command);
  // A packet that is no AttachRequest: the client is told why, and the connection closed.
  void OnGarbage(Door::ConnectionId connection, const Credentials& credentials,
                 const absl::Status& why);
  void OnClosed(Door::ConnectionId connection);

  // --- From operators. Ends a session as if its client had died; the client also may not resume
  // it. Does nothing if the session is closing already.
  void CloseByOperator(SessionId id);

  // --- From gRPC. The session of `token`, if the caller is the process that attached and this is
  // the session's one gRPC connection. `alive(n)` must tell whether gRPC connection n is still
  // open.
  absl::StatusOr<Session*> Authenticate(const std::string& token, const Credentials& credentials,
                                        int grpc_connection, const std::function<bool(int)>& alive);

  // Posts a batch of transfers or of jobs, by whatever way it has come: Hooks::post.
  PostReply Post(Session& session, PostBatch batch) {
    return hooks_.post(session, std::move(batch));
  }

  Session* Find(SessionId id);
  Arena* FindArena(ArenaId id);  // an arena of any session; for launches

  // Takes memory for a job of the session: `bytes` (not 0) of a host device. It counts against the
  // session's quota and against what all jobs together may have. It is memory that another job of
  // the session has left, or a new arena that no client can name.
  //
  // A new arena has no mapping until `mapped` is called with OK. If there is no room, the arena is
  // awaited: it gets its memory when other jobs have given back enough. One session's requests are
  // served in the order of asking; among sessions the one is next that got memory longest ago.
  // RESOURCE_EXHAUSTED if the memory would not fit even if all jobs were over.
  using JobMemoryMapped = std::function<void(ArenaId, absl::Status)>;
  absl::StatusOr<ArenaId> TakeJobMemory(Session& session, LocalDevice& device, uint64_t bytes,
                                        JobMemoryMapped mapped);
  // Gives it back, whether it is mapped, could not be mapped, or is still awaited. No transfer may
  // use it any more.
  void ReturnJobMemory(ArenaId id);
  // Whether the memory is awaited, see TakeJobMemory.
  bool AwaitsMemory(ArenaId id);
  // For memory that is awaited: how much was asked for, how much there is, and who holds most. For
  // people.
  std::string JobMemoryText(ArenaId id);
  // Transfers of the session have ended. Answers requests that waited for that, unmaps arenas that
  // were freed and that no transfer uses any more. Destroys the session if its client is gone and
  // nothing of it is in flight.
  void OnIdle(Session& session);
  void OnTime(absl::Time now);
  // When OnTime wants to be called.
  absl::Time NextTimer() const;
  // What the engine does not know of a prepared transfer, because it is in the words of its batch.
  struct PreparedView {
    uint64_t firings = 0;  // firings that are over
    // Whether the client has stored the next firing's number; none if that would make no difference
    std::optional<bool> fired;
    std::string waits_for;
  };
  PreparedView ViewPrepared(const TransferEngine::Row& row);
  // Prepared batches of all sessions that may be fired now; and firings of all batches that there
  // ever were.
  size_t prepared_armed() const;
  uint64_t prepared_firings() const;
  // The first transfer of each prepared batch of which no firing is under way.
  std::vector<TransferId> IdlePrepared() const;

  void SetDraining(bool draining);
  // Takes from `options` the limits of sessions that attach from now on, and the bounds of the
  // number of sessions, of a uid's sessions, and of a GPU's arenas. Everything else stays as it
  // was.
  void SetLimits(const Options& options);
  // Sessions whose client is connected; all sessions, those that are closing too.
  size_t open() const { return by_connection_.size(); }
  size_t size() const { return sessions_.size(); }
  std::vector<Session*> List() {
    std::vector<Session*> all;
    for (auto& [id, session] : sessions_) all.push_back(session.get());
    return all;
  }
  // The sessions that hold the most memory of one device, or of all devices if `device` is null.
  // For errors: "session 3 (trainer) 12884901888 bytes, ...".
  std::string LargestHolders(const LocalDevice* device = nullptr) const;

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
  // The status that the client of a session gets that an operator has closed: at once, and when it
  // tries to resume.
  static absl::Status ClosedByOperator();
  Session& Open(Door::ConnectionId connection, const Credentials& credentials,
                const AttachHello& hello, std::unique_ptr<TimelinePages> pages);
  AttachWelcome WelcomeTo(const Session& session) const;
  void OnRegister(Door::ConnectionId connection, SessionId session, uint64_t sequence,
                  const AttachRegisterArena& request, ReceivedFds fds);
  void OnMapped(Door::ConnectionId connection, SessionId session, uint64_t sequence,
                const AttachRegisterArena& request,
                absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping);
  // Whether the session may register such an arena of the device now.
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
  // A request of TakeJobMemory that has got no memory yet.
  struct AwaitedMemory {
    ArenaId arena;
    uint64_t bytes = 0;
    LocalDevice* device = nullptr;
    JobMemoryMapped mapped;
  };
  // As ArenaBook::Reserve, but memory that jobs of the session have left is freed if that makes
  // room.
  absl::Status Reserve(Session& session, uint64_t bytes, size_t slots = 1);
  // OK if `bytes` would fit if no other job had any memory.
  absl::Status CheckJobMemory(Session& session, uint64_t bytes);
  // Whether jobs may have `bytes` more. Memory that jobs have left is freed to make room.
  bool MakeRoomForJobs(uint64_t bytes);
  // Frees the memory that was left longest ago.
  void DropOldestSpare(Session& session);
  // An arena that a job of the session has left, if one fits.
  std::optional<ArenaId> TakeSpare(Session& session, const LocalDevice& device, uint64_t bytes);
  // Gives memory to as many requests as there is room for.
  void GrantJobMemory();
  void Grant(AwaitedMemory& wait);
  // On the device's memory thread: makes the next pages of the mapping, and posts itself again
  // until all are there or one cannot be had.
  void MakePages(ArenaId id, LocalDevice* device,
                 absl::StatusOr<std::unique_ptr<HostMapping>> mapping, JobMemoryMapped mapped);
  void OnJobMemory(ArenaId id, LocalDevice& device,
                   absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping,
                   const JobMemoryMapped& mapped);
  // Gives the arena `spare` to the request.
  void Adopt(AwaitedMemory& wait, ArenaId spare);
  void Count(Arena& arena, LocalDevice& device, uint64_t bytes);
  void Destroy(Session& session);
  size_t SessionsOf(uid_t uid) const;
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
  const Hooks hooks_;
  bool draining_ = false;
  absl::node_hash_map<uid_t, KeptBytes> kept_by_uid_;  // record bytes of each uid that has sessions
  absl::btree_map<SessionId, std::unique_ptr<Session>> sessions_;
  RetryAfter sessions_closed_;
  // The pages of sessions that operators have closed (device and inode number), the oldest first.
  static constexpr size_t kMostClosed = 1024;
  std::deque<std::pair<dev_t, ino_t>> closed_by_operators_;
  absl::flat_hash_map<Door::ConnectionId, SessionId> by_connection_;
  absl::flat_hash_map<std::string, SessionId> by_token_;
  absl::flat_hash_map<ArenaId, Arena*> arenas_;
  // A connection that has not said hello, and when it must have.
  struct Stranger {
    Credentials credentials;
    absl::Time deadline;
  };
  absl::btree_map<Door::ConnectionId, Stranger> before_hello_;
  uint32_t next_session_;
  absl::flat_hash_map<uid_t, TokenBucket> log_;
  uint64_t next_arena_ = 1;
  uint64_t job_memory_ = 0;  // bytes that jobs have, or have left
  // By session, each in the order of asking; no deque is empty
  absl::btree_map<SessionId, std::deque<AwaitedMemory>> awaited_memory_;
  uint64_t grants_ = 0;        // how often memory was given to a job
  uint64_t past_firings_ = 0;  // firings of sessions that are gone
  Counts counts_;
};

}  // namespace ferry
