// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/attach_codec.h"

#include <google/protobuf/arena.h>

#include <optional>
#include <protozero/exception.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/field_reader.h"
#include "daemon/rpc/frame_codec.h"
#include "daemon/rpc/peer_codec.h"
#include "daemon/rpc/plain_request.h"
#include "daemon/rpc/session_use.h"
#include "daemon/rpc/status_proto.h"
#include "ferry/peer/v1/peer_socket.pb.h"
#include "ferry/v1/session.pb.h"

namespace ferry {
namespace {

absl::Status NotAPacket(const char* socket, const std::string& packet) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
               absl::StrCat(socket, ": a packet of ", packet.size(),
                            " bytes is not a request of this protocol"));
}

// RegisterArena and ArenaLent describe memory by the same fields. An unknown kind stays unknown,
// and is refused where it is mapped.
template <typename Message>
MemoryShare ShareFrom(const Message& message) {
  MemoryShare share;
  const int kind = message.memory();
  share.kind = kind == v1::ARENA_MEMORY_UNSPECIFIED      ? MemoryKind::kMemfd
               : kind > 0 && kind <= v1::ArenaMemory_MAX ? static_cast<MemoryKind>(kind)
                                                         : MemoryKind::kUnknown;
  share.bytes = message.bytes();
  share.segment_bytes.assign(message.segment_bytes().begin(), message.segment_bytes().end());
  share.ipc_handle = message.ipc_handle();
  share.ipc_offset = message.ipc_offset();
  return share;
}

template <typename Message>
void ShareTo(const MemoryShare& share, Message* out) {
  out->set_memory(static_cast<v1::ArenaMemory>(share.kind));
  out->set_bytes(share.bytes);
  for (const uint64_t bytes : share.segment_bytes) out->add_segment_bytes(bytes);
  out->set_ipc_handle(share.ipc_handle);
  out->set_ipc_offset(share.ipc_offset);
}

template <typename Response>
void Fill(const AttachPosted& posted, Response* out) {
  out->set_first_transfer_id(posted.first_transfer_id);
  out->set_first_over_value(posted.first_over_value);
  out->set_prepared_batch(posted.prepared_batch);
}

std::optional<AttachResume> ParseResume(const v1::Hello& hello) {
  if (!hello.has_resume()) return std::nullopt;
  AttachResume resume;
  for (const v1::ResumedCounter& counter : hello.resume().over()) {
    resume.over.push_back({counter.value(), counter.first_failed(), counter.failures()});
  }
  resume.next_transfer_id = hello.resume().next_transfer_id();
  resume.incarnation = Incarnation(hello.resume().incarnation());
  resume.prepared_from = hello.resume().prepared_from();
  return resume;
}

struct AttachEncoder {
  v1::AttachResponse& out;
  void operator()(const AttachWelcome& welcome) {
    v1::Welcome* proto = out.mutable_welcome();
    proto->set_protocol(welcome.protocol);
    proto->set_session_id(welcome.session.value());
    proto->set_token(welcome.token);
    proto->set_incarnation(welcome.incarnation.value());
    proto->set_node(welcome.node);
    proto->set_daemon_version(FERRY_VERSION);
    for (const DeviceInfo& device : welcome.devices) {
      ToProto(device, proto->add_devices());
    }
    SetUse(welcome.limits, proto->mutable_limits());
  }
  void operator()(const AttachArenaRegistered& registered) {
    out.mutable_arena_registered()->set_arena_id(registered.arena.value());
    out.mutable_arena_registered()->set_mapped_bytes(registered.mapped_bytes);
  }
  void operator()(const AttachArenaReleased&) { out.mutable_arena_released(); }
  void operator()(const AttachTimelineReset&) { out.mutable_timeline_reset(); }
  void operator()(const AttachPosted& posted) {
    switch (posted.what) {
      case AttachPosted::What::kSend:
        return Fill(posted, out.mutable_send());
      case AttachPosted::What::kReceive:
        return Fill(posted, out.mutable_receive());
      case AttachPosted::What::kRun:
        return Fill(posted, out.mutable_run());
    }
  }
  void operator()(const AttachPreparedReleased&) { out.mutable_prepared_released(); }
  void operator()(const AttachPong&) { out.mutable_pong(); }
  void operator()(const AttachNotice& notice) {
    out.mutable_notice()->set_draining(notice.draining);
  }
};

