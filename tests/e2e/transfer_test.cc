// SPDX-License-Identifier: Apache-2.0
// Transfers on every route: sizes, ranges, order of posting, batches.
#include "tests/support/fixtures.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TransferTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(TransferTest);

// XLA's SuccessfulCrossHostSendReceive: n arrays of S32[256], iota from 1000 * i.
TEST_P(TransferTest, SendsOneTwoAndThreeArrays) {
  StartForRoute();
  End source = OpenSource(3 * 1024);
  End destination = OpenDestination(3 * 1024);
  for (size_t count = 1; count <= 3; ++count) {
    auto* sent = static_cast<int32_t*>(source.arena.data());
    auto* received = static_cast<int32_t*>(destination.arena.data());
    std::vector<Transfer> sends, receives;
    for (size_t i = 0; i < count; ++i) {
      for (int j = 0; j < 256; ++j) sent[i * 256 + j] = static_cast<int32_t>(1000 * i) + j;
      for (int j = 0; j < 256; ++j) received[i * 256 + j] = -1;
      for (bool send : {true, false}) {
        Transfer transfer(send ? destination.device : source.device, absl::StrCat("array.", i),
                          {(send ? source : destination).arena.Range(i * 1024, 1024)});
        transfer.data_type = FERRY_S32;
        transfer.shape = {256};
        (send ? sends : receives).push_back(std::move(transfer));
      }
    }
    Batch receive = Must(destination.session.Receive(destination.device, receives, options()));
    Batch send = Must(source.session.Send(source.device, sends, options()));
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    EXPECT_EQ(memcmp(sent, received, count * 1024), 0) << count;
  }
}

