// SPDX-License-Identifier: Apache-2.0
#include "client/prepared.h"

#include "client/batch.h"

namespace ferry::client {
namespace {

std::string NameOf(const ferry_prepared& prepared) {
  const size_t count = prepared.kept.batch().count;
  return "prepared transfers " + std::to_string(prepared.first_id) + " to " +
         std::to_string(prepared.first_id + count - 1);
}

StatusPtr Released(const ferry_prepared& prepared) {
  return Error(kCancelled, kReasonCancelled, NameOf(prepared) + ": released");
}

// Why it has ended; asks the daemon.
StatusPtr Fetch(const ferry_prepared& prepared) {
  const size_t count = prepared.kept.batch().count;
  std::string response;
  FERRY_CLIENT_RETURN_IF_ERROR(prepared.session->Call(
      Method::kGet, EncodeGetTransfers(prepared.first_id, count), &response));
  std::vector<TransferInfo> transfers;
  if (DecodeGetTransfers(response, &transfers)) {
    for (TransferInfo& transfer : transfers) {
      if (transfer.status != nullptr) return std::move(transfer.status);
    }
  }
  return Error(kInternal, kReasonProtocol,
               NameOf(prepared) + ": ended, but the daemon does not say why");
}

}  // namespace

KeptBatch::KeptBatch(const PostBatch& batch)
    : direction_(batch.direction),
      device_(batch.device),
      domain_(static_cast<const char*>(batch.options->domain), batch.options->domain_bytes),
      options_(*batch.options),
      memory_(batch.count),
      transfers_(batch.transfers, batch.transfers + batch.count) {
  options_.domain = domain_.data();
  options_.request_id = nullptr;
  options_.request_id_bytes = 0;
  for (size_t i = 0; i < batch.count; ++i) {
    ferry_transfer& transfer = transfers_[i];
    Memory& memory = memory_[i];
    memory.key.assign(static_cast<const char*>(transfer.key), transfer.key_bytes);
    transfer.key = memory.key.data();
    memory.ranges.assign(transfer.ranges, transfer.ranges + transfer.range_count);
    transfer.ranges = memory.ranges.data();
    if (transfer.strided != nullptr) {
      memory.strided = *transfer.strided;
      transfer.strided = &memory.strided;
    }
    if (transfer.blocks != nullptr) {
      memory.blocks = *transfer.blocks;
      memory.indices.assign(memory.blocks.indices,
                            memory.blocks.indices + memory.blocks.index_count);
      memory.blocks.indices = memory.indices.data();
      transfer.blocks = &memory.blocks;
    }
    if (transfer.dims != nullptr) {
      memory.dims.assign(transfer.dims, transfer.dims + transfer.dim_count);
      memory.dims.push_back(0);  // a scalar's, which has none, must not be null
      transfer.dims = memory.dims.data();
    }
  }
}

StatusPtr PrepareTransfers(const std::shared_ptr<Session>& session, const PostBatch& batch,
                           std::unique_ptr<ferry_prepared>* made) {
  if (!session->Mine()) return Forked();
  FERRY_CLIENT_RETURN_IF_ERROR(CheckPointers(session.get(), batch));
  auto prepared = std::make_unique<ferry_prepared>(session, batch);
  PostAnswer answer;
  FERRY_CLIENT_RETURN_IF_ERROR(session->Post(batch, &answer));
  prepared->first_id = answer.first_transfer_id;
  prepared->number = answer.prepared_batch;
  session->Keep(prepared.get());
  *made = std::move(prepared);
  return nullptr;
}

StatusPtr FirePrepared(ferry_prepared* prepared, uint64_t* firing) {
  if (!prepared->session->Mine()) return Forked();
  if (prepared->released.load()) return Released(*prepared);
  Timelines& timelines = prepared->session->timelines();
  uint64_t last = prepared->fired.load();
  const uint64_t over = timelines.Prepared(prepared->number).value;
  if (over == FERRY_PREPARED_ENDED) return PreparedStatus(prepared);
  if (over < last || !prepared->fired.compare_exchange_strong(last, last + 1)) {
    return Error(
        kFailedPrecondition, "",
        "firing " + NameOf(*prepared) + ": firing " + std::to_string(last) + " is not over");
  }
  timelines.Fire(prepared->number, last + 1);
  if (firing != nullptr) *firing = last + 1;
  return nullptr;
}

StatusPtr WaitPrepared(ferry_prepared* prepared, uint64_t firing, uint64_t timeout_ns) {
  if (!prepared->session->Mine()) return Forked();
  if (prepared->released.load()) return Released(*prepared);
  Timelines& timelines = prepared->session->timelines();
  switch (timelines.WaitPrepared(prepared->number, firing, DeadlineAfter(timeout_ns),
                                 prepared->released)) {
    case Timelines::Wait::kTimeout:
      return Error(kDeadlineExceeded, "",
                   "waiting for firing " + std::to_string(firing) + " of " + NameOf(*prepared) +
                       ": not over yet");
    case Timelines::Wait::kEnded:
      return Released(*prepared);
    case Timelines::Wait::kReached:
      break;
  }
  return firing <= PreparedOver(*prepared) ? nullptr : PreparedStatus(prepared);
}

uint64_t PreparedOver(const ferry_prepared& prepared) {
  const Timelines::Line line = prepared.session->timelines().Prepared(prepared.number);
  return line.value == FERRY_PREPARED_ENDED ? line.first_failed - 1 : line.value;
}

StatusPtr PreparedStatus(ferry_prepared* prepared) {
  if (!prepared->session->Mine()) return Forked();
  if (prepared->released.load()) return Released(*prepared);
  if (prepared->session->timelines().Prepared(prepared->number).value != FERRY_PREPARED_ENDED) {
    return nullptr;
  }
  std::lock_guard lock(prepared->mutex);
  if (prepared->status == nullptr) {
    prepared->status = Fetch(*prepared);
    // Also if it had ended before: nobody can say why any more.
    if (StatusPtr cause = prepared->session->Check()) prepared->status = std::move(cause);
  }
  return Copy(prepared->status);
}

StatusPtr ReleasePrepared(ferry_prepared* prepared) {
  if (!prepared->session->Mine()) return Forked();
  if (prepared->released.exchange(true)) return Released(*prepared);
  prepared->session->Forget(prepared);
  return prepared->session->ReleasePrepared(prepared->number);
}

void FreePrepared(ferry_prepared* prepared) {
  if (prepared == nullptr || !prepared->session->Mine()) return;
  if (!prepared->released.load()) ReleasePrepared(prepared);
  delete prepared;
}

}  // namespace ferry::client