// A message on an arena of protobuf's: its parts are in few pieces of memory and are freed
// together. A batch has thousands of parts.
template <typename Message>
class Pooled {
 public:
  Message& operator*() { return *message_; }

 private:
  static google::protobuf::ArenaOptions Blocks() {
    google::protobuf::ArenaOptions options;
    options.max_block_size = size_t{32} << 10;
    return options;
  }
  google::protobuf::Arena arena_{Blocks()};
  Message* const message_ = google::protobuf::Arena::CreateMessage<Message>(&arena_);
};

// A batch, if the packet has the form in which libferry writes most of them.
std::optional<AttachCommand> ParsePlainPost(absl::string_view packet) try {
  FieldReader in(packet);
  AttachCommand command;
  command.sequence = in.Number(1);
  const std::optional<absl::string_view> send = in.Bytes(6);
  const std::optional<absl::string_view> said = send.has_value() ? send : in.Bytes(7);
  if (command.sequence == 0 || !said.has_value() || !in.AtEnd()) return std::nullopt;
  const std::optional<PlainRequest> request = PlainRequest::Read(*said);
  if (!request.has_value()) return std::nullopt;
  const Side side = send.has_value() ? Side::kSend : Side::kReceive;
  command.body = Convert(*request, side, packet.size());
  return command;
} catch (const protozero::exception&) {
  return std::nullopt;
}

absl::StatusOr<PeerSocketRequest> FrameRequest(uint64_t sequence, absl::StatusOr<PeerFrame> frame,
                                               const std::string& packet) {
  RETURN_IF_ERROR(frame.status());
  if (frame->events() == 0 || frame->hello.has_value() || frame->introduction.has_value() ||
      frame->first_event == 0) {
    return NotAPacket("peer.sock", packet);
  }
  return PeerSocketRequest{sequence, *std::move(frame)};
}

}  // namespace

absl::StatusOr<AttachCommand> ParseAttach(const std::string& packet) {
  if (std::optional<AttachCommand> post = ParsePlainPost(packet)) return *std::move(post);
  Pooled<v1::AttachRequest> pooled;
  v1::AttachRequest& proto = *pooled;
  if (!proto.ParseFromString(packet) || proto.sequence() == 0)
    return NotAPacket("attach.sock", packet);
  AttachCommand command;
  command.sequence = proto.sequence();
  switch (proto.request_case()) {
    case v1::AttachRequest::kHello: {
      const v1::Hello& hello = proto.hello();
      command.body = AttachHello{{hello.protocol_min(), hello.protocol_max()},
                                 hello.name(),
                                 hello.client_version().substr(0, 64),
                                 hello.token(),
                                 ParseResume(hello)};
      return command;
    }
    case v1::AttachRequest::kRegisterArena:
      command.body =
          AttachRegisterArena{GlobalDeviceId(proto.register_arena().device_id()),
                              ShareFrom(proto.register_arena()), proto.register_arena().imported()};
      return command;
    case v1::AttachRequest::kReleaseArena:
      command.body = AttachReleaseArena{ArenaId(proto.release_arena().arena_id()),
                                        proto.release_arena().freed()};
      return command;
    case v1::AttachRequest::kResetTimeline:
      command.body = AttachResetTimeline{proto.reset_timeline().timeline()};
      return command;
    case v1::AttachRequest::kSend:
      command.body = Convert(proto.send(), packet.size());
      return command;
    case v1::AttachRequest::kReceive:
      command.body = Convert(proto.receive(), packet.size());
      return command;
    case v1::AttachRequest::kRun:
      command.body = Convert(proto.run());
      return command;
    case v1::AttachRequest::kReleasePrepared:
      command.body = AttachReleasePrepared{proto.release_prepared().prepared_batch()};
      return command;
    case v1::AttachRequest::kPing:
      command.body = AttachPing{};
      return command;
    case v1::AttachRequest::REQUEST_NOT_SET:
      break;
  }
  return NotAPacket("attach.sock", packet);
}

