// SPDX-License-Identifier: Apache-2.0
// gRPC on client.sock: one socket, which the library opens and hands to gRPC as a descriptor. So
// there is no resolver, no proxy and no reconnect: the session sees to that. A call blocks its
// caller's thread, which polls for its own answer: no other thread wakes on the way. Any thread;
// owned by the connection. Invariant: after Cancel() every call ends soon and no new call starts.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "client/codec.h"
#include "client/fork.h"
#include "client/status.h"

namespace ferry::client {

enum class Method {
  kSend,
  kReceive,
  kPost,
  kCancel,
  kGet,
  kWatch,
  kCompile,
  kRun,
  kListDevices,
  kJoin
};

grpc::ByteBuffer ToBuffer(std::string bytes);
std::string FromBuffer(const grpc::ByteBuffer& buffer);
// `deadline_ns`, which is not kForever, as a time for gRPC. gRPC looks at the wall clock once, when
// it is given the time.
std::chrono::system_clock::time_point GrpcTime(uint64_t deadline_ns);

class Rpc {
 public:
  // The context of one call; Cancel() cancels it. `deadline_ns`: as DeadlineAfter() gives it.
  class Call {
   public:
    Call(Rpc* rpc, uint64_t deadline_ns);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    grpc::ClientContext* context() { return &context_; }

   private:
    Rpc* const rpc_;
    grpc::ClientContext context_;
  };

  // `broken` is called when a call finds the connection closed: on the caller's thread, and perhaps
  // more than once.
  Rpc(ForkFds* fds, std::function<void(std::string)> broken)
      : fds_(fds), broken_(std::move(broken)) {}
  ~Rpc();  // after the last call

  StatusPtr Open(const std::string& dir, std::string token, uint64_t deadline_ns);
  void Cancel();

  StatusPtr Unary(Method method, std::string request, uint64_t deadline_ns, std::string* response);
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> ServerStream(Call* call, Method method,
                                                                     std::string request);
  // The stream puts `started` on `queue` once it has begun.
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> BidiStream(
      Call* call, Method method, grpc::CompletionQueue* queue, void* started);
  // The error for the application of a call that ended with `status`; null for OK.
  StatusPtr Explain(Method method, const grpc::Status& status);

 private:
  ForkFds* const fds_;
  const std::function<void(std::string)> broken_;
  std::string token_;
  std::shared_ptr<grpc::Channel> channel_;

  std::mutex mutex_;  // guards what follows
  std::set<grpc::ClientContext*> calls_;
  bool cancelled_ = false;
};

// The open stream of posts. One of the threads that wait for answers listens to gRPC for all of
// them (leader and followers), so a lone caller gets its answer on its own thread. Any thread.
class PostStream {
 public:
  explicit PostStream(Rpc* rpc) : rpc_(rpc) {}

  // DEADLINE_EXCEEDED: the batch may have been posted, or may be later; nobody knows.
  StatusPtr Post(const PostBatch& batch, uint64_t deadline_ns, PostAnswer* answer);

 private:
  struct Waiter {
    PostAnswer* answer;
    bool done = false;
    std::condition_variable changed;
  };
  struct Live {
    explicit Live(Rpc* rpc);
    ~Live();
    Rpc::Call call;
    grpc::CompletionQueue queue;  // of Steps
    std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream;
    grpc::ByteBuffer incoming;  // gRPC's while it reads
    grpc::Status status;        // gRPC's while it finishes the stream

    std::mutex mutex;  // guards what follows
    std::map<uint64_t, Waiter*> waiters;
    std::deque<grpc::ByteBuffer> unsent;
    bool writing = true;  // gRPC writes a message, or the stream has not begun
    bool hearing = false;
    bool broken = false;
    StatusPtr why;
  };

  // Shared, because a stream that broke lives until its last waiter is gone.
  std::shared_ptr<Live> Stream();
  // These run under live->mutex.
  void WriteNext(Live* live);
  // Releases the mutex while it waits for gRPC. False if nothing came in time.
  bool HearOne(Live* live, std::unique_lock<std::mutex>* lock, uint64_t deadline_ns);
  void OnAnswer(Live* live);
  void Break(Live* live, StatusPtr why);

  Rpc* const rpc_;
  std::atomic<uint64_t> sequence_{0};
  std::mutex mutex_;
  std::shared_ptr<Live> live_;
};

// Posts by one unary call.
StatusPtr PostUnary(Rpc* rpc, const PostBatch& batch, uint64_t deadline_ns, PostAnswer* answer);

}  // namespace ferry::client
