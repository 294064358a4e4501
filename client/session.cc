// SPDX-License-Identifier: Apache-2.0
#include "client/session.h"

#include <unistd.h>

#include <chrono>

#include "client/signals.h"

namespace ferry::client {
namespace {

// All but posts: a stopped daemon must not hold callers for ever.
constexpr uint64_t kCallTimeoutNs = 30ull * 1000000000;

// Between the end of a dying daemon's calls and that of its sockets.
constexpr std::chrono::milliseconds kGrace{100};

}  // namespace

Session::Session()
    : callbacks_(&timelines_),
      attach_(&fds_, [this](std::string why) { Lose(why); }),
      rpc_(&fds_, [this](std::string why) { Lose(why); }),
      posts_(&rpc_) {}

Session::~Session() { Close(); }

StatusPtr Session::Open(const Options& options, std::shared_ptr<Session>* session) {
  if (!ClaimGrpc()) return Forked();
  SignalsBlocked blocked;  // gRPC starts threads too
  std::shared_ptr<Session> made(new Session);
  FERRY_CLIENT_RETURN_IF_ERROR(made->Start(options));
  *session = std::move(made);
  return nullptr;
}

StatusPtr Session::Start(const Options& options) {
  post_by_ = options.post_by;
  const uint64_t deadline = DeadlineAfter(options.timeout_ns);
  int memfd = -1;
  int doorbell = -1;
  FERRY_CLIENT_RETURN_IF_ERROR(
      attach_.Open(options.client_dir, options.name, deadline, &welcome_, &memfd, &doorbell));
  StatusPtr error = timelines_.Map(memfd, doorbell);
  close(memfd);
  if (error != nullptr) return error;
  FERRY_CLIENT_RETURN_IF_ERROR(rpc_.Open(options.client_dir, welcome_.token, deadline));
  return attach_.Start();
}

bool Session::SetCause(StatusPtr cause) {
  std::lock_guard lock(mutex_);
  if (cause_ != nullptr) return false;
  cause_ = std::move(cause);
  ended_.notify_all();
  return true;
}

void Session::Lose(const std::string& why) {
  const std::string text = "the daemon of this session is lost: " + why;
  if (!SetCause(Error(kUnavailable, kReasonDaemonLost, text))) return;
  timelines_.End();
  rpc_.Cancel();
}

void Session::Close() {
  if (closed_) return;
  closed_ = true;
  SetCause(Error(kCancelled, kReasonCancelled, "the session was closed"));
  rpc_.Cancel();
  attach_.Stop();
  if (timelines_.mapped()) timelines_.End();
  std::thread watch;
  {
    std::lock_guard lock(mutex_);
    watch.swap(watch_);
  }
  if (watch.joinable()) watch.join();
  callbacks_.Stop();
  posts_.Close();
  rpc_.Close();
}

StatusPtr Session::Check() const {
  if (!Mine()) return Forked();
  std::lock_guard lock(mutex_);
  return Copy(cause_);
}

StatusPtr Session::OrCause(StatusPtr error) const {
  if (error == nullptr) return nullptr;
  // A refusal by the daemon has a reason and stays what it is. Without one it is gRPC that speaks,
  // and if the call ended because the daemon is on its way out, the session's socket will say so in
  // a moment.
  if (!error->reason.empty() && error->reason != kReasonDaemonLost) return error;
  std::unique_lock lock(mutex_);
  if (error->code != kResourceExhausted) {
    ended_.wait_for(lock, kGrace, [this] { return cause_ != nullptr; });
  }
  return cause_ != nullptr ? Copy(cause_) : std::move(error);
}

StatusPtr Session::Attach(uint64_t sequence, const std::string& packet, int fd,
                          AttachResponse::Kind expected, AttachResponse* response) {
  FERRY_CLIENT_RETURN_IF_ERROR(Check());
  // A post takes what time it takes: given up, nobody would know whether it was posted.
  const uint64_t deadline =
      expected == AttachResponse::Kind::kPosted ? kForever : DeadlineAfter(kCallTimeoutNs);
  FERRY_CLIENT_RETURN_IF_ERROR(OrCause(attach_.Request(sequence, packet, fd, deadline, response)));
  if (response->kind == expected) return nullptr;
  return Error(kInternal, kReasonProtocol, "asking the daemon: its answer is to another question");
}

StatusPtr Session::RegisterArena(uint64_t device, uint64_t bytes, bool imported, int memfd,
                                 uint64_t* id) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  FERRY_CLIENT_RETURN_IF_ERROR(Attach(sequence,
                                      EncodeRegisterArena(sequence, device, bytes, imported), memfd,
                                      AttachResponse::Kind::kArenaRegistered, &response));
  *id = response.arena_id;
  arena_bytes_ += bytes;
  return nullptr;
}

StatusPtr Session::ReleaseArena(uint64_t id, uint64_t bytes) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  FERRY_CLIENT_RETURN_IF_ERROR(Attach(sequence, EncodeReleaseArena(sequence, id), -1,
                                      AttachResponse::Kind::kArenaReleased, &response));
  arena_bytes_ -= bytes;
  return nullptr;
}

uint64_t Session::ArenaBytesLeft() const {
  const uint64_t held = arena_bytes_;
  const uint64_t quota = welcome_.limits.bytes;
  return quota > held ? quota - held : 0;
}

