// SPDX-License-Identifier: Apache-2.0
// Arenas, posts, endings, callbacks, watch: with batches that go by the session's socket and by
// gRPC calls.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/huge_pages.h"
#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

using ArenaTest = ClientTest;

TEST_F(ArenaTest, IsMadePopulatedAndReleased) {
  Session session = Open();
  auto arena = session.CreateArena(1, 1 << 20);
  ASSERT_OK(arena);
  EXPECT_EQ(arena->device(), 1u);
  EXPECT_EQ(arena->bytes(), 1u << 20);
  EXPECT_EQ(daemon_->arenas(), 1u);
  std::vector<unsigned char> resident(256);
  ASSERT_EQ(mincore(arena->data(), 1 << 20, resident.data()), 0);
  EXPECT_THAT(resident, ::testing::Each(1));
  ASSERT_OK(arena->Release());
  EXPECT_EQ(daemon_->arenas(), 0u);
  EXPECT_EQ(arena->Release().reason(), "ARENA_NOT_FOUND");
  static_cast<char*>(arena->data())[0] = 1;  // stays mapped
}

TEST_F(ArenaTest, FirstTouchCanBeLeftToLater) {
  Session session = Open();
  auto arena = session.CreateArena(0, 1 << 20, FERRY_ARENA_NO_POPULATE);
  ASSERT_OK(arena);
  std::vector<unsigned char> resident(256);
  ASSERT_EQ(mincore(arena->data(), 1 << 20, resident.data()), 0);
  EXPECT_THAT(resident, ::testing::Each(0));
}

TEST_F(ArenaTest, ALargeOneIsPopulatedWhole) {
  Session session = Open();
  const uint64_t bytes = (64ull << 20) + 4096 + 1;
  auto arena = session.CreateArena(0, bytes);
  ASSERT_OK(arena);
  std::vector<unsigned char> resident((bytes + 4095) / 4096);
  ASSERT_EQ(mincore(arena->data(), bytes, resident.data()), 0);
  EXPECT_THAT(resident, ::testing::Each(1));
}

// Bytes of the mapping from `data` on that are mapped as huge pages here.
uint64_t InHugePages(const void* data) {
  char start[32];
  snprintf(start, sizeof(start), "%lx-", reinterpret_cast<unsigned long>(data));
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind(start, 0) == 0) inside = true;
    unsigned long kib;
    if (inside && sscanf(line.c_str(), "ShmemPmdMapped: %lu kB", &kib) == 1) return kib << 10;
  }
  return 0;
}

// Whatever /sys/kernel/mm/transparent_hugepage/shmem_enabled says (but for deny), from Linux 6.1
// on.
bool KernelCollapses() {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE; older headers lack it
  const int memfd = memfd_create("probe", MFD_CLOEXEC);
  if (ftruncate(memfd, kHugePage) != 0) return false;
  void* const data = MapShared(kHugePage, PROT_READ | PROT_WRITE, memfd);
  close(memfd);
  if (data == MAP_FAILED) return false;
  static_cast<char*>(data)[0] = 1;
  const bool done = madvise(data, kHugePage, kCollapse) == 0;
  munmap(data, kHugePage);
  return done;
}

TEST_F(ArenaTest, IsOfHugePagesWhereTheKernelHasThem) {
  Session session = Open();
  const uint64_t bytes = 3 * kHugePage + 8192;
  auto arena = session.CreateArena(0, bytes);
  ASSERT_OK(arena);
  // While others use the memory the kernel may have one for the probe and none for the arena.
  for (int tries = 0; InHugePages(arena->data()) < kHugePage && KernelCollapses(); ++tries) {
    ASSERT_LT(tries, 100);
    arena = session.CreateArena(0, bytes);
    ASSERT_OK(arena);
  }
  std::vector<unsigned char> resident((bytes + 4095) / 4096);
  ASSERT_EQ(mincore(arena->data(), bytes, resident.data()), 0);
  EXPECT_THAT(resident, ::testing::Each(1));
  const std::string all(static_cast<const char*>(arena->data()), bytes);
  EXPECT_EQ(all.find_first_not_of('\0'), std::string::npos);
}

