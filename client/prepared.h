// SPDX-License-Identifier: Apache-2.0
// A prepared batch of transfers or jobs: fired by a store, waited for on a word
// (proto/ferry/v1/timeline_layout.h). Any thread; owned by the application, which keeps the
// session's inside alive. Keeps all that is needed to prepare it again when a daemon comes back;
// the arenas it names, and the batches that a job is joined to, must outlive it.
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

// A posted batch as its own copy, but for the request id: prepared anew it is another request.
class KeptBatch {
 public:
  explicit KeptBatch(const PostBatch& batch);
  KeptBatch(const KeptBatch&) = delete;
  KeptBatch& operator=(const KeptBatch&) = delete;

  PostBatch batch() const {
    return {direction_, device_, transfers_.data(), transfers_.size() + runs_.size(),
            &options_,  true,    runs_.data()};
  }
  // True if some transfer of the two is one and the same.
  bool Meets(const KeptBatch& other) const;

  // --- Of jobs.
  struct Program {
    uint64_t device = 0;
    std::string text;
    std::string fingerprint;
  };
  const std::vector<std::unique_ptr<const Program>>& programs() const { return programs_; }
  // Fills in which batches they are joined to, as these stand in the latest life of the daemon.
  StatusPtr Join();
  // Whether these batches are fired by the jobs, and by nobody else.
  void SetJoined(bool joined) const;
  // What only the library can know of memory that was good before: null, or why it is gone.
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
      : session(std::move(in)), kept(batch) {}

  const std::shared_ptr<ferry::client::Session> session;
  ferry::client::KeptBatch kept;
  uint64_t kept_as = 0;  // with Session::Keep, if the session re-attaches
  std::atomic<bool> released{false};
  std::atomic<bool> joined{false};  // a prepared job fires it

  // How it stands at one life of the daemon: where it was prepared, and from where it counts.
  struct Place {
    std::shared_ptr<const ferry::client::Life> life;  // null: not prepared yet
    uint64_t first_id = 0;  // 0: this life's daemon refused it, so that `number` is not ours
    uint32_t number = 0;
    uint64_t fired = 0;
  };
  std::mutex posting;  // held while it is prepared: by who asked for it, or with the next daemon
  mutable std::mutex mutex;  // guards what follows
  Place place;
  ferry::client::StatusPtr status;  // why it has ended in that life, once somebody asked
};

namespace ferry::client {

// As it stands now.
ferry_prepared::Place PlaceOf(const ferry_prepared& prepared);
StatusPtr PrepareTransfers(const std::shared_ptr<Session>& session, const PostBatch& batch,
                           std::unique_ptr<ferry_prepared>* made);
// The rest of it, and of jobs.
StatusPtr PrepareChecked(const std::shared_ptr<Session>& session, const PostBatch& batch,
                         std::unique_ptr<ferry_prepared>* made);
// The next firing; its number, from 1 at each life of the daemon, into `firing`.
StatusPtr FirePrepared(ferry_prepared* prepared, uint64_t* firing);
// The same, and `fire` sees to it that the word tells firing `place.fired` + 1, the firings so far
// and how many of them are over being what it is told. Its error changes nothing.
using Fire = std::function<StatusPtr(const ferry_prepared::Place& place, uint64_t over)>;
StatusPtr FirePreparedBy(ferry_prepared* prepared, uint64_t* firing, const Fire& fire);
// One end of a prepared batch, as it stands.
struct PreparedEnd {
  std::shared_ptr<Session> session;
  ferry_prepared::Place place;
  bool joined = false;
};
// The batch's own end, and those of this process that some transfer of it is the other half of.
std::vector<PreparedEnd> EndsHere(const ferry_prepared& prepared);
// The same of the session's batch whose firings are over by the word `over`; none if there is none.
std::vector<PreparedEnd> EndsHere(Session& session, const uint64_t* over);
StatusPtr WaitPrepared(ferry_prepared* prepared, uint64_t firing, uint64_t timeout_ns);
// For a firing of that life, whatever became of it.
StatusPtr WaitPrepared(ferry_prepared* prepared, const ferry_prepared::Place& place,
                       uint64_t firing, uint64_t timeout_ns);
// Firings that are over and went well.
uint64_t PreparedOver(const ferry_prepared& prepared);
// Null until it has ended, and again once a daemon that came back has taken it.
StatusPtr PreparedStatus(ferry_prepared* prepared);
StatusPtr ReleasePrepared(ferry_prepared* prepared);
void FreePrepared(ferry_prepared* prepared);

}  // namespace ferry::client
