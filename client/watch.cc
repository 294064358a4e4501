// SPDX-License-Identifier: Apache-2.0
// The session's watch: a thread that tells how transfers end, across all lives of the daemon.
#include "client/session.h"
#include "client/signals.h"

namespace ferry::client {

StatusPtr Session::Watch(Ended ended, void* argument) {
  FERRY_CLIENT_RETURN_IF_ERROR(Check());
  std::lock_guard lock(mutex_);
  if (cause_ != nullptr) return Copy(cause_);
  if (watch_.joinable()) {
    return BadField("watching a session", "session", "has a watcher already", kFailedPrecondition);
  }
  FERRY_CLIENT_RETURN_IF_ERROR(StartThread(
      "ferry-watch", [this, ended, argument] { RunWatch(ended, argument); }, &watch_));
  watching_ = true;
  to_watch_.push_back(connection_);
  return nullptr;
}

void Session::RunWatch(Ended ended, void* argument) {
  StatusPtr why;
  while (true) {
    std::shared_ptr<Connection> connection;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !to_watch_.empty() || over_; });
      why = Copy(cause_);
      if (to_watch_.empty()) break;
      connection = std::move(to_watch_.front());
      to_watch_.pop_front();
    }
    why = WatchOne(*connection, ended, argument);
    if (!connection->broken()) break;  // the daemon is there, but has nothing more to tell
    TellLost(*connection, ended, argument);
  }
  {
    std::lock_guard lock(mutex_);
    if (why == nullptr) why = Copy(cause_);  // closed before the last stream was opened
    watching_ = false;
    to_watch_.clear();
  }
  ended(argument, 0, why.get());
}

StatusPtr Session::WatchOne(Connection& connection, Ended ended, void* argument) {
  Rpc& rpc = connection.rpc();
  uint64_t seen = 0;
  StatusPtr why;
  bool progress = true;
  while (progress && !connection.life->ended()) {
    progress =
        false;  // a stream that breaks is resumed; one that brings nothing is not tried again
    Rpc::Call call(&rpc, kForever);
    auto stream = rpc.ServerStream(&call, Method::kWatch, EncodeWatch(seen));
    grpc::ByteBuffer buffer;
    while (stream->Read(&buffer)) {
      WatchEvents events;
      if (!DecodeWatch(FromBuffer(buffer), &events)) {
        call.context()->TryCancel();
        continue;
      }
      progress = true;
      for (const TransferInfo& transfer : events.ended) {
        // Too late: TellLost() tells of this one.
        if (options_.reattach && !connection.unheard().Heard(transfer.id)) break;
        ended(argument, transfer.id, transfer.status.get());
      }
      if (!events.ended.empty()) seen = events.first_event + events.ended.size() - 1;
    }
    StatusPtr end = rpc.Explain(Method::kWatch, stream->Finish());
    if (end == nullptr) {
      // Without a reason: most often the daemon is about to end, and OrCause then waits to hear of
      // it.
      end = Error(kUnavailable, "", "watching the session: the daemon ended the stream");
    }
    why = OrCause(connection, std::move(end));
    if (why->code == kUnavailable && why->reason.empty()) why->reason = kReasonNotReady;
  }
  return why;
}

void Session::TellLost(Connection& connection, Ended ended, void* argument) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return connection_.get() != &connection; });
  }
  for (const Unheard::Batch& batch : connection.unheard().TakeAll()) {
    for (uint64_t i = 0; i < batch.count; ++i) {
      const uint64_t id = batch.first_id + i;
      ended(argument, id,
            connection.life->StatusAtEnd(id, batch.timeline, batch.first_value + i).get());
    }
  }
}

}  // namespace ferry::client
