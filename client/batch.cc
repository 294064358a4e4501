// SPDX-License-Identifier: Apache-2.0
#include "client/batch.h"

#include <algorithm>

#include "client/arena.h"
#include "client/problems.h"

namespace ferry::client {
namespace {

constexpr size_t kIdsPerCall = 4096;

using Failures = std::map<size_t, StatusPtr>;

// Asks the daemon of transfers [first, first + count) of the batch; `take(i, info)` has each.
template <typename Take>
StatusPtr AskOf(const ferry_batch& batch, size_t first, size_t count, Take take) {
  for (size_t done = 0; done < count; done += kIdsPerCall) {
    const size_t chunk = std::min(kIdsPerCall, count - done);
    const size_t from = first + done;
    std::string response;
    FERRY_CLIENT_RETURN_IF_ERROR(batch.session->Call(
        *batch.life, Method::kGet, EncodeGetTransfers(batch.first_id + from, chunk), &response));
    std::vector<TransferInfo> transfers;
    if (!DecodeGetTransfers(response, &transfers) || transfers.size() != chunk) {
      return Error(
          kInternal, kReasonProtocol,
          "asking what became of transfers: the daemon's answer does not fit the question");
    }
    for (size_t i = 0; i < chunk; ++i) take(from + i, transfers[i]);
  }
  return nullptr;
}

// Asks the daemon how transfers [first, first + count) of the batch ended.
StatusPtr Fetch(const ferry_batch& batch, size_t first, size_t count, Failures* failures) {
  return AskOf(batch, first, count, [&](size_t i, TransferInfo& transfer) {
    if (transfer.status != nullptr) (*failures)[i] = std::move(transfer.status);
  });
}

// How transfers [first, first + count) of the batch, all of which are over, ended.
StatusPtr FindFailures(ferry_batch* batch, size_t first, size_t count, Failures* failures) {
  const Life& life = *batch->life;
  const uint64_t first_value = batch->first_value + first;
  if (!life.ended()) {
    const CounterLine line = batch->session->timelines().Over(batch->timeline);
    if (life.AllWell(batch->timeline, line, first_value, first_value + count - 1)) return nullptr;
    StatusPtr error = Fetch(*batch, first, count, failures);
    if (error == nullptr || !life.ended()) return error;
    failures->clear();
  }
  for (size_t i = first; i < first + count; ++i) {
    StatusPtr status =
        life.StatusAtEnd(batch->first_id + i, batch->timeline, batch->first_value + i);
    if (status != nullptr) (*failures)[i] = std::move(status);
  }
  return nullptr;
}

// With the batch's lock held, when the batch is over.
StatusPtr Resolve(ferry_batch* batch) {
  if (batch->resolved) return nullptr;
  Failures failures;
  FERRY_CLIENT_RETURN_IF_ERROR(FindFailures(batch, 0, batch->count, &failures));
  batch->failures = std::move(failures);
  batch->resolved = true;
  return nullptr;
}

// When the batch is over: its first failure, or null.
StatusPtr HowItEnded(ferry_batch* batch) {
  std::lock_guard lock(batch->mutex);
  FERRY_CLIENT_RETURN_IF_ERROR(Resolve(batch));
  return batch->failures.empty() ? nullptr : Copy(batch->failures.begin()->second);
}

StatusPtr BadEntry(const char* function, size_t index, const char* why) {
  return BadField(function, "batches[" + std::to_string(index) + "]", why);
}

bool Reached(const ferry_batch& batch, uint64_t value) {
  return batch.life->ended() || batch.session->timelines().Over(batch.timeline).value >= value;
}

}  // namespace

StatusPtr CheckPointers(const Session* session, const PostBatch& batch) {
  Problems problems("posting a batch");
  StatusPtr refused;  // why a daemon that came back has refused an arena
  problems.CheckOptions(*batch.options);
  for (size_t i = 0; i < batch.count; ++i) {
    const ferry_transfer& transfer = batch.transfers[i];
    const auto entry = [&] {
      return std::string(EntriesOf(batch.direction)) + "[" + std::to_string(i) + "].";
    };
    if (transfer.key == nullptr && transfer.key_bytes != 0) {
      problems.Add(entry() + "key", "is a null pointer");
    }
    problems.CheckNumber([&] { return entry() + "data_type"; }, transfer.data_type, FERRY_F4E2M1FN);
    if (transfer.dims == nullptr && transfer.dim_count != 0) {
      problems.Add(entry() + "dims", "is a null pointer");
    }
    const auto check_arena = [&](const ferry_arena* arena, auto name) {
      if (const char* const why = WhyNotOf(session, arena)) {
        problems.Add(entry() + name(),
                     arena == nullptr ? "has no arena" : "is of an arena that " + std::string(why));
      } else if (refused == nullptr) {
        refused = CheckArena(*arena);
      }
    };
    if (transfer.strided != nullptr) {
      check_arena(transfer.strided->arena, [] { return "strided"; });
    }
    if (const ferry_block_table* const blocks = transfer.blocks) {
      check_arena(blocks->arena, [] { return "blocks"; });
      problems.CheckList([&] { return entry() + "blocks."; }, "indices", blocks->indices,
                         "index_count", blocks->index_count);
    }
    problems.CheckList(entry, "ranges", transfer.ranges, "range_count", transfer.range_count);
    for (size_t j = 0; transfer.ranges != nullptr && j < transfer.range_count; ++j) {
      check_arena(transfer.ranges[j].arena, [j] { return "ranges[" + std::to_string(j) + "]"; });
    }
  }
  StatusPtr error = problems.Take();
  return error != nullptr ? std::move(error) : std::move(refused);
}

StatusPtr PostTransfers(const std::shared_ptr<Session>& session, const PostBatch& batch,
                        std::unique_ptr<ferry_batch>* made) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckPointers(session.get(), batch));
  return PostChecked(session, batch, made);
}

