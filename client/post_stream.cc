// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "client/rpc.h"
#include "client/timelines.h"

namespace ferry::client {
namespace {

// The daemon's limit for a batch. gRPC's own limit is above it. A message over gRPC's would end its
// call with gRPC's text, and on the stream every other batch as well.
constexpr size_t kMostBytes = 1 << 20;

// The tags of what gRPC is asked to do; its queue returns each once.
enum Step : intptr_t { kStarted = 1, kWritten, kRead, kFinished };

void* Tag(Step step) { return reinterpret_cast<void*>(step); }

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
  FERRY_CLIENT_RETURN_IF_ERROR(rpc->Unary(batch.direction == Direction::kSend ? Method::kSend
                                          : batch.direction == Direction::kReceive
                                              ? Method::kReceive
                                              : Method::kRun,
                                          std::move(request), deadline_ns, &response));
  return DecodePostAnswer(response, answer) ? nullptr : NoMessage();
}

PostStream::Live::Live(Rpc* rpc)
    : call(rpc, kForever), stream(rpc->BidiStream(&call, Method::kPost, &queue, Tag(kStarted))) {}

PostStream::Live::~Live() {
  call.context()->TryCancel();
  queue.Shutdown();
  void* tag;
  bool ok;
  while (queue.Next(&tag, &ok)) {
  }
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

StatusPtr PostStream::Post(const PostBatch& batch, uint64_t deadline_ns, PostAnswer* answer) {
  const uint64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::string request = EncodeStreamPost(sequence, batch);
  if (request.size() > kMostBytes) return TooLarge(request.size());
  const std::shared_ptr<Live> live = Stream();
  Waiter waiter{answer};
  std::unique_lock lock(live->mutex);
  live->waiters.emplace(sequence, &waiter);
  live->unsent.push_back(ToBuffer(std::move(request)));
  WriteNext(live.get());
  bool in_time = true;
  while (!waiter.done && !live->broken && in_time) {
    if (!live->hearing) {
      in_time = HearOne(live.get(), &lock, deadline_ns);
      continue;
    }
    const uint64_t now = NowNs();
    in_time = now < deadline_ns;
    if (in_time) waiter.changed.wait_for(lock, std::chrono::nanoseconds(deadline_ns - now));
  }
  live->waiters.erase(sequence);
  // The next waiting thread goes on reading.
  if (!live->hearing && !live->waiters.empty()) live->waiters.begin()->second->changed.notify_one();
  if (waiter.done) return std::move(answer->error);
  if (live->broken) return Copy(live->why);
  return Error(kDeadlineExceeded, kReasonNotReady,
               "posting a batch: the daemon did not answer in time");
}

void PostStream::WriteNext(Live* live) {
  if (live->writing || live->unsent.empty()) return;
  live->writing = true;
  // gRPC takes what it needs of the message before it returns.
  live->stream->Write(live->unsent.front(), Tag(kWritten));
  live->unsent.pop_front();
}

bool PostStream::HearOne(Live* live, std::unique_lock<std::mutex>* lock, uint64_t deadline_ns) {
  live->hearing = true;
  lock->unlock();
  void* tag = nullptr;
  bool ok = false;
  const auto heard = live->queue.AsyncNext(&tag, &ok, GrpcTime(deadline_ns));
  lock->lock();
  live->hearing = false;
  if (heard != grpc::CompletionQueue::GOT_EVENT) return false;
  if (tag == Tag(kFinished)) {
    StatusPtr why = rpc_->Explain(Method::kPost, live->status);
    if (why == nullptr) {
      why = Error(kUnavailable, kReasonNotReady,
                  "posting a batch: the daemon ended the stream of posts before it answered");
    }
    Break(live, std::move(why));
    return true;
  }
  if (tag == Tag(kRead) && ok) OnAnswer(live);
  if (tag != Tag(kWritten)) {
    if (ok) {
      live->stream->Read(&live->incoming, Tag(kRead));
    } else {
      live->stream->Finish(&live->status, Tag(kFinished));
    }
  }
  if (tag != Tag(kRead)) {
    live->writing = !ok;  // if it failed, the stream is over, and reading says why
    WriteNext(live);
  }
  return true;
}

void PostStream::OnAnswer(Live* live) {
  PostAnswer answer;
  if (!DecodeStreamPostAnswer(FromBuffer(live->incoming), &answer)) {
    live->call.context()->TryCancel();
    return Break(live, NoMessage());
  }
  const auto found = live->waiters.find(answer.sequence);
  if (found == live->waiters.end() || found->second->done) return;
  *found->second->answer = std::move(answer);
  found->second->done = true;
  found->second->changed.notify_one();
}

void PostStream::Break(Live* live, StatusPtr why) {
  live->broken = true;
  live->why = std::move(why);
  for (auto& [sequence, waiter] : live->waiters) waiter->changed.notify_one();
}

}  // namespace ferry::client
