// SPDX-License-Identifier: Apache-2.0
#include "client/connection.h"

#include <unistd.h>

#include <utility>

#include "client/problems.h"

namespace ferry::client {
namespace {

// The longest wait for a stopped daemon, which must not hold callers for ever.
constexpr uint64_t kCallTimeoutNs = 30ull * 1000000000;

// The daemon's limit for a batch. gRPC's own limit is above it; a message over gRPC's would end its
// call with gRPC's text.
constexpr size_t kMostBatchBytes = 1 << 20;

constexpr uint64_t kResumeConnectNs = 100ull * 1000000;

}  // namespace

Connection::Connection(uint64_t number, uint64_t last_transfer_id)
    : number_(number),
      attach_(&fds_),
      rpc_(&fds_, [this](const std::string& why) { attach_.Break(why); }),
      unheard_(last_transfer_id) {}

StatusPtr Connection::Open(const std::string& dir, const std::string& name, uint64_t deadline_ns,
                           const Resumption* resume, int* memfd, int* doorbell) {
  // A session that is re-attached tries again soon. So it does not wait for a daemon that is too
  // busy to accept, and can be closed at any moment.
  const auto connect_by = [&] {
    return resume != nullptr ? DeadlineAfter(kResumeConnectNs) : deadline_ns;
  };
  FERRY_CLIENT_RETURN_IF_ERROR(attach_.Connect(dir, connect_by()));
  FERRY_CLIENT_RETURN_IF_ERROR(
      attach_.SayHello(dir, name, deadline_ns, resume, &welcome_, memfd, doorbell));
  StatusPtr error = rpc_.Open(dir, welcome_.token, connect_by());
  if (error == nullptr) return nullptr;
  if (resume == nullptr) close(*memfd);
  if (*doorbell >= 0) close(*doorbell);
  return error;
}

void Connection::Close() {
  rpc_.Cancel();
  attach_.Stop();
}

StatusPtr Connection::GiveUp(StatusPtr error) {
  // Only this library gives this error: no daemon refuses a request that it has read because it is
  // not ready.
  if (error == nullptr || error->code != kDeadlineExceeded || error->reason != kReasonNotReady) {
    return error;
  }
  // Nobody knows whether the request was carried out, and what will come of it. So the whole
  // session ends.
  const std::string why = "the daemon did not answer a call for 30 s (stopped?)";
  attach_.Break(why);
  return Error(kUnavailable, kReasonDaemonLost, why);
}

StatusPtr Connection::Ask(uint64_t sequence, const std::string& packet,
                          AttachResponse::Kind expected, AttachResponse* response,
                          std::span<const int> fds, int* received) {
  FERRY_CLIENT_RETURN_IF_ERROR(GiveUp(
      attach_.Request(sequence, packet, fds, DeadlineAfter(kCallTimeoutNs), response, received)));
  if (response->kind == expected) return nullptr;
  return Error(kInternal, kReasonProtocol, "asking the daemon: its answer is to another question");
}

StatusPtr Connection::RegisterArena(const ArenaRequest& arena, std::span<const int> fds,
                                    RegisteredArena* registered) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  StatusPtr error = Ask(sequence, EncodeRegisterArena(sequence, arena),
                        AttachResponse::Kind::kArenaRegistered, &response, fds, &registered->fd);
  if (error != nullptr) {
    if (registered->fd >= 0) close(registered->fd);
    registered->fd = -1;
    return error;
  }
  registered->id = response.arena_id;
  registered->mapped_bytes = response.mapped_bytes;
  arena_bytes_ += arena.bytes;
  return nullptr;
}

StatusPtr Connection::ReleaseArena(uint64_t id, uint64_t bytes, bool freed) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  FERRY_CLIENT_RETURN_IF_ERROR(Ask(sequence, EncodeReleaseArena(sequence, id, freed),
                                   AttachResponse::Kind::kArenaReleased, &response));
  arena_bytes_ -= bytes;
  return nullptr;
}

StatusPtr Connection::ResetTimeline(uint32_t timeline) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  return Ask(sequence, EncodeResetTimeline(sequence, timeline),
             AttachResponse::Kind::kTimelineReset, &response);
}

StatusPtr Connection::ReleasePrepared(uint32_t number) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  return Ask(sequence, EncodeReleasePrepared(sequence, number),
             AttachResponse::Kind::kPreparedReleased, &response);
}

StatusPtr Connection::Post(const PostBatch& batch, PostAnswer* answer) {
  return InApiWords(batch, TryPost(batch, answer));
}

StatusPtr Connection::PostByCall(const PostBatch& batch, PostAnswer* answer) {
  std::string request = EncodePost(batch);
  if (request.size() > kMostBatchBytes) {
    return Error(kInvalidArgument, kReasonBatchTooLarge,
                 "nothing was posted: a batch of " + std::to_string(request.size()) +
                     " bytes, at most " + std::to_string(kMostBatchBytes) +
                     "; post several batches, or larger blocks where one transfer has so many");
  }
  const Method method = batch.direction == Direction::kSend      ? Method::kSend
                        : batch.direction == Direction::kReceive ? Method::kReceive
                                                                 : Method::kRun;
  std::string response;
  FERRY_CLIENT_RETURN_IF_ERROR(Call(method, std::move(request), &response));
  if (DecodePostAnswer(response, answer)) return nullptr;
  return Error(kInternal, kReasonProtocol, "posting a batch: the daemon's answer is no message");
}

StatusPtr Connection::TryPost(const PostBatch& batch, PostAnswer* answer) {
  const uint64_t sequence = attach_.NextSequence();
  const std::string packet = EncodeSocketPost(sequence, batch);
  if (packet.empty()) {
    FERRY_CLIENT_RETURN_IF_ERROR(PostByCall(batch, answer));
  } else {
    AttachResponse response;
    FERRY_CLIENT_RETURN_IF_ERROR(Ask(sequence, packet, AttachResponse::Kind::kPosted, &response));
    answer->first_transfer_id = response.first_transfer_id;
    answer->first_over_value = response.first_over_value;
    answer->prepared_batch = response.prepared_batch;
  }
  if (batch.prepare && answer->prepared_batch >= FERRY_PREPARED_BATCHES) {
    return Error(kInternal, kReasonProtocol,
                 "preparing a batch: the daemon's answer names none of its words");
  }
  return nullptr;
}

StatusPtr Connection::Call(Method method, std::string request, std::string* response) {
  StatusPtr error = rpc_.Unary(method, std::move(request), DeadlineAfter(kCallTimeoutNs), response);
  return method == Method::kCompile ? std::move(error) : GiveUp(std::move(error));
}

}  // namespace ferry::client
