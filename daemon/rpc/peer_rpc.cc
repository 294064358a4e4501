// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/peer_rpc.h"

#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/grpc_target.h"
#include "base/mutex.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/rpc/peer_codec.h"
#include "daemon/rpc/status_proto.h"
#include "daemon/rpc/stream_output.h"
#include "ferry/peer/v1/peer.grpc.pb.h"

namespace ferry {
namespace {

using peer::v1::LinkRequest;
using peer::v1::LinkResponse;

// The longest text that the other side may give for a stream's end.
constexpr size_t kMaxErrorText = 1024;

absl::Status FromGrpc(const grpc::Status& status) {
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details()) &&
      details.code() != 0) {
    return FromProto(details);
  }
  return Error(status.ok() ? absl::StatusCode::kUnavailable
                           : static_cast<absl::StatusCode>(status.error_code()),
               Reason::kPeerUnreachable,
               status.ok()
                   ? "ended by the other side"
                   : GrpcErrorText(Printable(
                         absl::string_view(status.error_message()).substr(0, kMaxErrorText))));
}

// Delivers a reactor's events to control, as long as PeerTable wants them.
class Delivery : public std::enable_shared_from_this<Delivery> {
 public:
  Delivery(Executor& control, PeerStreamCallbacks callbacks)
      : control_(control), callbacks_(std::move(callbacks)) {}
  // In parts, so that control can do other work between them: a frame may have a hundred thousand
  // messages.
  void Frame(PeerFrame frame) {
    size_t passed = 0;
    const auto begin = std::make_move_iterator(frame.messages.begin());
    for (; frame.messages.size() - passed > kMostAtOnce; passed += kMostAtOnce) {
      PeerFrame part;
      part.hello = std::exchange(frame.hello, std::nullopt);
      const auto from = begin + static_cast<ptrdiff_t>(passed);
      part.messages.assign(from, from + static_cast<ptrdiff_t>(kMostAtOnce));
      part.first_event = frame.first_event + passed;
      part.more = true;
      Pass(std::move(part));
    }
    frame.messages.erase(frame.messages.begin(),
                         frame.messages.begin() + static_cast<ptrdiff_t>(passed));
    frame.first_event += passed;
    Pass(std::move(frame));
  }
  void Closed(absl::Status why) {
    control_.Post([self = shared_from_this(), why = std::move(why)] {
      if (!std::exchange(self->silenced_, true)) self->callbacks_.on_closed(why);
    });
  }
  void Silence() { silenced_ = true; }  // on control

 private:
  static constexpr size_t kMostAtOnce = 512;

  void Pass(PeerFrame frame) {
    control_.PostOrRun([self = shared_from_this(), frame = std::move(frame)]() mutable {
      if (!self->silenced_) self->callbacks_.on_frame(std::move(frame));
    });
  }

  Executor& control_;
  const PeerStreamCallbacks callbacks_;
  bool silenced_ = false;  // touched on control
};

// The handle that PeerTable owns, for a stream of either direction.
template <typename Message, typename End>
class OutputStream : public PeerStream {
 public:
  OutputStream(std::shared_ptr<StreamOutput<Message, End>> output,
               std::shared_ptr<Delivery> delivery, End (*end)(const absl::Status&),
               std::function<void()> proven = nullptr)
      : output_(std::move(output)),
        delivery_(std::move(delivery)),
        end_(end),
        proven_(std::move(proven)) {}
  ~OutputStream() override { Close(absl::CancelledError("the link is dropped")); }
  void Send(PeerFrame frame) override {
    output_->Append([&](Message& message) { Encode(frame, message.mutable_frame()); },
                    [&](const Message& last) { return Follows(frame, last.frame()); });
  }
  size_t waiting() const override { return output_->waiting(); }
  void OnProven() override {
    if (proven_) proven_();
  }
  void Close(const absl::Status& why) override {
    delivery_->Silence();
    output_->Finish(end_(why));
  }

 private:
  const std::shared_ptr<StreamOutput<Message, End>> output_;
  const std::shared_ptr<Delivery> delivery_;
  End (*const end_)(const absl::Status&);
  const std::function<void()> proven_;
};

// --- The daemon that was dialled.

class AcceptedLink : public grpc::ServerBidiReactor<LinkRequest, LinkResponse> {
 public:
  using Output = StreamOutput<LinkResponse, grpc::Status>;

