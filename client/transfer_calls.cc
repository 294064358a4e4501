// SPDX-License-Identifier: Apache-2.0
// The C boundary for transfers, posted and prepared.
#include <vector>

#include "client/api.h"
#include "client/batch.h"
#include "client/prepared.h"

namespace ferry::client {
namespace {

constexpr uint64_t kBufferAlignment = 256;

// `session`, of these functions, is what Kept has returned: it lives until the call is over.
StatusPtr Post(const auto& session, Direction direction, uint64_t device,
               const ferry_transfer* transfers, size_t count, const ferry_post_options* given,
               ferry_batch** batch) {
  ferry_post_options options;
  FERRY_CLIENT_RETURN_IF_ERROR(Given("ferry_post_options", given, &options));
  std::unique_ptr<ferry_batch> made;
  FERRY_CLIENT_RETURN_IF_ERROR(
      PostTransfers(session, PostBatch{direction, device, transfers, count, &options}, &made));
  *batch = made.release();
  return nullptr;
}

StatusPtr Prepare(const auto& session, Direction direction, uint64_t device,
                  const ferry_transfer* transfers, size_t count, const ferry_post_options* given,
                  ferry_prepared** prepared) {
  ferry_post_options options;
  FERRY_CLIENT_RETURN_IF_ERROR(Given("ferry_post_options", given, &options));
  std::unique_ptr<ferry_prepared> made;
  FERRY_CLIENT_RETURN_IF_ERROR(PrepareTransfers(
      session, PostBatch{direction, device, transfers, count, &options, true}, &made));
  *prepared = made.release();
  return nullptr;
}

StatusPtr ReceiveNew(const auto& session, uint64_t device, const ferry_transfer* receives,
                     const uint64_t* bytes, size_t count, const ferry_post_options* options,
                     ferry_arena** arena, ferry_range* ranges, ferry_batch** batch) {
  constexpr char kDoing[] = "receiving into new buffers";
  FERRY_CLIENT_RETURN_IF_ERROR(session->Check());
  if (count == 0) {
    return BadField(kDoing, "count", "is 0: it must be 1 or more, as many as there are `bytes`");
  }
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t room = (bytes[i] + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    if (room < bytes[i] || total + room < total) {
      return BadField(kDoing, "bytes[" + std::to_string(i) + "]",
                      "is " + std::to_string(bytes[i]) +
                          ": together the buffers up to this one have more than 2^64 bytes");
    }
    ranges[i] = {nullptr, total, bytes[i]};
    total += room;
  }
  std::unique_ptr<ferry_arena, void (*)(ferry_arena*)> made(nullptr, ferry_arena_free);
  {
    std::unique_ptr<ferry_arena> created;
    FERRY_CLIENT_RETURN_IF_ERROR(
        CreateArena(session, device, total != 0 ? total : kBufferAlignment, 0, &created));
    made.reset(created.release());
  }
  std::vector<ferry_transfer> transfers(receives, receives + count);
  for (size_t i = 0; i < count; ++i) {
    ranges[i].arena = made.get();
    transfers[i].ranges = &ranges[i];
    transfers[i].range_count = 1;
    transfers[i].strided = nullptr;
    transfers[i].blocks = nullptr;
  }
  FERRY_CLIENT_RETURN_IF_ERROR(
      Post(session, Direction::kReceive, device, transfers.data(), count, options, batch));
  *arena = made.release();
  return nullptr;
}

}  // namespace
}  // namespace ferry::client

extern "C" {

using namespace ferry::client;  // NOLINT: the functions below are the boundary itself

ferry_status* ferry_cross_host_send(ferry_session* session, uint64_t device,
                                    const ferry_transfer* sends, size_t count,
                                    const ferry_post_options* options, ferry_batch** batch) {
  FERRY_CLIENT_NEEDS(session);
  if (count != 0) FERRY_CLIENT_NEEDS(sends);
  FERRY_CLIENT_NEEDS(batch);
  return Post(Kept(session), Direction::kSend, device, sends, count, options, batch).release();
}

ferry_status* ferry_cross_host_receive(ferry_session* session, uint64_t device,
                                       const ferry_transfer* receives, size_t count,
                                       const ferry_post_options* options, ferry_batch** batch) {
  FERRY_CLIENT_NEEDS(session);
  if (count != 0) FERRY_CLIENT_NEEDS(receives);
  FERRY_CLIENT_NEEDS(batch);
  return Post(Kept(session), Direction::kReceive, device, receives, count, options, batch)
      .release();
}

ferry_status* ferry_cross_host_receive_new(ferry_session* session, uint64_t device,
                                           const ferry_transfer* receives, const uint64_t* bytes,
                                           size_t count, const ferry_post_options* options,
                                           ferry_arena** arena, ferry_range* ranges,
                                           ferry_batch** batch) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(receives);
  FERRY_CLIENT_NEEDS(bytes);
  FERRY_CLIENT_NEEDS(ranges);
  FERRY_CLIENT_NEEDS(arena);
  FERRY_CLIENT_NEEDS(batch);
  return ReceiveNew(Kept(session), device, receives, bytes, count, options, arena, ranges, batch)
      .release();
}

size_t ferry_batch_size(const ferry_batch* batch) { return Usable(batch) ? batch->count : 0; }
uint64_t ferry_batch_first_id(const ferry_batch* batch) {
  return Usable(batch) ? batch->first_id : 0;
}
uint32_t ferry_batch_timeline(const ferry_batch* batch) {
  return Usable(batch) ? batch->timeline : 0;
}
uint64_t ferry_batch_first_value(const ferry_batch* batch) {
  return Usable(batch) ? batch->first_value : 0;
}

