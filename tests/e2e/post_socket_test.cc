// SPDX-License-Identifier: Apache-2.0
// Posts over attach.sock get what posts by gRPC get: the same checks, the same answers, one memory
// of request ids; and what only a socket can do wrong harms only who does it.
#include <google/protobuf/util/message_differencer.h>
#include <sys/socket.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/admin.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

v1::CrossHostSendRequest Sends(int count) {
  v1::CrossHostSendRequest request;
  for (int i = 0; i < count; ++i) {
    request.add_buffers();
    request.add_dst_global_device_ids(2);
    request.add_transfer_keys(absl::StrCat("k", i));
  }
  return request;
}

class PostSocketTest : public ClusterTest {
 protected:
  void SetUp() override {
    Start();
    raw_ = std::make_unique<RawSession>(node(0).client_dir());
    ASSERT_TRUE(raw_->Hello().has_welcome());
  }
  void TearDown() override {
    raw_.reset();
    ClusterTest::TearDown();
  }
  // What gRPC says to it: an error with its details, or the ids.
  grpc::Status ByGrpc(const v1::CrossHostSendRequest& request,
                      v1::CrossHostSendResponse* response) {
    grpc::ClientContext context;
    context.AddMetadata("ferry-session-bin", raw_->token());
    context.set_wait_for_ready(true);
    SetDeadline(context);
    return raw_->transfers().CrossHostSend(&context, request, response);
  }
  void ExpectSameRefusal(const v1::CrossHostSendRequest& request, const std::string& name) {
    const v1::AttachResponse over_socket = raw_->Send(request);
    EXPECT_EQ(NameOf(over_socket.error()), name);
    v1::CrossHostSendResponse response;
    google::rpc::Status by_grpc;
    ASSERT_TRUE(by_grpc.ParseFromString(ByGrpc(request, &response).error_details()));
    EXPECT_TRUE(MessageDifferencer::Equals(over_socket.error(), by_grpc))
        << over_socket.error().DebugString() << by_grpc.DebugString();
  }
  std::unique_ptr<RawSession> raw_;
};

TEST_F(PostSocketTest, BadBatchesAreRefusedAsByGrpc) {
  ExpectSameRefusal(Sends(4097), "INVALID_ARGUMENT/BATCH_TOO_LARGE");
  v1::CrossHostSendRequest bad = Sends(100);
  for (int i = 0; i < 100; i += 3) bad.set_transfer_keys(i, std::string(65, 'k'));
  ExpectSameRefusal(bad, "INVALID_ARGUMENT/FIELD_INVALID");
  bad = Sends(3);
  v1::BufferRange* const nowhere = bad.mutable_buffers(1)->add_ranges();
  nowhere->set_arena_id(987'654);
  nowhere->set_length(1);
  ExpectSameRefusal(bad, "NOT_FOUND/ARENA_NOT_FOUND");
  bad = Sends(2);
  bad.set_dst_global_device_ids(1, 1234);
  ExpectSameRefusal(bad, "NOT_FOUND/DEVICE_UNKNOWN");
  bad = Sends(2);
  bad.add_transfer_keys("one too many");
  ExpectSameRefusal(bad, "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), 0u);  // all or nothing
}

TEST_F(PostSocketTest, ARequestIdIsOneWhicheverWayItComes) {
  v1::CrossHostSendRequest request = Sends(2);
  request.set_request_id("once");
  const v1::AttachResponse first = raw_->Send(request);
  ASSERT_FALSE(first.has_error()) << first.DebugString();
  v1::CrossHostSendResponse again;
  ASSERT_TRUE(ByGrpc(request, &again).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(first.send(), again));
  EXPECT_TRUE(MessageDifferencer::Equals(raw_->Send(request).send(), again));
  EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), 2u);
  request.set_transfer_keys(1, "other");
  ExpectSameRefusal(request, "ALREADY_EXISTS/REQUEST_ID_REUSED");
  const v1::AttachResponse next = raw_->Send([] {
    v1::CrossHostSendRequest more = Sends(1);
    more.set_transfer_keys(0, "more");
    return more;
  }());
  EXPECT_EQ(next.send().first_transfer_id(), again.first_transfer_id() + 2);
  EXPECT_EQ(next.send().first_over_value(), again.first_over_value() + 2);
}

