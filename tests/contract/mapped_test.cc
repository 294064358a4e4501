// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>

#include "base/status.h"
#include "tests/contract/rig.h"
#include "transfer/mapped/link_page.h"
#include "transfer/mapped/peer_arena_table.h"
#include "transfer/mapped/shared_eventfd.h"

namespace ferry {
namespace {

std::unique_ptr<DeviceMemory> Arena(uint64_t bytes) {
  auto mapping = HostMapping::Map(MakeArena(bytes), bytes, HostMapping::Access::kReadOnly);
  EXPECT_TRUE(mapping.ok()) << mapping.status();
  return *std::move(mapping);
}

TEST(LinkPage, EachSideHasItsWord) {
  auto maker = LinkPage::Create();
  ASSERT_TRUE(maker.ok()) << maker.status();
  auto taker = LinkPage::Map(UniqueFd(dup((*maker)->memfd())));
  ASSERT_TRUE(taker.ok()) << taker.status();
  EXPECT_FALSE((*maker)->Revoked());
  EXPECT_FALSE((*taker)->Revoked());
  (*maker)->Revoke();
  EXPECT_TRUE((*taker)->Revoked());
  EXPECT_FALSE((*maker)->Revoked()) << "its own word says nothing about the other side";
  (*taker)->Revoke();
  EXPECT_TRUE((*maker)->Revoked());
  // It outlives the side that made it.
  maker->reset();
  EXPECT_TRUE((*taker)->Revoked());
}

TEST(LinkPage, RefusesWhatCouldFault) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 4096), 0);
  EXPECT_EQ(ReasonOf(LinkPage::Map(std::move(fd)).status()), Reason::kMemfdUnsealed);
  EXPECT_EQ(ReasonOf(LinkPage::Map(MakeArena(100)).status()), Reason::kFieldInvalid);
}

// An eventfd whose count is the highest that there is: only the kernel can add the last one.
void FillForGood(int eventfd) {
  ASSERT_EQ(fcntl(eventfd, F_SETFL, 0), 0);
  ASSERT_EQ(eventfd_write(eventfd, UINT64_MAX - 1), 0);
  ASSERT_TRUE(SharedEventfd::Get()->Add(eventfd));
}

TEST(LinkPage, ADoorbellThatIsFullAndBlocksHoldsNobody) {
  auto maker = LinkPage::Create();
  ASSERT_TRUE(maker.ok()) << maker.status();
  const int takers = (*maker)->takers_doorbell();
  auto taker = LinkPage::Map(UniqueFd(dup((*maker)->memfd())),
                             UniqueFd(dup((*maker)->makers_doorbell())), UniqueFd(dup(takers)));
  ASSERT_TRUE(taker.ok()) << taker.status();
  eventfd_t count = 0;
  ASSERT_EQ(eventfd_read(takers, &count), 0);
  FillForGood(takers);
  std::future<void> lane = std::async(std::launch::async, [&] {
    __atomic_store_n((*taker)->doorbell().parked, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 1000; ++i) (*maker)->Ring();
  });
  EXPECT_EQ(lane.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(eventfd_read(takers, &count), 0);  // lets go of a writer
  EXPECT_EQ(count, UINT64_MAX);
  lane.wait();
}

TEST(LinkPage, RefusesDoorbellsThatAreNone) {
  auto maker = LinkPage::Create();
  ASSERT_TRUE(maker.ok()) << maker.status();
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  const UniqueFd read_end(pipe[0]), write_end(pipe[1]);
  const UniqueFd others[] = {UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)),
                             UniqueFd(dup(write_end.get())),
                             UniqueFd(socket(AF_UNIX, SOCK_STREAM, 0)),
                             UniqueFd(epoll_create1(0)),
                             MakeArena(4096),
                             UniqueFd()};
  for (const UniqueFd& other : others) {
    for (const bool first : {true, false}) {
      UniqueFd bells[] = {UniqueFd(dup((*maker)->makers_doorbell())), UniqueFd(dup(other.get()))};
      const int left = bells[1].get();
      EXPECT_EQ(
          ReasonOf(LinkPage::Map(UniqueFd(dup((*maker)->memfd())), std::move(bells[first ? 1 : 0]),
                                 std::move(bells[first ? 0 : 1]))
                       .status()),
          Reason::kFieldInvalid);
      EXPECT_EQ(bells[1].get(), left) << "closing it may wait, and is the caller's";
    }
  }
}