  AcceptedLink(Executor& control, PeerTable& table, std::function<void()> greeted)
      : control_(control), table_(table), greeted_(std::move(greeted)) {
    output_ = std::make_shared<Output>([this](const LinkResponse* message) { StartWrite(message); },
                                       [this](grpc::Status status) { Finish(status); });
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End(absl::CancelledError("the dialler ended the stream"));
      return;
    }
    absl::StatusOr<PeerFrame> frame = Decode(incoming_.frame());
    if (!frame.ok()) return End(frame.status());
    if (delivery_ != nullptr) {
      delivery_->Frame(*std::move(frame));
    } else if (frame->introduction.has_value()) {
      // Later frames find `delivery_`, because it is set before the next read is started.
      Introduce(*std::move(frame->introduction));
    } else {
      return End(Error(absl::StatusCode::kInvalidArgument,
                       frame->hello.has_value() ? Reason::kProtocolVersion : Reason::kProtocolError,
                       "peer link: the first frame is not an introduction, which ferryd says "
                       "since version 2 of the protocol"));
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override { output_->OnWriteDone(ok); }
  void OnCancel() override { End(absl::CancelledError("the dialler went away")); }
  void OnDone() override {
    output_->Detach();
    if (delivery_ != nullptr) delivery_->Closed(absl::CancelledError("the stream ended"));
    delete this;
  }

 private:
  // Only control knows the table's callbacks; frames wait for them in `delivery_`, in order.
  void Introduce(PeerIntroduction introduction) {
    auto late = std::make_shared<PeerStreamCallbacks>();
    delivery_ = std::make_shared<Delivery>(control_,
                                           PeerStreamCallbacks{[late](PeerFrame frame) {
                                                                 if (late->on_frame)
                                                                   late->on_frame(std::move(frame));
                                                               },
                                                               [late](absl::Status why) {
                                                                 if (late->on_closed)
                                                                   late->on_closed(std::move(why));
                                                               }});
    control_.Post([&table = table_, output = output_, delivery = delivery_, late,
                   greeted = greeted_, introduction = std::move(introduction)]() mutable {
      table.OnAccepted(
          [&](PeerStreamCallbacks callbacks) -> std::unique_ptr<PeerStream> {
            *late = std::move(callbacks);
            return std::make_unique<OutputStream<LinkResponse, grpc::Status>>(
                output, delivery, +[](const absl::Status& why) { return ToGrpc(why); }, greeted);
          },
          [&](absl::Status why) { output->Finish(ToGrpc(why)); }, std::move(introduction));
    });
  }
  void End(const absl::Status& why) {
    if (delivery_ != nullptr) delivery_->Closed(why);
    output_->Finish(ToGrpc(why));
  }

  Executor& control_;
  PeerTable& table_;
  const std::function<void()> greeted_;
  std::shared_ptr<Output> output_;
  // Null before the introduction; set on gRPC's thread, between reads.
  std::shared_ptr<Delivery> delivery_;
  LinkRequest incoming_;
};

class PeerServiceImpl final : public peer::v1::PeerService::CallbackService {
 public:
  PeerServiceImpl(Executor& control, PeerTable& table,
                  std::function<void(const std::string&)> greeted)
      : control_(control), table_(table), greeted_(std::move(greeted)) {}

  grpc::ServerBidiReactor<LinkRequest, LinkResponse>* Link(
      grpc::CallbackServerContext* context) override {
    return new AcceptedLink(control_, table_,
                            [this, connection = context->peer()] { greeted_(connection); });
  }
  grpc::ServerUnaryReactor* Knock(grpc::CallbackServerContext* context,
                                  const peer::v1::KnockRequest* request,
                                  peer::v1::KnockResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    control_.Post(
        [this, reactor, node = request->node()] { reactor->Finish(ToGrpc(table_.OnKnock(node))); });
    return reactor;
  }

 private:
  Executor& control_;
  PeerTable& table_;
  const std::function<void(const std::string&)> greeted_;
};

// --- The daemon that dials.

// The address of a peer in gRPC's form: "ipv4:10.0.0.1:7411", "ipv6:%5B::1%5D:7411".
std::string AddressOf(const std::string& peer) {
  return absl::StrReplaceAll(peer.substr(peer.find(':') + 1), {{"%5B", "["}, {"%5D", "]"}});
}

// Calls that gRPC has not finished with. When gRPC's last channel is destroyed, so is the queue
// that runs its callbacks, and in this version that fails on a thread of the queue's own. The
// servers keep the queue, so they must stay until no call is left.
class Calls {
 public:
  // One call, from its start until everything it held is gone; must be the call's first member.
  class Ticket {
   public:
    explicit Ticket(Calls& calls) : calls_(calls) {
      MutexLock lock(calls_.mutex_);
      ++calls_.count_;
    }
    ~Ticket() {
      MutexLock lock(calls_.mutex_);
      --calls_.count_;
      calls_.changed_.notify_all();
    }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

   private:
    Calls& calls_;
  };

