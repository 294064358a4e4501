// SPDX-License-Identifier: Apache-2.0
// Everything one client process owns: its arenas, timelines, posted transfers and what it is told
// about them. Destroying it gives everything back. Home: control. Owner: SessionTable.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/retry_after.h"
#include "daemon/attach.h"
#include "daemon/door.h"
#include "daemon/moved.h"
#include "daemon/post.h"
#include "device/memory.h"
#include "device/timeline.h"
#include "transfer/engine.h"
#include "transfer/kept_bytes.h"

namespace ferry {

// One allocation of a session, mapped here.
struct Arena {
  ArenaId id;
  SessionId session;
  GlobalDeviceId device;
  uint64_t bytes = 0;
  uint64_t held = 0;  // of the device and of quotas: a GPU gives whole granules
  bool imported = false;
  MemoryKind kind = MemoryKind::kMemfd;  // as it was asked for
  // Of a job's own: no client names it. Without a mapping until that is there.
  bool of_job = false;
  size_t slots = 1;        // of the session's quota of arenas
  bool awaited = false;    // of a job's: there is no room for it yet, and it counts nowhere
  uint64_t transfers = 0;  // that use it now: it is not unmapped before this is 0
  bool freed = false;      // its client has given it up, and knows it no more
  std::unique_ptr<DeviceMemory> mapping;
  bool pin_tried = false;  // of a host device: a GPU was asked to register it, and has answered
};

// One transfer's ending, as kept for watchers and GetTransfers.
struct EndedTransfer {
  uint64_t sequence = 0;
  Route route = Route::kUnspecified;
  bool ok = true;
};

// A prepared batch of a session, from its posting to its release.
struct PreparedRecord {
  std::unique_ptr<PreparedBatch> batch;
  TransferId first;
  uint32_t left = 0;  // transfers or jobs that are not over
  uint64_t kept = 0;  // what the daemon keeps for the batch as a whole
  bool of_jobs = false;
  Side side = Side::kSend;      // of transfers
  std::vector<Range> extents;   // of transfers: what they touch at most (Union)
  bool joined = false;          // a prepared job fires it: it stays until that is over
  std::vector<uint32_t> fires;  // of jobs: the batches that they are joined to
  // Who asked for its release and waits for the answer.
  struct Asker {
    Door::ConnectionId connection = 0;
    uint64_t sequence = 0;
  };
  std::optional<Asker> released;
};

class Session {
 public:
  struct Limits {
    SessionUse quota;
    absl::Duration default_deadline;
    size_t failures_kept = 16384;
    uint64_t kept_bytes = uint64_t{256} << 20;  // KeptBytes
    std::string domain_key;                     // by which its domains are hashed
  };
  static constexpr size_t kDomainsKept = 64;
  static constexpr size_t kRequestsKept = 1024;
  static constexpr size_t kEventsKept = 65536;
  static constexpr size_t kReleasedKept = 65536;
  static constexpr size_t kFailureBytesKept = size_t{4} << 20;  // texts of failures

  // `of_uid`: what all sessions of its uid make the daemon keep; outlives it. `first_transfer`: ids
  // below belong to a life of the session before this one.
  Session(SessionId id, std::string name, std::string token, Credentials credentials,
          std::unique_ptr<TimelinePages> timelines, Limits limits, KeptBytes& of_uid,
          absl::Time opened, uint64_t first_transfer = 1);
  ~Session() { of_uid_.Give(kept_.bytes()); }

  SessionId id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::string& token() const { return token_; }
  const Credentials& credentials() const { return credentials_; }
  const Limits& limits() const { return limits_; }
  absl::Time opened() const { return opened_; }
  SessionUse use() const { return use_; }
  uint64_t kept_bytes() const { return kept_.bytes(); }
  uint64_t transfers_ok() const { return transfers_ok_; }
  uint64_t transfers_failed() const { return transfers_failed_; }
  // By transfers that are over, whatever they were parts of.
  const Moved& moved() const { return moved_; }
  void OnMoved(const Moved& moved) { moved_ += moved; }
  TimelinePages& timelines() { return *timelines_; }
  std::unique_ptr<TimelinePages> TakeTimelines() { return std::move(timelines_); }

