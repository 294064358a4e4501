// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_session.h"

#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "google/rpc/error_details.pb.h"
#include "tools/ferryctl/failure.h"

namespace ferry::testing {

RawSession::RawSession(const std::string& client_dir)
    : socket_(client_dir + "/attach.sock", SOCK_SEQPACKET),
      channel_(UnixChannel(client_dir + "/client.sock")),
      transfers_(v1::TransferService::NewStub(channel_)),
      sessions_(v1::SessionService::NewStub(channel_)) {}

v1::AttachResponse RawSession::Ask(v1::AttachRequest request, const std::vector<int>& fds) {
  request.set_sequence(++sequence_);
  v1::AttachResponse response;
  if (!socket_.Send(request.SerializeAsString(), fds)) return response;
  while (std::optional<RawSocket::Packet> packet = socket_.Receive()) {
    if (packet->bytes.empty()) break;
    v1::AttachResponse candidate;
    FERRY_CHECK(candidate.ParseFromString(packet->bytes));
    if (candidate.sequence() != request.sequence() && !candidate.has_error()) continue;  // a notice
    fds_ = std::move(packet->fds);
    return candidate;
  }
  response.Clear();
  return response;
}

v1::AttachResponse RawSession::Hello(const std::string& token, const std::string& name) {
  v1::AttachRequest request;
  v1::Hello* hello = request.mutable_hello();
  hello->set_protocol_min(2);
  hello->set_protocol_max(2);
  hello->set_name(name);
  hello->set_token(token);
  v1::AttachResponse response = Ask(std::move(request));
  token_ = response.welcome().token();
  return response;
}

v1::AttachResponse RawSession::Register(uint64_t device, uint64_t bytes,
                                        const std::vector<int>& fds) {
  v1::AttachRequest request;
  request.mutable_register_arena()->set_device_id(device);
  request.mutable_register_arena()->set_bytes(bytes);
  return Ask(std::move(request), fds);
}

v1::AttachResponse RawSession::Release(uint64_t arena) {
  v1::AttachRequest request;
  request.mutable_release_arena()->set_arena_id(arena);
  return Ask(std::move(request));
}

v1::AttachResponse RawSession::Send(const v1::CrossHostSendRequest& batch) {
  v1::AttachRequest request;
  *request.mutable_send() = batch;
  return Ask(std::move(request));
}

uint64_t RawSession::MakeArena(uint64_t device, uint64_t bytes) {
  const UniqueFd memfd = MakeMemfd(bytes, ArenaSeals());
  return Register(device, bytes, {memfd.get()}).arena_registered().arena_id();
}

absl::Status RawSession::Finish(grpc::ClientContext& context,
                                const std::function<grpc::Status()>& call) {
  context.set_wait_for_ready(true);
  SetDeadline(context);
  return tools::FromGrpc(call());
}

std::string NameOf(const google::rpc::Status& status) {
  if (status.code() == 0) return "OK";
  std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(status.code()));
  bool named = false;  // which field is bad
  for (const google::protobuf::Any& detail : status.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info)) absl::StrAppend(&name, "/", info.reason());
    named = named || detail.Is<google::rpc::BadRequest>();
  }
  if (absl::EndsWith(name, "/FIELD_INVALID") && !named) name += ", of no field";
  return name;
}

}  // namespace ferry::testing
