// SPDX-License-Identifier: Apache-2.0
// A PeerTable of node-b in a cluster of node-a, node-b and node-c. It knocks at node-a and dials
// node-c; the test plays both. The table, the sessions and the transfer driver are real; streams,
// sockets and the clock are the test's.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "daemon/peer_table.h"
#include "tests/daemon/session_sink.h"
#include "tests/daemon/support.h"

namespace ferry::testing {

inline constexpr PeerId kNodeA{0}, kNodeB{1}, kNodeC{2};
inline constexpr Door::ConnectionId kClient = 1;  // connection of the one session
inline constexpr Credentials kClientIs{100, 1000, 1000};

// The status of a connection that was cut.
inline const absl::Status kReset =
    Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "reset");

inline std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// What the table has done with one stream; outlives the stream.
struct StreamRecord {
  PeerStreamCallbacks callbacks;
  std::vector<PeerFrame> sent;
  uint64_t heard = 0;  // events that the other end has said here
  size_t waiting = 0;
  std::optional<absl::Status> closed;
  bool alive = true;
  std::function<void()> at_close;
};

class FakeStream : public PeerStream {
 public:
  explicit FakeStream(std::shared_ptr<StreamRecord> record) : record_(std::move(record)) {}
  ~FakeStream() override { record_->alive = false; }
  void Send(PeerFrame frame) override { record_->sent.push_back(std::move(frame)); }
  size_t waiting() const override { return record_->waiting; }
  void Close(const absl::Status& why) override {
    record_->closed = why;
    if (record_->at_close) record_->at_close();
  }

 private:
  const std::shared_ptr<StreamRecord> record_;
};

struct KnockRecord {
  std::string address, node;
  std::function<void(absl::Status)> done;
};

class FakeDialer : public PeerDialer {
 public:
  std::unique_ptr<PeerStream> Dial(const std::string& address,
                                   PeerStreamCallbacks callbacks) override {
    dialled.push_back(address);
    streams.push_back(std::make_shared<StreamRecord>());
    streams.back()->callbacks = std::move(callbacks);
    return std::make_unique<FakeStream>(streams.back());
  }
  void Knock(const std::string& address, const std::string& node,
             std::function<void(absl::Status)> done) override {
    knocks.push_back({address, node, std::move(done)});
  }
  std::vector<std::string> dialled;
  std::vector<std::shared_ptr<StreamRecord>> streams;
  std::vector<KnockRecord> knocks;
};

struct SocketRequest {
  Door::ConnectionId connection = 0;
  PeerSocketRequest request;
};
struct SocketFrame {
  Door::ConnectionId connection = 0;
  PeerFrame frame;
};
struct SocketResponse {
  Door::ConnectionId connection = 0;
  PeerSocketResponse response;
  std::vector<UniqueFd> fds;
};

class PeerRig {
 public:
  // The cluster's secret, unless the test gives another one or none.
  static constexpr char kSecret[] = "the secret of the rig";
  explicit PeerRig(std::vector<uint32_t> trusted_uids = {}, const std::string& secret = kSecret,
                   SessionUse quota = {1 << 20, 16, 1000, 4096},
                   absl::Duration visit_every = absl::InfiniteDuration());

  // Runs tasks and AfterTasks as control does, until there is nothing left to do.
  void Turn();
  void Advance(absl::Duration by) {
    control.Advance(by);
    Turn();
  }

