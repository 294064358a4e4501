// SPDX-License-Identifier: Apache-2.0
// What strange behaviour on the sockets gets: garbage, wrong descriptors, stolen tokens, oversized
// messages. The daemon closes the connection, keeps nothing, and serves the others.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "ferry/peer/v1/peer_socket.pb.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

class BadSocketTest : public ClusterTest {
 protected:
  void SetUp() override {
    Start();
    // Everybody has met once: what stays open from here on is a leak.
    End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
    ExpectTransfer(source, destination, "warm up");
    source = End();
    destination = End();
    ASSERT_TRUE(node(0).AwaitIdle());
    ASSERT_TRUE(AwaitSteady(&fds_, &mappings_));
  }
  void TearDown() override {
    ASSERT_TRUE(node(0).AwaitIdle());
    EXPECT_TRUE(Await([&] {
      return node(0).process().OpenFds() <= fds_ && node(0).process().MemfdMappings() <= mappings_;
    })) << node(0).process().OpenFds()
        << " descriptors, before " << fds_ << "; " << node(0).process().MemfdMappings()
        << " memfds mapped, before " << mappings_;
    End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
    ExpectTransfer(source, destination, "after");
    source = End();
    destination = End();
    ClusterTest::TearDown();
  }
  // What a departed session held is gone: two looks, one call apart, say the same.
  bool AwaitSteady(size_t* fds, size_t* mappings) {
    *fds = *mappings = 0;
    return Await([&] {
      const size_t f = node(0).process().OpenFds(), m = node(0).process().MemfdMappings();
      node(0).admin().Status();
      const bool same = f == *fds && m == *mappings;
      *fds = f;
      *mappings = m;
      return same;
    });
  }
  std::string attach() { return node(0).client_dir() + "/attach.sock"; }
  std::string peer() { return node(0).runtime_dir() + "/peer/peer.sock"; }
  size_t fds_ = 0;
  size_t mappings_ = 0;
};

TEST_F(BadSocketTest, GarbageOnAttachSocket) {
  const std::string garbage[] = {"x", std::string(1000, '\xff'), std::string(128 * 1024, 'a'),
                                 v1::AttachRequest().SerializeAsString() + "\x08\x01"};
  for (const std::string& packet : garbage) {
    RawSocket socket(attach(), SOCK_SEQPACKET);
    ASSERT_TRUE(socket.connected());
    ASSERT_TRUE(socket.Send(packet));
    std::optional<RawSocket::Packet> answer = socket.Receive();
    ASSERT_TRUE(answer.has_value() && !answer->bytes.empty());
    v1::AttachResponse response;
    ASSERT_TRUE(response.ParseFromString(answer->bytes));
    EXPECT_EQ(NameOf(response.error()), "INVALID_ARGUMENT/PROTOCOL_ERROR");
    EXPECT_TRUE(socket.AwaitClosed());
  }
}

TEST_F(BadSocketTest, APacketThatIsTooLong) {
  RawSocket socket(attach(), SOCK_SEQPACKET);
  const int large = 1 << 20;
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
  v1::AttachRequest request;
  request.set_sequence(1);
  request.mutable_hello()->set_name(std::string(129 * 1024, 'n'));
  ASSERT_TRUE(socket.Send(request.SerializeAsString()));
  std::optional<RawSocket::Packet> answer = socket.Receive();
  ASSERT_TRUE(answer.has_value() && !answer->bytes.empty());
  v1::AttachResponse response;
  ASSERT_TRUE(response.ParseFromString(answer->bytes));
  EXPECT_EQ(NameOf(response.error()), "INVALID_ARGUMENT/PROTOCOL_ERROR");
  EXPECT_THAT(response.error().message(), HasSubstr("131072"));
  EXPECT_TRUE(socket.AwaitClosed());
}

TEST_F(BadSocketTest, RequestsBeforeHelloAndHelloTwice) {
  RawSession early(node(0).client_dir());
  const v1::AttachResponse refused = early.Release(1);
  EXPECT_EQ(NameOf(refused.error()), "FAILED_PRECONDITION/PROTOCOL_ERROR");
  EXPECT_TRUE(early.socket().AwaitClosed());
  RawSession twice(node(0).client_dir());
  ASSERT_TRUE(twice.Hello().has_welcome());
  EXPECT_EQ(NameOf(twice.Hello().error()), "FAILED_PRECONDITION/PROTOCOL_ERROR");
  EXPECT_TRUE(twice.socket().AwaitClosed());
}

