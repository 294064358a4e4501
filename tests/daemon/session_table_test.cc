// SPDX-License-Identifier: Apache-2.0
// Sessions open, are found again and end. What they own: session_table_arena_test.cc.
#include "daemon/session/session_table.h"

#include <fcntl.h>

#include <string>
#include <variant>
#include <vector>

#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;
using testing::kAlice;
using testing::kBob;
using testing::kConnection;
using testing::SessionTableRig;
using ::testing::SizeIs;

TEST(SessionTableHello, OpensASessionAndSaysEverythingInTheWelcome) {
  SessionTableRig rig;
  rig.table.OnConnected(kConnection, {});
  const AttachReply reply = rig.Command(kConnection, rig.Hello());
  EXPECT_THAT(reply.error, Is("OK"));
  EXPECT_EQ(reply.sequence, rig.sequence);
  EXPECT_EQ(rig.sent.back().fds, 2u);
  const auto& welcome = std::get<AttachWelcome>(reply.body);
  EXPECT_EQ(welcome.protocol, 2u);
  EXPECT_EQ(welcome.token.size(), 32u);
  EXPECT_EQ(welcome.incarnation, Incarnation(42));
  EXPECT_EQ(welcome.node, "node-a");
  ASSERT_THAT(welcome.devices, SizeIs(2));
  EXPECT_EQ(welcome.devices[1].id, GlobalDeviceId(2));
  EXPECT_EQ(welcome.devices[1].name, "host1");
  EXPECT_EQ(welcome.limits.transfers_in_flight, 100u);
  Session* session = rig.table.Find(welcome.session);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->name(), "trainer");
  EXPECT_EQ(session->token(), welcome.token);
  EXPECT_EQ(session->credentials().pid, kAlice.pid);
  EXPECT_EQ(rig.table.open(), 1u);
  EXPECT_EQ(rig.table.counts().opened, 1u);
  EXPECT_THAT(rig.closed, IsEmpty());
}

// A hello that goes on with `pages`.
AttachHello Resuming(std::vector<TimelinePages::Mark> over, uint64_t next_transfer_id,
                     uint64_t prepared_from = 0) {
  AttachHello hello = SessionTableRig::Hello();
  hello.resume = AttachResume{std::move(over), next_transfer_id, Incarnation(41), prepared_from};
  return hello;
}
std::vector<UniqueFd> Beside(UniqueFd fd) {
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(fd));
  return fds;
}

TEST(SessionTableHello, AResumedSessionGoesOnCountingAndIsNewInAllElse) {
  SessionTableRig rig;
  const UniqueFd memfd = testing::SealedMemfd(FERRY_TIMELINE_BYTES);
  rig.table.OnConnected(kConnection, {});
  const AttachReply reply = rig.Command(kConnection, Resuming({{}, {9, 3, 1}}, 500), kAlice,
                                        Beside(UniqueFd(fcntl(memfd.get(), F_DUPFD_CLOEXEC, 0))));
  ASSERT_THAT(reply.error, Is("OK"));
  EXPECT_EQ(rig.sent.back().fds, 1u) << "the doorbell; the memfd it has";
  const auto& welcome = std::get<AttachWelcome>(reply.body);
  EXPECT_EQ(welcome.token.size(), 32u);
  Session& session = *rig.table.Find(welcome.session);
  EXPECT_EQ(session.next_sequence(), 500u);
  EXPECT_FALSE(session.IsKnown(499)) << "of another life: nobody here knows how it ended";
  EXPECT_EQ(session.timelines().over_value(1), 9u);
  EXPECT_THAT(session.arenas().List(), IsEmpty());
  const ArenaId arena = rig.RegisterGood(kConnection, 4096);
  const Ended ended = SessionTableRig::Start(session, arena);
  EXPECT_EQ(SequenceOf(ended.transfer), 500u);
  EXPECT_TRUE(session.IsKnown(500));
  session.OnEnded(ended);
  rig.table.OnClosed(kConnection);
  rig.Settle();
  EXPECT_EQ(rig.table.size(), 0u);
}

