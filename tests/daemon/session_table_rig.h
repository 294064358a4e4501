// SPDX-License-Identifier: Apache-2.0
// A SessionTable whose clients the test plays; records what the table sends, closes and tells.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/field_error.h"
#include "daemon/session/session_table.h"
#include "tests/daemon/session_sink.h"
#include "tests/daemon/support.h"

namespace ferry::testing {

inline constexpr Door::ConnectionId kConnection = 11;
inline constexpr Credentials kAlice{100, 1000, 1000};
inline constexpr Credentials kBob{200, 1001, 1001};

struct SentReply {
  Door::ConnectionId connection = 0;
  AttachReply reply;
  size_t fds = 0;
};

class SessionTableRig {
 public:
  explicit SessionTableRig(SessionTable::Options options = DefaultOptions())
      : devices({1, 2}),
        sink({.send =
                  [this](Door::ConnectionId connection, const AttachReply& reply,
                         const std::vector<int>& fds) {
                    sent.push_back({connection, reply, fds.size()});
                    return clients_read;
                  },
              .close = [this](Door::ConnectionId connection) { closed.push_back(connection); },
              .post = [this](Session& session, PostBatch batch) { return post(session, batch); },
              .later = [this](Task task) { later.push_back(std::move(task)); },
              .ended = [this](SessionId session) { ended.push_back(session); },
              .arena_gone = [this](ArenaId arena) { arenas_gone.push_back(arena); }}),
        table(control, devices.table, std::move(options), sink) {}

  static SessionTable::Options DefaultOptions() {
    SessionTable::Options options;
    options.node = "node-a";
    options.incarnation = Incarnation(42);
    options.quota = {1 << 20, 4, 100, 4096};
    options.default_deadline = absl::Seconds(60);
    return options;
  }
  static AttachHello Hello(std::string name = "trainer") {
    return {kClientProtocol, std::move(name), "0.2", ""};
  }

  // Runs what was posted to threads, what that posts to control, and the tasks in `later`.
  void Settle() {
    do {
      devices.Settle();
      for (Task& task : std::exchange(later, {})) task();
    } while (control.RunAll() > 0);
  }
  template <typename Body>
  AttachReply Command(Door::ConnectionId connection, Body body, const Credentials& who = kAlice,
                      std::vector<UniqueFd> fds = {}) {
    const size_t before = sent.size();
    table.OnCommand(connection, who, {++sequence, std::move(body)}, std::move(fds));
    Settle();
    EXPECT_EQ(sent.size(), before + 1) << "one command, one answer";
    if (sent.size() == before) return {};
    EXPECT_EQ(sent.back().connection, connection);
    const AttachReply& reply = sent.back().reply;
    if (HasReason(reply.error, Reason::kFieldInvalid)) {
      EXPECT_TRUE(!reply.violations.empty() || MetadataOf(reply.error).contains(kFieldMetadata))
          << "which field? " << reply.error;
    }
    return reply;
  }
  Session* Open(Door::ConnectionId connection, const Credentials& who = kAlice) {
    table.OnConnected(connection, {});
    const AttachReply reply = Command(connection, Hello(), who);
    const AttachWelcome* welcome = std::get_if<AttachWelcome>(&reply.body);
    EXPECT_THAT(reply.error, Is("OK"));
    return welcome == nullptr ? nullptr : table.Find(welcome->session);
  }
  AttachReply Register(Door::ConnectionId connection, uint64_t bytes, UniqueFd fd,
                       uint64_t device = 1) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(fd));
    return Command(connection,
                   AttachRegisterArena{GlobalDeviceId(device), {MemoryKind::kMemfd, bytes}, false},
                   kAlice, std::move(fds));
  }
  ArenaId RegisterGood(Door::ConnectionId connection, uint64_t bytes) {
    const AttachReply reply = Register(connection, bytes, SealedMemfd(bytes));
    EXPECT_THAT(reply.error, Is("OK"));
    const auto* registered = std::get_if<AttachArenaRegistered>(&reply.body);
    return registered == nullptr ? ArenaId() : registered->arena;
  }

  // Starts a transfer of `session` that uses `arena`. Returns the Ended with which it will end.
  static Ended Start(Session& session, ArenaId arena) {
    PostBatch batch;
    batch.device = GlobalDeviceId(1);
    batch.specs.resize(1);
    batch.specs[0].layout = {{arena, 0, 1}};
    batch.deadlines.resize(1);
    EXPECT_THAT(session.CheckAndComplete(batch, absl::UnixEpoch()), ::testing::IsEmpty());
    const PostReply reply = session.Admit(batch);
    Ended ended;
    ended.transfer = MakeTransferId(session.id(), reply.first_transfer_id);
    ended.over_value = reply.first_over_value;
    ended.layout = batch.specs[0].layout;
    ended.record_bytes = batch.specs[0].record_bytes;
    return ended;
  }

  ManualExecutor control;
  Devices devices;
  bool clients_read = true;
  std::function<PostReply(Session&, PostBatch&)> post;
  std::vector<Task> later;
  uint64_t sequence = 0;
  std::vector<SentReply> sent;
  std::vector<Door::ConnectionId> closed;
  std::vector<SessionId> ended;
  std::vector<ArenaId> arenas_gone;
  TestSink sink;
  SessionTable table;
};

}  // namespace ferry::testing
