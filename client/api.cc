// SPDX-License-Identifier: Apache-2.0
// The C boundary: arguments in, handles and statuses out; what happens is said elsewhere.
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <new>

#include "client/api.h"
#include "client/batch.h"
#include "client/prepared.h"

using ferry::client::Direction;
using ferry::client::PostBatch;
using ferry::client::Session;
using ferry::client::StatusPtr;

namespace ferry::client {
namespace {

constexpr uint64_t kOpenTimeoutNs = 10ull * 1000000000;
constexpr uint64_t kBufferAlignment = 256;

std::string ProgramName() {
  std::string name;
  std::ifstream("/proc/self/comm") >> name;
  for (char& c : name) {
    const bool fine = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!fine) c = '_';
  }
  return name.empty() ? "unnamed" : name;
}

StatusPtr OpenSession(const ferry_session_options* given, ferry_session** session) {
  ferry_session_options options;
  FERRY_CLIENT_RETURN_IF_ERROR(Given(given, &options));
  Session::Options wanted;
  const char* from_environment = secure_getenv("FERRY_CLIENT_DIR");
  wanted.client_dir = options.client_dir                      ? options.client_dir
                      : from_environment && *from_environment ? from_environment
                                                              : "/run/ferry/client";
  wanted.name = options.name ? options.name : ProgramName();
  wanted.timeout_ns = options.timeout_ns ? options.timeout_ns : kOpenTimeoutNs;
  wanted.post_by = options.post_by;
  wanted.reattach = options.no_reattach == 0;
  if (options.reattach_timeout_ns != 0) wanted.reattach_timeout_ns = options.reattach_timeout_ns;
  std::shared_ptr<Session> opened;
  FERRY_CLIENT_RETURN_IF_ERROR(Session::Open(wanted, &opened));
  *session = new ferry_session{std::move(opened)};
  return nullptr;
}

StatusPtr Post(ferry_session* session, Direction direction, uint64_t device,
               const ferry_transfer* transfers, size_t count, const ferry_post_options* given,
               ferry_batch** batch) {
  ferry_post_options options;
  FERRY_CLIENT_RETURN_IF_ERROR(Given(given, &options));
  std::unique_ptr<ferry_batch> made;
  FERRY_CLIENT_RETURN_IF_ERROR(PostTransfers(
      session->session, PostBatch{direction, device, transfers, count, &options}, &made));
  *batch = made.release();
  return nullptr;
}

StatusPtr Prepare(ferry_session* session, Direction direction, uint64_t device,
                  const ferry_transfer* transfers, size_t count, const ferry_post_options* given,
                  ferry_prepared** prepared) {
  ferry_post_options options;
  FERRY_CLIENT_RETURN_IF_ERROR(Given(given, &options));
  std::unique_ptr<ferry_prepared> made;
  FERRY_CLIENT_RETURN_IF_ERROR(PrepareTransfers(
      session->session, PostBatch{direction, device, transfers, count, &options, true}, &made));
  *prepared = made.release();
  return nullptr;
}

StatusPtr ReceiveNew(ferry_session* session, uint64_t device, const ferry_transfer* receives,
                     const uint64_t* bytes, size_t count, const ferry_post_options* options,
                     ferry_arena** arena, ferry_range* ranges, ferry_batch** batch) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->session->Check());
  if (count == 0 || receives == nullptr || bytes == nullptr || ranges == nullptr) {
    return Error(kInvalidArgument, kReasonFieldInvalid,
                 "receiving into new buffers: there must be at least one, with its byte count");
  }
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t room = (bytes[i] + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    if (room < bytes[i] || total + room < total) {
      return Error(kInvalidArgument, kReasonFieldInvalid,
                   "receiving into new buffers: their byte counts overflow");
    }
    ranges[i] = {nullptr, total, bytes[i]};
    total += room;
  }
  std::unique_ptr<ferry_arena, void (*)(ferry_arena*)> made(nullptr, ferry_arena_free);
  {
    std::unique_ptr<ferry_arena> created;
    FERRY_CLIENT_RETURN_IF_ERROR(
        CreateArena(session->session, device, total != 0 ? total : kBufferAlignment, 0, &created));
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

StatusPtr CheckTimeline(const char* doing, uint32_t timeline) {
  if (timeline < FERRY_TIMELINE_COUNTERS) return nullptr;
  return Error(kInvalidArgument, kReasonFieldInvalid,
               std::string(doing) + " 'over' counter " + std::to_string(timeline) +
                   ": they are numbered 0 to 63");
}

StatusPtr WaitOver(Session* session, uint32_t timeline, uint64_t value, uint64_t timeout_ns) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckTimeline("waiting for", timeline));
  switch (session->timelines().WaitOver(timeline, value, DeadlineAfter(timeout_ns))) {
    case Timelines::Wait::kReached:
      return nullptr;
    case Timelines::Wait::kEnded:
      return session->LastLoss();
    case Timelines::Wait::kTimeout:
      break;
  }
  return Error(kDeadlineExceeded, "",
               "waiting for 'over' counter " + std::to_string(timeline) + " to reach " +
                   std::to_string(value));
}