TEST_F(ArenaTest, RefusalsAndFreeing) {
  Session session = Open();
  EXPECT_EQ(session.CreateArena(0, 0).status().reason(), "FIELD_INVALID");
  EXPECT_EQ(session.CreateArena(0, 4096, 8).status().reason(), "FIELD_INVALID");
  EXPECT_EQ(session.CreateArena(9, 4096).status().reason(), "DEVICE_UNKNOWN");
  auto huge = session.CreateArena(0, 1ull << 62);
  EXPECT_EQ(huge.status().code_name(), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(huge.status().reason(), "DEVICE_MEMORY");
  EXPECT_THAT(std::string(huge.status().message()),
              ::testing::HasSubstr(std::to_string(1ull << 62)));
  {
    auto arena = session.CreateArena(0, 4096);
    EXPECT_EQ(daemon_->arenas(), 1u);
  }
  EXPECT_EQ(daemon_->arenas(), 0u);
}

TEST_F(ArenaTest, Import) {
  Session session = Open();
  const int memfd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(memfd, 8192), 0);
  EXPECT_EQ(session.ImportArena(0, memfd, 8192).status().reason(), "MEMFD_UNSEALED");
  ASSERT_EQ(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  auto arena = session.ImportArena(0, memfd, 8192);
  ASSERT_OK(arena);
  ASSERT_EQ(pwrite(memfd, "here", 4, 4096), 4);
  EXPECT_EQ(std::memcmp(static_cast<char*>(arena->data()) + 4096, "here", 4), 0);
  EXPECT_FALSE(session.ImportArena(0, -1, 8192).ok());
  close(memfd);
}

class TransferTest : public ClientTest, public ::testing::WithParamInterface<Road> {
 protected:
  static Transfer Keyed(const std::string& key, std::vector<Range> ranges = {},
                        uint64_t remote = 1) {
    return By(GetParam(), testing::Keyed(key, std::move(ranges), remote));
  }
};

INSTANTIATE_TEST_SUITE_P(Posts, TransferTest, ::testing::ValuesIn(kRoads), [](const auto& info) {
  return info.param == Road::kSocket ? "Socket" : "Call";
});

TEST_P(TransferTest, BytesMoveBetweenTwoSessions) {
  Session from = Open();
  Session to = Open();
  auto source = from.CreateArena(0, 4096);
  auto target = to.CreateArena(1, 4096);
  for (int i = 0; i < 4096; ++i) static_cast<char*>(source->data())[i] = static_cast<char>(i * 7);
  auto receive = to.Receive(1, {Keyed("k", {target->Range(1024, 512), target->Range(0, 512)}, 0)});
  ASSERT_OK(receive);
  EXPECT_FALSE(receive->over());
  EXPECT_EQ(receive->TransferStatus(0).code_name(), "FAILED_PRECONDITION");
  const Status early = receive->Wait(std::chrono::milliseconds(1));
  EXPECT_EQ(early.code_name(), "DEADLINE_EXCEEDED");
  EXPECT_EQ(early.reason(), "");
  auto send = from.Send(0, {Keyed("k", {source->Range(0, 1024)})});
  ASSERT_OK(send);
  ASSERT_OK(receive->Wait(kSoon));
  ASSERT_OK(send->Wait(kSoon));
  EXPECT_EQ(std::memcmp(target->data(), static_cast<char*>(source->data()) + 512, 512), 0);
  EXPECT_EQ(std::memcmp(static_cast<char*>(target->data()) + 1024, source->data(), 512), 0);
  EXPECT_EQ(daemon_->socket_posts(), GetParam() == Road::kSocket ? 2u : 0u);
  EXPECT_EQ(daemon_->unary_posts(), GetParam() == Road::kCall ? 2u : 0u);
}

TEST_P(TransferTest, ABadBatchListsItsEntries) {
  Session session = Open();
  auto batch = session.Send(0, {Keyed("bad1"), Keyed("echo"), Keyed("bad2")});
  EXPECT_EQ(batch.status().code_name(), "INVALID_ARGUMENT");
  EXPECT_EQ(batch.status().reason(), "FIELD_INVALID");
  const auto violations = batch.status().violations();
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[1].field, "sends[2]");
  EXPECT_EQ(violations[1].text, "its key says so");
  auto next = session.Send(0, {Keyed("echo")});  // the road is still there
  ASSERT_OK(next);
  ASSERT_OK(next->Wait(kSoon));
}

TEST_P(TransferTest, ABatchBeyondTheServersLimitHarmsOnlyItself) {
  Session session = Open();
  std::vector<Transfer> many(100000, testing::Keyed(std::string("echo").append(90, 'x')));
  auto batch = session.Send(0, many);  // over 8 MiB
  EXPECT_EQ(batch.status().reason(), "BATCH_TOO_LARGE");
  auto next = session.Send(0, {Keyed("echo")});
  ASSERT_OK(next);
  ASSERT_OK(next->Wait(kSoon));
}

