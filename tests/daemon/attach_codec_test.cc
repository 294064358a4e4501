// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/attach_codec.h"

#include <string>
#include <variant>

#include "daemon/rpc/convert.h"
#include "ferry/peer/v1/peer_socket.pb.h"
#include "ferry/v1/session.pb.h"
#include "google/rpc/error_details.pb.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;

template <typename Body>
Body CommandOf(const v1::AttachRequest& request) {
  const absl::StatusOr<AttachCommand> command = ParseAttach(request.SerializeAsString());
  EXPECT_THAT(command, Is("OK"));
  if (!command.ok()) return {};
  EXPECT_EQ(command->sequence, request.sequence());
  const Body* body = std::get_if<Body>(&command->body);
  EXPECT_NE(body, nullptr);
  return body == nullptr ? Body{} : *body;
}

v1::AttachResponse Encoded(const AttachReply& reply) {
  v1::AttachResponse response;
  EXPECT_TRUE(response.ParseFromString(EncodeAttach(reply)));
  EXPECT_EQ(response.sequence(), reply.sequence);
  return response;
}

TEST(AttachCodec, EveryCommandIsParsed) {
  v1::AttachRequest request;
  request.set_sequence(~uint64_t{0});
  v1::Hello* hello = request.mutable_hello();
  hello->set_protocol_min(1);
  hello->set_protocol_max(2);
  hello->set_name("trainer");
  hello->set_client_version(std::string(100, 'v'));
  hello->set_token(std::string("\0\xff", 2));
  const auto parsed = CommandOf<AttachHello>(request);
  EXPECT_EQ(parsed.protocol.oldest, 1u);
  EXPECT_EQ(parsed.protocol.newest, 2u);
  EXPECT_EQ(parsed.name, "trainer");
  EXPECT_EQ(parsed.client_version, std::string(64, 'v'));  // for the log; no longer than it needs
  EXPECT_EQ(parsed.token, std::string("\0\xff", 2));
  EXPECT_FALSE(parsed.resume.has_value());

  v1::Resume* resume = hello->mutable_resume();
  resume->add_over();
  resume->add_over()->set_value(9);
  resume->mutable_over(1)->set_first_failed(3);
  resume->mutable_over(1)->set_failures(2);
  resume->set_next_transfer_id(77);
  resume->set_incarnation(~uint64_t{0});
  resume->set_prepared_from(5);
  const auto resumed = CommandOf<AttachHello>(request);
  ASSERT_TRUE(resumed.resume.has_value());
  ASSERT_EQ(resumed.resume->over.size(), 2u);
  EXPECT_EQ(resumed.resume->over[0].value, 0u);
  EXPECT_EQ(resumed.resume->over[1].value, 9u);
  EXPECT_EQ(resumed.resume->over[1].first_failed, 3u);
  EXPECT_EQ(resumed.resume->over[1].failures, 2u);
  EXPECT_EQ(resumed.resume->next_transfer_id, 77u);
  EXPECT_EQ(resumed.resume->incarnation, Incarnation(~uint64_t{0}));
  EXPECT_EQ(resumed.resume->prepared_from, 5u);

  request.mutable_register_arena()->set_device_id(7);
  request.mutable_register_arena()->set_bytes(4096);
  request.mutable_register_arena()->set_imported(true);
  const auto registered = CommandOf<AttachRegisterArena>(request);
  EXPECT_EQ(registered.device, GlobalDeviceId(7));
  EXPECT_EQ(registered.memory.bytes, 4096u);
  EXPECT_EQ(registered.memory.kind, MemoryKind::kMemfd) << "what clients mean that know no other";
  EXPECT_TRUE(registered.imported);

  request.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_VMM);
  request.mutable_register_arena()->add_segment_bytes(2 << 20);
  request.mutable_register_arena()->add_segment_bytes(4 << 20);
  const auto imported = CommandOf<AttachRegisterArena>(request);
  EXPECT_EQ(imported.memory.kind, MemoryKind::kCudaVmm);
  EXPECT_EQ(imported.memory.segment_bytes, (std::vector<uint64_t>{2 << 20, 4 << 20}));
  request.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_IPC);
  request.mutable_register_arena()->set_ipc_handle(std::string(64, 'h'));
  request.mutable_register_arena()->set_ipc_offset(512);
  const auto opened = CommandOf<AttachRegisterArena>(request);
  EXPECT_EQ(opened.memory.kind, MemoryKind::kCudaIpc);
  EXPECT_EQ(opened.memory.ipc_handle, std::string(64, 'h'));
  EXPECT_EQ(opened.memory.ipc_offset, 512u);
  request.mutable_register_arena()->set_memory(static_cast<v1::ArenaMemory>(99));
  EXPECT_EQ(CommandOf<AttachRegisterArena>(request).memory.kind, MemoryKind::kUnknown);

  request.mutable_release_arena()->set_arena_id(9);
  EXPECT_EQ(CommandOf<AttachReleaseArena>(request).arena, ArenaId(9));
  EXPECT_FALSE(CommandOf<AttachReleaseArena>(request).freed);
  request.mutable_release_arena()->set_freed(true);
  EXPECT_TRUE(CommandOf<AttachReleaseArena>(request).freed);
  request.mutable_reset_timeline()->set_timeline(63);
  EXPECT_EQ(CommandOf<AttachResetTimeline>(request).timeline, 63u);
  request.mutable_release_prepared()->set_prepared_batch(255);
  EXPECT_EQ(CommandOf<AttachReleasePrepared>(request).batch, 255u);
  request.mutable_ping();
  CommandOf<AttachPing>(request);
  request.mutable_run()->set_device_id(4);
  EXPECT_TRUE(CommandOf<PostBatch>(request).runs_programs);
}

