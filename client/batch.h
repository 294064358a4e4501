// SPDX-License-Identifier: Apache-2.0
// A posted batch: where to see that its transfers are over, and how they ended once somebody has
// asked. Any thread; owned by the application, whose handle keeps the session's inside alive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "client/codec.h"
#include "client/handle.h"
#include "client/life.h"
#include "client/session.h"

struct ferry_batch : ferry::client::Handle<0x6261'7463'6800'0003> {
  std::shared_ptr<ferry::client::Session> session;
  std::shared_ptr<const ferry::client::Life> life;  // the life in which it was posted
  size_t count = 0;
  uint64_t first_id = 0;
  uint32_t timeline = 0;
  uint64_t first_value = 0;

  std::mutex mutex;                                     // guards what follows
  bool resolved = false;                                // `failures` is complete
  std::map<size_t, ferry::client::StatusPtr> failures;  // by index in the batch

  uint64_t last_value() const { return first_value + count - 1; }  // count 0: the value before
};

namespace ferry::client {

// Checks what only the library can check: pointers, which it follows, and that the arenas are this
// session's.
StatusPtr CheckPointers(const Session* session, const PostBatch& batch);
// Checks the batch, posts it and makes the handle.
StatusPtr PostTransfers(const std::shared_ptr<Session>& session, const PostBatch& batch,
                        std::unique_ptr<ferry_batch>* made);
// The second part of PostTransfers: chooses the 'over' counter if none is named, and posts.
StatusPtr PostChecked(const std::shared_ptr<Session>& session, PostBatch batch,
                      std::unique_ptr<ferry_batch>* made);
StatusPtr WaitBatch(ferry_batch* batch, uint64_t timeout_ns);
// As ferry_wait_any and ferry_wait_all.
StatusPtr WaitAny(ferry_batch* const* batches, size_t count, uint64_t timeout_ns, size_t* index);
StatusPtr WaitAll(ferry_batch* const* batches, size_t count, uint64_t timeout_ns, size_t* index);
bool BatchOver(const ferry_batch& batch);
StatusPtr TransferStatus(ferry_batch* batch, size_t index);
// The transfer's route; 0 if it has none or the daemon does not know.
int TransferRoute(const Session& session, uint64_t id);
// Those of all transfers of the batch, which may be of an earlier life: `routes` has room for them.
StatusPtr BatchRoutes(const ferry_batch& batch, int* routes);
// Cancels what is not launched; `poison` not null: poisons it with that text.
StatusPtr CancelBatch(ferry_batch* batch, const char* poison);

}  // namespace ferry::client
