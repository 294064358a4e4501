// SPDX-License-Identifier: Apache-2.0
// Everything that one client process owns: its arenas, timelines, posted transfers, prepared
// batches, and the endings that it is told. Refuses posts and arenas beyond its limits, arenas that
// are not its own, and use of an arena that was released. Destroying a Session gives everything
// back. Home: control. Owner: SessionTable.
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

// One allocation of a session on a device, mapped here.
struct Arena {
  ArenaId id;
  SessionId session;
  GlobalDeviceId device;
  uint64_t bytes = 0;
  uint64_t held = 0;  // bytes that count against device and quotas: a GPU gives whole granules
  bool imported = false;
  MemoryKind kind = MemoryKind::kMemfd;  // the kind of the registered memory
  // The memory of a job; no client names it. It has no mapping until its memory has come.
  bool of_job = false;
  size_t slots = 1;        // how many arenas it counts for in the session's quota
  bool awaited = false;    // for a job's arena: there is no room for it yet, so it counts nowhere
  uint64_t transfers = 0;  // transfers that use it now; it is not unmapped while there are any
  bool freed = false;      // its client has given it up, and has forgotten its id
  std::unique_ptr<DeviceMemory> mapping;
  bool pin_tried = false;  // a GPU was asked to register it, and has answered; of a host device
};

// The ending of one transfer, kept for watchers and GetTransfers.
struct EndedTransfer {
  uint64_t sequence = 0;
  Route route = Route::kUnspecified;
  bool ok = true;
};

// A prepared batch of a session, from its posting until it is released and over.
struct PreparedRecord {
  std::unique_ptr<PreparedBatch> batch;
  TransferId first;
  uint32_t left = 0;  // transfers or jobs of the batch that are not over
  uint64_t kept = 0;  // record bytes of the batch as a whole (KeptBytes)
  bool of_jobs = false;
  Side side = Side::kSend;     // for a batch of transfers: send or receive
  std::vector<Range> extents;  // for a batch of transfers: the extents of all their layouts (Union)
  bool joined = false;         // a prepared job fires it, and it stays until that job is over
  // For a batch of jobs: numbers of the batches that its jobs are joined to
  std::vector<uint32_t> fires;
  // The request that waits until the released batch is over.
  struct Asker {
    Door::ConnectionId connection = 0;
    uint64_t sequence = 0;
  };
  std::optional<Asker> released;
};

class Session {
 public:
  // What the session may use; constant.
  struct Limits {
    SessionUse quota;
    absl::Duration default_deadline;
    size_t failures_kept = 16384;
    uint64_t kept_bytes = uint64_t{256} << 20;  // most bytes of its records, see KeptBytes
    std::string domain_key;                     // the hash key of domain tags
  };
  static constexpr size_t kDomainsKept = 64;
  static constexpr size_t kRequestsKept = 1024;
  static constexpr size_t kEventsKept = 65536;
  static constexpr size_t kReleasedKept = 65536;
  // Bytes of the kept texts of failures.
  static constexpr size_t kFailureBytesKept = size_t{4} << 20;

  // `of_uid` counts the record bytes of all sessions of the uid; outlives the session.
  // `first_transfer`: transfer ids below it belong to a former life of the session.
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
  // What the session's transfers that are over have moved, those of jobs and prepared batches too.
  const Moved& moved() const { return moved_; }
  void OnMoved(const Moved& moved) { moved_ += moved; }
  TimelinePages& timelines() { return *timelines_; }
  std::unique_ptr<TimelinePages> TakeTimelines() { return std::move(timelines_); }

  // --- Arenas. ReserveArena takes bytes and `slots` arenas out of the quota, or
  // RESOURCE_EXHAUSTED. Call it before the memory is mapped, so that two registrations at once
  // cannot pass the quota together.
  absl::Status ReserveArena(uint64_t bytes, size_t slots = 1);
  void UnreserveArena(uint64_t bytes, size_t slots = 1);
  Arena& AddArena(std::unique_ptr<Arena> arena);
  // The arena of this id. ARENA_NOT_FOUND if it never was this session's; ID_STALE if it was
  // released (the last kReleasedKept ids are known).
  absl::StatusOr<Arena*> FindArena(ArenaId id);
  // Takes the arena out of the session. FAILED_PRECONDITION while transfers use it.
  absl::StatusOr<std::unique_ptr<Arena>> TakeArena(ArenaId id);
  // As TakeArena, but while transfers use the arena the session only forgets its id, and returns
  // null. TakeUnusedArenas returns it when the last of them is over; until then it counts against
  // the quota.
  absl::StatusOr<std::unique_ptr<Arena>> FreeArena(ArenaId id);
  std::vector<std::unique_ptr<Arena>> TakeUnusedArenas();
  // Takes out the arena of a job that is over. Nobody asks for its id any more.
  std::unique_ptr<Arena> TakeJobArena(ArenaId id);
  // The memory of an awaited arena is there, as reserved: from now on it counts.
  void CountJobArena(Arena& arena, uint64_t bytes);
  // The part of use() that jobs have, or have left.
  const SessionUse& use_of_jobs() const { return use_of_jobs_; }
  // Arenas of jobs that are over, kept for the next jobs; the one that was given back last is the
  // last.
  std::vector<ArenaId>& spare() { return spare_; }
  std::vector<std::unique_ptr<Arena>> TakeAllArenas();
  std::vector<const Arena*> ListArenas() const;