TEST_F(PostSocketTest, ADrainingDaemonRefusesAsByGrpc) {
  ASSERT_FALSE(raw_->Send(Sends(1)).has_error());  // keeps the daemon from leaving at once
  node(0).Signal(SIGTERM);
  ASSERT_TRUE(Await([&] { return node(0).admin().Status().draining(); }));
  v1::CrossHostSendRequest request = Sends(1);
  request.set_transfer_keys(0, "new");
  ExpectSameRefusal(request, "UNAVAILABLE/DRAINING");
  node(0).Signal(SIGTERM);
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
}

TEST_F(PostSocketTest, ACutPostEndsItsSessionAndPostsNothing) {
  v1::AttachRequest request;
  request.set_sequence(100);
  *request.mutable_send() = Sends(10);
  std::string packet = request.SerializeAsString();
  packet.resize(packet.size() / 2);
  ASSERT_TRUE(raw_->socket().Send(packet));
  std::optional<RawSocket::Packet> answer = raw_->socket().Receive();
  ASSERT_TRUE(answer.has_value() && !answer->bytes.empty());
  v1::AttachResponse response;
  ASSERT_TRUE(response.ParseFromString(answer->bytes));
  EXPECT_EQ(NameOf(response.error()), "INVALID_ARGUMENT/PROTOCOL_ERROR");
  EXPECT_TRUE(raw_->socket().AwaitClosed());
  EXPECT_TRUE(node(0).AwaitIdle());
}

TEST_F(PostSocketTest, APostThatIsTooLongEndsItsSession) {
  const int large = 1 << 20;
  setsockopt(raw_->socket().fd(), SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
  v1::CrossHostSendRequest request = Sends(1);
  request.set_domain(std::string(128 * 1024, 'd'));
  const v1::AttachResponse response = raw_->Send(request);
  EXPECT_EQ(NameOf(response.error()), "INVALID_ARGUMENT/PROTOCOL_ERROR");
  EXPECT_THAT(response.error().message(), HasSubstr("131072"));
  EXPECT_TRUE(raw_->socket().AwaitClosed());
  EXPECT_TRUE(node(0).AwaitIdle());
}

// Its long refusals fill every buffer; the others do not feel it, and it gets all in the end.
TEST_F(PostSocketTest, WhoDoesNotReadHoldsNobodyUp) {
  constexpr uint64_t kPosts = 1000;
  v1::AttachRequest request;
  *request.mutable_send() = Sends(50);
  for (std::string& key : *request.mutable_send()->mutable_transfer_keys()) key.clear();
  std::thread poster([&] {
    for (uint64_t i = 1; i <= kPosts; ++i) {
      request.set_sequence(1000 + i);
      ASSERT_TRUE(raw_->socket().Send(request.SerializeAsString()));
    }
  });
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  for (int i = 0; i < 10; ++i) ExpectTransfer(source, destination, absl::StrCat("beside ", i));
  for (uint64_t i = 1; i <= kPosts; ++i) {
    std::optional<RawSocket::Packet> packet = raw_->socket().Receive();
    ASSERT_TRUE(packet.has_value() && !packet->bytes.empty()) << i;
    v1::AttachResponse response;
    ASSERT_TRUE(response.ParseFromString(packet->bytes));
    ASSERT_EQ(response.sequence(), 1000 + i);
    ASSERT_EQ(NameOf(response.error()), "INVALID_ARGUMENT/FIELD_INVALID");
  }
  poster.join();
}

TEST_F(PostSocketTest, RefusedBatchesAreCountedByWhateverWayTheyCome) {
  size_t refused = 0;
  for (const bool by_call : {false, true}) {
    Session session = nodes().Open(0, "refused");
    const uint64_t device = session.devices()[0].global_device_id;
    Arena arena = Must(session.CreateArena(device, 4096));
    EXPECT_THAT(session.Send(77, {Transfer(device, "k", RangesOf(arena, by_call))}),
                Is("NOT_FOUND/DEVICE_UNKNOWN"));
    const std::string page = HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics");
    EXPECT_THAT(
        page, HasSubstr(absl::StrCat("\nferry_requests_rejected_total{reason=\"DEVICE_UNKNOWN\"} ",
                                     ++refused, "\n")))
        << by_call;
  }
}

}  // namespace
}  // namespace ferry::testing