StatusPtr PostChecked(const std::shared_ptr<Session>& session, PostBatch batch,
                      std::unique_ptr<ferry_batch>* made) {
  ferry_post_options options = *batch.options;
  batch.options = &options;
  if (session->FindDevice(batch.device) != nullptr) {
    FERRY_CLIENT_RETURN_IF_ERROR(session->over_counters().Choose(
        batch.device, options.over_timeline, &options.over_timeline));
  }
  PostAnswer answer;
  std::shared_ptr<const Life> life;
  FERRY_CLIENT_RETURN_IF_ERROR(session->Post(batch, &answer, &life));
  *made = std::make_unique<ferry_batch>();
  (*made)->session = session;
  (*made)->life = std::move(life);
  (*made)->count = batch.count;
  (*made)->first_id = answer.first_transfer_id;
  (*made)->timeline = options.over_timeline;
  (*made)->first_value = answer.first_over_value;
  return nullptr;
}

StatusPtr WaitBatch(ferry_batch* batch, uint64_t timeout_ns) {
  FERRY_CLIENT_RETURN_IF_ERROR(batch->session->CheckMine());
  Timelines& timelines = batch->session->timelines();
  switch (timelines.WaitOver(batch->timeline, batch->last_value(), DeadlineAfter(timeout_ns))) {
    case Timelines::Wait::kTimeout:
      return Error(kDeadlineExceeded, "",
                   "waiting for " + std::to_string(batch->count) + " transfers from " +
                       std::to_string(batch->first_id) + ": not over yet");
    case Timelines::Wait::kEnded:
    case Timelines::Wait::kReached:
      break;
  }
  return HowItEnded(batch);
}

StatusPtr WaitAny(ferry_batch* const* batches, size_t count, uint64_t timeout_ns, size_t* index) {
  Session* session = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const ferry_batch* const batch = batches[i];
    if (batch == nullptr) continue;
    if (!Usable(batch)) return BadEntry("ferry_wait_any", i, "was freed");
    if (session == nullptr) session = batch->session.get();
    if (const char* const why = WhyNotOf(session, batch)) return BadEntry("ferry_wait_any", i, why);
  }
  if (session == nullptr) return BadField("ferry_wait_any", "batches", "has none to wait for");
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  const uint64_t deadline = DeadlineAfter(timeout_ns);
  while (true) {
    // An advance of the counter after this look wakes the thread.
    const uint32_t seen = session->timelines().Events();
    for (size_t i = 0; i < count; ++i) {
      if (batches[i] == nullptr || !BatchOver(*batches[i])) continue;
      *index = i;
      return HowItEnded(batches[i]);
    }
    if (deadline != kForever && NowNs() >= deadline) break;
    session->timelines().WaitEvents(seen, deadline);
  }
  return Error(kDeadlineExceeded, "",
               "waiting for one of " + std::to_string(count) + " batches: none is over yet");
}

