// SPDX-License-Identifier: Apache-2.0
// Transfers that wait: for their other half, for their data, for a peer; and every way to end the
// wait.
#include <atomic>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WaitingTest : public RouteTest {
 protected:
  void StartEnds(uint64_t bytes) {
    StartForRoute();
    source_ = OpenSource(bytes);
    destination_ = OpenDestination(bytes);
    Fill(source_.arena, 0, bytes, 1);
    Fill(destination_.arena, 0, bytes, 2);
  }
  Batch SendDefinedAt(uint32_t timeline, uint64_t value, const std::string& key,
                      PostOptions options) {
    Transfer send(destination_.device, key, {source_.arena.All()});
    send.defined_at = Transfer::DefinedAt{timeline, value};
    return Must(source_.session.Send(source_.device, {send}, options));
  }
  Batch ReceiveDefinedAt(uint32_t timeline, uint64_t value, const std::string& key,
                         PostOptions options) {
    Transfer receive(source_.device, key, {destination_.arena.All()});
    receive.defined_at = Transfer::DefinedAt{timeline, value};
    return Must(destination_.session.Receive(destination_.device, {receive}, options));
  }
  bool AwaitMatched(size_t at_destination = 1) {
    return Await([&] {
      return node(destination_node()).admin().Count("matched") ==
             at_destination * (GetParam().one_node ? 2 : 1);
    });
  }
  void TearDown() override {
    source_ = End();
    destination_ = End();
    RouteTest::TearDown();
  }
  End source_, destination_;
};
INSTANTIATE_ALL_ROUTES(WaitingTest);

TEST_P(WaitingTest, AMissingHalfEndsByItsDeadline) {
  StartEnds(4096);
  PostOptions soon = options();
  soon.deadline = milliseconds(200);
  Batch receive = Receive(destination_, source_, "nobody sends", {destination_.arena.All()}, soon);
  Batch send = Send(source_, destination_, "nobody receives", {source_.arena.All()}, soon);
  EXPECT_THAT(receive.Wait(kSoon),
              Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER", HasSubstr("nobody sends")));
  EXPECT_THAT(send.Wait(kSoon),
              Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER", HasSubstr("nobody receives")));
  // The other halves come too late: they do not meet what is over.
  Batch late = Receive(destination_, source_, "nobody receives", {destination_.arena.All()}, soon);
  EXPECT_THAT(late.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_TRUE(Has(destination_.arena, 0, 4096, 2));
  ExpectTransfer(source_, destination_, "after", options());
}

// What `ferryctl flight diff` would say, told to each end.
TEST_P(WaitingTest, BothEndsAreToldOfTheKeyThatWaitsInstead) {
  StartEnds(4096);
  PostOptions soon = options();
  soon.deadline = milliseconds(1500);  // in which the ends must hear of each other
  Batch receive = Receive(destination_, source_, "step-41", {destination_.arena.All()}, soon);
  Batch send = Send(source_, destination_, "step-42", {source_.arena.All()}, soon);
  const std::string destination = node(destination_node()).name();
  EXPECT_THAT(receive.Wait(kSoon),
              Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER", HasSubstr("a send of key 'step-42' wait")));
  const Status sent = send.Wait(kSoon);
  EXPECT_THAT(sent, Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER",
                       AnyOf(HasSubstr("a receive of key 'step-41' waited at " + destination),
                             HasSubstr("a receive of key 'step-41' waits at " + destination))));
  if (!GetParam().one_node) {
    EXPECT_THAT(sent.message(), HasSubstr(destination + " has device 2"));
    EXPECT_THAT(sent.message(), HasSubstr("see `ferryctl flight diff`"));
  }
}

TEST_P(WaitingTest, ASendStartsWhenItsDataIsDefined) {
  StartEnds(kMiB);
  Batch send = SendDefinedAt(3, 5, "later", options());
  Batch receive = Receive(destination_, source_, "later", {destination_.arena.All()}, options());
  ASSERT_TRUE(AwaitMatched());
  EXPECT_THAT(source_.session.Define(3, 4), IsOk());  // not yet
  EXPECT_THAT(receive.Wait(milliseconds(50)), Is("DEADLINE_EXCEEDED"));
  EXPECT_TRUE(Has(destination_.arena, 0, kMiB, 2));
  Fill(source_.arena, 0, kMiB, 7);
  EXPECT_THAT(source_.session.Define(3, 5), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, kMiB, 7));
}

TEST_P(WaitingTest, AReceiveStartsWhenItsBuffersMayBeOverwritten) {
  StartEnds(kMiB);
  Batch receive = ReceiveDefinedAt(0, 1, "later", options());
  Batch send = Send(source_, destination_, "later", {source_.arena.All()}, options());
  ASSERT_TRUE(AwaitMatched());
  EXPECT_THAT(send.Wait(milliseconds(50)), Is("DEADLINE_EXCEEDED"));
  EXPECT_TRUE(Has(destination_.arena, 0, kMiB, 2));
  EXPECT_THAT(destination_.session.Define(0, 1), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, kMiB, 1));
}

TEST_P(WaitingTest, BothEndsWaitForTheirOwnData) {
  StartEnds(kMiB);
  Batch send = SendDefinedAt(1, 10, "both", options());
  Batch receive = ReceiveDefinedAt(2, 20, "both", options());
  ASSERT_TRUE(AwaitMatched());
  EXPECT_THAT(destination_.session.Define(2, 20), IsOk());
  EXPECT_THAT(send.Wait(milliseconds(50)), Is("DEADLINE_EXCEEDED"));
  EXPECT_THAT(source_.session.Define(1, 10), IsOk());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination_.arena, 0, kMiB, 1));
}

