// SPDX-License-Identifier: Apache-2.0
#include "two_daemons.h"

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class EngineLookTest : public testing::Test {
 protected:
  std::string WaitsFor(int node, TransferId id) {
    return two_.engine(node).view().Find(id)->waits_for;
  }
  auto Explain(TransferEngine& engine, GlobalDeviceId source, GlobalDeviceId destination) {
    return engine.view().Explain(two_.now, source, destination, 4096);
  }
  TwoDaemons two_;
};

TEST_F(EngineLookTest, ListsTheOldestFirstUpToTheLimit) {
  std::vector<TransferId> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(two_.Send(absl::StrCat("k", i)));
  auto rows = two_.a().view().List(5);
  ASSERT_THAT(rows, SizeIs(5));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(rows[i].transfer, ids[i]);
  EXPECT_THAT(two_.a().view().List(100), SizeIs(20));
  EXPECT_EQ(rows[0].key.key, "k0");
  EXPECT_EQ(rows[0].bytes, 4096u);
  EXPECT_EQ(rows[0].posted, two_.now);
  EXPECT_FALSE(two_.a().view().Find(TransferId(1)).has_value());
}

TEST_F(EngineLookTest, AVisitSeesEverythingInFlightAsTheListHasIt) {
  two_.LinkUp();
  two_.Send("matched");
  two_.Receive("matched");
  two_.Send("alone");
  two_.Run();
  for (int node : {kA, kB}) {
    const auto rows = two_.engine(node).view().List(100);
    size_t seen = 0;
    two_.engine(node).view().Visit([&](const TransferBrief& brief) {
      ASSERT_LT(seen, rows.size());
      const TransferRow& row = rows[seen++];
      EXPECT_EQ(brief.transfer, row.transfer);
      EXPECT_EQ(brief.side, row.side);
      EXPECT_EQ(brief.source, row.key.source);
      EXPECT_EQ(brief.destination, row.key.destination);
      EXPECT_EQ(brief.bytes, row.bytes);
      EXPECT_STREQ(kShownStateNames[static_cast<size_t>(brief.state)], row.state);
      EXPECT_EQ(brief.route, row.route);
      EXPECT_EQ(brief.prepared, row.prepared);
      EXPECT_EQ(brief.posted, row.posted);
    });
    EXPECT_EQ(seen, rows.size());
    EXPECT_GT(seen, 0u);
  }
}

TEST_F(EngineLookTest, ARowSaysWhatItWaitsFor) {
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  send.defined = false;
  send.defined_timeline = 3;
  send.defined_value = 7;
  const TransferId from = two_.Post(send);
  EXPECT_EQ(WaitsFor(kA, from), "the link to node-b");
  two_.LinkUp(false, true);
  EXPECT_EQ(WaitsFor(kA, from), "the receive at node-b");
  const TransferId to = two_.Receive();
  two_.Run();
  EXPECT_EQ(WaitsFor(kA, from), "its data (defined timeline 3 >= 7)");
  EXPECT_EQ(WaitsFor(kB, to), "data at node-a");
  two_.a().OnDefined(two_.now, from);
  two_.Run();
  EXPECT_EQ(WaitsFor(kA, from), "its launch");
  two_.Answer(kA);
  EXPECT_EQ(WaitsFor(kA, from), "the other end");
  EXPECT_EQ(two_.a().view().Find(from)->route, Route::kUcx);
}

TEST_F(EngineLookTest, ExplainGivesEachRouteInOrderAndWhyNot) {
  two_.LinkUp(false, true);
  auto options = Explain(two_.a(), GlobalDeviceId(0), GlobalDeviceId(2));
  ASSERT_TRUE(options.ok());
  ASSERT_THAT(*options, SizeIs(3));
  EXPECT_EQ((*options)[0].route, Route::kLocal);
  EXPECT_FALSE((*options)[0].available);
  EXPECT_EQ((*options)[0].reason, "device 2 belongs to node-b");
  EXPECT_EQ((*options)[1].reason, "another host");
  EXPECT_TRUE((*options)[2].available);
  EXPECT_TRUE((*options)[2].chosen);
  EXPECT_THAT((*options)[2].reason, HasSubstr("node-b knows"));
  auto local = Explain(two_.a(), GlobalDeviceId(0), GlobalDeviceId(1));
  EXPECT_TRUE((*local)[0].available);
  EXPECT_EQ((*local)[1].reason, "both devices belong to node-a");
  auto down = Explain(two_.a(), GlobalDeviceId(4), GlobalDeviceId(0));
  EXPECT_EQ((*down)[1].reason, "no link to node-c: no connection yet");
}

TEST_F(EngineLookTest, ExplainRefusesDevicesThatAreNobodysOrNotOurs) {
  auto unknown = Explain(two_.a(), GlobalDeviceId(0), GlobalDeviceId(66));
  EXPECT_THAT(unknown.status(), Fails(absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown));
  auto foreign = Explain(two_.a(), GlobalDeviceId(2), GlobalDeviceId(4));
  EXPECT_THAT(foreign.status(), Fails(absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown));
  EXPECT_THAT(foreign.status(), Says("node-b and node-c"));
}

TEST_F(EngineLookTest, WaitingReceivesDoNotKeepMemoryOnceTheyAreOver) {
  for (int i = 0; i < 100; ++i) {
    const TransferId id = two_.Receive(absl::StrCat("k", i));
    two_.b().Cancel(two_.now, id, Cancelled());
  }
  two_.Take(kB);
  two_.ExpectNothingLeft();
  two_.Advance(Tombstones::kLife);
  EXPECT_EQ(two_.b().view().TombstonesHeld(PeerId(kA)), 0u);
  EXPECT_EQ(two_.b().NextDeadline(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace ferry
