// SPDX-License-Identifier: Apache-2.0
// What a half that was never matched is told of what waits instead, and who is said to wait long.
#include "transfer/near_misses.h"
#include "two_daemons.h"

namespace ferry {
namespace {

using absl::Milliseconds;
using absl::Seconds;
using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

class EngineNearTest : public testing::Test {
 protected:
  TransferSpec Timed(Side side, std::string key, uint64_t source = 0, uint64_t destination = 2,
                     absl::Duration deadline = Seconds(60)) {
    TransferSpec spec = SpecOf(side, std::move(key), source, destination);
    spec.deadline = two_.now + deadline;
    return spec;
  }
  TransferId Send(std::string key, uint64_t source = 0, uint64_t destination = 2) {
    return two_.Post(Timed(Side::kSend, std::move(key), source, destination));
  }
  TransferId Receive(std::string key, uint64_t source = 0, uint64_t destination = 2) {
    return two_.Post(Timed(Side::kReceive, std::move(key), source, destination));
  }
  TransferId InDomain(std::string domain, TransferSpec spec) {
    spec.key.domain = std::move(domain);
    return two_.Post(std::move(spec));
  }
  // Ends what is posted until then, and not what is posted after it.
  void ToDeadline() {
    two_.Run();
    two_.Advance(Seconds(60));
  }
  std::string TextOf(int node, TransferId id) {
    const absl::Status status = two_.StatusOf(node, id);
    EXPECT_THAT(status, Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
    return std::string(status.message());
  }
  static auto Has(std::string text) { return testing::HasSubstr(text); }
  std::vector<TransferId> LongWaits(int node) {
    Outbox out = two_.engine(node).TakeOutbox();
    for (auto& message : out.messages) two_.daemons[node].to_other.push_back(message.second);
    return out.long_waits;
  }

  TwoDaemons two_;
};

TEST_F(EngineNearTest, BothEndsLearnTheOtherKey) {
  two_.LinkUp();
  const TransferId send = Send("step-42");
  const TransferId receive = Receive("step-41");
  ToDeadline();
  EXPECT_EQ(TextOf(kA, send),
            "the send of key 'step-42' from device 0 to device 2: the receive of key 'step-42' at "
            "node-b (device 2) was not posted within 60 s; node-b has device 2; a receive of key "
            "'step-41' waited at node-b until now; see `ferryctl flight diff`");
  EXPECT_EQ(TextOf(kB, receive),
            "the receive of key 'step-41' from device 0 to device 2: the send of key 'step-41' at "
            "node-a (device 0) was not posted within 60 s; node-a has device 0; a send of key "
            "'step-42' waits at node-a; see `ferryctl flight diff`");
  two_.ExpectNothingLeft();
}

TEST_F(EngineNearTest, WhoEndsLaterIsToldOfWhoEndedBefore) {
  two_.LinkUp();
  Send("step-42");
  two_.Run();
  two_.Advance(Seconds(5));
  const TransferId receive = Receive("step-41");
  two_.Advance(Seconds(55));
  EXPECT_EQ(two_.daemons[kA].ended.size(), 1u);
  two_.Advance(Seconds(5));
  EXPECT_THAT(TextOf(kB, receive), Has("a send of key 'step-42' waited at node-a until 5 s ago"));
}

TEST_F(EngineNearTest, AHalfThatCameAfterTheOtherHadEndedIsTold) {
  two_.LinkUp();
  const TransferId send = Send("k");
  ToDeadline();
  EXPECT_THAT(TextOf(kA, send), Has("; nothing like it waits there; see"));
  two_.Advance(Seconds(2));
  const TransferId receive = Receive("k");
  two_.Run();  // at once
  EXPECT_THAT(TextOf(kB, receive), Has("that send ended 2 s before this receive was posted"));
}

TEST_F(EngineNearTest, AnotherSourceIsTold) {
  two_.LinkUp();
  const TransferId send = Send("k", 0, 2);
  const TransferId receive = Receive("k", 1, 2);
  ToDeadline();
  EXPECT_THAT(TextOf(kB, receive),
              Has("a send of this key from device 0 to device 2 waits at node-a"));
  EXPECT_THAT(TextOf(kA, send),
              Has("a receive of this key from device 1 to device 2 waited at node-b"));
}

TEST_F(EngineNearTest, WhereBothEndsReceiveBothAreTold) {
  two_.LinkUp();
  const TransferId there = Receive("k", 0, 2);
  const TransferId here = Receive("k", 2, 0);
  two_.Run();
  two_.now += Seconds(60);
  two_.a().OnTime(two_.now);
  two_.b().OnTime(two_.now);
  two_.Run();
  EXPECT_THAT(TextOf(kA, here), Has("a receive of this key from device 0 to device 2 wait"));
  EXPECT_THAT(TextOf(kA, here), Has("both ends receive"));
  EXPECT_THAT(TextOf(kB, there), Has("a receive of this key from device 2 to device 0 wait"));
  EXPECT_THAT(TextOf(kB, there), Has("both ends receive"));
}

TEST_F(EngineNearTest, WhereBothEndsSendBothAreTold) {
  two_.LinkUp();
  const TransferId here = Send("k", 0, 2);
  const TransferId there = Send("k", 2, 0);
  ToDeadline();
  EXPECT_THAT(TextOf(kA, here), Has("a send of this key from device 2 to device 0 wait"));
  EXPECT_THAT(TextOf(kA, here), Has("both ends send"));
  EXPECT_THAT(TextOf(kB, there), Has("a send of this key from device 0 to device 2 wait"));
  EXPECT_THAT(TextOf(kB, there), Has("both ends send"));
}

// The receive's daemon does not hear of sends to others: it asks.
TEST_F(EngineNearTest, ASendToAnotherNodeIsTold) {
  two_.LinkUp();
  Send("k", 0, 4);
  Send("another", 0, 4);
  const TransferId receive = Receive("k");
  two_.Run();
  two_.now += Seconds(60);
  two_.b().OnTime(two_.now);
  two_.Run();
  EXPECT_THAT(TextOf(kB, receive),
              AllOf(Has("a send of this key from device 0 to device 4 waits at node-a"),
                    Not(Has("another"))));
}

TEST_F(EngineNearTest, ASendWithinItsNodeIsTold) {
  two_.LinkUp();
  const TransferId send = Send("k", 0, 1);
  const TransferId receive = Receive("k", 0, 2);
  ToDeadline();
  EXPECT_THAT(TextOf(kB, receive), Has("a send of this key from device 0 to device 1 wait"));
  EXPECT_THAT(TextOf(kA, send), Has("nothing like it waits there"));
}

// A receive at the send's own node.
TEST_F(EngineNearTest, AReceiveAtTheWrongNodeIsTold) {
  two_.LinkUp();
  const TransferId send = Send("k", 0, 2);
  Receive("k", 0, 1);
  ToDeadline();
  EXPECT_THAT(TextOf(kA, send), Has("a receive of this key from device 0 to device 1 wait"));
}

TEST_F(EngineNearTest, AnotherDomainIsToldAndNothingOfIt) {
  two_.LinkUp();
  const TransferId send = Send("k");
  Receive("k2");
  InDomain("their secret", Timed(Side::kReceive, "k"));
  InDomain("their secret", Timed(Side::kReceive, "their key"));
  ToDeadline();
  const std::string text = TextOf(kA, send);
  EXPECT_THAT(text, Has("; a receive of this key waited at node-b until now in another domain; a "
                        "receive of key 'k2'"));
  EXPECT_THAT(text, Not(Has("their")));
}

TEST_F(EngineNearTest, WithinOneNodeAllIsKnownAtOnce) {
  const TransferId send = Send("k", 0, 1);
  ToDeadline();
  EXPECT_EQ(TextOf(kA, send),
            "the send of key 'k' from device 0 to device 1: the receive of key 'k' at node-a "
            "(device 1) was not posted within 60 s; nothing like it waits there");
  const TransferId again = Send("k", 0, 1);
  const TransferId receive = Receive("k2", 0, 1);
  ToDeadline();
  EXPECT_THAT(TextOf(kA, again), Has("a receive of key 'k2' waits at node-a"));
  EXPECT_THAT(TextOf(kA, receive), Has("a send of key 'k' waited at node-a until now"));
}

TEST_F(EngineNearTest, AtMostThreeAreTold) {
  two_.LinkUp();
  Send("k", 0, 4);
  for (int i = 0; i < 5; ++i) Send(absl::StrCat("k", i));
  const TransferId receive = Receive("k");
  two_.Run();
  two_.now += Seconds(60);
  two_.b().OnTime(two_.now);
  two_.Run();
  EXPECT_THAT(
      TextOf(kB, receive),
      AllOf(Has("to device 4 waits at node-a; a send of key 'k0' waits at node-a; a send of "
                "key 'k1' waits at node-a; see"),
            Not(Has("k2"))));
}

// As of files that nobody has received yet.
TEST_F(EngineNearTest, WhatWaitsUnderKeysOfSomethingElseIsCounted) {
  two_.LinkUp();
  Send("data.bin");
  const TransferId receive = Receive("model");
  two_.Run();
  two_.now += Seconds(1);
  two_.b().OnTime(two_.now);
  EXPECT_THAT(two_.b().WaitText(two_.now, receive), Has("; a send of another key waits at node-a"));
  Send("weights.bin");
  two_.Run();
  two_.now += Seconds(59);
  two_.b().OnTime(two_.now);
  two_.Run();
  EXPECT_THAT(TextOf(kB, receive),
              AllOf(Has("; 2 sends of other keys wait at node-a; see"), Not(Has(".bin"))));
}

TEST_F(EngineNearTest, OfALongKeyThatIsToldWhichDiffers) {
  two_.LinkUp();
  const std::string same(50, 'x');
  Send(same + "step-42");
  const TransferId receive = Receive(same + "step-41");
  ToDeadline();
  EXPECT_THAT(TextOf(kB, receive),
              Has(absl::StrCat("a send of key ...'", std::string(25, 'x'), "step-42' wait")));
}

// A status on the wire has 1,024 bytes.
TEST_F(EngineNearTest, TheLongestKeysFitIntoAStatus) {
  two_.LinkUp();
  const auto key = [](int last) {
    return std::string(kMaxKeyBytes - 1, '\xff') + static_cast<char>(last);
  };
  for (int i = 0; i < 5; ++i) Send(key(i));
  const TransferId receive = Receive(key(100));
  ToDeadline();
  const std::string text = TextOf(kB, receive);
  EXPECT_LE(text.size(), 1024u);
  EXPECT_THAT(text, Has("04 waits at node-a; a send of key ...0xff"));
  EXPECT_THAT(text, Has("see `ferryctl flight diff`"));
}

// --- Who cannot, or does not, answer.

TEST_F(EngineNearTest, ADoneMaySayNothingOfWhatWaits) {
  two_.LinkUp();
  const TransferId send = Send("k");
  two_.Run();
  two_.now += Seconds(60);
  two_.a().OnTime(two_.now);
  Withdraw withdraw = LastMessage<Withdraw>(two_, kA);
  two_.a().OnMessage(two_.now, PeerId(kB), Done{send, withdraw.status, Route::kUnspecified});
  two_.Take(kA);
  EXPECT_THAT(TextOf(kA, send), Has("was not posted within 60 s; node-b has device 2; see"));
}

TEST_F(EngineNearTest, ASilentPeerIsNotWaitedForLong) {
  two_.LinkUp();
  Send("k2");
  two_.Run();
  const TransferId receive = Receive("k");
  two_.now += Seconds(60);
  two_.b().OnTime(two_.now);
  two_.Take(kB);
  EXPECT_FALSE(two_.IsOver(kB, receive));
  EXPECT_EQ(two_.b().view().Find(receive)->waits_for,
            "node-a to say what there is instead of the send");
  EXPECT_EQ(two_.b().NextDeadline(), two_.now + Milliseconds(100));
  two_.now += Milliseconds(100);
  two_.b().OnTime(two_.now);
  two_.Take(kB);
  EXPECT_THAT(TextOf(kB, receive), Has("a send of key 'k2' waits at node-a"));
  // The answer comes too late.
  two_.b().OnMessage(two_.now, PeerId(kA), Sought{receive, {}});
  EXPECT_EQ(two_.b().view().ignored_messages(), 1u);
}

TEST_F(EngineNearTest, ALinkThatIsLostMeanwhileIsNotTheReason) {
  two_.LinkUp();
  const TransferId receive = Receive("k");
  two_.now += Seconds(60);
  two_.b().OnTime(two_.now);
  two_.LinkLost();
  EXPECT_THAT(TextOf(kB, receive), Has("was not posted within 60 s"));
  two_.ExpectNothingLeft();
}

TEST_F(EngineNearTest, OnlyWhomItConcernsMayAskAndAnswer) {
  two_.LinkUp();
  const TransferId receive = Receive("k");
  two_.Run();
  const MatchKey key = SpecOf(Side::kSend, "k", 0, 2).key;
  // Not of the asker's device, not of ours, of nobody's.
  for (const auto& [source, destination] : {std::pair{0, 4}, {2, 0}, {0, 99}}) {
    two_.a().OnMessage(
        two_.now, PeerId(kB),
        Seek{receive, {key.domain, GlobalDeviceId(source), GlobalDeviceId(destination), key.key}});
  }
  EXPECT_EQ(two_.a().view().ignored_messages(), 3u);
  // Nobody has asked yet.
  two_.b().OnMessage(two_.now, PeerId(kA), Sought{receive, NearTexts{"x"}});
  EXPECT_EQ(two_.b().view().ignored_messages(), 1u);
  EXPECT_EQ(two_.b().view().in_flight(), 1u);
}

// --- Many.

TEST_F(EngineNearTest, OfManyThatEndAtOnceSomeAreTold) {
  two_.LinkUp();
  std::vector<TransferSpec> batch;
  for (int i = 0; i < 2000; ++i) batch.push_back(Timed(Side::kReceive, absl::StrCat("k", i)));
  two_.PostBatch(batch);
  Send("k1x");
  for (int i = 0; i < 5; ++i) two_.Advance(Seconds(1));
  ToDeadline();
  for (int i = 0; i < 10; ++i) two_.Advance(absl::ZeroDuration());
  ASSERT_EQ(two_.daemons[kB].ended.size(), 2000u);
  size_t told = 0;
  for (const Ended& ended : two_.daemons[kB].ended) {
    told += std::string(ended.status.message()).find("'k1x'") != std::string::npos;
    EXPECT_THAT(ended.status, Says("see `ferryctl flight diff`"));
  }
  EXPECT_GT(told, 0u);
  EXPECT_LE(told, NearMisses::kSearches);
  two_.ExpectNothingLeft();
}

// --- Long waits.

TEST_F(EngineNearTest, AQuarterOfTheDeadlineIsALongWaitOnce) {
  two_.LinkUp();
  const TransferId receive = Receive("k");
  Send("k2");
  two_.Run();
  two_.Advance(Seconds(14));
  two_.now += Seconds(1) - Milliseconds(1);
  two_.b().OnTime(two_.now);
  EXPECT_THAT(LongWaits(kB), IsEmpty());
  EXPECT_EQ(two_.b().NextDeadline(), two_.now + Milliseconds(1));
  two_.now += Milliseconds(1);
  two_.b().OnTime(two_.now);
  EXPECT_THAT(LongWaits(kB), ElementsAre(receive));
  EXPECT_EQ(
      two_.b().WaitText(two_.now, receive),
      "the receive of key 'k' from device 0 to device 2 has waited 15 s of 60 s for the send at "
      "node-a; a send of key 'k2' waits at node-a");
  two_.now += Seconds(20);
  two_.b().OnTime(two_.now);
  EXPECT_THAT(LongWaits(kB), IsEmpty());
}

TEST_F(EngineNearTest, WithoutADeadlineAMinuteIs) {
  two_.LinkUp();
  const TransferId receive = two_.Receive("k");
  for (int i = 0; i < 59; ++i) two_.b().OnTime(two_.now += Seconds(1));
  EXPECT_THAT(LongWaits(kB), IsEmpty());
  two_.b().OnTime(two_.now += Seconds(1));
  EXPECT_THAT(LongWaits(kB), ElementsAre(receive));
  EXPECT_THAT(two_.b().WaitText(two_.now, receive), Has("has waited 60 s for the send at node-a"));
}

TEST_F(EngineNearTest, AShortWaitIsNone) {
  two_.LinkUp();
  two_.Post(Timed(Side::kReceive, "k", 0, 2, Milliseconds(900)));
  const TransferId longer = two_.Post(Timed(Side::kReceive, "j", 0, 2, Seconds(2)));
  two_.b().OnTime(two_.now += Milliseconds(999));
  EXPECT_THAT(LongWaits(kB), IsEmpty());
  two_.b().OnTime(two_.now += Milliseconds(1));
  EXPECT_THAT(LongWaits(kB), ElementsAre(longer));
  // What is over is none either, though it is looked at only now.
  two_.Post(Timed(Side::kReceive, "i", 0, 2, Seconds(2)));
  two_.b().OnTime(two_.now += Seconds(3));
  EXPECT_THAT(LongWaits(kB), IsEmpty());
}

TEST_F(EngineNearTest, DataThatIsNotDefinedIsALongWaitAndALaunchIsNone) {
  two_.LinkUp();
  TransferSpec spec = Timed(Side::kSend, "undefined");
  spec.defined = false;
  spec.defined_timeline = 1;
  spec.defined_value = 7;
  const TransferId undefined = two_.Post(spec);
  const TransferId waits_for_it = Receive("undefined");
  Receive("runs");
  Send("runs");
  Receive("ends");
  Send("ends");
  two_.Run();
  two_.Answer(kB);
  for (const absl::Duration step : {Seconds(1), Seconds(14)}) {
    two_.now += step;
    two_.a().OnTime(two_.now);
    two_.b().OnTime(two_.now);
  }
  EXPECT_THAT(LongWaits(kB), ElementsAre(waits_for_it));
  EXPECT_THAT(LongWaits(kA), testing::Contains(undefined));
  EXPECT_THAT(two_.a().WaitText(two_.now, undefined), Has("for its data (defined timeline"));
  EXPECT_EQ(two_.a().WaitText(two_.now, TransferId(77)), "");
}

}  // namespace
}  // namespace ferry