TEST(SessionTableHello, WordsOfPreparedBatchesBeginWhereTheClientSays) {
  for (const uint64_t from : {0, 70}) {
    SessionTableRig rig;
    rig.table.OnConnected(kConnection, {});
    const AttachReply reply = rig.Command(kConnection, Resuming({}, 1, from), kAlice,
                                          Beside(testing::SealedMemfd(FERRY_TIMELINE_BYTES)));
    ASSERT_THAT(reply.error, Is("OK"));
    const auto& welcome = std::get<AttachWelcome>(reply.body);
    TimelinePages& pages = rig.table.Find(welcome.session)->timelines();
    EXPECT_EQ(pages.Prepare(0, 1)->ValueOf(0), from);
  }
}

TEST(SessionTableHello, RogueResumesAreRefusedAndHarmNobody) {
  SessionTableRig rig;
  Session* other = rig.Open(99);
  Door::ConnectionId connection = kConnection;
  const auto refusal = [&](AttachHello hello, std::vector<UniqueFd> fds) {
    rig.table.OnConnected(++connection, {});
    const AttachReply reply = rig.Command(connection, std::move(hello), kAlice, std::move(fds));
    EXPECT_THAT(rig.closed, ::testing::Contains(connection));
    return testing::NameOf(reply.error);
  };
  const auto good = [] { return testing::SealedMemfd(FERRY_TIMELINE_BYTES); };
  std::vector<UniqueFd> two = Beside(good());
  two.push_back(good());
  EXPECT_EQ(refusal(Resuming({}, 1), {}), "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(refusal(Resuming({}, 1), std::move(two)), "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(
      refusal(Resuming({}, 1), Beside(testing::SealedMemfd(FERRY_TIMELINE_BYTES, F_SEAL_GROW))),
      "INVALID_ARGUMENT/MEMFD_UNSEALED");
  EXPECT_EQ(refusal(Resuming({}, 1), Beside(testing::SealedMemfd(4096))),
            "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(refusal(Resuming({}, 0), Beside(good())), "INVALID_ARGUMENT/FIELD_INVALID");
  // The id would run into those of the next session.
  EXPECT_EQ(refusal(Resuming({}, uint64_t{1} << kTransferSequenceBits), Beside(good())),
            "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(refusal(Resuming({{~uint64_t{0}, 0, 0}}, 1), Beside(good())),
            "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(refusal(Resuming({}, 1, uint64_t{1} << 62), Beside(good())),
            "INVALID_ARGUMENT/FIELD_INVALID");
  EXPECT_EQ(rig.table.size(), 1u);
  EXPECT_EQ(rig.table.Find(other->id()), other);
}

TEST(SessionTableHello, ASessionWhoseIdsAreUsedUpPostsNoMore) {
  SessionTableRig rig;
  rig.table.OnConnected(kConnection, {});
  const uint64_t last = (uint64_t{1} << kTransferSequenceBits) - 1;
  const AttachReply reply = rig.Command(kConnection, Resuming({}, last), kAlice,
                                        Beside(testing::SealedMemfd(FERRY_TIMELINE_BYTES)));
  ASSERT_THAT(reply.error, Is("OK"));
  Session& session = *rig.table.Find(std::get<AttachWelcome>(reply.body).session);
  const ArenaId arena = rig.RegisterGood(kConnection, 4096);
  const Ended ended = SessionTableRig::Start(session, arena);
  EXPECT_EQ(SessionOf(ended.transfer), session.id());
  EXPECT_EQ(SequenceOf(ended.transfer), last);
  PostBatch batch;
  batch.device = GlobalDeviceId(1);
  batch.specs.resize(1);
  batch.deadlines.resize(1);
  const auto violations = session.CheckAndComplete(batch, absl::UnixEpoch());
  ASSERT_THAT(violations, SizeIs(1));
  EXPECT_THAT(violations[0].status, Is("FAILED_PRECONDITION/FIELD_INVALID"));
  session.OnEnded(ended);
}

TEST(SessionTableHello, SessionsHaveIdsAndTokensOfTheirOwn) {
  SessionTableRig rig;
  Session* first = rig.Open(1);
  Session* second = rig.Open(2);
  EXPECT_NE(first->id(), second->id());
  EXPECT_NE(first->token(), second->token());
  EXPECT_THAT(rig.table.List(), ElementsAre(first, second));
}

// A hello that is refused: its answer, after which the connection is closed and no session left.
void ExpectRefused(SessionTableRig& rig, const AttachHello& hello, const std::string& name,
                   const std::string& text) {
  SCOPED_TRACE(text);
  const size_t before = rig.table.size();
  const uint64_t refused = rig.table.counts().refused;
  rig.table.OnConnected(kConnection, {});
  const AttachReply reply = rig.Command(kConnection, hello);
  EXPECT_THAT(reply.error, Is(name, text));
  EXPECT_EQ(reply.sequence, rig.sequence);
  EXPECT_THAT(rig.closed, ElementsAre(kConnection));
  rig.closed.clear();
  EXPECT_EQ(rig.table.size(), before);
  EXPECT_EQ(rig.table.counts().refused, refused + 1);
  EXPECT_EQ(rig.table.NextTimer(), absl::InfiniteFuture());
}

TEST(SessionTableHello, OfAnotherVersionIsRefusedWithTheVersionsWeSpeak) {
  SessionTableRig rig;
  AttachHello hello = rig.Hello();
  hello.protocol = {3, 4};
  ExpectRefused(
      rig, hello, "FAILED_PRECONDITION/PROTOCOL_VERSION",
      "the client speaks versions 3 to 4 of the protocol with clients, this daemon speaks "
      "version 2; update ferryd");
  EXPECT_EQ(MetadataOf(rig.sent.back().reply.error), (Metadata{{"max", "2"}, {"min", "2"}}));
  hello.protocol = {1, 1};  // that of 0.1
  ExpectRefused(rig, hello, "FAILED_PRECONDITION/PROTOCOL_VERSION",
                "speaks version 1 of the protocol with clients, this daemon speaks version 2; "
                "update libferry");
  hello.protocol = {0, 0};
  ExpectRefused(rig, hello, "FAILED_PRECONDITION/PROTOCOL_VERSION", "speaks version 0 of");
  hello.protocol = {0, 9};  // one of them is ours
  rig.table.OnConnected(kConnection, {});
  EXPECT_THAT(rig.Command(kConnection, hello).error, Is("OK"));
}

TEST(SessionTableHello, ANameIs1To63PlainCharacters) {
  SessionTableRig rig;
  for (const std::string& name :
       {std::string(), std::string(64, 'x'), std::string("two words"), std::string("line\n"),
        std::string("caf\xc3\xa9"), std::string("a/b"), std::string("a\0b", 3)}) {
    ExpectRefused(rig, rig.Hello(name), "INVALID_ARGUMENT/FIELD_INVALID",
                  "name must be 1 to 63 characters");
  }
  for (Door::ConnectionId connection : {1, 2}) rig.table.OnConnected(connection, {});
  EXPECT_THAT(rig.Command(1, rig.Hello(std::string(63, 'x'))).error, Is("OK"));
  EXPECT_THAT(rig.Command(2, rig.Hello("Az09._-")).error, Is("OK"));
}

TEST(SessionTableHello, WithATokenIsRefusedWhetherItIsInUseOrUnknown) {
  SessionTableRig rig;
  AttachHello hello = rig.Hello();
  hello.token = rig.Open(1)->token();
  ExpectRefused(rig, hello, "ALREADY_EXISTS/SESSION_IN_USE", "is attached already");
  rig.table.OnClosed(1);
  ExpectRefused(rig, hello, "UNAUTHENTICATED/SESSION_INVALID", "no session has this token");
}

TEST(SessionTableHello, WhileDrainingIsRefused) {
  SessionTableRig rig;
  rig.table.SetDraining(true);
  ExpectRefused(rig, rig.Hello(), "UNAVAILABLE/DRAINING", "attach again when it serves");
  rig.table.SetDraining(false);
  EXPECT_NE(rig.Open(1), nullptr);
}

TEST(SessionTableHello, BeyondTheLimitOfSessionsIsRefused) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.sessions = 2;
  SessionTableRig rig(options);
  rig.Open(1);
  rig.Open(2, kBob);
  ExpectRefused(rig, rig.Hello(), "RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS",
                "2 of 2 sessions are open");
  EXPECT_EQ(RetryAfterOf(rig.sent.back().reply.error), RetryAfter::kUnknown);
  rig.table.OnClosed(2);
  EXPECT_NE(rig.Open(3), nullptr);
}

TEST(SessionTableHello, BeyondTheLimitOfAUserIsRefused) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.sessions_per_uid = 2;
  SessionTableRig rig(options);
  rig.Open(1);
  rig.Open(2);
  ExpectRefused(rig, rig.Hello(), "RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "2 of 2 of uid 1000");
  EXPECT_NE(rig.Open(3, kBob), nullptr);
}

TEST(SessionTableHello, ASecondOneEndsTheSession) {
  SessionTableRig rig;
  const SessionId id = rig.Open(kConnection)->id();
  const AttachReply reply = rig.Command(kConnection, rig.Hello());
  EXPECT_THAT(reply.error, Is("FAILED_PRECONDITION/PROTOCOL_ERROR", "said hello before"));
  EXPECT_THAT(rig.closed, ElementsAre(kConnection));
  EXPECT_EQ(rig.table.Find(id), nullptr);
}

TEST(SessionTableHello, MustBeTheFirstPacket) {
  SessionTableRig rig;
  rig.table.OnConnected(kConnection, {});
  const AttachReply reply = rig.Command(kConnection, AttachReleaseArena{ArenaId(1)});
  EXPECT_THAT(reply.error, Is("FAILED_PRECONDITION/PROTOCOL_ERROR", "the first packet"));
  EXPECT_THAT(rig.closed, ElementsAre(kConnection));
}

TEST(SessionTableHello, MustComeWithin10Seconds) {
  SessionTableRig rig;
  rig.table.OnConnected(1, {});
  rig.control.Advance(absl::Seconds(4));
  rig.table.OnConnected(2, {});
  rig.table.OnConnected(3, {});
  rig.Command(2, rig.Hello());
  rig.sent.clear();
  EXPECT_EQ(rig.table.NextTimer(), rig.control.Now() + absl::Seconds(6));
  rig.control.Advance(absl::Seconds(6) - absl::Nanoseconds(1));
  rig.table.OnTime(rig.control.Now());
  EXPECT_THAT(rig.closed, IsEmpty());
  rig.control.Advance(absl::Nanoseconds(1));
  rig.table.OnTime(rig.control.Now());
  EXPECT_THAT(rig.closed, ElementsAre(1));
  ASSERT_THAT(rig.sent, SizeIs(1));
  EXPECT_EQ(rig.sent[0].reply.sequence, 0u);
  EXPECT_THAT(rig.sent[0].reply.error,
              Is("DEADLINE_EXCEEDED/PROTOCOL_ERROR", "no hello within 10 s"));
  EXPECT_EQ(rig.table.NextTimer(), rig.control.Now() + absl::Seconds(4));
  rig.table.OnClosed(3);  // went away by itself
  EXPECT_EQ(rig.table.NextTimer(), absl::InfiniteFuture());
  rig.control.Advance(absl::Hours(1));
  rig.table.OnTime(rig.control.Now());
  EXPECT_THAT(rig.closed, ElementsAre(1));
  EXPECT_EQ(rig.table.open(), 1u);  // who said hello in time stays
}

TEST(SessionTableHello, OfAUidOnlySoManyMayBeAwaited) {
  SessionTable::Options options = SessionTableRig::DefaultOptions();
  options.sessions_per_uid = 3;
  SessionTableRig rig(options);
  for (Door::ConnectionId id : {1, 2, 3}) rig.table.OnConnected(id, kAlice);
  rig.table.OnConnected(4, kAlice);
  EXPECT_THAT(rig.closed, ElementsAre(4));
  ASSERT_THAT(rig.sent, SizeIs(1));
  EXPECT_THAT(rig.sent[0].reply.error, Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS",
                                          "3 connections of uid 1000 have not said hello"));
  // What was on its way from it is nobody's.
  rig.table.OnCommand(4, kAlice, {1, rig.Hello()}, {});
  EXPECT_EQ(rig.table.open(), 0u);
  EXPECT_THAT(rig.sent, SizeIs(1));
  // Others are not hurt, and who says hello makes room.
  rig.table.OnConnected(5, kBob);
  EXPECT_THAT(rig.Command(5, rig.Hello(), kBob).error, Is("OK"));
  EXPECT_THAT(rig.Command(1, rig.Hello()).error, Is("OK"));
  rig.table.OnConnected(6, kAlice);
  EXPECT_THAT(rig.closed, ElementsAre(4));
}