TEST_P(WaitingTest, DataThatIsNeverDefinedEndsByTheDeadlineAtBothEnds) {
  StartEnds(4096);
  PostOptions soon = options();
  soon.deadline = milliseconds(300);
  Batch send = SendDefinedAt(0, 1, "never", soon);
  Batch receive = Receive(destination_, source_, "never", {destination_.arena.All()}, options());
  EXPECT_THAT(send.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_THAT(receive.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_THAT(source_.session.Define(0, 1), IsOk());  // too late
  EXPECT_TRUE(Has(destination_.arena, 0, 4096, 2));
}

// XLA's SourceBufferError: the producer's status reaches the receiver.
TEST_P(WaitingTest, PoisonIsCarriedToTheReceiver) {
  StartEnds(4096);
  Batch send = SendDefinedAt(0, 1, "poisoned", options());
  Batch receive = Receive(destination_, source_, "poisoned", {destination_.arena.All()}, options());
  ASSERT_TRUE(AwaitMatched());
  ASSERT_THAT(send.Poison("the kernel that makes it failed"), IsOk());
  EXPECT_THAT(send.Wait(kSoon),
              Is("ABORTED/POISONED", HasSubstr("the kernel that makes it failed")));
  EXPECT_THAT(receive.Wait(kSoon),
              Is("ABORTED/POISONED", HasSubstr("the kernel that makes it failed")));
  EXPECT_TRUE(Has(destination_.arena, 0, 4096, 2));
}

// PoisonedDescriptor: poison before the other half is there. It finds out when it comes.
TEST_P(WaitingTest, PoisonBeforeTheReceiveIsPosted) {
  StartEnds(4096);
  Batch send = SendDefinedAt(0, 1, "poisoned", options());
  ASSERT_TRUE(AwaitOffer());
  ASSERT_THAT(send.Poison("gone bad"), IsOk());
  ASSERT_THAT(send.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("gone bad")));
  Batch receive = Receive(destination_, source_, "poisoned", {destination_.arena.All()}, options());
  EXPECT_THAT(receive.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("gone bad")));
  ExpectTransfer(source_, destination_, "poisoned", options());
}