TEST(AttachCodec, PostsAreTheOnesOfGrpcByTheSameDecoder) {
  v1::AttachRequest request;
  request.set_sequence(7);
  v1::CrossHostSendRequest* send = request.mutable_send();
  send->set_request_id("id");
  send->set_device_id(3);
  send->add_buffers()->add_ranges()->set_length(8);
  send->add_dst_global_device_ids(4);
  send->add_transfer_keys("k");
  const auto sent = CommandOf<PostBatch>(request);
  const PostBatch same = Convert(*send);
  EXPECT_EQ(sent.side, Side::kSend);
  EXPECT_EQ(sent.device, GlobalDeviceId(3));
  EXPECT_EQ(sent.request_hash, same.request_hash);  // repeated by the other way it is the same
  ASSERT_EQ(sent.specs.size(), 1u);
  EXPECT_EQ(sent.specs[0].key.destination, GlobalDeviceId(4));
  EXPECT_TRUE(sent.violations.empty());

  v1::CrossHostReceiveRequest* receive = request.mutable_receive();
  receive->add_buffers();
  receive->add_buffers();
  receive->add_src_global_device_ids(4);
  receive->add_src_global_device_ids(4);
  receive->add_transfer_keys(std::string(65, 'k'));
  receive->add_transfer_keys("");
  const auto received = CommandOf<PostBatch>(request);
  EXPECT_EQ(received.side, Side::kReceive);
  ASSERT_EQ(received.violations.size(), 2u);
  EXPECT_EQ(received.violations[1].field, "transfer_keys[1]");

  const std::string whole = request.SerializeAsString();
  for (size_t size = 0; size < whole.size(); ++size) {  // a cut one is never half taken
    const absl::StatusOr<AttachCommand> cut = ParseAttach(whole.substr(0, size));
    EXPECT_THAT(cut, Is("INVALID_ARGUMENT/PROTOCOL_ERROR")) << size;
  }
}