TEST_P(TransferTest, FailuresAreToldApart) {
  Session session = Open();
  PostOptions options;
  options.over_timeline = 3;
  auto batch =
      session.Send(0, {Keyed("echo1"), Keyed("fail1"), Keyed("echo2"), Keyed("fail2")}, options);
  ASSERT_OK(batch);
  EXPECT_EQ(batch->timeline(), 3u);
  const Status status = batch->Wait(kSoon);
  EXPECT_EQ(status.code_name(), "FAILED_PRECONDITION");
  EXPECT_EQ(status.reason(), "TRANSFER_MISMATCH");
  EXPECT_EQ(status.message(), "failed as asked: fail1");
  ASSERT_OK(batch->TransferStatus(0));
  ASSERT_OK(batch->TransferStatus(2));
  EXPECT_EQ(batch->TransferStatus(3).message(), "failed as asked: fail2");
  EXPECT_EQ(batch->TransferStatus(4).code_name(), "INVALID_ARGUMENT");
  EXPECT_EQ(session.OverFailures(3).count, 2u);
  EXPECT_EQ(session.OverFailures(3).first_failed, batch->first_value() + 1);
  auto later = session.Send(0, {Keyed("echo3")}, options);
  ASSERT_OK(later->Wait(kSoon));  // an old failure of the counter is not this one's
  ASSERT_OK(session.ResetOver(3));
  EXPECT_EQ(session.OverFailures(3).count, 0u);
  EXPECT_EQ(session.ResetOver(64).reason(), "FIELD_INVALID");
}

TEST_P(TransferTest, AResetDoesNotHideAFailure) {
  Session session = Open();
  auto batch = session.Send(0, {Keyed("fail")});
  ASSERT_OK(session.WaitOver(0, batch->first_value(), kSoon));
  ASSERT_OK(session.ResetOver(0));
  EXPECT_EQ(batch->Wait(kSoon).reason(), "TRANSFER_MISMATCH");
}

TEST_P(TransferTest, AForgottenFailureIsSaidToBeForgotten) {
  Session session = Open();
  auto batch = session.Send(0, {Keyed("echo"), Keyed("fail"), Keyed("echo"), Keyed("echo")});
  daemon_->set_forget(true);
  const Status status = batch->Wait(kSoon);
  EXPECT_EQ(status.reason(), "TRANSFER_NOT_FOUND");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("how it ended is not known"));
  ASSERT_OK(batch->TransferStatus(0));
  ASSERT_OK(batch->TransferStatus(3));
}

TEST_P(TransferTest, CancelAndPoison) {
  Session session = Open();
  auto cancelled = session.Receive(0, {Keyed("a"), Keyed("b")});
  ASSERT_OK(cancelled->Cancel());
  EXPECT_EQ(cancelled->Wait(kSoon).reason(), "CANCELLED");
  auto poisoned = session.Receive(0, {Keyed("c")});
  ASSERT_OK(poisoned->Poison("no more data"));
  const Status status = poisoned->Wait(kSoon);
  EXPECT_EQ(status.reason(), "POISONED");
  EXPECT_EQ(status.message(), "no more data");
}

TEST_P(TransferTest, ASendWaitsForItsDataToBeDefined) {
  Session session = Open();
  Transfer send = Keyed("k");
  send.defined_at = Transfer::DefinedAt{7, 5};
  auto batch = session.Send(0, {send});
  auto receive = session.Receive(1, {Keyed("k", {}, 0)}, [] {
    PostOptions options;
    options.over_timeline = 1;
    return options;
  }());
  ASSERT_OK(receive);
  ASSERT_OK(session.Define(7, 4));
  EXPECT_FALSE(batch->over());
  ASSERT_OK(session.Define(7, 5));
  ASSERT_OK(session.Define(7, 2));  // ignored
  EXPECT_EQ(session.DefinedValue(7), 5u);
  ASSERT_OK(batch->Wait(kSoon));
  ASSERT_OK(receive->Wait(kSoon));
}

TEST_P(TransferTest, ReceivesIntoNewBuffers) {
  Session session = Open();
  auto source = session.CreateArena(0, 1024);
  std::memset(source->data(), 42, 1024);
  PostOptions options;
  options.over_timeline = 1;
  Transfer elsewhere = Keyed("b", {source->All()}, 0);  // what it says of bytes is ignored
  elsewhere.blocks = source->Blocks(0, 1, {5});
  auto made = session.ReceiveNew(1, {Keyed("a", {}, 0), Keyed("z", {}, 0), elsewhere},
                                 {300, 0, 100}, options);
  ASSERT_OK(made);
  EXPECT_EQ(made->ranges[2].offset, 512u);
  EXPECT_EQ(made->ranges[2].length, 100u);
  EXPECT_EQ(made->arena.bytes(), 768u);
  auto send = session.Send(
      0, {Keyed("a", {source->Range(0, 300)}), Keyed("z"), Keyed("b", {source->Range(0, 100)})});
  ASSERT_OK(made->batch.Wait(kSoon));
  EXPECT_EQ(static_cast<char*>(made->arena.data())[512 + 99], 42);
  EXPECT_FALSE(session.ReceiveNew(1, {Keyed("bad")}, {8}).ok());
  EXPECT_EQ(daemon_->arenas(), 2u);  // the refused one's arena went back
}