  // The tag of a domain, by the name that the client gives it; "" is the domain of the session's
  // uid. The reference is valid until the next call.
  const std::string& TagOf(const std::string& domain);

  // --- Posting.
  // The answer that was given to the same request id before; a refusal if the content differs;
  // nothing if the id is new.
  std::optional<PostReply> FindRequest(const PostBatch& batch) const;
  void RememberRequest(const PostBatch& batch, const PostReply& reply);
  // Finds what the session knows to be wrong with a converted batch, and completes the batch: the
  // domain's tag instead of its name, absolute deadlines, whether data is defined already. Call it
  // once for each batch.
  std::vector<Violation> CheckAndComplete(PostBatch& batch, absl::Time now);
  // Gives a checked batch its ids and 'over' values, and pins its arenas.
  PostReply Admit(PostBatch& batch);
  // A refusal if `count` more transfers in flight, or `kept` more record bytes, are more than the
  // session may have.
  std::optional<absl::Status> CheckPlaces(size_t count, uint64_t kept, absl::Time now);
  // As Admit, for transfers that jobs make by themselves: the client hears only of the jobs.
  // Returns the first id.
  TransferId AdmitOfJobs(const std::vector<TransferSpec>& specs);

  // --- Prepared batches, by their number in the session.
  // Null if there is none.
  PreparedRecord* FindPrepared(uint32_t number);
  const PreparedRecord* FindPrepared(uint32_t number) const;
  // Forgets the batches that are released and over. Returns who waits for that.
  std::vector<PreparedRecord::Asker> TakeReleased();
  // How many batches may be fired now; and how many firings of all batches there ever were.
  size_t prepared_armed() const;
  // Adds to `batches` the first transfer or job of each prepared batch that has not ended and of
  // which no firing is under way. A batch that a job is joined to counts with the job.
  void ListIdlePrepared(std::vector<TransferId>& batches) const;
  uint64_t prepared_firings() const;

  // --- Endings.
  // A posted transfer is over: sets its 'over' value (the next flush writes it), unpins its arenas,
  // counts and remembers the ending.
  void OnEnded(const Ended& ended);
  // Call it after all endings of a batch of tasks: updates the estimate of when more can be posted.
  void AfterEndings(absl::Time now);
  bool IsKnown(uint64_t sequence) const {
    return sequence >= first_sequence_ && sequence < next_sequence_;
  }
  uint64_t next_sequence() const { return next_sequence_; }
  // Why a transfer failed; nothing if it did not, or if that is forgotten. Failures of ids up to
  // forgotten_failures() may be forgotten.
  std::optional<absl::Status> FindFailure(uint64_t sequence) const;
  uint64_t forgotten_failures() const { return forgotten_failures_; }

  // --- Watching. Endings are numbered from 1, in the order in which they were recorded.
  uint64_t first_event() const { return next_event_ - events_.size(); }
  uint64_t next_event() const { return next_event_; }
  const EndedTransfer& event(uint64_t number) const { return events_[number - first_event()]; }
  // `notify` is called after endings were recorded. One watcher for each watch stream.
  uint64_t AddWatcher(std::function<void()> notify) {
    watchers_[next_watcher_] = std::move(notify);
    return next_watcher_++;
  }
  void RemoveWatcher(uint64_t id) { watchers_.erase(id); }
  void NotifyWatchers();

  uint64_t features = 0;  // bits that both client and daemon know
  bool closing = false;   // the client is gone; the session stays until its last transfer is over
  // When memory was last given to one of its jobs: a number that counts up over all sessions
  uint64_t last_grant = 0;
  bool logged = true;  // false: its lines are left out of the log
  // Number of the session's one gRPC connection (ConnectionTable); -1: none yet
  int grpc_connection = -1;

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
  std::vector<ArenaId> unused_;  // freed arenas that no transfer uses any more
  void ForgetArena(ArenaId id);

  const uint64_t first_sequence_;
  uint64_t next_sequence_;
  // Device of each 'over' counter, once it is used.
  std::vector<std::optional<GlobalDeviceId>> over_devices_;
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
  uint64_t past_firings_ = 0;  // firings of batches that are forgotten
  struct Request {
    uint64_t hash = 0;
    PostReply reply;
  };
  absl::flat_hash_map<std::string, std::string> domain_tags_;
  absl::flat_hash_map<std::string, Request> requests_;
  std::deque<std::string> request_order_;

  KeptBytes kept_;  // this session's part of `of_uid_`
  KeptBytes& of_uid_;
  void Keep(uint64_t bytes) {
    kept_.Take(bytes);
    of_uid_.Take(bytes);
  }
  void LetGo(uint64_t bytes) {
    kept_.Give(bytes);
    of_uid_.Give(bytes);
  }

  RetryAfter places_;  // estimates when places for transfers will be free
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
