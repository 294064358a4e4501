// SPDX-License-Identifier: Apache-2.0
// TcpIncoming: where a message begins and ends, and what is no message.
#include "transfer/tcp/tcp_incoming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/tcp/made_ops.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Head(uint32_t kind, uint32_t count, const std::vector<TcpEntry>& entries) {
  const TcpHeader header{kind, count};
  std::string head(reinterpret_cast<const char*>(&header), sizeof(header));
  for (const TcpEntry& entry : entries) {
    head.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  }
  return head;
}

std::string Head(TcpKind kind, const std::vector<TcpEntry>& entries) {
  return Head(static_cast<uint32_t>(kind), static_cast<uint32_t>(entries.size()), entries);
}

class TcpIncomingTest : public ::testing::Test {
 protected:
  void Read(absl::string_view bytes) {
    const iovec behind = in_.Behind();
    ASSERT_LE(bytes.size(), behind.iov_len);
    std::memcpy(behind.iov_base, bytes.data(), bytes.size());
    in_.ReadBehind(bytes.size());
  }
  bool Begin() { return in_.Begin(wrong_); }
  // What is said of a head with which no message begins.
  std::string WrongWith(const std::string& head) {
    TcpIncoming in;
    const iovec behind = in.Behind();
    std::memcpy(behind.iov_base, head.data(), head.size());
    in.ReadBehind(head.size());
    absl::string_view wrong;
    EXPECT_FALSE(in.Begin(wrong));
    return std::string(wrong);
  }

  TcpIncoming in_;
  absl::string_view wrong_;
};

TEST_F(TcpIncomingTest, AMessageBeginsWhenItsHeadIsWhole) {
  const std::string head = Head(TcpKind::kBytes, {{7, 0, 3}, {8, 16, 5}});
  for (const char byte : head) {
    EXPECT_FALSE(Begin());
    Read({&byte, 1});
  }
  ASSERT_TRUE(Begin());
  EXPECT_EQ(wrong_, "");
  EXPECT_TRUE(in_.in_message());
  EXPECT_EQ(in_.kind(), TcpKind::kBytes);
  ASSERT_THAT(in_.left(), SizeIs(2));
  EXPECT_EQ(in_.left()[1].entry.at, 16u);
  EXPECT_THAT(in_.ahead(), IsEmpty());
}

TEST_F(TcpIncomingTest, WhatIsBehindTheHeadIsKept) {
  Read(Head(TcpKind::kBytes, {{7, 0, 3}}) + "abc" + Head(TcpKind::kWanted, {{9, 1, 0}}));
  ASSERT_TRUE(Begin());
  ASSERT_GE(in_.ahead().size(), 3u);
  EXPECT_EQ(std::memcmp(in_.ahead().data(), "abc", 3), 0);
  in_.Skip(3);
  size_t bytes = 3;
  EXPECT_NE(in_.Come(bytes), nullptr);
  in_.EndIfOver();
  ASSERT_TRUE(Begin());
  EXPECT_EQ(in_.kind(), TcpKind::kWanted);
  EXPECT_EQ(in_.left().front().entry.tag, 9u);
  in_.Heard();
  EXPECT_FALSE(in_.in_message());
  EXPECT_FALSE(Begin());
  EXPECT_EQ(wrong_, "");
}

TEST_F(TcpIncomingTest, APartIsWholeWithItsLastByte) {
  Read(Head(TcpKind::kBytes, {{7, 0, 3}, {8, 0, 0}, {9, 0, 5}}));
  ASSERT_TRUE(Begin());
  size_t bytes = 2;
  EXPECT_EQ(in_.Come(bytes), nullptr);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(in_.done(), 2u);
  bytes = 4;
  const TcpIncoming::Part* whole = in_.Come(bytes);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->entry.tag, 7u);
  EXPECT_EQ(bytes, 3u);
  whole = in_.Come(bytes);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->entry.tag, 8u) << "it has no bytes";
  EXPECT_EQ(in_.Come(bytes), nullptr);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(in_.done(), 3u);
  in_.EndIfOver();
  EXPECT_TRUE(in_.in_message());
  bytes = 2;
  EXPECT_NE(in_.Come(bytes), nullptr);
  in_.EndIfOver();
  EXPECT_FALSE(in_.in_message());
}

TEST_F(TcpIncomingTest, WhatIsNoMessageIsRefused) {
  const std::string none = "the peer sent no message";
  EXPECT_EQ(WrongWith(Head(0, 1, {})), none);
  EXPECT_EQ(WrongWith(Head(5, 1, {})), none);
  EXPECT_EQ(WrongWith(Head(1, 0, {})), none);
  EXPECT_EQ(WrongWith(Head(1, kTcpMostEntries + 1, {})), none);
  EXPECT_EQ(WrongWith(Head(1, kTcpMostEntries, {})), "") << "its entries have yet to come";
}

TEST_F(TcpIncomingTest, AMessageOfTooManyBytesIsRefused) {
  const std::string too_long = "the peer sent a message that is too long";
  EXPECT_EQ(WrongWith(Head(TcpKind::kBytes, {{1, 0, kTcpMessageBytes + 1}})), too_long);
  EXPECT_EQ(WrongWith(Head(TcpKind::kBytes, {{1, 0, 1}, {2, 0, kTcpMessageBytes}})), too_long);
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(WrongWith(Head(TcpKind::kBytes, {{1, 0, most}, {2, 0, 2}})), too_long)
      << "their sum is 1";
  Read(Head(TcpKind::kBytes, {{1, 0, 1}, {2, 0, kTcpMessageBytes - 1}}));
  EXPECT_TRUE(Begin());
}

TEST_F(TcpIncomingTest, ChunksOfAnOpThatHasEndedAreNobodysAndAreThereToBeGivenBack) {
  std::byte memory[16];
  TcpOp ended(MadeOp(LaunchRole::kReceive, 1, memory, 8));
  TcpOp other(MadeOp(LaunchRole::kReceive, 2, memory + 8, 8));
  Read(Head(TcpKind::kBytes, {{1, 0, 8}, {2, 0, 8}, {3, 0, 8}}));
  ASSERT_TRUE(Begin());
  for (size_t i : {0, 1}) in_.left()[i].chunk = std::make_unique<TcpChunk>();
  in_.left()[0].chunk->op = &ended;
  in_.left()[1].chunk->op = &other;
  in_.LetGo(ended);
  const auto chunks = in_.TakeChunks();
  ASSERT_THAT(chunks, SizeIs(2));
  EXPECT_EQ(chunks[0]->op, nullptr);
  EXPECT_EQ(chunks[1]->op, &other);
  EXPECT_THAT(in_.TakeChunks(), IsEmpty());
}

}  // namespace
}  // namespace ferry