TEST_P(TransferTest, ManyThreadsPostAtOnce) {
  Session session = Open();
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      PostOptions options;
      options.over_timeline = t;
      for (uint64_t i = 0; i < 200; ++i) {
        auto batch = session.Send(0, {Keyed("echo"), Keyed("echo")}, options);
        if (!batch.ok() || batch->first_value() != 2 * i + 1 || !batch->Wait(kSoon).ok()) ++failed;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
}

struct Counter {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
  void Add() {
    std::lock_guard lock(mutex);
    ++count;
    changed.notify_all();
  }
  bool WaitFor(int wanted) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kSoon, [&] { return count >= wanted; });
  }
};

TEST_P(TransferTest, CallbacksComeExactlyOnce) {
  Session session = Open();
  Counter counter;
  std::vector<Batch> receives;
  for (int i = 0; i < 50; ++i) {
    PostOptions options;
    options.over_timeline = static_cast<uint32_t>(i % 3);
    auto batch =
        session.Receive(1, {Keyed(std::string("k").append(std::to_string(i)), {}, 0)}, options);
    ASSERT_OK(batch->OnOver([&] { counter.Add(); }));
    if (i % 2 == 0) receives.push_back(std::move(*batch));  // the others' handles are freed here
  }
  PostOptions options;
  options.over_timeline = 5;
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK(session.Send(0, {Keyed(std::string("k").append(std::to_string(i)))}, options));
  }
  EXPECT_TRUE(counter.WaitFor(50));
  auto over = session.Send(0, {Keyed("echo")}, options);
  ASSERT_OK(over->Wait(kSoon));
  ASSERT_OK(over->OnOver([&] { counter.Add(); }));  // at once
  EXPECT_EQ(counter.count, 51);
  auto never = session.Receive(1, {Keyed("never")}, options);
  ASSERT_OK(never->OnOver([&] { counter.Add(); }));
  session.Close();  // ends it
  EXPECT_EQ(counter.count, 52);
}

TEST_P(TransferTest, CallbacksMayUseTheLibrary) {
  Session session = Open();
  Counter counter;
  auto first = session.Receive(1, {Keyed("k", {}, 0)});
  ASSERT_OK(first->OnOver([&] {
    PostOptions options;
    options.over_timeline = 2;
    auto next = session.Send(0, {Keyed("fail")}, options);
    EXPECT_EQ(next->Wait(kSoon).reason(), "TRANSFER_MISMATCH");
    EXPECT_TRUE(next->OnOver([&] { counter.Add(); }).ok());
  }));
  PostOptions options;
  options.over_timeline = 1;
  ASSERT_OK(session.Send(0, {Keyed("k")}, options));
  EXPECT_TRUE(counter.WaitFor(1));
}

TEST_P(TransferTest, Futures) {
  Session session = Open();
  auto receive = session.Receive(1, {Keyed("k", {}, 0)});
  std::future<Status> future = std::move(*receive).Future();
  PostOptions options;
  options.over_timeline = 1;
  ASSERT_OK(session.Send(0, {Keyed("k")}, options));
  ASSERT_EQ(future.wait_for(kSoon), std::future_status::ready);
  ASSERT_OK(future.get());
}

struct Watcher {
  Counter counter;
  std::vector<std::pair<uint64_t, std::string>> ended;
  void operator()(uint64_t id, const ferry_status* status) {
    std::lock_guard lock(counter.mutex);
    ended.emplace_back(id, ferry_status_reason(status));
    counter.count = static_cast<int>(ended.size());
    counter.changed.notify_all();
  }
};

TEST_P(TransferTest, WatchTellsEveryEndingAndTheSessions) {
  Watcher watcher;
  Session session = Open();
  ASSERT_OK(session.Watch(&watcher));
  EXPECT_EQ(session.Watch(&watcher).code_name(), "FAILED_PRECONDITION");
  ASSERT_OK(session.Send(0, {Keyed("echo"), Keyed("fail")}));
  ASSERT_OK(session.Send(0, {Keyed("echo")}));
  EXPECT_TRUE(watcher.counter.WaitFor(3));
  session.Close();
  EXPECT_TRUE(watcher.counter.WaitFor(4));
  using ::testing::Pair;
  EXPECT_THAT(watcher.ended, ::testing::ElementsAre(Pair(1, ""), Pair(2, "TRANSFER_MISMATCH"),
                                                    Pair(3, ""), Pair(0, "CANCELLED")));
}

}  // namespace
}  // namespace ferry::testing
