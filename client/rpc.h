// SPDX-License-Identifier: Apache-2.0
// gRPC on client.sock: one socket, made by us and handed to gRPC as a descriptor. So there is no
// resolver, no proxy and no reconnect: that is the session's affair. Calls
// block their caller's thread, which polls for its own answer: no other thread is woken on the way.
// Any thread; owned by the connection. Invariant: after Cancel() every call ends soon and no new
// one starts.
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
// `deadline_ns` (not kForever) as gRPC takes it, which looks at the wall clock at once and not
// again.
std::chrono::system_clock::time_point GrpcTime(uint64_t deadline_ns);

class Rpc {
 public:
  // One call's context, cancelled with all others. `deadline_ns` as of DeadlineAfter.
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

  // `broken` is called (on any calling thread, maybe more than once) when the connection is found
  // closed.
  Rpc(ForkFds* fds, std::function<void(std::string)> broken)
      : fds_(fds), broken_(std::move(broken)) {}
  ~Rpc();  // when no call is left

  StatusPtr Open(const std::string& dir, std::string token, uint64_t deadline_ns);
  void Cancel();

  StatusPtr Unary(Method method, std::string request, uint64_t deadline_ns, std::string* response);
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> ServerStream(Call* call, Method method,
                                                                     std::string request);
  // `queue` says `started` once it has begun.
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> BidiStream(
      Call* call, Method method, grpc::CompletionQueue* queue, void* started);
  // What a call's end means to the application; null for OK.
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

// The open stream of posts. Whoever waits for an answer hears gRPC for all (leader and followers),
// so that a lone caller is answered on its own thread. Any thread.
class PostStream {
 public:
  explicit PostStream(Rpc* rpc) : rpc_(rpc) {}

  // DEADLINE_EXCEEDED: nobody knows whether it was posted, or may still be.
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
    grpc::Status status;        // and while it finishes

    std::mutex mutex;  // guards what follows
    std::map<uint64_t, Waiter*> waiters;
    std::deque<grpc::ByteBuffer> unsent;
    bool writing = true;  // gRPC has one, or the stream has not begun
    bool hearing = false;
    bool broken = false;
    StatusPtr why;
  };

  std::shared_ptr<Live> Stream();  // shared: a stream that broke goes with the last of its waiters
  // These under live->mutex.
  void WriteNext(Live* live);
  // Lets go of the mutex while it waits for gRPC. False if nothing came in time.
  bool HearOne(Live* live, std::unique_lock<std::mutex>* lock, uint64_t deadline_ns);
  void OnAnswer(Live* live);
  void Break(Live* live, StatusPtr why);

  Rpc* const rpc_;
  std::atomic<uint64_t> sequence_{0};
  std::mutex mutex_;
  std::shared_ptr<Live> live_;
};

// As one unary call.
StatusPtr PostUnary(Rpc* rpc, const PostBatch& batch, uint64_t deadline_ns, PostAnswer* answer);

}  // namespace ferry::client
