// SPDX-License-Identifier: Apache-2.0
// Another user of the node hands the daemon descriptors that make who uses or closes them wait.
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "tests/support/fixtures.h"
#include "tests/support/lingering.h"
#include "tests/support/other_user.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

class HostileDescriptorsTest : public ClusterTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
    // Few, so that who takes them all can do so soon.
    Start({.nodes = 1, .launchers = {{"/usr/bin/prlimit", "--nofile=1024:1024"}}});
    chmod(nodes().directory().path().c_str(), 0755);
  }
  void TearDown() override {
    if (cluster_ == nullptr) return;
    ExpectServed("after");
    node(0).Stop();  // with all of it still waiting to be closed
    lingering_.clear();
    ClusterTest::TearDown();
  }
  // Somebody else attaches, and is served by both lanes.
  void ExpectServed(const std::string& key) {
    End source = OpenEnd(0, 4096), destination = OpenEnd(0, 4096, 1);
    ExpectTransfer(source, destination, key);
  }
  // Sends some, `times` in turn, of which the daemon then has the only copies.
  bool SendLingering(RawSocket& socket, const std::string& bytes, size_t count = 1, int times = 1) {
    node(0).Signal(SIGSTOP);  // it must not close its copies before ours are
    bool sent = true;
    while (sent && times-- > 0) {
      std::deque<Lingering> these(count);
      std::vector<int> fds;
      for (const Lingering& one : these) fds.push_back(one.fd.get());
      sent = socket.Send(bytes, fds);
      for (Lingering& one : these) {
        if (!sent) one.reader.Reset();  // ours are the only copies
        one.fd.Reset();
        lingering_.push_back(std::move(one));
      }
    }
    node(0).Signal(SIGCONT);
    return sent;
  }
  // What the daemon says to a request that some of them come with.
  std::string Ask(RawSocket& socket, v1::AttachRequest request, size_t count = 1) {
    request.set_sequence(77);
    EXPECT_TRUE(SendLingering(socket, request.SerializeAsString(), count));
    v1::AttachResponse response;
    const std::optional<RawSocket::Packet> packet = socket.Receive();
    if (packet.has_value()) response.ParseFromString(packet->bytes);
    return NameOf(response.error());
  }
  std::unique_ptr<RawSocket> ConnectAsOther() {
    std::unique_ptr<RawSocket> socket;
    AsUser(kHostileUser, [&] {
      socket = std::make_unique<RawSocket>(client_dir() + "/attach.sock", SOCK_SEQPACKET);
    });
    return socket;
  }
  std::string client_dir() { return node(0).client_dir(); }
  std::deque<Lingering> lingering_;
};

// Armed on the lanes of both devices, whose doorbell the client has filled and made to block.
TEST_F(HostileDescriptorsTest, ADoorbellThatIsFullAndBlocks) {
  AsUser(kHostileUser, [&] {
    RawSession rogue(client_dir());
    ASSERT_TRUE(rogue.Hello().has_welcome());
    const int doorbell = rogue.fds()[1].get();
    ASSERT_EQ(fcntl(doorbell, F_SETFL, 0), 0);
    ASSERT_EQ(eventfd_write(doorbell, UINT64_MAX - 1), 0);
    const UniqueFd kept(dup(doorbell));
    const uint64_t arenas[] = {rogue.MakeArena(0, 4096), rogue.MakeArena(1, 4096)};
    v1::AttachRequest send, receive;
    const auto fill = [&](auto* request, uint64_t device) {
      request->set_prepare(true);
      request->set_device_id(device);
      v1::BufferRange* range = request->add_buffers()->add_ranges();
      range->set_arena_id(arenas[device]);
      range->set_length(8);
      request->add_transfer_keys("k");
    };
    fill(send.mutable_send(), 0);
    send.mutable_send()->add_dst_global_device_ids(1);
    fill(receive.mutable_receive(), 1);
    receive.mutable_receive()->add_src_global_device_ids(0);
    EXPECT_TRUE(rogue.Ask(send).has_send());
    EXPECT_TRUE(rogue.Ask(receive).has_receive());
    EXPECT_TRUE(Await([&] { return node(0).admin().Count("armed") == 2; }));
    ExpectServed("meanwhile");
  });
}