  // --- The other daemons.
  static PeerHello HelloOf(PeerId peer);
  // Three steps of node-c, each of which begins with those before it: it is dialled, it proves who
  // it is, it says its hello.
  std::shared_ptr<StreamRecord> DialNodeC();
  std::shared_ptr<StreamRecord> ProveNodeC(const PeerIntroduction& introduction = HelloOf(kNodeC));
  std::shared_ptr<StreamRecord> GreetNodeC(PeerHello hello = HelloOf(kNodeC));
  // As GreetNodeC, until the link is up: with mapped arenas, or, Elsewhere, without, as on another
  // host.
  std::shared_ptr<StreamRecord> NodeCUp(PeerHello hello = HelloOf(kNodeC));
  std::shared_ptr<StreamRecord> NodeCUpElsewhere();
  // CallAsNodeA: node-a opens a stream and introduces itself; null if it is refused. AcceptNodeA:
  // then node-a proves who it is and says its hello.
  std::shared_ptr<StreamRecord> CallAsNodeA(const PeerIntroduction& introduction);
  std::shared_ptr<StreamRecord> AcceptNodeA(PeerHello hello = HelloOf(kNodeA));
  static PeerFrame ProofOfNodeA(const StreamRecord& stream, const PeerHello& hello,
                                const std::string& secret = kSecret);
  // What node-b said of itself on that stream.
  static const PeerIntroduction& OurIntroduction(const StreamRecord& stream) {
    return *stream.sent.at(0).introduction;
  }
  void Hear(const std::shared_ptr<StreamRecord>& stream, std::vector<PeerMessage> messages,
            std::vector<ArenaId> arenas_gone = {}) {
    PeerFrame frame{{std::move(messages), std::move(arenas_gone)}};
    frame.first_event = stream->heard + 1;
    stream->heard += frame.events();
    stream->callbacks.on_frame(std::move(frame));
    Turn();
  }
  // node-c says on `connection` to node-b's peer.sock what would be event `first_event` of its
  // link.
  void HearOnSocket(Door::ConnectionId connection, uint64_t first_event,
                    std::vector<PeerMessage> messages) {
    PeerFrame frame{{std::move(messages), {}}};
    frame.first_event = first_event;
    peers->OnSocketRequest(connection, {200, geteuid(), geteuid()}, {++asked_, std::move(frame)});
    Turn();
  }
  // Answers, as the peer, node-b's last request on the peer's peer.sock.
  void Answer(PeerId peer, absl::Status error, std::variant<PeerSocketWelcome, ArenaLent> body,
              UniqueFd fd = UniqueFd());
  // Asks, as a peer, on node-b's peer.sock. Returns the answer.
  const SocketResponse& Ask(Door::ConnectionId connection, decltype(PeerSocketRequest::body) body,
                            uint32_t uid = geteuid());
  PeerTable::Row RowOf(PeerId peer) const;
  std::string StateOf(PeerId peer) const { return RowOf(peer).state; }

  // --- The one client of node-b.
  ArenaId Register(uint64_t bytes);
  Session& session() { return *sessions->List().front(); }
  // Posts a receive of `bytes` at the start of `arena` from node-c's device. Returns its id.
  uint64_t PostReceive(ArenaId arena, uint64_t bytes, const std::string& key);
  // Posts a send of these bytes to node-c's device. Returns its id.
  uint64_t PostSend(ArenaId arena, uint64_t bytes, const std::string& key);
  // Posts one batch of them, with consecutive ids, within one batch of control's tasks. Returns the
  // first id.
  uint64_t PostMany(Side side, ArenaId arena, uint64_t bytes, const std::vector<std::string>& keys,
                    bool prepare = false);
  // An offer of node-c that fits such a receive.
  static Offer OfferOfNodeC(uint64_t transfer, ArenaId arena, uint64_t bytes,
                            const std::string& key);

  ManualExecutor control;
  Devices devices{{2}};
  FakeDialer dialer;
  std::vector<std::pair<PeerId, std::string>> connects;
  absl::Status connect_error;
  std::vector<SocketRequest> requests;  // on peers' peer.sock; without frames
  std::vector<SocketFrame> frames;
  bool requests_taken = true;
  std::vector<SocketResponse> responses;
  std::vector<Door::ConnectionId> closed, finished;
  absl::Status refused;  // why the last link that was refused was refused
  std::unique_ptr<LinkPage> page_of_node_c;
  TestSink session_sink{
      {.post = [this](Session& session,
                      PostBatch batch) { return driver->Post(session, std::move(batch)); },
       .later = [this](Task task) { control.Post(std::move(task)); },
       .ended = [this](SessionId id) { driver->EndSession(id); },
       .arena_gone = [this](ArenaId arena) { peers->OnArenaGone(arena); },
       .end_prepared = [this](TransferId member,
                              const absl::Status& why) { driver->EndPrepared(member, why); }}};
  std::unique_ptr<SessionTable> sessions;
  std::unique_ptr<PeerTable> peers;
  std::unique_ptr<TransferDriver> driver;

 private:
  uint64_t Post(Side side, ArenaId arena, uint64_t bytes, const std::string& key);
  uint64_t asked_ = 0;
};

}  // namespace ferry::testing
