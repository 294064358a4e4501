// SPDX-License-Identifier: Apache-2.0
// A prepared batch of transfers or jobs, which is fired by a store and waited for on a word
// (proto/ferry/v1/timeline_layout.h). Any thread; owned by the application, whose handle keeps the
// session's inside alive. It keeps all that is needed to prepare it again when a daemon comes back.
// The arenas that it names, and the batches that a job is joined to, must outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/codec.h"
#include "client/handle.h"
#include "client/life.h"
#include "client/session.h"

namespace ferry::client {

// A copy of a posted batch, without the request id: when it is prepared anew it is another request.
class BatchCopy {
 public:
  explicit BatchCopy(const PostBatch& batch);
  BatchCopy(const BatchCopy&) = delete;
  BatchCopy& operator=(const BatchCopy&) = delete;

  PostBatch batch() const {
    return {direction_, device_, transfers_.data(), transfers_.size() + runs_.size(),
            &options_,  true,    runs_.data()};
  }
  // True if the two batches have the two halves of at least one transfer.
  bool Meets(const BatchCopy& other) const;

  // --- For batches of jobs.
  struct Program {
    uint64_t device = 0;
    std::string text;
    std::string fingerprint;
  };
  const std::vector<std::unique_ptr<const Program>>& programs() const { return programs_; }
  // Fills in the numbers, in the latest life of the daemon, of the batches that the jobs are joined
  // to. FAILED_PRECONDITION if one of those is not prepared.
  StatusPtr Join();
  // Marks the joined batches: while `joined`, only the jobs fire them.
  void SetJoined(bool joined) const;
  // Null if the arenas are still there; else why not. Only the library can know this when the batch
  // is prepared again.
  StatusPtr CheckArenas() const;

 private:
  struct Memory {
    std::string key;
    std::vector<ferry_range> ranges;
    std::vector<uint64_t> indices;
    ferry_strided_range strided;
    ferry_block_table blocks;
    std::vector<int64_t> dims;
  };
  struct Bound {
    std::vector<std::string> names;
    std::vector<ferry_binding> bindings;
    ferry_run run;
  };
  void KeepRuns(const ProgramRun* runs, size_t count);

  const Direction direction_;
  const uint64_t device_;
  const std::string domain_;
  ferry_post_options options_;
  std::vector<Memory> memory_;  // what `transfers_` points into
  std::vector<ferry_transfer> transfers_;
  std::vector<std::unique_ptr<const Program>> programs_;
  std::vector<Bound> bound_;  // what `runs_` points into
  std::vector<ProgramRun> runs_;
};

}  // namespace ferry::client

struct ferry_prepared : ferry::client::Handle<0x7072'6570'6172'6504> {
  ferry_prepared(std::shared_ptr<ferry::client::Session> in, const ferry::client::PostBatch& batch)
      : session(std::move(in)), copy(batch) {}

  const std::shared_ptr<ferry::client::Session> session;
  ferry::client::BatchCopy copy;
  uint64_t told_as = 0;  // what Session::TellAgain gave; 0: the session does not re-attach
  std::atomic<bool> released{false};
  std::atomic<bool> joined{false};  // a prepared job fires it

  // The batch in one life of the daemon: where it was prepared, and how often it was fired.
  struct Place {
    std::shared_ptr<const ferry::client::Life> life;  // null: not prepared yet
    uint64_t first_id = 0;  // 0: this life's daemon refused the batch, and `number` is not ours
    uint32_t number = 0;    // of the prepared batch, and so of its words
    uint64_t fired = 0;     // firings that this end has asked for in this life
  };
  // Held while the batch is prepared, by the first caller or for the next daemon.
  std::mutex posting;
  mutable std::mutex mutex;  // guards what follows
  Place place;
  ferry::client::StatusPtr status;  // why the batch has ended in that life; set when somebody asks
};

namespace ferry::client {

// The batch's present place.
ferry_prepared::Place PlaceOf(const ferry_prepared& prepared);
StatusPtr PrepareTransfers(const std::shared_ptr<Session>& session, const PostBatch& batch,
                           std::unique_ptr<ferry_prepared>* made);
// The second part of PrepareTransfers, also for jobs.
StatusPtr PrepareChecked(const std::shared_ptr<Session>& session, const PostBatch& batch,
                         std::unique_ptr<ferry_prepared>* made);
// Asks for the next firing; its number, from 1 in each life of the daemon, goes into `firing`.
StatusPtr FirePrepared(ferry_prepared* prepared, uint64_t* firing);
// As FirePrepared, but `fire` brings the word to firing `place.fired` + 1: it stores that, or
// queues the store on a stream. `over` is the number of firings that are over. If `fire` fails the
// batch is as before. It runs under the batch's mutex.
using Fire = std::function<StatusPtr(const ferry_prepared::Place& place, uint64_t over)>;
StatusPtr FirePreparedBy(ferry_prepared* prepared, uint64_t* firing, const Fire& fire);
// One end of a prepared batch.
struct PreparedEnd {
  std::shared_ptr<Session> session;
  ferry_prepared::Place place;
  bool joined = false;
};
// All ends in this process that take part in the firings of `prepared`: `prepared` itself, and each
// prepared batch that has the partner of one of its transfers.
std::vector<PreparedEnd> EndsHere(const ferry_prepared& prepared);
// The same for the batch of the session whose 'over' word is at `over`; empty if there is none.
std::vector<PreparedEnd> EndsHere(Session& session, const uint64_t* over);
StatusPtr WaitPrepared(ferry_prepared* prepared, uint64_t firing, uint64_t timeout_ns);
// Waits for a firing of the life of `place`, even if that has ended.
StatusPtr WaitPrepared(ferry_prepared* prepared, const ferry_prepared::Place& place,
                       uint64_t firing, uint64_t timeout_ns);
// Firings of the present life that are over and went well.
uint64_t PreparedOver(const ferry_prepared& prepared);
// Null until the batch has ended; null again once a daemon that came back has taken it.
StatusPtr PreparedStatus(ferry_prepared* prepared);
// Whether PreparedStatus is not null, without a call to the daemon.
bool PreparedEnded(const ferry_prepared& prepared);
StatusPtr ReleasePrepared(ferry_prepared* prepared);
void FreePrepared(ferry_prepared* prepared);

}  // namespace ferry::client