TEST(SessionTable, WithoutDescriptorsACommandIsRefusedAndTheSessionStays) {
  SessionTableRig rig;
  const SessionId id = rig.Open(kConnection)->id();
  rig.table.OnFdsLost(kConnection, kAlice,
                      {7, AttachRegisterArena{GlobalDeviceId(1), {MemoryKind::kMemfd, 64}, false}});
  EXPECT_EQ(rig.sent.back().reply.sequence, 7u);
  EXPECT_THAT(rig.sent.back().reply.error,
              Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS", "no descriptors left"));
  EXPECT_GT(RetryAfterOf(rig.sent.back().reply.error), absl::ZeroDuration());
  EXPECT_NE(rig.table.Find(id), nullptr);
  rig.RegisterGood(kConnection, 4096);
  // Who has no session yet is turned away, and may come again.
  rig.table.OnConnected(12, kAlice);
  rig.table.OnFdsLost(12, kAlice, {1, rig.Hello()});
  EXPECT_THAT(rig.sent.back().reply.error,
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "no descriptors left"));
  EXPECT_THAT(rig.closed, ElementsAre(12));
}

TEST(SessionTable, GarbageIsAnsweredAndEndsTheSession) {
  SessionTableRig rig;
  const SessionId id = rig.Open(kConnection)->id();
  rig.table.OnGarbage(kConnection, {},
                      Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError, "junk"));
  EXPECT_EQ(rig.sent.back().reply.sequence, 0u);
  EXPECT_THAT(rig.sent.back().reply.error, Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "junk"));
  EXPECT_THAT(rig.closed, ElementsAre(kConnection));
  EXPECT_EQ(rig.table.Find(id), nullptr);
}