  // --- Arenas. Reserve before mapping, so that concurrent registrations cannot pass the quota
  // together.
  // `slots`: as many arenas as it counts for.
  absl::Status ReserveArena(uint64_t bytes, size_t slots = 1);
  void UnreserveArena(uint64_t bytes, size_t slots = 1);
  Arena& AddArena(std::unique_ptr<Arena> arena);
  // ARENA_NOT_FOUND if it never was this session's, ID_STALE if it was released (one of the last
  // kReleasedKept).
  absl::StatusOr<Arena*> FindArena(ArenaId id);
  // FAILED_PRECONDITION while transfers use it.
  absl::StatusOr<std::unique_ptr<Arena>> TakeArena(ArenaId id);
  // As TakeArena; but while transfers use it, it is only forgotten by its id: null, and
  // TakeUnusedArenas has it when the last of them is over. Until then it counts.
  absl::StatusOr<std::unique_ptr<Arena>> FreeArena(ArenaId id);
  std::vector<std::unique_ptr<Arena>> TakeUnusedArenas();
  // Of a job that is over; nobody ever asks for it by its id.
  std::unique_ptr<Arena> TakeJobArena(ArenaId id);
  // What is awaited is there, as reserved: from now on it counts.
  void CountJobArena(Arena& arena, uint64_t bytes);
  // What jobs have, or have left, of its use: arenas and bytes.
  const SessionUse& use_of_jobs() const { return use_of_jobs_; }
  // Memory of jobs that are over, for those to come; the one that was given back last is the last.
  std::vector<ArenaId>& spare() { return spare_; }
  std::vector<std::unique_ptr<Arena>> TakeAllArenas();
  std::vector<const Arena*> ListArenas() const;

  // What stands for a domain, by the name that its client gives; "": its uid's. Valid until the
  // next call.
  const std::string& TagOf(const std::string& domain);

  // --- Posting.
  // The answer given before to the same request id, or a refusal if the content differs.
  std::optional<PostReply> FindRequest(const PostBatch& batch) const;
  void RememberRequest(const PostBatch& batch, const PostReply& reply);
  // What the session itself knows to be wrong with a converted batch, and fills in what it decides:
  // the domain's tag in the place of its name, deadlines, whether data is defined already. Once a
  // batch.
  std::vector<Violation> CheckAndComplete(PostBatch& batch, absl::Time now);
  // Takes ids and over values for a checked batch and pins its arenas.
  PostReply Admit(PostBatch& batch);
  // Whether `count` more transfers may be in flight, and `kept` more bytes be kept.
  std::optional<absl::Status> CheckPlaces(size_t count, uint64_t kept, absl::Time now);
  // As Admit, for transfers that are parts of jobs: the client hears of the jobs only. Their first
  // id.
  TransferId AdmitOfJobs(const std::vector<TransferSpec>& specs);

  // --- Prepared batches, by number.
  // Null if there is none.
  PreparedRecord* FindPrepared(uint32_t number);
  const PreparedRecord* FindPrepared(uint32_t number) const;
  // Those that are released and over, forgotten now.
  std::vector<PreparedRecord::Asker> TakeReleased();
  // Of all that there are: how many may be fired; and how often any was, ever.
  size_t prepared_armed() const;
  // Adds to `batches` the first transfer or job of each that has not ended, and of which no firing
  // is under way. What jobs are joined to counts with them.
  void ListIdlePrepared(std::vector<TransferId>& batches) const;
  uint64_t prepared_firings() const;

  // --- Endings.
  // A posted transfer is over: advances the word (written by the next flush), unpins, counts,
  // remembers.
  void OnEnded(const Ended& ended);
  // All endings of a batch were told: takes them into the estimate of when more can be posted.
  void AfterEndings(absl::Time now);
  bool IsKnown(uint64_t sequence) const {
    return sequence >= first_sequence_ && sequence < next_sequence_;
  }
  uint64_t next_sequence() const { return next_sequence_; }
  // Why an ended transfer failed, if it did and that is still kept. Failures of ids up to
  // forgotten_failures() may be forgotten.
  std::optional<absl::Status> FindFailure(uint64_t sequence) const;
  uint64_t forgotten_failures() const { return forgotten_failures_; }