StatusPtr WaitAll(ferry_batch* const* batches, size_t count, uint64_t timeout_ns, size_t* index) {
  for (size_t i = 0; i < count; ++i) {
    if (batches[i] != nullptr && !Usable(batches[i])) {
      return BadEntry("ferry_wait_all", i, "was freed");
    }
  }
  const uint64_t deadline = DeadlineAfter(timeout_ns);
  StatusPtr first;
  for (size_t i = 0; i < count; ++i) {
    if (batches[i] == nullptr) continue;
    const uint64_t now = NowNs();
    const uint64_t left = deadline == kForever ? kForever : deadline - std::min(now, deadline);
    StatusPtr status = WaitBatch(batches[i], left);
    if (status == nullptr) continue;
    // As long as not all transfers are over, this is all there is to say.
    const bool over = BatchOver(*batches[i]);
    if (first == nullptr || !over) {
      if (index != nullptr) *index = i;
      first = std::move(status);
    }
    if (!over) break;
  }
  return first;
}

bool BatchOver(const ferry_batch& batch) { return Reached(batch, batch.last_value()); }

StatusPtr TransferStatus(ferry_batch* batch, size_t index) {
  constexpr char kDoing[] = "asking how a transfer of a batch ended";
  FERRY_CLIENT_RETURN_IF_ERROR(batch->session->CheckMine());
  if (index >= batch->count) {
    return BadField(kDoing, "index",
                    "is " + std::to_string(index) + ", and the batch has " +
                        std::to_string(batch->count) + " transfers");
  }
  if (!Reached(*batch, batch->first_value + index)) {
    return BadField(
        kDoing, "index",
        "is that of transfer " + std::to_string(batch->first_id + index) + ", which is not over",
        kFailedPrecondition);
  }
  std::lock_guard lock(batch->mutex);
  if (Reached(*batch, batch->last_value())) {
    FERRY_CLIENT_RETURN_IF_ERROR(Resolve(batch));
    const auto found = batch->failures.find(index);
    return found == batch->failures.end() ? nullptr : Copy(found->second);
  }
  Failures failures;
  FERRY_CLIENT_RETURN_IF_ERROR(FindFailures(batch, index, 1, &failures));
  return failures.empty() ? nullptr : std::move(failures.begin()->second);
}

int TransferRoute(const Session& session, uint64_t id) {
  std::shared_ptr<Connection> connection;
  std::string response;
  std::vector<TransferInfo> transfers;
  if (session.Connected(&connection) != nullptr ||
      connection->Call(Method::kGet, EncodeGetTransfers(id, 1), &response) != nullptr ||
      !DecodeGetTransfers(response, &transfers) || transfers.size() != 1) {
    return 0;
  }
  return transfers[0].route;
}

StatusPtr BatchRoutes(const ferry_batch& batch, int* routes) {
  FERRY_CLIENT_RETURN_IF_ERROR(batch.session->CheckMine());
  std::vector<int> found(batch.count);
  FERRY_CLIENT_RETURN_IF_ERROR(AskOf(
      batch, 0, batch.count, [&](size_t i, TransferInfo& transfer) { found[i] = transfer.route; }));
  std::copy(found.begin(), found.end(), routes);
  return nullptr;
}

StatusPtr CancelBatch(ferry_batch* batch, const char* poison) {
  FERRY_CLIENT_RETURN_IF_ERROR(batch->session->CheckMine());
  for (size_t done = 0; done < batch->count; done += kIdsPerCall) {
    const size_t chunk = std::min(kIdsPerCall, batch->count - done);
    std::string response;
    FERRY_CLIENT_RETURN_IF_ERROR(
        batch->session->Call(*batch->life, Method::kCancel,
                             EncodeCancel(batch->first_id + done, chunk, poison), &response));
  }
  return nullptr;
}

}  // namespace ferry::client
