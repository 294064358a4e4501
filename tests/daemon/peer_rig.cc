// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/peer_rig.h"

#include "daemon/domain_tag.h"
#include "daemon/peer/peer_proof.h"

namespace ferry::testing {
namespace {

std::vector<PeerConfig> Nodes() {
  return {{"node-a", "10.0.0.1:7411", {GlobalDeviceId(1)}},
          {"node-b", "10.0.0.2:7411", {GlobalDeviceId(2)}},
          {"node-c", "10.0.0.3:7411", {GlobalDeviceId(3), GlobalDeviceId(4)}}};
}

}  // namespace

PeerRig::PeerRig(std::vector<uint32_t> trusted_uids, const std::string& secret, SessionUse quota,
                 absl::Duration visit_every) {
  SessionTable::Options session_options;
  session_options.node = "node-b";
  session_options.quota = quota;
  session_options.default_deadline = absl::Hours(1);
  sessions = std::make_unique<SessionTable>(control, devices.table, session_options, session_sink);

  DeviceMap map;
  map.self = kNodeB;
  const std::vector<PeerConfig> nodes = Nodes();
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    map.node_names.push_back(nodes[i].node);
    for (const GlobalDeviceId device : nodes[i].devices) map.owner[device] = PeerId(i);
  }
  PeerTable::Options options;
  options.node = "node-b";
  options.incarnation = Incarnation(42);
  options.peer_socket = "/b/peer.sock";
  options.trusted_uids = std::move(trusted_uids);
  options.secret = secret;
  options.ucx_missing = "no UCX in this test";
  options.visit_every = visit_every;
  peers = std::make_unique<PeerTable>(
      control, devices.table, *sessions, kNodeB, nodes, options,
      PeerTable::Hooks{
          [this](Door::ConnectionId connection, const PeerSocketRequest& request) {
            if (!requests_taken) return false;
            if (const auto* frame = std::get_if<PeerFrame>(&request.body)) {
              frames.push_back({connection, *frame});
            } else {
              requests.push_back({connection, request});
            }
            return true;
          },
          [this](Door::ConnectionId connection, const PeerSocketResponse& response,
                 const std::vector<int>& fds) {
            responses.push_back({connection, response, {}});
            for (const int fd : fds) {
              responses.back().fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 3));
            }
            return true;
          },
          [this](Door::ConnectionId connection) { closed.push_back(connection); },
          [this](Door::ConnectionId connection) { finished.push_back(connection); },
          [this](PeerId peer, const std::string& path) -> absl::StatusOr<Door::ConnectionId> {
            connects.emplace_back(peer, path);
            if (!connect_error.ok()) return connect_error;
            return 50 + connects.size();
          }});
  driver = std::make_unique<TransferDriver>(
      control, devices.table, *sessions, std::move(map), TransferEngine::Options{},
      TransferDriver::Hooks{
          [this](PeerId peer, std::vector<PeerMessage> messages, bool more) {
            peers->Send(peer, std::move(messages), more);
          },
          [this](PeerId peer) { peers->Want(peer); },
          [this](PeerId peer, ArenaId arena, GlobalDeviceId device) {
            peers->FetchArena(peer, arena, device);
          },
          [this](PeerId peer) { return peers->StillValid(peer); },
          [this](PeerId peer, bool ours) { return peers->PageWithSlots(peer, ours); }});
  peers->Connect(driver.get(), &dialer);
}

void PeerRig::Turn() {
  absl::Time next;
  do {
    control.RunAll();
    peers->OnTime(control.Now());
    next = driver->AfterTasks();
    devices.Settle();
  } while (control.RunAll() > 0 || next <= control.Now());
}

PeerHello PeerRig::HelloOf(PeerId peer) {
  const PeerConfig node = Nodes()[peer.value()];
  PeerHello hello;
  hello.node = node.node;
  hello.incarnation = Incarnation(1000 + peer.value());
  hello.boot_id = BootId();
  hello.uid = geteuid();
  hello.peer_socket = absl::StrCat("/", node.node, "/peer.sock");
  hello.nonce = std::string(kPeerNonceBytes, static_cast<char>('a' + peer.value()));
  for (const GlobalDeviceId device : node.devices) hello.devices.push_back({device, {}});
  return hello;
}

std::shared_ptr<StreamRecord> PeerRig::DialNodeC() {
  const size_t before = dialer.streams.size();
  EXPECT_THAT(peers->OnKnock("node-c"), Is("OK"));
  peers->OnTime(control.Now());
  EXPECT_EQ(dialer.streams.size(), before + 1);
  return dialer.streams.back();
}

std::shared_ptr<StreamRecord> PeerRig::ProveNodeC(const PeerIntroduction& introduction) {
  auto stream = DialNodeC();
  PeerFrame frame;
  frame.introduction = introduction;
  frame.proof = PeerProof(kSecret, PeerSide::kAcceptor, {OurIntroduction(*stream), introduction});
  stream->callbacks.on_frame(std::move(frame));
  return stream;
}

std::shared_ptr<StreamRecord> PeerRig::GreetNodeC(PeerHello hello) {
  auto stream = ProveNodeC(hello);
  stream->callbacks.on_frame({{}, std::move(hello)});
  return stream;
}

std::shared_ptr<StreamRecord> PeerRig::NodeCUp(PeerHello hello) {
  auto stream = GreetNodeC(std::move(hello));
  absl::StatusOr<std::unique_ptr<LinkPage>> page = LinkPage::Create();
  EXPECT_TRUE(page.ok());
  page_of_node_c = *std::move(page);
  Answer(kNodeC, absl::OkStatus(), PeerSocketWelcome{},
         UniqueFd(fcntl(page_of_node_c->memfd(), F_DUPFD_CLOEXEC, 3)));
  EXPECT_EQ(StateOf(kNodeC), "up");
  EXPECT_TRUE(RowOf(kNodeC).mapped);
  return stream;
}