TEST(SessionTable, SessionsAreToldOfADrain) {
  SessionTableRig rig;
  rig.Open(1);
  rig.Open(2);
  rig.sent.clear();
  rig.table.SetDraining(true);
  ASSERT_THAT(rig.sent, SizeIs(2));
  EXPECT_EQ(rig.sent[0].connection + rig.sent[1].connection, 3u);
  for (const auto& sent : rig.sent) {
    EXPECT_EQ(sent.reply.sequence, 0u);
    EXPECT_TRUE(std::get<AttachNotice>(sent.reply.body).draining);
  }
  rig.table.SetDraining(false);
  EXPECT_FALSE(std::get<AttachNotice>(rig.sent.back().reply.body).draining);
}

TEST(SessionTable, PostsGoToTheirSessionAndAreAnsweredOnceTheirEffectsAreOut) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  rig.sent.clear();
  uint64_t posts = 0;
  rig.post = [&](Session& poster, PostBatch& batch) {
    EXPECT_EQ(&poster, session);
    PostReply reply;
    if (!batch.violations.empty()) {
      reply.violations = batch.violations;
      reply.status = RefusedBatch(batch.violations, 1);
    } else {
      reply.first_transfer_id = ++posts;
      reply.first_over_value = 10 + posts;
    }
    return reply;
  };
  PostBatch good, bad, received;
  bad.violations = {
      {"buffers[0]", Error(absl::StatusCode::kInvalidArgument, Reason::kRangeInvalid, "outside")}};
  received.side = Side::kReceive;
  rig.table.OnCommand(kConnection, kAlice, {5, std::move(good)}, {});
  rig.table.OnCommand(kConnection, kAlice, {6, std::move(bad)}, {});
  rig.table.OnCommand(kConnection, kAlice, {7, std::move(received)}, {});
  EXPECT_THAT(rig.sent, IsEmpty());
  rig.Settle();
  ASSERT_THAT(rig.sent, SizeIs(3));
  EXPECT_EQ(rig.sent[0].reply.sequence, 5u);
  EXPECT_EQ(std::get<AttachPosted>(rig.sent[0].reply.body).first_transfer_id, 1u);
  EXPECT_EQ(rig.sent[1].reply.sequence, 6u);
  EXPECT_THAT(rig.sent[1].reply.error, Is("INVALID_ARGUMENT/RANGE_INVALID"));
  EXPECT_THAT(rig.sent[1].reply.violations, SizeIs(1));
  EXPECT_EQ(rig.sent[2].reply.sequence, 7u);
  EXPECT_EQ(std::get<AttachPosted>(rig.sent[2].reply.body).what, AttachPosted::What::kReceive);
  EXPECT_EQ(std::get<AttachPosted>(rig.sent[2].reply.body).first_over_value, 12u);
}