TEST_P(TransferTest, MovesEverySize) {
  StartForRoute();
  const uint64_t sizes[] = {0, 1, 7, 4095, 4096, 4097, 65'537, kMiB - 1, 8 * kMiB};
  End source = OpenSource(8 * kMiB);
  End destination = OpenDestination(8 * kMiB);
  for (const uint64_t size : sizes) {
    const uint64_t odd = size < 8 * kMiB ? 13 : 0;  // nothing is aligned
    Fill(source.arena, odd, size, size);
    Fill(destination.arena, 0, destination.arena.bytes(), 99);
    const std::string key = absl::StrCat("size.", size);
    Batch receive =
        Receive(destination, source, key, {destination.arena.Range(0, size)}, options());
    Batch send = Send(source, destination, key, {source.arena.Range(odd, size)}, options());
    ASSERT_THAT(send.Wait(kSoon), IsOk()) << size;
    ASSERT_THAT(receive.Wait(kSoon), IsOk()) << size;
    EXPECT_TRUE(Has(destination.arena, 0, size, size)) << size;
    EXPECT_TRUE(Has(source.arena, odd, size, size)) << size;
    if (size % 8 == 0 && size < 8 * kMiB) {  // not a byte beyond
      const uint64_t after = PatternWord(99, size / 8);
      EXPECT_EQ(memcmp(static_cast<char*>(destination.arena.data()) + size, &after, 8), 0) << size;
    }
  }
}

TEST_P(TransferTest, ZeroBytesWithoutRanges) {
  StartForRoute();
  End source = OpenSource(4096);
  End destination = OpenDestination(4096);
  Batch send = Send(source, destination, "nothing", {}, options());
  Batch receive = Receive(destination, source, "nothing", {}, options());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
}

TEST_P(TransferTest, BothEndsAreToldTheRouteThatWasTaken) {
  StartForRoute();
  End source = OpenSource(4096), destination = OpenDestination(4096);
  PostOptions apart = options();
  apart.over_timeline = 1;
  Batch waits = Receive(destination, source, "never", {}, apart);
  EXPECT_EQ(destination.session.TransferRoute(waits.first_id()), FERRY_ROUTE_ANY);
  Batch send = Send(source, destination, "k", {source.arena.All()});
  Batch receive = Receive(destination, source, "k", {destination.arena.All()}, options());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_EQ(source.session.TransferRoute(send.first_id()), GetParam().route);
  EXPECT_EQ(destination.session.TransferRoute(receive.first_id()), GetParam().route);
  EXPECT_EQ(source.session.TransferRoute(send.first_id() + 1), FERRY_ROUTE_ANY);  // never posted
  EXPECT_EQ(*send.Routes(), std::vector<int>{GetParam().route});
  EXPECT_EQ(*waits.Routes(), std::vector<int>{FERRY_ROUTE_ANY});
}

TEST_P(TransferTest, CutsTheBytesDifferentlyAtBothEnds) {
  StartForRoute();
  constexpr uint64_t kBytes = 3 * kMiB + 17;
  End source = OpenSource(kBytes + 4096);
  End destination = OpenDestination(kBytes + 4096);
  // Source: three pieces, the last one first. Destination: 40 pieces of uneven length, one of them
  // empty.
  const uint64_t cut = kMiB + 5;
  std::vector<Range> sent = {source.arena.Range(2 * cut, kBytes - 2 * cut),
                             source.arena.Range(0, cut), source.arena.Range(cut, cut)};
  std::vector<Range> received;
  uint64_t at = 0;
  for (int i = 0; i < 40; ++i) {
    const uint64_t length = i == 7    ? 0
                            : i == 39 ? kBytes - at
                                      : 60'000 + static_cast<uint64_t>(i) * 331;
    received.push_back(destination.arena.Range(at + static_cast<uint64_t>(i) * 8, length));
    at += length;
  }
  ASSERT_EQ(at, kBytes);
  std::string expected;
  Fill(source.arena, 0, kBytes, 5);
  for (const Range& range : sent) {
    expected.append(static_cast<char*>(source.arena.data()) + range.offset, range.length);
  }
  Batch send = Send(source, destination, "cut", sent, options());
  Batch receive = Receive(destination, source, "cut", received, options());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  std::string arrived;
  for (const Range& range : received) {
    arrived.append(static_cast<char*>(destination.arena.data()) + range.offset, range.length);
  }
  EXPECT_TRUE(arrived == expected);
}

// What a transfer's bytes are, in order.
std::string BytesOf(const Arena& arena, const Transfer& transfer) {
  const char* const data = static_cast<char*>(arena.data());
  std::string bytes;
  for (const Range& range : transfer.ranges) bytes.append(data + range.offset, range.length);
  if (const auto& strided = transfer.strided) {
    for (uint64_t i = 0; i < strided->count; ++i) {
      bytes.append(data + strided->offset + i * strided->stride_bytes, strided->block_bytes);
    }
  }
  if (const auto& table = transfer.blocks) {
    for (const uint64_t index : table->indices) {
      bytes.append(data + table->offset + index * table->block_bytes, table->block_bytes);
    }
  }
  return bytes;
}

TEST_P(TransferTest, EveryLayoutAgainstEveryOther) {
  StartForRoute();
  constexpr uint64_t kBytes = 600 * 4096;
  End source = OpenSource(4 * kBytes);
  End destination = OpenDestination(4 * kBytes);
  Fill(source.arena, 0, 4 * kBytes, 11);
  std::mt19937 random(7);
  const auto transfer = [&](const End& here, const End& there, const std::string& key, int form) {
    Transfer made(there.device, key);
    if (form == 0) {
      made.ranges = {here.arena.Range(kBytes, kBytes / 2 + 1),
                     here.arena.Range(13, kBytes / 2 - 1)};
    } else if (form == 1) {
      made.strided = here.arena.Strided(77, 2048, 7000, kBytes / 2048);
    } else {
      std::vector<uint64_t> indices(4 * kBytes / 4096 - 1);
      for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
      std::shuffle(indices.begin(), indices.end(), random);
      indices.resize(kBytes / 4096);
      made.blocks = here.arena.Blocks(100, 4096, std::move(indices));
    }
    made.data_type = FERRY_BF16;
    return made;
  };
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      const std::string key = absl::StrCat(from, " to ", to);
      Fill(destination.arena, 0, 4 * kBytes, 12);
      std::string untouched(static_cast<char*>(destination.arena.data()), 4 * kBytes);
      const Transfer sent = transfer(source, destination, key, from);
      const Transfer received = transfer(destination, source, key, to);
      Batch send = Must(source.session.Send(source.device, {sent}, options()));
      Batch receive = Must(destination.session.Receive(destination.device, {received}, options()));
      ASSERT_THAT(send.Wait(kSoon), IsOk()) << key;
      ASSERT_THAT(receive.Wait(kSoon), IsOk()) << key;
      const std::string bytes = BytesOf(source.arena, sent);
      EXPECT_TRUE(BytesOf(destination.arena, received) == bytes) << key;
      // Not a byte beside them: as many differ from before as were written.
      const char* const now = static_cast<char*>(destination.arena.data());
      size_t changed = 0;
      for (uint64_t i = 0; i < 4 * kBytes; ++i) changed += now[i] != untouched[i] ? 1 : 0;
      EXPECT_LE(changed, kBytes) << key;
    }
  }
}