TEST_F(BadSocketTest, HelloThatIsRefused) {
  const auto hello = [&](uint32_t low, uint32_t high, const std::string& name) {
    RawSession session(node(0).client_dir());
    v1::AttachRequest request;
    request.mutable_hello()->set_protocol_min(low);
    request.mutable_hello()->set_protocol_max(high);
    request.mutable_hello()->set_name(name);
    const std::string answer = NameOf(session.Ask(std::move(request)).error());
    EXPECT_TRUE(session.socket().AwaitClosed());
    return answer;
  };
  EXPECT_EQ(hello(3, 9, "new"), "FAILED_PRECONDITION/PROTOCOL_VERSION");
  EXPECT_EQ(hello(1, 1, "old"), "FAILED_PRECONDITION/PROTOCOL_VERSION");
  EXPECT_EQ(hello(0, 0, "none"), "FAILED_PRECONDITION/PROTOCOL_VERSION");
  EXPECT_EQ(hello(2, 2, ""), "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(hello(2, 2, "with space"), "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(hello(2, 2, std::string(64, 'n')), "INVALID_ARGUMENT/FIELD_INVALID");
}

TEST_F(BadSocketTest, ASecondAttachWithTheSameToken) {
  RawSession first(node(0).client_dir());
  ASSERT_TRUE(first.Hello().has_welcome());
  RawSession second(node(0).client_dir());
  EXPECT_EQ(NameOf(second.Hello(first.token()).error()), "ALREADY_EXISTS/SESSION_IN_USE");
  RawSession third(node(0).client_dir());
  EXPECT_EQ(NameOf(third.Hello(std::string(32, 't')).error()), "UNAUTHENTICATED/SESSION_INVALID");
  // The first one is not disturbed.
  EXPECT_NE(first.MakeArena(0, 4096), 0u);
}

TEST_F(BadSocketTest, ATokenCountsOnlyFromItsOwnProcess) {
  RawSession session(node(0).client_dir());
  ASSERT_TRUE(session.Hello().has_welcome());
  v1::GetSessionResponse response;
  const auto get = [&](const std::string* token) {
    return session.Call([&](auto* c) { return session.sessions().GetSession(c, {}, &response); },
                        token);
  };
  EXPECT_THAT(get(nullptr), IsOk());
  const std::string none, wrong(32, 'x');
  EXPECT_THAT(get(&none), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(get(&wrong), Is("UNAUTHENTICATED/SESSION_INVALID"));
  // Another process with the right token. It is a fresh program, since gRPC does not survive fork.
  TemporaryDirectory directory;
  WriteFile(directory / "token", session.token());
  const Finished thief =
      RunProgram({TokenThiefProgram(), node(0).client_dir(), directory / "token"});
  EXPECT_EQ(thief.status, 0) << thief.output;
  EXPECT_THAT(thief.output, HasSubstr("UNAUTHENTICATED/SESSION_INVALID"));
  // A second connection of the right process.
  RawSession shadow(node(0).client_dir());
  EXPECT_THAT(shadow.Call([&](auto* c) { return shadow.sessions().GetSession(c, {}, &response); },
                          &session.token()),
              Is("PERMISSION_DENIED/NOT_ALLOWED"));
  EXPECT_THAT(get(nullptr), IsOk());
}

TEST_F(BadSocketTest, MemoryThatIsNotToBeTrusted) {
  RawSession session(node(0).client_dir());
  ASSERT_TRUE(session.Hello().has_welcome());
  const size_t fds = node(0).process().OpenFds();
  const auto refusal = [&](const UniqueFd& fd, uint64_t bytes) {
    return NameOf(session.Register(0, bytes, {fd.get()}).error());
  };
  const std::string unsealed = "INVALID_ARGUMENT/MEMFD_UNSEALED",
                    invalid = "INVALID_ARGUMENT/FIELD_INVALID";
  EXPECT_EQ(refusal(MakeMemfd(4096, 0), 4096), unsealed);
  EXPECT_EQ(refusal(MakeMemfd(4096, F_SEAL_SHRINK), 4096), unsealed);
  EXPECT_EQ(refusal(MakeMemfd(4096, F_SEAL_SHRINK | F_SEAL_GROW), 4096), unsealed);
  EXPECT_EQ(refusal(MakeMemfd(4096, ArenaSeals()), 4097), invalid);
  EXPECT_EQ(refusal(MakeMemfd(4096, ArenaSeals()), 0), invalid);
  EXPECT_EQ(refusal(UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC)), 4096), invalid);
  EXPECT_EQ(refusal(UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 4096), invalid);
  // No descriptor, or one too many.
  EXPECT_EQ(NameOf(session.Register(0, 4096, {}).error()), invalid);
  const UniqueFd good = MakeMemfd(4096, ArenaSeals());
  EXPECT_EQ(NameOf(session.Register(0, 4096, {good.get(), good.get()}).error()), invalid);
  EXPECT_EQ(NameOf(session.Register(77, 4096, {good.get()}).error()), "NOT_FOUND/DEVICE_UNKNOWN");
  // Sealed against writing it cannot be a destination; whatever the answer, nothing stays behind.
  session.Register(0, 4096, {MakeMemfd(4096, ArenaSeals() | F_SEAL_WRITE).get()});
  EXPECT_TRUE(Await([&] { return node(0).process().OpenFds() <= fds; }));
  EXPECT_NE(session.MakeArena(0, 4096), 0u);
  // 251 descriptors are more than a packet may have: the connection ends.
  EXPECT_EQ(NameOf(session.Register(0, 4096, std::vector<int>(251, good.get())).error()),
            "INVALID_ARGUMENT/PROTOCOL_ERROR");
  EXPECT_TRUE(session.socket().AwaitClosed());
}