TEST_F(HostileDescriptorsTest, BesidePacketsThatTakeNone) {
  for (const char* bytes : {"garbage", ""}) {
    const std::unique_ptr<RawSocket> socket = ConnectAsOther();
    EXPECT_TRUE(SendLingering(*socket, bytes));
    EXPECT_TRUE(socket->AwaitClosed());
    ExpectServed(absl::StrCat("after ", bytes));
  }
}

TEST_F(HostileDescriptorsTest, AsTheMemoryOfAnArena) {
  std::optional<RawSession> rogue;
  AsUser(kHostileUser, [&] {
    rogue.emplace(client_dir());
    ASSERT_TRUE(rogue->Hello().has_welcome());
  });
  for (const size_t count : {1, 2, 8}) {
    for (const uint64_t device : {0, 1}) {
      v1::AttachRequest request;
      request.mutable_register_arena()->set_device_id(device);
      request.mutable_register_arena()->set_bytes(4096);
      EXPECT_EQ(Ask(rogue->socket(), request, count), "INVALID_ARGUMENT/FIELD_INVALID");
    }
  }
  End source = OpenEnd(0, 4096), destination = OpenEnd(0, 4096, 1);
  ExpectTransfer(source, destination, "meanwhile");
}

TEST_F(HostileDescriptorsTest, AsTheTimelinesOfASession) {
  uint64_t incarnation = 0;
  AsUser(kHostileUser, [&] {
    RawSession known(client_dir());
    incarnation = known.Hello().welcome().incarnation();
  });
  for (const uint64_t of : {incarnation, incarnation + 1}) {
    v1::AttachRequest request;
    v1::Hello* hello = request.mutable_hello();
    hello->set_protocol_min(2);
    hello->set_protocol_max(2);
    hello->set_name("raw");
    hello->mutable_resume()->set_next_transfer_id(1);
    hello->mutable_resume()->set_incarnation(of);
    EXPECT_EQ(Ask(*ConnectAsOther(), request), "INVALID_ARGUMENT/FIELD_INVALID");
    ExpectServed(absl::StrCat("after ", of));
  }
}

// What is in the queue of a connection when the daemon closes it goes with the connection.
TEST_F(HostileDescriptorsTest, InTheQueueOfAConnectionThatIsClosed) {
  const std::unique_ptr<RawSocket> socket = ConnectAsOther();
  EXPECT_TRUE(SendLingering(*socket, "garbage", 1, 8));
  EXPECT_TRUE(socket->AwaitClosed());
  ExpectServed("meanwhile");
}

// While it lingers, everything else of theirs is closed too, and nobody needs a descriptor for it.
TEST_F(HostileDescriptorsTest, InConnectionsThatComeAndGoAllTheTime) {
  const size_t before = node(0).process().OpenFds();
  for (int i = 0; i < 8; ++i) {
    const std::unique_ptr<RawSocket> socket = ConnectAsOther();
    EXPECT_TRUE(SendLingering(*socket, "garbage", 1, 4));
    EXPECT_TRUE(socket->AwaitClosed());
  }
  size_t most = 0;
  for (int i = 0; i < 40; ++i) {
    AsUser(kHostileUser, [&] {
      for (int k = 0; k < 50; ++k) RawSocket(client_dir() + "/attach.sock", SOCK_SEQPACKET);
    });
    most = std::max(most, node(0).process().OpenFds());
  }
  EXPECT_LT(most, 512 + before);
  EXPECT_TRUE(Await([&] { return node(0).process().OpenFds() <= before + 8; }));
}

// The kernel refuses them where none are to come.
TEST_F(HostileDescriptorsTest, WhereNoneAreToCome) {
  int off = 0;
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  constexpr int kPassRights = 83;
  if (setsockopt(probe.get(), SOL_SOCKET, kPassRights, &off, sizeof(off)) != 0) {
    GTEST_SKIP() << "this kernel is older than SO_PASSRIGHTS (Linux 6.16)";
  }
  const std::string directory = node(0).runtime_dir();
  for (const char* name : {"/client/client.sock", "/admin/admin.sock", "/admin/metrics.sock"}) {
    RawSocket socket(directory + name, SOCK_STREAM);
    EXPECT_FALSE(SendLingering(socket, "x")) << name;
    EXPECT_TRUE(socket.Send("x")) << name;
  }
  RawSocket peer(directory + "/peer/peer.sock", SOCK_SEQPACKET);
  EXPECT_FALSE(SendLingering(peer, "x"));
}

}  // namespace
}  // namespace ferry::testing
