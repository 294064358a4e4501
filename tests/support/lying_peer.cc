// SPDX-License-Identifier: Apache-2.0
#include "tests/support/lying_peer.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/grpc_target.h"
#include "daemon/peer/peer_proof.h"
#include "ferry/peer/v1/peer.grpc.pb.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using Stream = grpc::ServerReaderWriter<peer::v1::LinkResponse, peer::v1::LinkRequest>;

std::unique_ptr<peer::v1::PeerService::Stub> StubOf(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return peer::v1::PeerService::NewStub(grpc::CreateCustomChannel(
      HostTarget(address), grpc::InsecureChannelCredentials(), arguments));
}

PeerIntroduction Plain(const peer::v1::PeerIntroduction& proto) {
  return {{proto.protocol_min(), proto.protocol_max()},
          proto.node(),
          Incarnation(proto.incarnation()),
          proto.boot_id(),
          proto.uid(),
          proto.peer_socket(),
          proto.nonce()};
}

std::string NameOfGrpc(const grpc::Status& status) {
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    return NameOf(details);
  }
  return absl::StrCat("gRPC ", status.error_code(), ": ", status.error_message());
}

}  // namespace

peer::v1::PeerIntroduction IntroductionOf(const std::string& name) {
  peer::v1::PeerIntroduction introduction;
  introduction.set_protocol_min(3);
  introduction.set_protocol_max(3);
  introduction.set_node(name);
  introduction.set_incarnation(0x1157e);
  std::ifstream("/proc/sys/kernel/random/boot_id") >> *introduction.mutable_boot_id();
  introduction.set_uid(geteuid());
  introduction.set_peer_socket("/nowhere/peer.sock");
  introduction.set_nonce(std::string(32, 'n'));
  return introduction;
}

peer::v1::PeerHello HelloOf(const std::vector<uint64_t>& devices) {
  peer::v1::PeerHello hello;
  for (const uint64_t device : devices) hello.add_devices()->set_global_device_id(device);
  return hello;
}

std::string DiallersProof(const std::string& secret, const peer::v1::PeerIntroduction& ours,
                          const peer::v1::PeerIntroduction& theirs) {
  const PeerIntroduction dialler = Plain(ours), acceptor = Plain(theirs);
  return PeerProof(secret, PeerSide::kDialler, {dialler, acceptor});
}

std::string DiallersKey(const std::string& secret, const peer::v1::PeerIntroduction& ours,
                        const peer::v1::PeerIntroduction& theirs) {
  const PeerIntroduction dialler = Plain(ours), acceptor = Plain(theirs);
  return PeerLinkSecret(secret, {dialler, acceptor});
}

struct LyingCaller::Call {
  explicit Call(const std::string& address) : stub(StubOf(address)) {
    context.set_deadline(std::chrono::system_clock::now() + kSoon);
    stream = stub->Link(&context);
  }
  std::unique_ptr<peer::v1::PeerService::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<peer::v1::LinkRequest, peer::v1::LinkResponse>> stream;
  std::optional<grpc::Status> end;
};

LyingCaller::LyingCaller(const std::string& address) : call_(std::make_unique<Call>(address)) {}

LyingCaller::~LyingCaller() {
  call_->context.TryCancel();
  if (!call_->end.has_value()) call_->stream->Finish();
}

bool LyingCaller::Say(const peer::v1::Frame& frame) {
  peer::v1::LinkRequest request;
  *request.mutable_frame() = frame;
  return call_->stream->Write(request);
}

std::optional<peer::v1::Frame> LyingCaller::Hear() {
  peer::v1::LinkResponse response;
  if (!call_->stream->Read(&response)) return std::nullopt;
  return std::move(*response.mutable_frame());
}

bool LyingCaller::Prove(const peer::v1::PeerIntroduction& introduction, const std::string& secret,
                        const peer::v1::PeerHello& hello) {
  peer::v1::Frame first;
  *first.mutable_introduction() = introduction;
  if (!Say(first)) return false;
  const std::optional<peer::v1::Frame> answer = Hear();
  if (!answer.has_value() || !answer->has_introduction()) return false;
  key_ = DiallersKey(secret, introduction, answer->introduction());
  peer::v1::Frame second;
  second.set_proof(DiallersProof(secret, introduction, answer->introduction()));
  *second.mutable_hello() = hello;
  if (!Say(second)) return false;
  while (const std::optional<peer::v1::Frame> frame = Hear()) {
    if (frame->has_hello()) return true;
  }
  return false;
}

std::string LyingCaller::AwaitEnd() {
  while (Hear().has_value()) continue;
  if (!call_->end.has_value()) call_->end = call_->stream->Finish();
  return NameOfGrpc(*call_->end);
}

std::string KnockAt(const std::string& address, const std::string& node) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kSoon);
  peer::v1::KnockRequest request;
  request.set_node(node);
  peer::v1::KnockResponse response;
  const grpc::Status status = StubOf(address)->Knock(&context, request, &response);
  return status.ok() ? "OK" : NameOfGrpc(status);
}

class LyingListener::Service final : public peer::v1::PeerService::Service {
 public:
  Service(peer::v1::Frame answer, std::string last_words)
      : answer_(std::move(answer)), last_words_(std::move(last_words)) {}

  grpc::Status Link(grpc::ServerContext*, Stream* stream) override {
    peer::v1::LinkRequest request;
    bool first = true;
    while (stream->Read(&request)) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        callers_ += first ? 1 : 0;
        heard_.push_back(request.frame());
      }
      if (!std::exchange(first, false)) continue;
      peer::v1::LinkResponse response;
      *response.mutable_frame() = answer_;
      stream->Write(response);
      if (!last_words_.empty()) return {grpc::StatusCode::UNAVAILABLE, last_words_};
    }
    return grpc::Status::OK;
  }

  size_t callers() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return callers_;
  }
  std::vector<peer::v1::Frame> heard() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return heard_;
  }

 private:
  const peer::v1::Frame answer_;
  const std::string last_words_;
  mutable std::mutex mutex_;
  size_t callers_ = 0;
  std::vector<peer::v1::Frame> heard_;
};

struct LyingListener::Server {
  std::unique_ptr<grpc::Server> server;
};

LyingListener::LyingListener(int port, peer::v1::Frame answer, std::string last_words)
    : service_(std::make_unique<Service>(std::move(answer), std::move(last_words))),
      server_(std::make_unique<Server>()) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  server_->server = builder.BuildAndStart();
}

LyingListener::~LyingListener() {
  if (server_->server != nullptr) server_->server->Shutdown(std::chrono::system_clock::now());
}

size_t LyingListener::callers() const { return service_->callers(); }
std::vector<peer::v1::Frame> LyingListener::heard() const { return service_->heard(); }

}  // namespace ferry::testing
