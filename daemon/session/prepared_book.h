// SPDX-License-Identifier: Apache-2.0
// The prepared batches of one session by their number, each from its posting until it is released
// and over. Refuses nothing: whoever adds a batch has seen that the book is not full(). Home:
// control. Owner: Session.
//
// A batch has the lowest number that is free, so that few pages of the timelines are touched. Its
// number stays taken until the client has released the batch and its last transfer or job is over:
// until then its client may look at its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/door.h"
#include "daemon/post.h"
#include "device/timeline.h"
#include "transfer/engine.h"
#include "transfer/layout.h"
#include "transfer/transfer_row.h"

namespace ferry {

// A prepared batch of a session, from its posting until it is released and over.
struct PreparedRecord {
  std::unique_ptr<PreparedBatch> batch;
  TransferId first;
  uint32_t left = 0;          // transfers or jobs of the batch that are not over
  uint64_t record_bytes = 0;  // record bytes of the batch as a whole (RecordBytes)
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

// What the engine does not know of a prepared transfer, because it is in the words of its batch.
struct PreparedView {
  uint64_t firings = 0;  // firings that are over
  // Whether the client has stored the next firing's number; none if that would make no difference
  std::optional<bool> fired;
  std::string waits_for;  // for people
};

class PreparedBook {
 public:
  // Begins the batch and gives it its number. `first`: the id of its first transfer or job.
  // `timelines` must outlive the book. Takes the extents out of `batch`.
  uint32_t Add(TimelinePages& timelines, TransferId first, PostBatch& batch);
  // Null if there is none.
  PreparedRecord* Find(uint32_t number);
  const PreparedRecord* Find(uint32_t number) const;
  // A transfer or job of the batch is over. With the last one the batch's word ends.
  void OnEnded(uint32_t number);
  // Forgets the batches that are released and over.
  struct Released {
    std::vector<PreparedRecord::Asker> askers;  // who waits for that, by number of the batch
    uint64_t record_bytes = 0;                  // record bytes of those batches
  };
  Released TakeReleased();

  // Whether there are as many batches as a session may have (FERRY_PREPARED_BATCHES).
  bool full() const;
  // How many batches may be fired now.
  size_t armed() const;
  // How many firings of all batches there ever were.
  uint64_t firings() const;
  // Adds to `batches` the first transfer or job of each batch that has not ended and of which no
  // firing is under way. A batch that a job is joined to counts with the job.
  void ListIdle(std::vector<TransferId>& batches) const;
  // Of a prepared transfer of the session that is not over.
  PreparedView ViewOf(const TransferRow& row) const;

 private:
  absl::btree_map<uint32_t, PreparedRecord> batches_;
  uint64_t past_firings_ = 0;  // firings of batches that are forgotten
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