  // Between Started and Ended, Stop may cancel the call.
  void Started(grpc::ClientContext& context) {
    MutexLock lock(mutex_);
    running_.insert(&context);
  }
  void Ended(grpc::ClientContext& context) {
    MutexLock lock(mutex_);
    running_.erase(&context);
  }
  void Stop() {
    MutexLock lock(mutex_);
    for (grpc::ClientContext* context : running_) context->TryCancel();
    while (count_ > 0) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mutex_);
};

class DialledLink : public grpc::ClientBidiReactor<LinkRequest, LinkResponse> {
 public:
  // Cancelling ends the call from our side; there is nothing more to say.
  struct Cancel {};
  using Output = StreamOutput<LinkRequest, Cancel>;

  DialledLink(Calls& calls, std::shared_ptr<grpc::Channel> channel,
              std::shared_ptr<Delivery> delivery)
      : ticket_(calls),
        calls_(calls),
        stub_(peer::v1::PeerService::NewStub(std::move(channel))),
        delivery_(std::move(delivery)) {
    output_ = std::make_shared<Output>([this](const LinkRequest* message) { StartWrite(message); },
                                       [this](Cancel) { Release(); });
  }
  // A call that fails at once is over, and this object destroyed, before Start returns. So the
  // caller takes what it needs from the object before.
  void Start() {
    calls_.Started(context_);
    stub_->async()->Link(&context_, this);
    // Keeps the call open while writes may come from outside the reactor.
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }
  std::shared_ptr<Output> output() const { return output_; }

  void OnReadDone(bool ok) override {
    if (!ok) return output_->Finish({});
    absl::StatusOr<PeerFrame> frame = Decode(incoming_.frame());
    if (!frame.ok()) {
      delivery_->Closed(frame.status());
      return output_->Finish({});
    }
    if (frame->hello.has_value()) frame->hello->reached_at = AddressOf(context_.peer());
    delivery_->Frame(*std::move(frame));
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override { output_->OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override {
    calls_.Ended(context_);
    output_->Detach();
    delivery_->Closed(FromGrpc(status));
    delete this;
  }

 private:
  void Release() {
    context_.TryCancel();
    RemoveHold();
  }

  const Calls::Ticket ticket_;
  Calls& calls_;
  std::unique_ptr<peer::v1::PeerService::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Output> output_;
  const std::shared_ptr<Delivery> delivery_;
  LinkResponse incoming_;
};

class GrpcPeerDialer final : public PeerDialer {
 public:
  explicit GrpcPeerDialer(Executor& control) : control_(control) {}

  std::unique_ptr<PeerStream> Dial(const std::string& address,
                                   PeerStreamCallbacks callbacks) override {
    auto delivery = std::make_shared<Delivery>(control_, std::move(callbacks));
    auto* link =
        new DialledLink(calls_, Channel(address), delivery);  // deletes itself when gRPC is done
    auto stream = std::make_unique<OutputStream<LinkRequest, DialledLink::Cancel>>(
        link->output(), delivery, +[](const absl::Status&) { return DialledLink::Cancel{}; });
    link->Start();
    return stream;
  }

  void Knock(const std::string& address, const std::string& node,
             std::function<void(absl::Status)> done) override {
    struct Call {
      explicit Call(Calls& calls) : ticket(calls) {}
      const Calls::Ticket ticket;
      std::unique_ptr<peer::v1::PeerService::Stub> stub;
      grpc::ClientContext context;
      peer::v1::KnockRequest request;
      peer::v1::KnockResponse response;
    };
    auto call = std::make_shared<Call>(calls_);
    call->stub = peer::v1::PeerService::NewStub(Channel(address));
    call->request.set_node(node);
    call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    calls_.Started(call->context);
    call->stub->async()->Knock(
        &call->context, &call->request, &call->response,
        [this, call, done = std::move(done)](grpc::Status status) {
          calls_.Ended(call->context);
          absl::Status result = status.ok() ? absl::OkStatus() : FromGrpc(status);
          control_.Post([done, result = std::move(result)] { done(result); });
        });
  }

  void Stop() override { calls_.Stop(); }

 private:
  // A channel of its own for each use: gRPC's back-off after a failure would delay our redials.
  static std::shared_ptr<grpc::Channel> Channel(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetMaxReceiveMessageSize(kPeerMessageBytes);
    return grpc::CreateCustomChannel(HostTarget(address), grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  Executor& control_;
  Calls calls_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakePeerService(Executor& control, PeerTable& table,
                                               std::function<void(const std::string&)> greeted) {
  return std::make_unique<PeerServiceImpl>(control, table, std::move(greeted));
}

std::unique_ptr<PeerDialer> MakePeerDialer(Executor& control) {
  return std::make_unique<GrpcPeerDialer>(control);
}

}  // namespace ferry