std::shared_ptr<StreamRecord> PeerRig::NodeCUpElsewhere() {
  PeerHello hello = HelloOf(kNodeC);
  hello.boot_id = "another host";
  auto stream = GreetNodeC(std::move(hello));
  EXPECT_EQ(StateOf(kNodeC), "up");
  return stream;
}

PeerFrame PeerRig::ProofOfNodeA(const StreamRecord& stream, const PeerHello& hello,
                                const std::string& secret) {
  PeerFrame frame;
  frame.proof = PeerProof(secret, PeerSide::kDialler, {hello, OurIntroduction(stream)});
  frame.hello = hello;
  return frame;
}

std::shared_ptr<StreamRecord> PeerRig::AcceptNodeA(PeerHello hello) {
  auto stream = CallAsNodeA(hello);
  if (stream != nullptr) stream->callbacks.on_frame(ProofOfNodeA(*stream, hello));
  return stream;
}

std::shared_ptr<StreamRecord> PeerRig::CallAsNodeA(const PeerIntroduction& introduction) {
  std::shared_ptr<StreamRecord> stream;
  refused = absl::OkStatus();
  peers->OnAccepted(
      [&](PeerStreamCallbacks callbacks) {
        stream = std::make_shared<StreamRecord>();
        stream->callbacks = std::move(callbacks);
        return std::make_unique<FakeStream>(stream);
      },
      [&](absl::Status why) { refused = std::move(why); }, introduction);
  EXPECT_EQ(stream == nullptr, !refused.ok());
  return stream;
}

void PeerRig::Answer(PeerId peer, absl::Status error,
                     std::variant<PeerSocketWelcome, ArenaLent> body, UniqueFd fd) {
  ASSERT_FALSE(requests.empty());
  std::vector<UniqueFd> fds;
  if (fd.valid()) fds.push_back(std::move(fd));
  peers->OnSocketResponse(peer, requests.back().connection,
                          {requests.back().request.sequence, std::move(error), std::move(body)},
                          std::move(fds));
}

const SocketResponse& PeerRig::Ask(Door::ConnectionId connection,
                                   decltype(PeerSocketRequest::body) body, uint32_t uid) {
  const size_t before = responses.size();
  peers->OnSocketRequest(connection, {200, uid, uid}, {++asked_, std::move(body)});
  EXPECT_EQ(responses.size(), before + 1) << "one request, one answer";
  if (responses.empty()) responses.emplace_back();
  EXPECT_EQ(responses.back().connection, connection);
  EXPECT_EQ(responses.back().response.sequence, asked_);
  return responses.back();
}

PeerTable::Row PeerRig::RowOf(PeerId peer) const {
  for (const PeerTable::Row& row : peers->List()) {
    if (row.node == Nodes()[peer.value()].node) return row;
  }
  ADD_FAILURE() << "no row of " << peer;
  return {};
}

ArenaId PeerRig::Register(uint64_t bytes) {
  if (sessions->size() == 0) {
    sessions->OnConnected(kClient, kClientIs);
    sessions->OnCommand(kClient, kClientIs, {1, AttachHello{kClientProtocol, "client", "", ""}},
                        {});
  }
  std::vector<UniqueFd> fds;
  fds.push_back(SealedMemfd(bytes));
  sessions->OnCommand(
      kClient, kClientIs,
      {2, AttachRegisterArena{GlobalDeviceId(2), {MemoryKind::kMemfd, bytes}, false}},
      std::move(fds));
  devices.Settle();
  control.RunAll();
  return session().arenas().List().back()->id;
}

uint64_t PeerRig::PostReceive(ArenaId arena, uint64_t bytes, const std::string& key) {
  return Post(Side::kReceive, arena, bytes, key);
}
uint64_t PeerRig::PostSend(ArenaId arena, uint64_t bytes, const std::string& key) {
  return Post(Side::kSend, arena, bytes, key);
}

uint64_t PeerRig::Post(Side side, ArenaId arena, uint64_t bytes, const std::string& key) {
  const uint64_t first = PostMany(side, arena, bytes, {key});
  driver->AfterTasks();
  return first;
}

uint64_t PeerRig::PostMany(Side side, ArenaId arena, uint64_t bytes,
                           const std::vector<std::string>& keys, bool prepare) {
  PostBatch batch;
  batch.side = side;
  batch.domain = "test";
  batch.device = GlobalDeviceId(2);
  batch.prepare = prepare;
  for (const std::string& key : keys) {
    TransferSpec& spec = batch.specs.emplace_back();
    spec.side = side;
    spec.key = {"", GlobalDeviceId(2), GlobalDeviceId(3), key};
    if (side == Side::kReceive) std::swap(spec.key.source, spec.key.destination);
    spec.layout = {{arena, 0, bytes}};
    spec.bytes = bytes;
    spec.prepared = prepare;
  }
  batch.deadlines.resize(keys.size());
  const PostReply reply = driver->Post(session(), std::move(batch));
  EXPECT_THAT(reply.status, Is("OK"));
  return reply.first_transfer_id;
}

Offer PeerRig::OfferOfNodeC(uint64_t transfer, ArenaId arena, uint64_t bytes,
                            const std::string& key) {
  Offer offer;
  offer.transfer = TransferId(transfer);
  offer.key = {TagOfName("", "test"), GlobalDeviceId(3), GlobalDeviceId(2), key};
  offer.bytes = bytes;
  offer.layout = {{arena, 0, bytes}};
  return offer;
}

}  // namespace ferry::testing