TEST(AttachCodec, WhatIsNoCommandIsRefused) {
  EXPECT_THAT(ParseAttach(""),
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "attach.sock: a packet of 0 bytes"));
  EXPECT_THAT(ParseAttach("GET / HTTP/1.1\r\n\r\n"), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  v1::AttachRequest request;
  request.set_sequence(1);
  EXPECT_THAT(ParseAttach(request.SerializeAsString()), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  request.mutable_release_arena()->set_arena_id(1);
  EXPECT_THAT(ParseAttach(request.SerializeAsString()), Is("OK"));
  std::string cut = request.SerializeAsString();
  cut.pop_back();
  EXPECT_THAT(ParseAttach(cut), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  request.set_sequence(0);  // that of notices
  EXPECT_THAT(ParseAttach(request.SerializeAsString()), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  request.set_sequence(1);
  request.mutable_hello()->set_name("caf?");
  std::string no_text = request.SerializeAsString();
  no_text[no_text.find('?')] = '\xc3';
  EXPECT_THAT(ParseAttach(no_text), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
}

TEST(AttachCodec, TheWelcomeSaysAll) {
  AttachWelcome welcome;
  welcome.protocol = 1;
  welcome.session = SessionId(3);
  welcome.token = std::string(32, '\xff');
  welcome.incarnation = Incarnation(4);
  welcome.node = "node-a";
  welcome.devices = {{GlobalDeviceId(5), "host0"}, {GlobalDeviceId(6), "host1"}};
  welcome.limits = {7, 8, 9, 10};
  const v1::AttachResponse response = Encoded({1, absl::OkStatus(), welcome});
  EXPECT_FALSE(response.has_error());
  const v1::Welcome& proto = response.welcome();
  EXPECT_EQ(proto.protocol(), 1u);
  EXPECT_EQ(proto.session_id(), 3u);
  EXPECT_EQ(proto.token(), welcome.token);
  EXPECT_EQ(proto.incarnation(), 4u);
  EXPECT_EQ(proto.node(), "node-a");
  EXPECT_EQ(proto.daemon_version(), FERRY_VERSION);
  ASSERT_EQ(proto.devices_size(), 2);
  EXPECT_EQ(proto.devices(1).global_device_id(), 6u);
  EXPECT_EQ(proto.devices(1).kind(), v1::Device::KIND_HOST);
  EXPECT_EQ(proto.devices(1).name(), "host1");
  EXPECT_EQ(proto.limits().bytes(), 7u);
  EXPECT_EQ(proto.limits().arenas(), 8u);
  EXPECT_EQ(proto.limits().transfers_in_flight(), 9u);
  EXPECT_EQ(proto.limits().batch_transfers(), 10u);
}

TEST(AttachCodec, EveryOtherReplyIsEncoded) {
  EXPECT_EQ(Encoded({2, absl::OkStatus(), AttachArenaRegistered{ArenaId(5)}})
                .arena_registered()
                .arena_id(),
            5u);
  EXPECT_TRUE(Encoded({3, absl::OkStatus(), AttachArenaReleased{}}).has_arena_released());
  EXPECT_TRUE(Encoded({4, absl::OkStatus(), AttachTimelineReset{}}).has_timeline_reset());
  EXPECT_TRUE(Encoded({5, absl::OkStatus(), AttachPreparedReleased{}}).has_prepared_released());
  EXPECT_TRUE(Encoded({6, absl::OkStatus(), AttachPong{}}).has_pong());
  EXPECT_TRUE(Encoded({0, absl::OkStatus(), AttachNotice{true}}).notice().draining());
  EXPECT_TRUE(Encoded({0, absl::OkStatus(), AttachNotice{false}}).has_notice());
}

TEST(AttachCodec, AnswersToPostsAreTheOnesOfGrpc) {
  const auto sent = Encoded({2, absl::OkStatus(), AttachPosted{AttachPosted::What::kSend, 5, 6}});
  EXPECT_EQ(sent.send().first_transfer_id(), 5u);
  EXPECT_EQ(sent.send().first_over_value(), 6u);
  const auto received =
      Encoded({2, absl::OkStatus(), AttachPosted{AttachPosted::What::kReceive, 7, 8, 9}});
  EXPECT_EQ(received.receive().prepared_batch(), 9u);
  EXPECT_EQ(received.receive().first_transfer_id(), 7u);
  EXPECT_EQ(received.receive().first_over_value(), 8u);
  const auto run = Encoded({2, absl::OkStatus(), AttachPosted{AttachPosted::What::kRun, 10, 11}});
  EXPECT_EQ(run.run().first_transfer_id(), 10u);
  EXPECT_EQ(run.run().first_over_value(), 11u);

  const absl::Status bad = Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, "bad");
  AttachReply refused{2, bad, AttachPosted{}, {{"buffers[0]", bad}, {"buffers[3]", bad}}};
  const auto error = Encoded(refused);
  EXPECT_EQ(error.response_case(), v1::AttachResponse::RESPONSE_NOT_SET);
  ASSERT_EQ(error.error().details_size(), 2);
  google::rpc::BadRequest listed;
  ASSERT_TRUE(error.error().details(1).UnpackTo(&listed));
  ASSERT_EQ(listed.field_violations_size(), 2);
  EXPECT_EQ(listed.field_violations(1).field(), "buffers[3]");
}

TEST(AttachCodec, AnErrorGoesAloneWhateverTheBody) {
  const v1::AttachResponse response = Encoded(
      {5, Error(absl::StatusCode::kNotFound, Reason::kIdStale, "gone"), AttachArenaReleased{}});
  EXPECT_EQ(response.response_case(), v1::AttachResponse::RESPONSE_NOT_SET);
  EXPECT_EQ(response.error().code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(response.error().message(), "gone");
  EXPECT_EQ(response.error().details_size(), 1);
}

TEST(PeerSocketCodec, RequestsArriveAsTheyWereSent) {
  const auto hello = ParsePeerSocketRequest(
      EncodePeerSocket(PeerSocketRequest{7, PeerSocketHello{"node-b", std::string("\0\xff", 2)}}));
  ASSERT_THAT(hello, Is("OK"));
  EXPECT_EQ(hello->sequence, 7u);
  EXPECT_EQ(std::get<PeerSocketHello>(hello->body).node, "node-b");
  EXPECT_EQ(std::get<PeerSocketHello>(hello->body).asked_nonce, std::string("\0\xff", 2));
  const auto get =
      ParsePeerSocketRequest(EncodePeerSocket(PeerSocketRequest{8, GetArena{ArenaId(9)}}));
  ASSERT_THAT(get, Is("OK"));
  EXPECT_EQ(get->sequence, 8u);
  EXPECT_EQ(std::get<GetArena>(get->body).arena, ArenaId(9));
  PeerFrame said{{{Ready{TransferId(5)}}, {ArenaId(6)}}};
  said.first_event = 12;
  const auto frame = ParsePeerSocketRequest(EncodePeerSocket(PeerSocketRequest{9, said}));
  ASSERT_THAT(frame, Is("OK"));
  EXPECT_EQ(frame->sequence, 9u);
  const PeerFrame& heard = std::get<PeerFrame>(frame->body);
  EXPECT_EQ(heard.first_event, 12u);
  ASSERT_EQ(heard.events(), 2u);
  EXPECT_EQ(std::get<Ready>(heard.messages[0]).transfer, TransferId(5));
  EXPECT_EQ(heard.arenas_gone[0], ArenaId(6));
}

TEST(PeerSocketCodec, WhatIsNoRequestIsRefused) {
  EXPECT_THAT(ParsePeerSocketRequest(""), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "peer.sock"));
  EXPECT_THAT(ParsePeerSocketRequest("\xff\xff\xff"), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  EXPECT_THAT(ParsePeerSocketRequest(EncodePeerSocket(PeerSocketRequest{0, GetArena{ArenaId(1)}})),
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  peer::v1::PeerSocketRequest empty;
  empty.set_sequence(1);
  EXPECT_THAT(ParsePeerSocketRequest(empty.SerializeAsString()),
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  const auto refused = [](PeerFrame frame) {
    EXPECT_THAT(ParsePeerSocketRequest(EncodePeerSocket(PeerSocketRequest{1, std::move(frame)})),
                Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  };
  PeerFrame frame{{{Ready{TransferId(5)}}, {}}};
  refused(frame);  // without a number
  frame.first_event = 1;
  frame.hello.emplace();
  refused(frame);
  refused(PeerFrame{});  // without an event
  frame.hello.reset();
  frame.messages = {Go{TransferId(5), 1, Route::kUnspecified, 0, 0}};
  refused(frame);
}

TEST(PeerSocketCodec, ResponsesArriveAsTheyWereSent) {
  const auto welcome = ParsePeerSocketResponse(
      EncodePeerSocket(PeerSocketResponse{1, absl::OkStatus(), PeerSocketWelcome{}}));
  ASSERT_THAT(welcome, Is("OK"));
  EXPECT_EQ(welcome->sequence, 1u);
  EXPECT_THAT(welcome->error, Is("OK"));
  EXPECT_TRUE(std::holds_alternative<PeerSocketWelcome>(welcome->body));
  const auto lent = ParsePeerSocketResponse(EncodePeerSocket(
      PeerSocketResponse{2, absl::OkStatus(), ArenaLent{ArenaId(3), {MemoryKind::kMemfd, 4096}}}));
  ASSERT_THAT(lent, Is("OK"));
  EXPECT_EQ(std::get<ArenaLent>(lent->body).arena, ArenaId(3));
  EXPECT_EQ(std::get<ArenaLent>(lent->body).memory.bytes, 4096u);
  const auto unknown = ParsePeerSocketResponse(EncodePeerSocket(PeerSocketResponse{
      2, absl::OkStatus(), ArenaLent{ArenaId(3), {MemoryKind::kUnknown, 4096}}}));
  EXPECT_EQ(std::get<ArenaLent>(unknown->body).memory.kind, MemoryKind::kUnknown);
  const auto refused = ParsePeerSocketResponse(EncodePeerSocket(PeerSocketResponse{
      3, Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound, "not offered"),
      ArenaLent{ArenaId(3), {MemoryKind::kMemfd, 4096}}}));
  ASSERT_THAT(refused, Is("OK"));
  EXPECT_EQ(refused->sequence, 3u);
  EXPECT_THAT(refused->error, Is("NOT_FOUND/ARENA_NOT_FOUND", "not offered"));
  EXPECT_FALSE(std::holds_alternative<ArenaLent>(refused->body));
}

TEST(PeerSocketCodec, WhatIsNoResponseIsRefused) {
  EXPECT_THAT(ParsePeerSocketResponse(""), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  EXPECT_THAT(ParsePeerSocketResponse("\xff\xff\xff"), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
}

}  // namespace
}  // namespace ferry