StatusPtr ResetOver(Session* session, uint32_t timeline) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckTimeline("resetting", timeline));
  return session->ResetTimeline(timeline);
}

}  // namespace
}  // namespace ferry::client

extern "C" {

using namespace ferry::client;  // NOLINT: the functions below are the boundary itself

ferry_status* ferry_session_open(const ferry_session_options* options, ferry_session** session) {
  return OpenSession(options, session).release();
}

void ferry_session_close(ferry_session* session) {
  if (session == nullptr || !session->session->Mine()) return;
  session->session->Close();
  delete session;
}

ferry_status* ferry_session_health(ferry_session* session) {
  return session->session->Check().release();
}

ferry_status* ferry_session_wait(ferry_session* session, uint64_t timeout_ns) {
  return session->session->WaitAttached(timeout_ns).release();
}

uint64_t ferry_session_id(const ferry_session* session) {
  return session->session->welcome().session_id;
}

const char* ferry_session_node(const ferry_session* session) {
  return session->session->welcome().node.c_str();
}

size_t ferry_session_devices(const ferry_session* session) {
  return session->session->welcome().devices.size();
}

ferry_device ferry_session_device(const ferry_session* session, size_t index) {
  const auto& devices = session->session->welcome().devices;
  if (index >= devices.size()) return {0, 0, "", {}};
  const DeviceInfo& known = devices[index];
  ferry_device device{known.id, known.kind, known.name.c_str(), {}};
  known.uuid.copy(reinterpret_cast<char*>(device.uuid), sizeof(device.uuid));
  return device;
}

ferry_limits ferry_session_limits(const ferry_session* session) {
  return session->session->welcome().limits;
}

ferry_status* ferry_arena_create(ferry_session* session, uint64_t device, uint64_t bytes,
                                 unsigned flags, ferry_arena** arena) {
  return MakeArenaHandle(arena,
                         [&](std::unique_ptr<ferry_arena>* made) {
                           return CreateArena(session->session, device, bytes, flags, made);
                         })
      .release();
}

ferry_status* ferry_arena_import(ferry_session* session, uint64_t device, int memfd, uint64_t bytes,
                                 ferry_arena** arena) {
  return MakeArenaHandle(arena,
                         [&](std::unique_ptr<ferry_arena>* made) {
                           return ImportArena(session->session, device, memfd, bytes, made);
                         })
      .release();
}

void* ferry_arena_data(const ferry_arena* arena) { return arena->data; }
uint64_t ferry_arena_bytes(const ferry_arena* arena) { return arena->bytes; }
uint64_t ferry_arena_id(const ferry_arena* arena) { return arena->id; }
uint64_t ferry_arena_device(const ferry_arena* arena) { return arena->device; }

ferry_status* ferry_arena_read(const ferry_arena* arena, uint64_t offset, void* to,
                               uint64_t bytes) {
  return ReadArena(*arena, offset, to, bytes).release();
}

ferry_status* ferry_arena_write(ferry_arena* arena, uint64_t offset, const void* from,
                                uint64_t bytes) {
  return WriteArena(*arena, offset, from, bytes).release();
}

ferry_status* ferry_arena_release(ferry_arena* arena) { return ReleaseArena(arena).release(); }

void ferry_arena_free(ferry_arena* arena) {
  if (arena == nullptr || !arena->session->Mine()) return;
  FreeArena(arena);
}

ferry_status* ferry_cross_host_send(ferry_session* session, uint64_t device,
                                    const ferry_transfer* sends, size_t count,
                                    const ferry_post_options* options, ferry_batch** batch) {
  return Post(session, Direction::kSend, device, sends, count, options, batch).release();
}

ferry_status* ferry_cross_host_receive(ferry_session* session, uint64_t device,
                                       const ferry_transfer* receives, size_t count,
                                       const ferry_post_options* options, ferry_batch** batch) {
  return Post(session, Direction::kReceive, device, receives, count, options, batch).release();
}

ferry_status* ferry_cross_host_receive_new(ferry_session* session, uint64_t device,
                                           const ferry_transfer* receives, const uint64_t* bytes,
                                           size_t count, const ferry_post_options* options,
                                           ferry_arena** arena, ferry_range* ranges,
                                           ferry_batch** batch) {
  return ReceiveNew(session, device, receives, bytes, count, options, arena, ranges, batch)
      .release();
}

size_t ferry_batch_size(const ferry_batch* batch) { return batch->count; }
uint64_t ferry_batch_first_id(const ferry_batch* batch) { return batch->first_id; }
uint32_t ferry_batch_timeline(const ferry_batch* batch) { return batch->timeline; }
uint64_t ferry_batch_first_value(const ferry_batch* batch) { return batch->first_value; }

ferry_status* ferry_batch_wait(ferry_batch* batch, uint64_t timeout_ns) {
  return WaitBatch(batch, timeout_ns).release();
}

int ferry_batch_over(const ferry_batch* batch) { return BatchOver(*batch) ? 1 : 0; }

ferry_status* ferry_batch_transfer_status(ferry_batch* batch, size_t index) {
  return TransferStatus(batch, index).release();
}

int ferry_transfer_route(ferry_session* session, uint64_t id) {
  return TransferRoute(*session->session, id);
}

ferry_status* ferry_batch_cancel(ferry_batch* batch) {
  return CancelBatch(batch, nullptr).release();
}

ferry_status* ferry_batch_poison(ferry_batch* batch, const char* why) {
  return CancelBatch(batch, why != nullptr ? why : "").release();
}

void ferry_batch_on_over(ferry_batch* batch, void (*done)(void* argument), void* argument) {
  if (!batch->session->Mine()) return;
  batch->session->callbacks().Add(batch->timeline, batch->last_value(), {done, argument});
}

void ferry_batch_free(ferry_batch* batch) {
  if (batch == nullptr || !batch->session->Mine()) return;
  delete batch;
}

ferry_status* ferry_prepare_send(ferry_session* session, uint64_t device,
                                 const ferry_transfer* sends, size_t count,
                                 const ferry_post_options* options, ferry_prepared** prepared) {
  return Prepare(session, Direction::kSend, device, sends, count, options, prepared).release();
}

ferry_status* ferry_prepare_receive(ferry_session* session, uint64_t device,
                                    const ferry_transfer* receives, size_t count,
                                    const ferry_post_options* options, ferry_prepared** prepared) {
  return Prepare(session, Direction::kReceive, device, receives, count, options, prepared)
      .release();
}

size_t ferry_prepared_size(const ferry_prepared* prepared) { return prepared->kept.batch().count; }
uint64_t ferry_prepared_first_id(const ferry_prepared* prepared) {
  return PlaceOf(*prepared).first_id;
}

ferry_status* ferry_prepared_fire(ferry_prepared* prepared, uint64_t* firing) {
  return FirePrepared(prepared, firing).release();
}

ferry_status* ferry_prepared_wait(ferry_prepared* prepared, uint64_t firing, uint64_t timeout_ns) {
  return WaitPrepared(prepared, firing, timeout_ns).release();
}

uint64_t ferry_prepared_fired(const ferry_prepared* prepared) { return PlaceOf(*prepared).fired; }
uint64_t ferry_prepared_over(const ferry_prepared* prepared) { return PreparedOver(*prepared); }

ferry_status* ferry_prepared_status(ferry_prepared* prepared) {
  return PreparedStatus(prepared).release();
}

ferry_status* ferry_prepared_release(ferry_prepared* prepared) {
  return ReleasePrepared(prepared).release();
}

void ferry_prepared_free(ferry_prepared* prepared) { FreePrepared(prepared); }

void ferry_define(ferry_session* session, uint32_t timeline, uint64_t value) {
  if (session->session->Mine()) session->session->timelines().Define(timeline, value);
}

uint64_t ferry_defined_value(const ferry_session* session, uint32_t timeline) {
  return session->session->timelines().Defined(timeline);
}

uint64_t ferry_over_value(const ferry_session* session, uint32_t timeline) {
  return session->session->timelines().Over(timeline).value;
}

ferry_status* ferry_over_wait(ferry_session* session, uint32_t timeline, uint64_t value,
                              uint64_t timeout_ns) {
  return WaitOver(session->session.get(), timeline, value, timeout_ns).release();
}

void ferry_over_failures(const ferry_session* session, uint32_t timeline, uint64_t* count,
                         uint64_t* first_failed) {
  const auto line = session->session->timelines().Over(timeline);
  if (count != nullptr) *count = line.failures;
  if (first_failed != nullptr) *first_failed = line.first_failed;
}

ferry_status* ferry_over_reset(ferry_session* session, uint32_t timeline) {
  return ResetOver(session->session.get(), timeline).release();
}

ferry_status* ferry_session_watch(ferry_session* session,
                                  void (*ended)(void* argument, uint64_t transfer_id,
                                                const ferry_status* status),
                                  void* argument) {
  return session->session->Watch(ended, argument).release();
}

}  // extern "C"