TEST_P(TransferTest, LayoutsOfDifferentBytesAreAMismatch) {
  StartForRoute();
  End source = OpenSource(kMiB);
  End destination = OpenDestination(kMiB);
  Transfer sent(destination.device, "k");
  sent.strided = source.arena.Strided(0, 64, 128, 100);
  Transfer received(source.device, "k");
  received.blocks = destination.arena.Blocks(0, 64, {1, 2, 3});
  Batch send = Must(source.session.Send(source.device, {sent}, options()));
  Batch receive = Must(destination.session.Receive(destination.device, {received}, options()));
  const auto mismatch = Is("FAILED_PRECONDITION/TRANSFER_MISMATCH",
                           HasSubstr("the send has 6400 bytes, the receive 192 bytes"));
  EXPECT_THAT(send.Wait(kSoon), mismatch);
  EXPECT_THAT(receive.Wait(kSoon), mismatch);
}

TEST_P(TransferTest, ManySmallOnesInAnyOrderOfPosting) {
  StartForRoute();
  constexpr size_t kCount = 1000;
  constexpr uint64_t kBytes = 1000;
  End source = OpenSource(kCount * kBytes);
  End destination = OpenDestination(kCount * kBytes);
  std::mt19937 random(7);
  std::vector<Transfer> sends, receives;
  for (size_t i = 0; i < kCount; ++i) {
    Fill(source.arena, i * kBytes, kBytes, i);
    const std::string key = absl::StrCat("k", i);
    sends.emplace_back(destination.device, key,
                       std::vector<Range>{source.arena.Range(i * kBytes, kBytes)});
    receives.emplace_back(source.device, key,
                          std::vector<Range>{destination.arena.Range(i * kBytes, kBytes)});
  }
  std::shuffle(sends.begin(), sends.end(), random);
  std::shuffle(receives.begin(), receives.end(), random);
  Batch send = Must(source.session.Send(source.device, sends, options()));
  Batch receive = Must(destination.session.Receive(destination.device, receives, options()));
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(Has(destination.arena, i * kBytes, kBytes, i)) << i;
}

// The pairs meet by key, never by position: receives posted first, later, and in the other order.
TEST_P(TransferTest, OrderOfPostingDoesNotMatter) {
  StartForRoute();
  End source = OpenSource(2 * kMiB);
  End destination = OpenDestination(2 * kMiB);
  Fill(source.arena, 0, kMiB, 1);
  Fill(source.arena, kMiB, kMiB, 2);
  Batch send_a = Send(source, destination, "a", {source.arena.Range(0, kMiB)}, options());
  Batch receive_b =
      Receive(destination, source, "b", {destination.arena.Range(kMiB, kMiB)}, options());
  Batch receive_a =
      Receive(destination, source, "a", {destination.arena.Range(0, kMiB)}, options());
  Batch send_b = Send(source, destination, "b", {source.arena.Range(kMiB, kMiB)}, options());
  for (Batch* batch : {&send_a, &receive_b, &receive_a, &send_b})
    ASSERT_THAT(batch->Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination.arena, 0, kMiB, 1));
  EXPECT_TRUE(Has(destination.arena, kMiB, kMiB, 2));
}

