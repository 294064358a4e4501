// SPDX-License-Identifier: Apache-2.0
#include "client/rpc.h"

#include <string>

namespace ferry::client {
namespace {

// The daemon's limit for a batch. A message over gRPC's own, which is above, would end its call
// with a text of gRPC's, and on the stream everybody's.
constexpr size_t kMostBytes = 1 << 20;

StatusPtr NoMessage() {
  return Error(kInternal, kReasonProtocol, "posting a batch: the daemon's answer is no message");
}

StatusPtr TooLarge(size_t bytes) {
  return Error(kInvalidArgument, kReasonBatchTooLarge,
               "nothing was posted: a batch of " + std::to_string(bytes) + " bytes, at most " +
                   std::to_string(kMostBytes) +
                   "; post several batches, or larger blocks where one transfer has so many");
}

}  // namespace

StatusPtr PostUnary(Rpc* rpc, const PostBatch& batch, uint64_t deadline_ns, PostAnswer* answer) {
  std::string request = EncodePost(batch);
  if (request.size() > kMostBytes) return TooLarge(request.size());
  std::string response;
  FERRY_CLIENT_RETURN_IF_ERROR(
      rpc->Unary(batch.direction == Direction::kSend ? Method::kSend : Method::kReceive,
                 std::move(request), deadline_ns, &response));
  return DecodePostAnswer(response, answer) ? nullptr : NoMessage();
}

std::shared_ptr<PostStream::Live> PostStream::Stream() {
  std::lock_guard lock(mutex_);
  if (live_ != nullptr) {
    std::lock_guard live_lock(live_->mutex);
    if (!live_->broken) return live_;
  }
  live_ = std::make_shared<Live>(rpc_);
  return live_;
}

StatusPtr PostStream::Post(const PostBatch& batch, PostAnswer* answer) {
  const uint64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::string request = EncodeStreamPost(sequence, batch);
  if (request.size() > kMostBytes) return TooLarge(request.size());
  const grpc::ByteBuffer buffer = ToBuffer(std::move(request));
  const std::shared_ptr<Live> live = Stream();
  Waiter waiter{answer};
  {
    std::lock_guard lock(live->mutex);
    live->waiters.emplace(sequence, &waiter);
  }
  {
    // If this fails the stream is over, and reading says why.
    std::lock_guard lock(live->writing);
    live->stream->Write(buffer);
  }
  std::unique_lock lock(live->mutex);
  while (!waiter.done && !live->broken) {
    if (live->reading) {
      waiter.changed.wait(lock);
    } else {
      ReadOne(live.get(), &lock);
    }
  }
  live->waiters.erase(sequence);
  // The next in line reads on.
  if (!live->reading && !live->waiters.empty()) live->waiters.begin()->second->changed.notify_one();
  if (!waiter.done) return Copy(live->why);
  lock.unlock();
  return std::move(answer->error);
}

void PostStream::ReadOne(Live* live, std::unique_lock<std::mutex>* lock) {
  live->reading = true;
  lock->unlock();
  grpc::ByteBuffer buffer;
  PostAnswer answer;
  StatusPtr why;
  bool ok = live->stream->Read(&buffer);
  if (!ok) {
    why = rpc_->Explain(Method::kPost, live->stream->Finish());
    if (why == nullptr) {
      why = Error(kUnavailable, kReasonNotReady,
                  "posting a batch: the daemon ended the stream of posts before it answered");
    }
  } else if (!DecodeStreamPostAnswer(FromBuffer(buffer), &answer)) {
    ok = false;
    why = NoMessage();
    live->call.context()->TryCancel();
  }
  lock->lock();
  live->reading = false;
  if (!ok) {
    live->broken = true;
    live->why = std::move(why);
    for (auto& [sequence, waiter] : live->waiters) waiter->changed.notify_one();
    return;
  }
  const auto found = live->waiters.find(answer.sequence);
  if (found == live->waiters.end() || found->second->done) return;
  *found->second->answer = std::move(answer);
  found->second->done = true;
  found->second->changed.notify_one();
}

}  // namespace ferry::client