TEST_P(WaitingTest, CancelBeforeTheMatchConcernsOneEndUntilTheOtherComes) {
  StartEnds(4096);
  ExpectTransfer(source_, destination_, "so that there is a link", options());
  Batch send = Send(source_, destination_, "c", {source_.arena.All()}, options());
  ASSERT_THAT(send.Cancel(), IsOk());
  EXPECT_THAT(send.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  Batch receive = Receive(destination_, source_, "d", {destination_.arena.All()}, options());
  ASSERT_THAT(receive.Cancel(), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  // Who comes now is told, once; then the keys are free again.
  Batch late_receive = Receive(destination_, source_, "c", {destination_.arena.All()}, options());
  EXPECT_THAT(late_receive.Wait(kSoon),
              Is("CANCELLED/CANCELLED", HasSubstr("before this receive was posted")));
  Batch late_send = Send(source_, destination_, "d", {source_.arena.All()}, options());
  EXPECT_THAT(late_send.Wait(kSoon),
              Is("CANCELLED/CANCELLED", HasSubstr("before this send was posted")));
  ExpectTransfer(source_, destination_, "c", options());
  ExpectTransfer(source_, destination_, "d", options());
}

TEST_P(WaitingTest, CancelAfterTheMatchEndsBoth) {
  StartEnds(4096);
  for (const bool by_sender : {true, false}) {
    const std::string key = by_sender ? "by sender" : "by receiver";
    Batch send = SendDefinedAt(0, 1, key, options());
    Batch receive = Receive(destination_, source_, key, {destination_.arena.All()}, options());
    ASSERT_TRUE(AwaitMatched());
    ASSERT_THAT((by_sender ? send : receive).Cancel(), IsOk());
    EXPECT_THAT(send.Wait(kSoon), Is("CANCELLED/CANCELLED")) << key;
    EXPECT_THAT(receive.Wait(kSoon), Is("CANCELLED/CANCELLED")) << key;
  }
  EXPECT_TRUE(Has(destination_.arena, 0, 4096, 2));
}

// PartialCancellation: one of two arrives, the other one is cancelled.
TEST_P(WaitingTest, CancelOneOfTwo) {
  StartEnds(8192);
  Transfer first(destination_.device, "0", {source_.arena.Range(0, 4096)});
  Transfer second(destination_.device, "1", {source_.arena.Range(4096, 4096)});
  second.defined_at = Transfer::DefinedAt{0, 1};
  Batch send_first = Must(source_.session.Send(source_.device, {first}, options()));
  Batch send_second = Must(source_.session.Send(source_.device, {second}, options()));
  Batch receive = Must(destination_.session.Receive(
      destination_.device,
      {Transfer(source_.device, "0", {destination_.arena.Range(0, 4096)}),
       Transfer(source_.device, "1", {destination_.arena.Range(4096, 4096)})},
      options()));
  ASSERT_THAT(send_first.Wait(kSoon), IsOk());
  ASSERT_THAT(send_second.Cancel(), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  EXPECT_THAT(receive.TransferStatus(0), IsOk());
  EXPECT_THAT(receive.TransferStatus(1), Is("CANCELLED/CANCELLED"));
  EXPECT_TRUE(Has(destination_.arena, 0, 4096, 1));
}

TEST_P(WaitingTest, CancelAfterTheEndChangesNothing) {
  StartEnds(4096);
  Batch receive = Receive(destination_, source_, "done", {destination_.arena.All()}, options());
  Batch send = Send(source_, destination_, "done", {source_.arena.All()}, options());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_THAT(send.Cancel(), IsOk());
  EXPECT_THAT(receive.Poison("too late"), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
}

// XLA's RelayEcho: 16 ping-pong pairs, all of it prepared before the first send's data is defined.
// The echo's send is defined by the arrival of the ping.
TEST_P(WaitingTest, RelayEcho) {
  constexpr uint64_t kPairs = 16;
  constexpr uint64_t kBytes = 5000;
  StartEnds(kPairs * kBytes);
  Arena pong = Must(source_.session.CreateArena(source_.device, kPairs * kBytes));
  std::vector<Batch> pings, echoes_in, echoes_out, pongs;
  for (uint64_t i = 0; i < kPairs; ++i) {
    const std::string ping = absl::StrCat("ping", i), back = absl::StrCat("pong", i);
    Transfer echo(source_.device, back, {destination_.arena.Range(i * kBytes, kBytes)});
    echo.defined_at = Transfer::DefinedAt{1, i + 1};
    PostOptions other = options();
    other.over_timeline = 1;  // receives of pings alone advance counter 0
    echoes_out.push_back(Must(destination_.session.Send(destination_.device, {echo}, other)));
    pongs.push_back(Must(source_.session.Receive(
        source_.device, {Transfer(destination_.device, back, {pong.Range(i * kBytes, kBytes)})},
        options())));
    echoes_in.push_back(Receive(destination_, source_, ping,
                                {destination_.arena.Range(i * kBytes, kBytes)}, options()));
    Transfer start(destination_.device, ping, {source_.arena.Range(i * kBytes, kBytes)});
    start.defined_at = Transfer::DefinedAt{0, i + 1};
    other.over_timeline = 2;
    pings.push_back(Must(source_.session.Send(source_.device, {start}, other)));
  }
  for (uint64_t i = 0; i < kPairs; ++i) {
    Fill(source_.arena, i * kBytes, kBytes, 100 + i);
    EXPECT_THAT(source_.session.Define(0, i + 1), IsOk());
    ASSERT_THAT(echoes_in[i].Wait(kSoon), IsOk()) << i;
    EXPECT_THAT(destination_.session.Define(1, i + 1), IsOk());
    ASSERT_THAT(pongs[i].Wait(kSoon), IsOk()) << i;
    ASSERT_TRUE(Has(pong, i * kBytes, kBytes, 100 + i)) << i;
  }
  for (Batch& batch : pings) ASSERT_THAT(batch.Wait(kSoon), IsOk());
  for (Batch& batch : echoes_out) ASSERT_THAT(batch.Wait(kSoon), IsOk());
}

// Halves of different domains never meet, whatever else is equal.
TEST_P(WaitingTest, DomainsNeverMeet) {
  StartEnds(4096);
  PostOptions ours = options(), theirs = options();
  ours.domain = "job-1";
  theirs.domain = "job-2";
  theirs.deadline = milliseconds(300);
  Batch strange = Receive(destination_, source_, "k", {destination_.arena.All()}, theirs);
  Batch send = Send(source_, destination_, "k", {source_.arena.All()}, ours);
  EXPECT_THAT(strange.Wait(kSoon),
              Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER",
                 AllOf(HasSubstr("a send of this key waits at node-a in another domain"),
                       Not(HasSubstr("job-1")))));
  EXPECT_FALSE(send.over());
  EXPECT_TRUE(Has(destination_.arena, 0, 4096, 2));
  // The secret is not shown, not even to operators.
  EXPECT_EQ(node(0).admin().Dump().find("job-1"), std::string::npos);
  Batch right = Receive(destination_, source_, "k", {destination_.arena.All()}, ours);
  EXPECT_THAT(right.Wait(kSoon), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
}

class PeerWaitTest : public ClusterTest {};

// Nobody listens at the peer's address: known at the deadline, when it might still have come.
TEST_F(PeerWaitTest, AnUnreachablePeerIsToldAtTheDeadline) {
  cluster_ = std::make_unique<Cluster>(ClusterOptions{});
  ASSERT_TRUE(node(0).Start());
  End source = OpenEnd(0, 4096);
  PostOptions soon;
  soon.deadline = milliseconds(500);
  Batch send = Must(source.session.Send(0, {Transfer(2, "k", {source.arena.All()})}, soon));
  Batch receive = Must(source.session.Receive(0, {Transfer(2, "k", {source.arena.All()})}, soon));
  EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE", HasSubstr("node-b")));
  EXPECT_THAT(receive.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE", HasSubstr("node-b")));
}

TEST_F(PeerWaitTest, APeerThatComesBeforeTheDeadlineIsInTime) {
  cluster_ = std::make_unique<Cluster>(ClusterOptions{});
  ASSERT_TRUE(node(1).Start());  // the one that knocks
  End destination = OpenEnd(1, 4096);
  Batch receive =
      Must(destination.session.Receive(2, {Transfer(0, "k", {destination.arena.All()})}));
  ASSERT_TRUE(Await([&] { return node(1).admin().Status().peers(0).error() != ""; }));
  ASSERT_TRUE(node(0).Start());
  End source = OpenEnd(0, 4096);
  Fill(source.arena, 0, 4096, 3);
  Batch send = Send(source, destination, "k", {source.arena.All()});
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination.arena, 0, 4096, 3));
}

TEST_F(PeerWaitTest, AWrongDeviceIsTold) {
  Start();
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  PostOptions soon;
  soon.deadline = milliseconds(500);
  const auto receive = [&](uint64_t from, const std::string& key, const PostOptions& options) {
    return Must(
        destination.session.Receive(2, {Transfer(from, key, {destination.arena.All()})}, options));
  };
  const auto waits = [](const std::string& what) {
    return Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER", HasSubstr(what));
  };
  // Of the source.
  Batch send = Send(source, destination, "k", {source.arena.All()});
  EXPECT_THAT(receive(1, "k", soon).Wait(kSoon),
              waits("a send of this key from device 0 to device 2 waits at node-a"));
  // Of the destination, which is the source's own: its node alone knows.
  Batch within = Must(source.session.Send(0, {Transfer(1, "j", {source.arena.All()})}));
  EXPECT_THAT(receive(0, "j", soon).Wait(kSoon),
              waits("a send of this key from device 0 to device 1 waits at node-a"));
  // Nobody's.
  EXPECT_THAT(
      destination.session.Receive(2, {Transfer(9, "k", {destination.arena.All()})}).status(),
      Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("no node has device 9")));
  EXPECT_THAT(within.Cancel(), IsOk());
  EXPECT_THAT(receive(0, "k", soon).Wait(kSoon), IsOk());
}

// Once, in the log of whose half it is.
TEST_F(PeerWaitTest, ALongWaitIsLogged) {
  Start();
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  PostOptions a_while;
  a_while.deadline = milliseconds(2000);
  Batch send = Send(source, destination, "step-42", {source.arena.All()}, a_while);
  Batch receive = Receive(destination, source, "step-41", {destination.arena.All()}, a_while);
  EXPECT_THAT(send.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_THAT(receive.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  const std::string log = node(1).Log();
  const std::string line = "of 2 s for the send at node-a; a send of key 'step-42' waits at node-a";
  EXPECT_THAT(log,
              HasSubstr("transfer.waits: the receive of key 'step-41' from device 0 to device"));
  EXPECT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find("transfer.waits"), log.rfind("transfer.waits"));
  EXPECT_THAT(node(0).Log(), HasSubstr("transfer.waits: the send of key 'step-42'"));
}

TEST_F(PeerWaitTest, RoutesThatCannotBeAreRefused) {
  ClusterOptions options;
  options.transfer = "order: [local, mapped, tcp]";
  Start(options);
  End source = OpenEnd(0, 4096);
  End destination = OpenEnd(1, 4096);
  PostOptions local, mapped, nccl, tcp;
  local.route = FERRY_ROUTE_LOCAL;
  mapped.route = FERRY_ROUTE_MAPPED;
  nccl.route = FERRY_ROUTE_NCCL;
  tcp.route = FERRY_ROUTE_TCP;
  const auto refused = Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE");
  const auto ended = [](Result<Batch> batch) {
    return batch.ok() ? batch->Wait(kSoon) : std::move(batch).status();
  };
  local.deadline = nccl.deadline = mapped.deadline = milliseconds(5000);
  EXPECT_THAT(ended(source.session.Send(0, {Transfer(2, "k", {source.arena.All()})}, local)),
              refused);
  EXPECT_THAT(ended(source.session.Send(0, {Transfer(2, "k", {source.arena.All()})}, nccl)),
              refused);
  EXPECT_THAT(ended(source.session.Send(0, {Transfer(1, "k", {source.arena.All()})}, mapped)),
              refused);
  EXPECT_THAT(ended(source.session.Send(0, {Transfer(1, "k", {source.arena.All()})}, tcp)),
              refused);
  // Two ends that insist on different routes.
  Batch send = Send(source, destination, "both", {source.arena.All()}, mapped);
  Batch receive = Receive(destination, source, "both", {destination.arena.All()}, tcp);
  EXPECT_FALSE(send.Wait(kSoon).ok());
  EXPECT_FALSE(receive.Wait(kSoon).ok());
}

}  // namespace
}  // namespace ferry::testing