TEST_P(TransferTest, TwoBatchesInFlightOnAPair) {
  StartForRoute();
  constexpr uint64_t kBytes = 16 * kMiB;
  End source = OpenSource(2 * kBytes);
  End destination = OpenDestination(2 * kBytes);
  std::vector<Batch> batches;
  for (uint64_t b = 0; b < 2; ++b) {
    Fill(source.arena, b * kBytes, kBytes, b);
    std::vector<Transfer> sends, receives;
    for (uint64_t i = 0; i < 4; ++i) {
      const std::string key = absl::StrCat(b, ".", i);
      const uint64_t offset = b * kBytes + i * kBytes / 4;
      sends.emplace_back(destination.device, key,
                         std::vector<Range>{source.arena.Range(offset, kBytes / 4)});
      receives.emplace_back(source.device, key,
                            std::vector<Range>{destination.arena.Range(offset, kBytes / 4)});
    }
    batches.push_back(Must(source.session.Send(source.device, sends, options())));
    batches.push_back(Must(destination.session.Receive(destination.device, receives, options())));
  }
  for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination.arena, 0, kBytes, 0));
  EXPECT_TRUE(Has(destination.arena, kBytes, kBytes, 1));
}

TEST_P(TransferTest, AKeyIsUsedAgainInOrder) {
  StartForRoute();
  constexpr uint64_t kBytes = 10'000;
  constexpr uint64_t kRounds = 20;
  End source = OpenSource(kRounds * kBytes);
  End destination = OpenDestination(kRounds * kBytes);
  for (uint64_t i = 0; i < kRounds; ++i) {
    Fill(source.arena, i * kBytes, kBytes, i);
    Batch receive = Receive(destination, source, "again",
                            {destination.arena.Range(i * kBytes, kBytes)}, options());
    Batch send =
        Send(source, destination, "again", {source.arena.Range(i * kBytes, kBytes)}, options());
    ASSERT_THAT(receive.Wait(kSoon), IsOk()) << i;
    ASSERT_THAT(send.Wait(kSoon), IsOk()) << i;
  }
  for (uint64_t i = 0; i < kRounds; ++i)
    ASSERT_TRUE(Has(destination.arena, i * kBytes, kBytes, i)) << i;
}

TEST_P(TransferTest, DifferencesAreToldToBothEndsBeforeAByteMoves) {
  StartForRoute();
  End source = OpenSource(8192);
  End destination = OpenDestination(8192);
  Fill(source.arena, 0, 8192, 1);
  Fill(destination.arena, 0, 8192, 2);
  struct Difference {
    const char* what;
    uint64_t sent, received;
    int sent_type, received_type;
    std::optional<std::vector<int64_t>> sent_shape, received_shape;
    const char* sent_text;
    const char* received_text;
  };
  const Difference differences[] = {
      {"bytes", 4096, 4104, 0, 0, {}, {}, "4096", "4104"},
      {"type", 4096, 4096, FERRY_F32, FERRY_S32, {}, {}, "F32", "S32"},
      {"shape", 4096, 4096, FERRY_F32, FERRY_F32, {{32, 32}}, {{16, 64}}, "[32,32]", "[16,64]"},
  };
  for (const Difference& difference : differences) {
    for (const bool send_first : {true, false}) {
      Transfer send(destination.device, difference.what, {source.arena.Range(0, difference.sent)});
      send.data_type = difference.sent_type;
      send.shape = difference.sent_shape;
      Transfer receive(source.device, difference.what,
                       {destination.arena.Range(0, difference.received)});
      receive.data_type = difference.received_type;
      receive.shape = difference.received_shape;
      Batch sent, received;
      if (send_first) sent = Must(source.session.Send(source.device, {send}, options()));
      received = Must(destination.session.Receive(destination.device, {receive}, options()));
      if (!send_first) sent = Must(source.session.Send(source.device, {send}, options()));
      const auto both_values =
          AllOf(HasSubstr(difference.sent_text), HasSubstr(difference.received_text));
      EXPECT_THAT(sent.Wait(kSoon), Is("FAILED_PRECONDITION/TRANSFER_MISMATCH", both_values))
          << difference.what;
      EXPECT_THAT(received.Wait(kSoon), Is("FAILED_PRECONDITION/TRANSFER_MISMATCH", both_values))
          << difference.what;
    }
  }
  EXPECT_TRUE(Has(destination.arena, 0, 8192, 2));
  ExpectTransfer(source, destination, "after", options());
}