  // --- Watching. Events are numbered from 1.
  uint64_t first_event() const { return next_event_ - events_.size(); }
  uint64_t next_event() const { return next_event_; }
  const EndedTransfer& event(uint64_t number) const { return events_[number - first_event()]; }
  // Called after endings were recorded; one per watch stream.
  uint64_t AddWatcher(std::function<void()> notify) {
    watchers_[next_watcher_] = std::move(notify);
    return next_watcher_++;
  }
  void RemoveWatcher(uint64_t id) { watchers_.erase(id); }
  void NotifyWatchers();

  uint64_t features = 0;     // that both know
  bool closing = false;      // the client is gone; kept until the last transfer lets go
  uint64_t last_grant = 0;   // of memory to its jobs: its number among all sessions'
  bool logged = true;        // its lines in the log
  int grpc_connection = -1;  // the one gRPC connection of this session (ConnectionTable's number)

 private:
  const SessionId id_;
  const std::string name_;
  const std::string token_;
  const Credentials credentials_;
  const Limits limits_;
  const absl::Time opened_;
  std::unique_ptr<TimelinePages> timelines_;

  SessionUse use_;
  SessionUse use_of_jobs_;
  absl::flat_hash_map<ArenaId, std::unique_ptr<Arena>> arenas_;
  std::vector<ArenaId> spare_;
  absl::flat_hash_set<ArenaId> released_arenas_;
  std::deque<ArenaId> release_order_;
  std::vector<ArenaId> unused_;  // freed, and the last transfer is over
  void ForgetArena(ArenaId id);

  const uint64_t first_sequence_;
  uint64_t next_sequence_;
  std::vector<std::optional<GlobalDeviceId>> over_devices_;  // by 'over' counter, made at first use
  uint32_t Prepare(PostBatch& batch);
  // Of CheckAndComplete, in this order. What the daemon will keep for the batch.
  uint64_t CompleteKeys(PostBatch& batch);
  // Of the batch as a whole: whether there is a place for it, and its 'over' counter is its
  // device's.
  std::vector<Violation> CheckRoom(const PostBatch& batch, uint64_t kept, absl::Time now);
  // Whether what the entry touches is inside arenas of the batch's device. `last`: the arena that
  // was looked up last, if any was.
  void CheckRanges(PostBatch& batch, size_t entry, const Arena*& last,
                   std::vector<Violation>& violations);
  absl::btree_map<uint32_t, PreparedRecord> prepared_;
  uint64_t past_firings_ = 0;  // of batches that are forgotten
  struct Request {
    uint64_t hash = 0;
    PostReply reply;
  };
  absl::flat_hash_map<std::string, std::string> domain_tags_;
  absl::flat_hash_map<std::string, Request> requests_;
  std::deque<std::string> request_order_;

  KeptBytes kept_;  // of which `of_uid_` has a part
  KeptBytes& of_uid_;
  void Keep(uint64_t bytes) {
    kept_.Take(bytes);
    of_uid_.Take(bytes);
  }
  void LetGo(uint64_t bytes) {
    kept_.Give(bytes);
    of_uid_.Give(bytes);
  }

  RetryAfter places_;  // for transfers in flight
  uint64_t places_freed_ = 0;
  uint64_t transfers_ok_ = 0;
  uint64_t transfers_failed_ = 0;
  Moved moved_;
  absl::flat_hash_map<uint64_t, absl::Status> failures_;
  size_t failure_bytes_ = 0;
  std::deque<uint64_t> failure_order_;
  uint64_t forgotten_failures_ = 0;

  std::deque<EndedTransfer> events_;
  uint64_t next_event_ = 1;
  absl::flat_hash_map<uint64_t, std::function<void()>> watchers_;
  uint64_t next_watcher_ = 1;
};

}  // namespace ferry