// Descriptors beside what needs none are closed.
TEST_F(BadSocketTest, UnaskedDescriptors) {
  RawSession session(node(0).client_dir());
  ASSERT_TRUE(session.Hello().has_welcome());
  const UniqueFd memfd = MakeMemfd(4096, ArenaSeals());
  const size_t fds = node(0).process().OpenFds();
  for (int i = 0; i < 20; ++i) {
    v1::AttachRequest request;
    request.mutable_reset_timeline()->set_timeline(0);
    EXPECT_FALSE(session.Ask(std::move(request), {memfd.get(), memfd.get()}).has_error());
  }
  EXPECT_TRUE(Await([&] { return node(0).process().OpenFds() <= fds; }));
}

TEST_F(BadSocketTest, OversizedCalls) {
  RawSession session(node(0).client_dir());
  ASSERT_TRUE(session.Hello().has_welcome());
  v1::CrossHostSendRequest request;
  request.set_domain(std::string((1 << 20) + 1024, 'd'));
  v1::CrossHostSendResponse response;
  const auto send = [&] {
    return session.Call(
        [&](auto* c) { return session.transfers().CrossHostSend(c, request, &response); });
  };
  EXPECT_THAT(send(), Is("INVALID_ARGUMENT/BATCH_TOO_LARGE"));
  request.set_domain(std::string(5 << 20, 'd'));  // not even read
  EXPECT_EQ(send().code(), absl::StatusCode::kResourceExhausted);
  v1::GetTransfersRequest many;
  for (int i = 0; i < 4097; ++i) many.add_transfer_ids(1);
  v1::GetTransfersResponse got;
  EXPECT_THAT(
      session.Call([&](auto* c) { return session.transfers().GetTransfers(c, many, &got); }),
      Is("INVALID_ARGUMENT/BATCH_TOO_LARGE"));
}

TEST_F(BadSocketTest, GarbageOnPeerSocket) {
  for (const std::string& packet : {std::string("x"), std::string(100'000, '\xff')}) {
    RawSocket socket(peer(), SOCK_SEQPACKET);
    ASSERT_TRUE(socket.connected());
    ASSERT_TRUE(socket.Send(packet));
    EXPECT_TRUE(socket.AwaitClosed());
  }
}

// Without the secret of a link nobody gets an arena.
TEST_F(BadSocketTest, StrangersOnPeerSocket) {
  End held = OpenEnd(0, 4096);
  {
    RawSocket socket(peer(), SOCK_SEQPACKET);
    peer::v1::PeerSocketRequest request;
    request.set_sequence(1);
    request.mutable_get_arena()->set_arena_id(held.arena.id());
    ASSERT_TRUE(socket.Send(request.SerializeAsString()));
    std::optional<RawSocket::Packet> answer = socket.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_TRUE(answer->fds.empty());
    EXPECT_TRUE(socket.AwaitClosed());
  }
  for (const std::string& secret : {std::string(), std::string(16, 's')}) {
    RawSocket socket(peer(), SOCK_SEQPACKET);
    peer::v1::PeerSocketRequest request;
    request.set_sequence(1);
    request.mutable_hello()->set_node("node-b");
    request.mutable_hello()->set_link_secret(secret);
    ASSERT_TRUE(socket.Send(request.SerializeAsString()));
    std::optional<RawSocket::Packet> answer = socket.Receive();
    ASSERT_TRUE(answer.has_value() && !answer->bytes.empty());
    peer::v1::PeerSocketResponse response;
    ASSERT_TRUE(response.ParseFromString(answer->bytes));
    EXPECT_EQ(NameOf(response.error()), "PERMISSION_DENIED/NOT_ALLOWED");
    EXPECT_TRUE(answer->fds.empty());
    EXPECT_TRUE(socket.AwaitClosed());
  }
}

// Bytes that are no HTTP/2 at all, on every stream socket.
TEST_F(BadSocketTest, GarbageOnGrpcSockets) {
  for (const char* name : {"/client/client.sock", "/admin/admin.sock", "/admin/metrics.sock"}) {
    RawSocket socket(node(0).runtime_dir() + name, SOCK_STREAM);
    ASSERT_TRUE(socket.connected()) << name;
    socket.Send(std::string(20'000, 'g') + "\r\n\r\n");
    EXPECT_TRUE(socket.AwaitClosed()) << name;
  }
}

TEST_F(BadSocketTest, ConnectionsThatSayNothingCostNothing) {
  std::vector<std::unique_ptr<RawSocket>> silent;
  for (int i = 0; i < 50; ++i)
    silent.push_back(std::make_unique<RawSocket>(attach(), SOCK_SEQPACKET));
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "beside them");
  silent.clear();
}

}  // namespace
}  // namespace ferry::testing