TEST(SessionTable, APosterThatDoesNotTakeItsAnswersIsLost) {
  SessionTableRig rig;
  const SessionId id = rig.Open(kConnection)->id();
  rig.post = [](Session&, PostBatch&) { return PostReply(); };
  rig.clients_read = false;
  rig.Command(kConnection, PostBatch());
  EXPECT_THAT(rig.closed, ElementsAre(kConnection));
  EXPECT_THAT(rig.ended, ElementsAre(id));
  EXPECT_EQ(rig.table.Find(id), nullptr);
}

TEST(SessionTable, APostNeedsAHello) {
  SessionTableRig rig;
  rig.table.OnConnected(kConnection, kAlice);
  EXPECT_THAT(rig.Command(kConnection, PostBatch()).error,
              Is("FAILED_PRECONDITION/PROTOCOL_ERROR"));
  EXPECT_THAT(rig.closed, ElementsAre(kConnection));
}

TEST(SessionTable, AClientThatDoesNotTakeItsAnswersIsLost) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  const SessionId id = session->id();
  rig.clients_read = false;
  rig.Command(kConnection, AttachResetTimeline{0});
  EXPECT_THAT(rig.closed, ElementsAre(kConnection));
  EXPECT_THAT(rig.ended, ElementsAre(id));
  EXPECT_EQ(rig.table.Find(id), nullptr);
}