ferry_status* ferry_batch_wait(ferry_batch* batch, uint64_t timeout_ns) {
  FERRY_CLIENT_NEEDS(batch);
  return WaitBatch(batch, timeout_ns).release();
}

ferry_status* ferry_wait_any(ferry_batch* const* batches, size_t count, uint64_t timeout_ns,
                             size_t* index) {
  FERRY_CLIENT_NEEDS(batches);
  FERRY_CLIENT_NEEDS(index);
  return WaitAny(batches, count, timeout_ns, index).release();
}

ferry_status* ferry_wait_all(ferry_batch* const* batches, size_t count, uint64_t timeout_ns,
                             size_t* index) {
  if (count != 0) FERRY_CLIENT_NEEDS(batches);
  return WaitAll(batches, count, timeout_ns, index).release();
}

int ferry_batch_over(const ferry_batch* batch) {
  return !Usable(batch) || BatchOver(*batch) ? 1 : 0;
}

ferry_status* ferry_batch_transfer_status(ferry_batch* batch, size_t index) {
  FERRY_CLIENT_NEEDS(batch);
  return TransferStatus(batch, index).release();
}

int ferry_transfer_route(ferry_session* session, uint64_t id) {
  return Usable(session) ? TransferRoute(*Kept(session), id) : 0;
}

ferry_status* ferry_batch_routes(ferry_batch* batch, int* routes) {
  FERRY_CLIENT_NEEDS(batch);
  if (batch->count != 0) FERRY_CLIENT_NEEDS(routes);
  return BatchRoutes(*batch, routes).release();
}

ferry_status* ferry_batch_cancel(ferry_batch* batch) {
  FERRY_CLIENT_NEEDS(batch);
  return CancelBatch(batch, nullptr).release();
}

ferry_status* ferry_batch_poison(ferry_batch* batch, const char* why) {
  FERRY_CLIENT_NEEDS(batch);
  return CancelBatch(batch, why != nullptr ? why : "").release();
}

ferry_status* ferry_batch_on_over(ferry_batch* batch, void (*done)(void* argument),
                                  void* argument) {
  FERRY_CLIENT_NEEDS(batch);
  FERRY_CLIENT_NEEDS(done);
  if (StatusPtr error = batch->session->CheckMine()) return error.release();
  batch->session->callbacks().Add(batch->timeline, batch->last_value(), {done, argument});
  return nullptr;
}

void ferry_batch_free(ferry_batch* batch) {
  if (!Usable(batch) || !batch->session->Mine()) return;
  delete batch;
}

ferry_status* ferry_prepare_send(ferry_session* session, uint64_t device,
                                 const ferry_transfer* sends, size_t count,
                                 const ferry_post_options* options, ferry_prepared** prepared) {
  FERRY_CLIENT_NEEDS(session);
  if (count != 0) FERRY_CLIENT_NEEDS(sends);
  FERRY_CLIENT_NEEDS(prepared);
  return Prepare(Kept(session), Direction::kSend, device, sends, count, options, prepared)
      .release();
}

ferry_status* ferry_prepare_receive(ferry_session* session, uint64_t device,
                                    const ferry_transfer* receives, size_t count,
                                    const ferry_post_options* options, ferry_prepared** prepared) {
  FERRY_CLIENT_NEEDS(session);
  if (count != 0) FERRY_CLIENT_NEEDS(receives);
  FERRY_CLIENT_NEEDS(prepared);
  return Prepare(Kept(session), Direction::kReceive, device, receives, count, options, prepared)
      .release();
}

size_t ferry_prepared_size(const ferry_prepared* prepared) {
  return Usable(prepared) ? prepared->copy.batch().count : 0;
}
uint64_t ferry_prepared_first_id(const ferry_prepared* prepared) {
  return Usable(prepared) ? PlaceOf(*prepared).first_id : 0;
}

ferry_status* ferry_prepared_fire(ferry_prepared* prepared, uint64_t* firing) {
  FERRY_CLIENT_NEEDS(prepared);
  return FirePrepared(prepared, firing).release();
}

ferry_status* ferry_prepared_wait(ferry_prepared* prepared, uint64_t firing, uint64_t timeout_ns) {
  FERRY_CLIENT_NEEDS(prepared);
  return WaitPrepared(prepared, firing, timeout_ns).release();
}

uint64_t ferry_prepared_fired(const ferry_prepared* prepared) {
  return Usable(prepared) ? PlaceOf(*prepared).fired : 0;
}
uint64_t ferry_prepared_over(const ferry_prepared* prepared) {
  return Usable(prepared) ? PreparedOver(*prepared) : 0;
}

ferry_status* ferry_prepared_status(ferry_prepared* prepared) {
  FERRY_CLIENT_NEEDS(prepared);
  return PreparedStatus(prepared).release();
}

int ferry_prepared_ended(const ferry_prepared* prepared) {
  return !Usable(prepared) || PreparedEnded(*prepared) ? 1 : 0;
}

ferry_status* ferry_prepared_release(ferry_prepared* prepared) {
  FERRY_CLIENT_NEEDS(prepared);
  return ReleasePrepared(prepared).release();
}

void ferry_prepared_free(ferry_prepared* prepared) {
  if (Usable(prepared)) FreePrepared(prepared);
}

}  // extern "C"