std::string EncodeAttach(const AttachReply& reply) {
  v1::AttachResponse proto;
  proto.set_sequence(reply.sequence);
  if (reply.error.ok()) {
    std::visit(AttachEncoder{proto}, reply.body);
  } else {
    ToProto(reply.error, reply.violations, proto.mutable_error());
  }
  return proto.SerializeAsString();
}

absl::StatusOr<PeerSocketRequest> ParsePeerSocketRequest(const std::string& packet) {
  if (const std::optional<FramePacket> frame = FindFrame(packet)) {
    return FrameRequest(frame->sequence, DecodeFrame(frame->frame), packet);
  }
  peer::v1::PeerSocketRequest proto;
  if (!proto.ParseFromString(packet) || proto.sequence() == 0)
    return NotAPacket("peer.sock", packet);
  if (proto.has_hello()) {
    const peer::v1::PeerSocketHello& hello = proto.hello();
    return PeerSocketRequest{proto.sequence(), PeerSocketHello{hello.node(), hello.link_secret(),
                                                               hello.random(), hello.proof()}};
  }
  if (proto.has_get_arena()) {
    return PeerSocketRequest{proto.sequence(), GetArena{ArenaId(proto.get_arena().arena_id())}};
  }
  if (proto.has_frame()) return FrameRequest(proto.sequence(), Decode(proto.frame()), packet);
  return NotAPacket("peer.sock", packet);
}

absl::StatusOr<PeerSocketResponse> ParsePeerSocketResponse(const std::string& packet) {
  peer::v1::PeerSocketResponse proto;
  if (!proto.ParseFromString(packet)) return NotAPacket("peer.sock", packet);
  PeerSocketResponse response;
  response.sequence = proto.sequence();
  if (proto.has_error()) {
    response.error = FromProto(proto.error());
  } else if (proto.has_arena_lent()) {
    response.body =
        ArenaLent{ArenaId(proto.arena_lent().arena_id()), ShareFrom(proto.arena_lent())};
  } else if (proto.has_welcome()) {
    response.body = PeerSocketWelcome{proto.welcome().random()};
  } else {
    return NotAPacket("peer.sock", packet);
  }
  return response;
}

std::string EncodePeerSocket(const PeerSocketRequest& request) {
  if (const auto* frame = std::get_if<PeerFrame>(&request.body)) {
    return EncodeFramePacket(request.sequence, *frame);
  }
  peer::v1::PeerSocketRequest proto;
  proto.set_sequence(request.sequence);
  if (const auto* hello = std::get_if<PeerSocketHello>(&request.body)) {
    proto.mutable_hello()->set_node(hello->node);
    proto.mutable_hello()->set_link_secret(hello->asked_nonce);
    proto.mutable_hello()->set_random(hello->random);
    proto.mutable_hello()->set_proof(hello->proof);
  } else {
    proto.mutable_get_arena()->set_arena_id(std::get<GetArena>(request.body).arena.value());
  }
  return proto.SerializeAsString();
}

std::string EncodePeerSocket(const PeerSocketResponse& response) {
  peer::v1::PeerSocketResponse proto;
  proto.set_sequence(response.sequence);
  if (!response.error.ok()) {
    ToProto(response.error, {}, proto.mutable_error());
  } else if (const auto* lent = std::get_if<ArenaLent>(&response.body)) {
    proto.mutable_arena_lent()->set_arena_id(lent->arena.value());
    ShareTo(lent->memory, proto.mutable_arena_lent());
  } else {
    proto.mutable_welcome()->set_random(std::get<PeerSocketWelcome>(response.body).random);
  }
  return proto.SerializeAsString();
}

}  // namespace ferry
