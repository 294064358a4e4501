// SPDX-License-Identifier: Apache-2.0
// One client process: who it is, its timelines, and in four parts what it owns and is told: its
// arenas (ArenaBook), its prepared batches (PreparedBook), the answers to its requests (RequestLog)
// and how its transfers ended (EndingLog). The session itself checks a batch against all of them,
// gives it ids and 'over' values, and takes its endings to those whom they concern. Refuses batches
// beyond its limits, or with bytes outside the arenas of their device. Destroying a session gives
// its record bytes back to its uid. Home: control. Owner: SessionTable.
//
// The life of a batch, by call:
//   CheckAndComplete   finds what is wrong; nothing is changed but the batch
//   Admit              ids, 'over' values; pins the arenas
//   OnEnded            for each transfer or job: unpins, counts, says it to client and watchers
//   TakeReleased       for a prepared batch, when it is released too
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "base/retry_after.h"
#include "daemon/attach.h"
#include "daemon/door.h"
#include "daemon/moved.h"
#include "daemon/post.h"
#include "daemon/run_time.h"
#include "daemon/session/arena_book.h"
#include "daemon/session/ending_log.h"
#include "daemon/session/prepared_book.h"
#include "daemon/session/request_log.h"
#include "device/timeline.h"
#include "transfer/engine.h"
#include "transfer/record_bytes.h"

namespace ferry {

class Session {
 public:
  // What the session may use; constant.
  struct Limits {
    SessionUse quota;
    absl::Duration default_deadline;
    size_t failures_kept = 16384;
    uint64_t record_bytes = uint64_t{256} << 20;  // most bytes of its records, see RecordBytes
    std::string domain_key;                       // the hash key of domain tags
  };
  static constexpr size_t kDomainsKept = 64;

  // `of_uid` counts the record bytes of all sessions of the uid; outlives the session.
  // `first_transfer`: transfer ids below it belong to a former life of the session.
  Session(SessionId id, std::string name, std::string token, Credentials credentials,
          std::unique_ptr<TimelinePages> timelines, Limits limits, RecordBytes& of_uid,
          absl::Time opened, uint64_t first_transfer = 1);
  ~Session() { of_uid_.Give(records_.bytes()); }

  SessionId id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::string& token() const { return token_; }
  const Credentials& credentials() const { return credentials_; }
  const Limits& limits() const { return limits_; }
  absl::Time opened() const { return opened_; }
  SessionUse use() const;
  uint64_t record_bytes() const { return records_.bytes(); }
  // What the session's transfers that are over have moved, those of jobs and prepared batches too.
  const Moved& moved() const { return moved_; }
  void OnMoved(const Moved& moved) {
    home_.Check();
    moved_ += moved;
  }
  // What the runs of its jobs that are over have taken.
  const RunTime& run_time() const { return run_time_; }
  void OnRan(const RunTime& time) {
    home_.Check();
    run_time_ += time;
  }
  TimelinePages& timelines() {
    home_.Check();
    return *timelines_;
  }
  std::unique_ptr<TimelinePages> TakeTimelines() {
    home_.Check();
    return std::move(timelines_);
  }

  ArenaBook& arenas() {
    home_.Check();
    return arenas_;
  }
  const ArenaBook& arenas() const { return arenas_; }
  PreparedBook& prepared() {
    home_.Check();
    return prepared_;
  }
  const PreparedBook& prepared() const { return prepared_; }
  RequestLog& requests() {
    home_.Check();
    return requests_;
  }
  EndingLog& endings() {
    home_.Check();
    return endings_;
  }
  const EndingLog& endings() const { return endings_; }

  // The tag of a domain, by the name that the client gives it; "" is the domain of the session's
  // uid. The reference is valid until the next call.
  const std::string& TagOf(const std::string& domain);

  // --- Posting.
  // Finds what the session knows to be wrong with a converted batch, and completes the batch: the
  // domain's tag instead of its name, absolute deadlines, whether data is defined already. Call it
  // once for each batch.
  std::vector<Violation> CheckAndComplete(PostBatch& batch, absl::Time now);
  // Gives a checked batch its ids and 'over' values, and pins its arenas.
  PostReply Admit(PostBatch& batch);
  // A refusal if `count` more transfers in flight, or `bytes` more record bytes, are more than the
  // session may have.
  std::optional<absl::Status> CheckPlaces(size_t count, uint64_t bytes, absl::Time now);
  // As Admit, for transfers that jobs make by themselves: the client hears only of the jobs.
  // Returns the first id.
  TransferId AdmitOfJobs(const std::vector<TransferSpec>& specs);
  // Whether the session has given out the transfer's number, in this life.
  bool IsKnown(uint64_t sequence) const {
    return sequence >= first_sequence_ && sequence < next_sequence_;
  }
  uint64_t next_sequence() const { return next_sequence_; }

  // --- Endings.
  // A posted transfer is over: sets its 'over' value (the next flush writes it), unpins its arenas,
  // counts and remembers the ending.
  void OnEnded(const Ended& ended);
  // Call it after all endings of a batch of tasks: updates the estimate of when more can be posted.
  void AfterEndings(absl::Time now);
  // Forgets the prepared batches that are released and over. Returns who waits for that.
  std::vector<PreparedRecord::Asker> TakeReleased();

  bool client_gone = false;  // the session stays until its last transfer is over
  bool logged = true;        // false: its lines are left out of the log
  // Number of the session's one gRPC connection (ConnectionTable); -1: none yet
  int grpc_connection = -1;

 private:
  // --- session_checks.cc: the parts of CheckAndComplete, in this order.
  // Fills in domain and uid. Returns the bytes that the daemon will keep for the batch.
  uint64_t CompleteKeys(PostBatch& batch);
  // Of the batch as a whole: whether there is a place for it, and its 'over' counter is its
  // device's.
  std::vector<Violation> CheckRoom(const PostBatch& batch, uint64_t bytes, absl::Time now);
  // Whether what the entry touches is inside arenas of the batch's device. `last`: the arena that
  // was looked up last, if any was.
  void CheckRanges(PostBatch& batch, size_t entry, const Arena*& last,
                   std::vector<Violation>& violations);

  // Counts record bytes, for the session and for its uid.
  void Keep(uint64_t bytes) {
    records_.Take(bytes);
    of_uid_.Take(bytes);
  }
  void LetGo(uint64_t bytes) {
    records_.Give(bytes);
    of_uid_.Give(bytes);
  }

  const SessionId id_;
  const std::string name_;
  const std::string token_;
  const Credentials credentials_;
  const Limits limits_;
  const absl::Time opened_;
  std::unique_ptr<TimelinePages> timelines_;

  ArenaBook arenas_;
  PreparedBook prepared_;
  RequestLog requests_;
  EndingLog endings_;

  const uint64_t first_sequence_;
  uint64_t next_sequence_;  // number of the next transfer or job
  uint64_t in_flight_ = 0;  // transfers and jobs that are not over
  // Device of each 'over' counter, once it is used.
  std::vector<std::optional<GlobalDeviceId>> over_devices_;
  absl::flat_hash_map<std::string, std::string> domain_tags_;  // at most kDomainsKept

  RecordBytes records_;  // this session's part of `of_uid_`
  RecordBytes& of_uid_;
  RetryAfter places_;          // estimates when places for transfers will be free
  uint64_t places_freed_ = 0;  // endings that `places_` knows of
  Moved moved_;
  RunTime run_time_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
