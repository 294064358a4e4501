// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/daemon_core.h"

#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/domain_tag.h"
#include "daemon/rpc/attach_codec.h"
#include "daemon/rpc/peer_codec.h"
#include "daemon/rpc/status_proto.h"
#include "ferry/v1/session.pb.h"

namespace ferry::testing {
namespace {

// It complains about each text that is no text.
const auto kQuiet = google::protobuf::SetLogHandler(nullptr);

constexpr PeerId kNodeB{1};
constexpr Credentials kClient{100, 1000, 1000};

// Threads are started once: a story takes less time than a thread's start.
Devices& SharedDevices() {
  static Devices& devices = []() -> Devices& {
    FERRY_CHECK(SetLogLevel("off").ok());
    static Devices made({1, 2});
    return made;
  }();
  return devices;
}

SessionTable::Options TableOptions() {
  SessionTable::Options options;
  options.node = "node-a";
  options.incarnation = Incarnation(42);
  options.quota = {16 * DaemonCore::kArenaBytes, 4, 100, 4096};
  options.default_deadline = absl::Seconds(60);
  options.failures_kept = 8;
  options.sessions = 3;
  return options;
}

DeviceMap Map() {
  DeviceMap map;
  map.self = PeerId(0);
  map.owner = {
      {GlobalDeviceId(1), PeerId(0)}, {GlobalDeviceId(2), PeerId(0)}, {GlobalDeviceId(3), kNodeB}};
  map.node_names = {"node-a", "node-b"};
  return map;
}

RouteTable Routes() {
  RouteTable routes(kRoutes);
  routes[static_cast<size_t>(Route::kMapped)].available = true;
  routes[static_cast<size_t>(Route::kUcx)].available = true;
  return routes;
}

UniqueFd ArenaFd(uint64_t bytes) {
  UniqueFd fd(memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FERRY_CHECK(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  FERRY_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  return fd;
}

// What steps say by names, as clients do, comes from a daemon by tags.
void TagDomain(PeerMessage& message) {
  Offer* const offer = std::get_if<Offer>(&message);
  if (offer == nullptr) return;
  std::string& domain = offer->key.domain;
  domain = domain == absl::StrCat("uid:", kClient.uid) ? TagOfUid("", kClient.uid)
                                                       : TagOfName("", domain);
}

}  // namespace

DaemonCore::DaemonCore()
    : devices_(SharedDevices().table),
      sink_(TableFunctions()),
      table_(control_, devices_, TableOptions(), sink_),
      driver_(control_, devices_, table_, Map(), {}, DriverHooks()),
      jobs_({control_, compute_, {compute_, runner_}, {}}, devices_, table_, {},
            {[this](const Ended& ended) { driver_.Over(ended); },
             [this](TransferId id) { return driver_.engine().view().Find(id).has_value(); },
             [this](TransferId id, const absl::Status& why) { driver_.EndPrepared(id, why); }}),
      opened_(absl::NotFoundError("")) {
  SharedDevices().results = [this](std::vector<OpResult> results) {
    control_.Post(
        [this, results = std::move(results)]() mutable { driver_.OnResults(std::move(results)); });
  };
  driver_.OnPeerUp(kNodeB, Routes());
  Settle();
}

DaemonCore::~DaemonCore() {
  for (const auto& [connection, open] : std::map(connections_)) OnClosed(connection);
  driver_.OnPeerLost(kNodeB, absl::UnavailableError("reset"), true);
  Settle();
  FERRY_CHECK(driver_.engine().view().in_flight() == 0);
  FERRY_CHECK(driver_.engine().view().waiting_offers() == 0);
  FERRY_CHECK(table_.size() == 0);
  for (const auto& device : devices_.list) {
    FERRY_CHECK(device->arenas == 0 && device->arena_bytes == 0);
  }
}

SinkFunctions DaemonCore::TableFunctions() {
  return {.send = [this](Door::ConnectionId connection, const AttachReply& reply,
                         const std::vector<int>& fds) { return Send(connection, reply, fds); },
          .close = [this](Door::ConnectionId connection) { connections_[connection] = false; },
          .post =
              [this](Session& session, PostBatch batch) {
                return batch.runs_programs ? jobs_.Post(session, std::move(batch))
                                           : driver_.Post(session, std::move(batch));
              },
          .later = [this](Task task) { control_.Post(std::move(task)); },
          .ended =
              [this](SessionId session) {
                driver_.EndSession(session);
                jobs_.EndSession(session);
              },
          .arena_gone = [](ArenaId) {},
          .end_prepared = [this](TransferId transfer,
                                 const absl::Status& why) { driver_.EndPrepared(transfer, why); }};
}

TransferDriver::Hooks DaemonCore::DriverHooks() {
  TransferDriver::Hooks hooks;
  // What is said to a peer is what a peer may be told.
  hooks.send = [](PeerId, std::vector<PeerMessage> messages, bool) {
    PeerFrame frame;
    frame.messages = std::move(messages);
    peer::v1::Frame proto;
    Encode(frame, &proto);
    peer::v1::Frame read;
    FERRY_CHECK(read.ParseFromString(proto.SerializeAsString()));
    FERRY_CHECK(Decode(read).ok());
  };
  hooks.want_peer = [](PeerId) {};
  hooks.fetch_arena = [this](PeerId peer, ArenaId arena, GlobalDeviceId) {
    control_.Post([this, peer, arena] {
      driver_.OnPeerArena(peer, arena, absl::NotFoundError("no such arena"));
    });
  };
  hooks.still_valid = [](PeerId) { return absl::OkStatus(); };
  hooks.page_with_slots = [](PeerId, bool) { return nullptr; };
  hooks.over = [this](const Ended& ended) { jobs_.OnOver(ended); };
  return hooks;
}

bool DaemonCore::Send(Door::ConnectionId, const AttachReply& reply, const std::vector<int>&) {
  v1::AttachResponse proto;
  FERRY_CHECK(proto.ParseFromString(EncodeAttach(reply)));
  FERRY_CHECK(proto.sequence() == reply.sequence && proto.has_error() == !reply.error.ok());
  if (const auto* welcome = std::get_if<AttachWelcome>(&reply.body); reply.error.ok() && welcome)
    opened_ = welcome->session;
  return true;
}

void DaemonCore::OnPacket(Door::ConnectionId connection, const std::string& packet, bool with_fd) {
  const auto [entry, first] = connections_.try_emplace(connection, true);
  if (first) table_.OnConnected(connection, kClient);
  if (!entry->second) return;
  absl::StatusOr<AttachCommand> command = ParseAttach(packet);
  if (!command.ok()) {
    table_.OnGarbage(connection, kClient, command.status());
  } else {
    std::vector<UniqueFd> fds;
    // Long enough for an arena, and for the timelines that a hello resumes.
    if (with_fd) fds.push_back(ArenaFd(FERRY_TIMELINE_BYTES));
    table_.OnCommand(connection, kClient, *std::move(command), std::move(fds));
  }
  Settle();
}

Session* DaemonCore::Open(Door::ConnectionId connection) {
  v1::AttachRequest hello;
  hello.set_sequence(1);
  hello.mutable_hello()->set_protocol_min(2);
  hello.mutable_hello()->set_protocol_max(2);
  hello.mutable_hello()->set_name("trainer");
  OnPacket(connection, hello.SerializeAsString(), false);
  for (const auto& device : devices_.list) {
    v1::AttachRequest arena;
    arena.set_sequence(2);
    arena.mutable_register_arena()->set_device_id(device->id.value());
    arena.mutable_register_arena()->set_bytes(kArenaBytes);
    OnPacket(connection, arena.SerializeAsString(), true);
  }
  FERRY_CHECK(opened_.ok());
  return table_.Find(*opened_);
}

void DaemonCore::Post(SessionId id, PostBatch batch) {
  Session* session = table_.Find(id);
  if (session == nullptr || session->client_gone) return;
  const PostReply reply = driver_.Post(*session, std::move(batch));
  FERRY_CHECK(reply.status.ok() == reply.violations.empty() ||
              HasReason(reply.status, Reason::kRequestIdReused));
  if (!reply.status.ok()) {
    google::rpc::Status proto;
    ToProto(reply.status, reply.violations, &proto);
    const std::string bytes = proto.SerializeAsString();
    // gRPC's trailers have 8 KiB.
    FERRY_CHECK(bytes.size() <= 8192 && proto.ParseFromString(bytes));
  }
  Settle();
}

void DaemonCore::Cancel(SessionId id, const std::vector<uint64_t>& sequences) {
  Session* session = table_.Find(id);
  if (session == nullptr || session->client_gone) return;
  driver_.Cancel(
      *session, sequences,
      Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the client asked for it"));
  Settle();
}

void DaemonCore::OnClosed(Door::ConnectionId connection) {
  connections_[connection] = false;
  table_.OnClosed(connection);
  Settle();
}

void DaemonCore::OnFrame(const std::string& bytes) {
  peer::v1::Frame proto;
  if (!proto.ParseFromString(bytes)) return;
  absl::StatusOr<PeerFrame> frame = Decode(proto);
  if (frame.ok()) {
    for (PeerMessage& message : frame->messages) TagDomain(message);
    driver_.OnPeerMessages(kNodeB, std::move(frame->messages));
    for (const ArenaId arena : frame->arenas_gone) driver_.OnPeerArenaGone(kNodeB, arena);
  } else {
    driver_.OnPeerLost(kNodeB, frame.status(), true);
    driver_.OnPeerUp(kNodeB, Routes());
  }
  Settle();
}

void DaemonCore::Advance(absl::Duration by) {
  control_.Advance(by);
  table_.OnTime(control_.Now());
  Settle();
}

void DaemonCore::Settle() {
  do {
    jobs_.OnTime(control_.Now());
    do {
      driver_.AfterTasks();
    } while (jobs_.Join());
    SharedDevices().Settle();
  } while (control_.RunAll() > 0);
}

}  // namespace ferry::testing