TEST(PeerArenaTable, FindsByPeerAndArena) {
  PeerArenaTable table;
  auto one = Arena(4096);
  const DeviceMemory* const first = one.get();
  EXPECT_TRUE(table.Insert(PeerId(1), ArenaId(7), one));
  EXPECT_EQ(one, nullptr);
  auto two = Arena(8192);
  EXPECT_FALSE(table.Insert(PeerId(1), ArenaId(7), two));
  EXPECT_NE(two, nullptr) << "stays the caller's";
  EXPECT_TRUE(table.Insert(PeerId(2), ArenaId(7), two));
  EXPECT_EQ(table.Find(PeerId(1), ArenaId(7)), first);
  EXPECT_NE(table.Find(PeerId(2), ArenaId(7)), first);
  EXPECT_EQ(table.Find(PeerId(1), ArenaId(8)), nullptr);
  EXPECT_EQ(table.Find(PeerId(3), ArenaId(7)), nullptr);
  EXPECT_EQ(table.Pin(PeerId(3), ArenaId(7)), nullptr);
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.bytes(), 4096u + 8192u);
}

TEST(PeerArenaTable, GoneArenaWaitsForItsLastPin) {
  PeerArenaTable table;
  auto arena = Arena(4096);
  const DeviceMemory* const mapping = arena.get();
  ASSERT_TRUE(table.Insert(PeerId(1), ArenaId(7), arena));
  EXPECT_EQ(table.Pin(PeerId(1), ArenaId(7)), mapping);
  EXPECT_EQ(table.Pin(PeerId(1), ArenaId(7)), mapping);
  EXPECT_EQ(table.Gone(PeerId(1), ArenaId(7)), nullptr);
  EXPECT_EQ(table.Gone(PeerId(1), ArenaId(7)), nullptr);
  EXPECT_EQ(table.Find(PeerId(1), ArenaId(7)), nullptr);
  EXPECT_EQ(table.Pin(PeerId(1), ArenaId(7)), nullptr);
  // The peer comes back and uses the number anew.
  auto again = Arena(4096);
  ASSERT_TRUE(table.Insert(PeerId(1), ArenaId(7), again));
  EXPECT_NE(table.Find(PeerId(1), ArenaId(7)), mapping);
  EXPECT_EQ(table.Unpin(mapping), nullptr);
  const std::unique_ptr<DeviceMemory> last = table.Unpin(mapping);
  EXPECT_EQ(last.get(), mapping);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_NE(table.Gone(PeerId(1), ArenaId(7)), nullptr) << "nothing pinned it";
  EXPECT_EQ(table.bytes(), 0u);
}

TEST(PeerArenaTable, DropPeerTakesAllOfIt) {
  PeerArenaTable table;
  for (uint64_t id = 1; id <= 3; ++id) {
    auto arena = Arena(4096);
    ASSERT_TRUE(table.Insert(PeerId(1), ArenaId(id), arena));
  }
  auto other = Arena(4096);
  ASSERT_TRUE(table.Insert(PeerId(2), ArenaId(1), other));
  const DeviceMemory* const pinned = table.Pin(PeerId(1), ArenaId(2));
  EXPECT_EQ(table.DropPeer(PeerId(1)).size(), 2u);
  EXPECT_TRUE(table.DropPeer(PeerId(1)).empty());
  EXPECT_TRUE(table.DropPeer(PeerId(9)).empty());
  EXPECT_EQ(table.Find(PeerId(1), ArenaId(2)), nullptr);
  EXPECT_NE(table.Find(PeerId(2), ArenaId(1)), nullptr);
  EXPECT_EQ(table.Unpin(pinned).get(), pinned);
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace ferry