std::string Session::ArenaUse() const {
  return "session " + std::to_string(welcome_.session_id) + " holds " +
         std::to_string(arena_bytes_) + " of " + std::to_string(welcome_.limits.bytes) +
         " bytes, " + std::to_string(ArenaBytesLeft()) + " are left";
}

StatusPtr Session::ResetTimeline(uint32_t timeline) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  FERRY_CLIENT_RETURN_IF_ERROR(Attach(sequence, EncodeResetTimeline(sequence, timeline), -1,
                                      AttachResponse::Kind::kTimelineReset, &response));
  timelines_.ForgetFailures(timeline);
  return nullptr;
}

StatusPtr Session::Post(const PostBatch& batch, PostAnswer* answer) {
  FERRY_CLIENT_RETURN_IF_ERROR(Check());
  if (batch.prepare && (welcome_.features & kFeaturePrepared) == 0) {
    return Error(kFailedPrecondition, kReasonProtocolVersion,
                 "preparing a batch: this node's daemon does not know prepared batches");
  }
  std::string packet;
  const uint64_t sequence = attach_.NextSequence();
  if (post_by_ == FERRY_POST_BY_ANY && (welcome_.features & kFeatureSocketPosts) != 0) {
    packet = EncodeSocketPost(sequence, batch);
  }
  if (!packet.empty()) {
    FERRY_CLIENT_RETURN_IF_ERROR(PostBySocket(sequence, packet, answer));
  } else if (post_by_ == FERRY_POST_BY_UNARY) {
    FERRY_CLIENT_RETURN_IF_ERROR(OrCause(PostUnary(&rpc_, batch, answer)));
  } else {
    FERRY_CLIENT_RETURN_IF_ERROR(OrCause(posts_.Post(batch, answer)));
  }
  if (batch.prepare) {
    if (answer->prepared_batch >= FERRY_PREPARED_BATCHES) {
      return Error(kInternal, kReasonProtocol,
                   "preparing a batch: the daemon's answer names none of its words");
    }
    timelines_.PreparedBegan(answer->prepared_batch);
  } else if (batch.count != 0) {
    timelines_.Posted(batch.options->over_timeline, answer->first_over_value + batch.count - 1);
  }
  return nullptr;
}

StatusPtr Session::PostBySocket(uint64_t sequence, const std::string& packet, PostAnswer* answer) {
  AttachResponse response;
  FERRY_CLIENT_RETURN_IF_ERROR(
      Attach(sequence, packet, -1, AttachResponse::Kind::kPosted, &response));
  answer->first_transfer_id = response.first_transfer_id;
  answer->first_over_value = response.first_over_value;
  answer->prepared_batch = response.prepared_batch;
  return nullptr;
}

StatusPtr Session::ReleasePrepared(uint32_t number) {
  const uint64_t sequence = attach_.NextSequence();
  AttachResponse response;
  StatusPtr error = Attach(sequence, EncodeReleasePrepared(sequence, number), -1,
                           AttachResponse::Kind::kPreparedReleased, &response);
  timelines_.PreparedGone(number);
  return error;
}

void Session::Keep(ferry_prepared* prepared) {
  std::lock_guard lock(mutex_);
  prepared_.insert(prepared);
}

void Session::Forget(ferry_prepared* prepared) {
  std::lock_guard lock(mutex_);
  prepared_.erase(prepared);
}

StatusPtr Session::Call(Method method, std::string request, std::string* response) {
  FERRY_CLIENT_RETURN_IF_ERROR(Check());
  return OrCause(rpc_.Unary(method, std::move(request), DeadlineAfter(kCallTimeoutNs), response));
}

StatusPtr Session::Watch(Ended ended, void* argument) {
  FERRY_CLIENT_RETURN_IF_ERROR(Check());
  std::lock_guard lock(mutex_);
  if (cause_ != nullptr) return Copy(cause_);
  if (watch_.joinable()) {
    return Error(kFailedPrecondition, "", "watching the session: it has a watcher already");
  }
  return StartThread(
      "ferry-watch", [this, ended, argument] { RunWatch(ended, argument); }, &watch_);
}

void Session::RunWatch(Ended ended, void* argument) {
  uint64_t seen = 0;
  StatusPtr why;
  bool progress = true;
  while (progress && (why = Check()) == nullptr) {
    progress =
        false;  // a stream that breaks is resumed, one that brings nothing is not tried again
    Rpc::Call call(&rpc_, kForever);
    auto stream = rpc_.ServerStream(&call, Method::kWatch, EncodeWatch(seen));
    grpc::ByteBuffer buffer;
    while (stream->Read(&buffer)) {
      WatchEvents events;
      if (!DecodeWatch(FromBuffer(buffer), &events)) {
        call.context()->TryCancel();
        continue;
      }
      progress = true;
      for (const TransferInfo& transfer : events.ended) {
        ended(argument, transfer.id, transfer.status.get());
      }
      if (!events.ended.empty()) seen = events.first_event + events.ended.size() - 1;
    }
    StatusPtr end = rpc_.Explain(Method::kWatch, stream->Finish());
    if (end == nullptr) {
      end = Error(kUnavailable, "", "watching the session: the daemon ended the stream");
    }
    why = OrCause(std::move(end));
  }
  ended(argument, 0, why.get());
}

}  // namespace ferry::client