const auto kAllAlive = [](int) { return true; };
const auto kNoneAlive = [](int) { return false; };

TEST(SessionTableAuthenticate, TheProcessThatAttachedIsLetIn) {
  SessionTableRig rig;
  Session* session = rig.Open(1);
  const auto found = rig.table.Authenticate(session->token(), kAlice, 5, kAllAlive);
  ASSERT_THAT(found, Is("OK"));
  EXPECT_EQ(*found, session);
  EXPECT_THAT(rig.table.Authenticate(session->token(), kAlice, 5, kAllAlive), Is("OK"));
}

TEST(SessionTableAuthenticate, NobodyElseIsWhateverTheyHold) {
  SessionTableRig rig;
  const std::string token = rig.Open(1)->token();
  const std::string other = rig.Open(2, kBob)->token();
  const auto name = [&](const std::string& shown, const Credentials& who) {
    return rig.table.Authenticate(shown, who, 5, kAllAlive);
  };
  Credentials child = kAlice;
  ++child.pid;
  Credentials root = kAlice;
  root.uid = 0;
  EXPECT_THAT(name(token, child), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(name(token, root), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(name(token, kBob), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(name(token, Credentials{}), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(name(other, kAlice), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(name("", kAlice), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(name(token.substr(0, 31), kAlice), Is("UNAUTHENTICATED/SESSION_INVALID"));
  EXPECT_THAT(name(token, kAlice), Is("OK"));  // and their tries have cost her nothing
}

TEST(SessionTableAuthenticate, ASessionHasOneConnectionAtATime) {
  SessionTableRig rig;
  const std::string token = rig.Open(1)->token();
  EXPECT_THAT(rig.table.Authenticate(token, kAlice, 5, kAllAlive), Is("OK"));
  EXPECT_THAT(rig.table.Authenticate(token, kAlice, 6, kAllAlive),
              Is("PERMISSION_DENIED/NOT_ALLOWED", "has its gRPC connection already"));
  EXPECT_THAT(rig.table.Authenticate(token, kAlice, 6, kNoneAlive), Is("OK"));  // a reconnect
  EXPECT_THAT(rig.table.Authenticate(token, kAlice, 5, kAllAlive),
              Is("PERMISSION_DENIED/NOT_ALLOWED"));
}

TEST(SessionTableAuthenticate, TheTokenOfAnEndedSessionIsNoToken) {
  SessionTableRig rig;
  const std::string token = rig.Open(1)->token();
  rig.table.OnClosed(1);
  EXPECT_THAT(rig.table.Authenticate(token, kAlice, 5, kAllAlive),
              Is("UNAUTHENTICATED/SESSION_INVALID"));
}

}  // namespace
}  // namespace ferry