// Type and shape are compared only if both ends give them.
TEST_P(TransferTest, WhatOneEndDoesNotSayIsNotCompared) {
  StartForRoute();
  End source = OpenSource(4096);
  End destination = OpenDestination(4096);
  Transfer send(destination.device, "half", {source.arena.All()});
  send.data_type = FERRY_BF16;
  send.shape = {2048};
  Batch sent = Must(source.session.Send(source.device, {send}, options()));
  Batch received = Receive(destination, source, "half", {destination.arena.All()}, options());
  EXPECT_THAT(sent.Wait(kSoon), IsOk());
  EXPECT_THAT(received.Wait(kSoon), IsOk());
}

TEST_P(TransferTest, ReceivesIntoNewBuffers) {
  StartForRoute();
  End source = OpenSource(3000);
  Fill(source.arena, 0, 1000, 1);
  Fill(source.arena, 1000, 2000, 2);
  Session session = nodes().Open(destination_node());
  NewBuffers made = Must(session.ReceiveNew(
      destination_device(), {Transfer(source.device, "x", {}), Transfer(source.device, "y", {})},
      {1000, 2000}, options()));
  ASSERT_EQ(made.ranges.size(), 2u);
  EXPECT_EQ(made.ranges[1].offset % 256, 0u);
  Batch send = Must(
      source.session.Send(source.device,
                          {Transfer(destination_device(), "x", {source.arena.Range(0, 1000)}),
                           Transfer(destination_device(), "y", {source.arena.Range(1000, 2000)})},
                          options()));
  ASSERT_THAT(made.batch.Wait(kSoon), IsOk());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(made.arena, made.ranges[0].offset, 1000, 1));
  EXPECT_TRUE(Has(made.arena, made.ranges[1].offset, 2000, 2));
}

TEST_P(TransferTest, WhatGoesByTheSocketAndByCallsMeetsEachOther) {
  StartForRoute();
  End source = OpenSource(kMiB), destination = OpenDestination(kMiB);
  uint64_t seed = 0;
  for (const bool sends : {false, true}) {
    for (const bool receives : {false, true}) {
      for (const char* key : {"once", "again"}) {
        Fill(source.arena, 0, kMiB, ++seed);
        Batch receive =
            Receive(destination, source, key, RangesOf(destination.arena, receives), options());
        Batch send = Send(source, destination, key, RangesOf(source.arena, sends), options());
        EXPECT_THAT(send.Wait(kSoon), IsOk()) << key << sends << receives;
        EXPECT_THAT(receive.Wait(kSoon), IsOk()) << key << sends << receives;
        EXPECT_TRUE(Has(destination.arena, 0, kMiB, seed)) << key << sends << receives;
      }
    }
  }
}

class LargeTransferTest : public RouteTest {};
INSTANTIATE_ALL_ROUTES(LargeTransferTest);

TEST_P(LargeTransferTest, MovesMoreThanTwoGiB) {
  constexpr uint64_t kBytes = (uint64_t{2} << 30) + 4097;
  StartForRoute();
  End source = OpenSource(kBytes);
  End destination = OpenDestination(kBytes);
  // Marks around every boundary of 2^31 and 2^32 bits, and here and there; zeros between.
  std::vector<uint64_t> marks = {0, (uint64_t{1} << 29) - 4, (uint64_t{1} << 31) - 4, kBytes - 8};
  for (uint64_t at = 1; at < kBytes - 16; at += 97 * kMiB) marks.push_back(at);
  for (const uint64_t mark : marks) {
    const uint64_t word = PatternWord(3, mark);
    memcpy(static_cast<char*>(source.arena.data()) + mark, &word, 8);
  }
  Batch receive = Receive(destination, source, "large", {destination.arena.All()}, options());
  Batch send = Send(source, destination, "large", {source.arena.All()}, options());
  ASSERT_THAT(send.Wait(4 * kSoon), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_EQ(memcmp(source.arena.data(), destination.arena.data(), kBytes), 0);
}

}  // namespace
}  // namespace ferry::testing
