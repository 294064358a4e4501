// SPDX-License-Identifier: Apache-2.0
// TcpOutgoing: what is in a message, and whose memory it is.
#include "transfer/tcp/tcp_outgoing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/tcp/made_ops.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TcpOutgoingTest : public ::testing::Test {
 protected:
  TcpOutgoingTest() : memory_(size_t{4} << 20) {
    for (size_t i = 0; i < memory_.size(); ++i)
      memory_[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  // A send of the next `bytes` bytes of memory, in the queue.
  TcpOp& Send(size_t bytes) {
    const uint64_t number = sends_.size() + 1;
    sends_.push_back(
        std::make_unique<TcpOp>(MadeOp(LaunchRole::kSend, number, memory_.data() + used_, bytes)));
    used_ += bytes;
    TcpOp& send = *sends_.back();
    send.turn.emplace(send);
    queue_.Add(*send.turn);
    return send;
  }
  // What is written if a socket takes `most` bytes.
  std::string Write(size_t most) {
    std::string bytes;
    for (const iovec& piece : out_.unwritten()) {
      const size_t here = std::min(most - bytes.size(), piece.iov_len);
      bytes.append(static_cast<const char*>(piece.iov_base), here);
    }
    out_.Wrote(bytes.size());
    return bytes;
  }
  std::string WriteAll() { return Write(size_t{8} << 20); }
  static TcpHeader HeaderOf(const std::string& message) {
    TcpHeader header;
    std::memcpy(&header, message.data(), sizeof(header));
    return header;
  }
  // Tag, place and bytes of each entry.
  static std::vector<std::vector<uint64_t>> EntriesOf(const std::string& message) {
    std::vector<std::vector<uint64_t>> entries;
    for (uint32_t i = 0; i < HeaderOf(message).entries; ++i) {
      TcpEntry entry;
      std::memcpy(&entry, message.data() + sizeof(TcpHeader) + i * sizeof(entry), sizeof(entry));
      entries.push_back({entry.tag, entry.at, entry.bytes});
    }
    return entries;
  }
  std::string Memory(size_t from, size_t bytes) const {
    return {reinterpret_cast<const char*>(memory_.data()) + from, bytes};
  }
  static size_t HeadBytes(size_t entries) { return sizeof(TcpHeader) + entries * sizeof(TcpEntry); }

  std::vector<std::byte> memory_;
  size_t used_ = 0;
  std::vector<std::unique_ptr<TcpOp>> sends_;
  FairQueue queue_;
  TcpOutgoing out_;
};

TEST_F(TcpOutgoingTest, AMessageHasItsEntriesAndThenTheBytesOfEach) {
  Send(3);
  Send(5);
  EXPECT_TRUE(out_.idle());
  ASSERT_TRUE(out_.TakeSends(queue_));
  EXPECT_FALSE(out_.idle());
  const std::string message = WriteAll();
  EXPECT_TRUE(out_.idle());
  EXPECT_EQ(HeaderOf(message).kind, static_cast<uint32_t>(TcpKind::kBytes));
  EXPECT_THAT(EntriesOf(message), ElementsAre(ElementsAre(1, 0, 3), ElementsAre(2, 0, 5)));
  EXPECT_EQ(message.substr(HeadBytes(2)), Memory(0, 8));
  const auto parts = out_.TakeOpBytes();
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_EQ(parts[0].op, sends_[0].get());
  EXPECT_EQ(parts[1].bytes, 5u);
  EXPECT_FALSE(out_.TakeSends(queue_)) << "nothing waits";
  EXPECT_TRUE(out_.idle());
}

TEST_F(TcpOutgoingTest, ALargeSendGoesInMessagesOfAtMostOneMebibyte) {
  Send((size_t{2} << 20) + 9);
  std::string bytes;
  for (const size_t expected : {kTcpMessageBytes, kTcpMessageBytes, size_t{9}}) {
    ASSERT_TRUE(out_.TakeSends(queue_));
    const std::string message = WriteAll();
    EXPECT_THAT(EntriesOf(message), ElementsAre(ElementsAre(1, bytes.size(), expected)));
    bytes += message.substr(HeadBytes(1));
    out_.TakeOpBytes();
  }
  EXPECT_EQ(bytes, Memory(0, used_));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(TcpOutgoingTest, AMessageHasNoMoreEntriesThanItMay) {
  for (size_t i = 0; i < kTcpMostEntries + 3; ++i) Send(2);
  ASSERT_TRUE(out_.TakeSends(queue_));
  EXPECT_EQ(HeaderOf(WriteAll()).entries, kTcpMostEntries);
  out_.TakeOpBytes();
  ASSERT_TRUE(out_.TakeSends(queue_));
  EXPECT_EQ(HeaderOf(WriteAll()).entries, 3u);
}

TEST_F(TcpOutgoingTest, WhatIsSaidGoesByItsKindInItsOrder) {
  std::deque<std::pair<TcpKind, TcpEntry>> said = {
      {TcpKind::kWanted, {1, 5, 0}}, {TcpKind::kWanted, {2, 5, 0}}, {TcpKind::kArrived, {1, 5, 0}}};
  ASSERT_TRUE(out_.TakeSaid(said));
  const std::string wanted = WriteAll();
  EXPECT_EQ(HeaderOf(wanted).kind, static_cast<uint32_t>(TcpKind::kWanted));
  EXPECT_THAT(EntriesOf(wanted), ElementsAre(ElementsAre(1, 5, 0), ElementsAre(2, 5, 0)));
  EXPECT_EQ(wanted.size(), HeadBytes(2));
  ASSERT_TRUE(out_.TakeSaid(said));
  EXPECT_EQ(HeaderOf(WriteAll()).kind, static_cast<uint32_t>(TcpKind::kArrived));
  EXPECT_FALSE(out_.TakeSaid(said));
  EXPECT_THAT(out_.TakeOpBytes(), IsEmpty());
}

TEST_F(TcpOutgoingTest, AMessageIsWrittenInAnyPieces) {
  Send(100);
  Send(200);
  ASSERT_TRUE(out_.TakeSends(queue_));
  std::string message;
  while (!out_.idle()) message += Write(7);
  EXPECT_EQ(message.substr(HeadBytes(2)), Memory(0, 300));
}

TEST_F(TcpOutgoingTest, AnOpThatIsLetGoOfGetsItsMemoryBackAndItsBytesAreWrittenNonetheless) {
  TcpOp& first = Send(1000);
  Send(1000);
  const std::string before = Memory(0, 2000);
  for (const size_t written : {size_t{0}, HeadBytes(2) + 400, HeadBytes(2) + 1000}) {
    SCOPED_TRACE(written);
    if (written > 0) {
      for (const auto& send : sends_) {
        send->cut = 0;
        send->turn.emplace(*send);
        queue_.Add(*send->turn);
      }
    }
    ASSERT_TRUE(out_.TakeSends(queue_));
    std::string message = Write(written);
    out_.LetGo(first);
    std::memset(memory_.data(), 0xEE, 1000);
    message += WriteAll();
    EXPECT_EQ(message.substr(HeadBytes(2)), before);
    const auto parts = out_.TakeOpBytes();
    ASSERT_THAT(parts, SizeIs(2));
    EXPECT_EQ(parts[0].op, nullptr) << "nobody is told of its bytes";
    EXPECT_EQ(parts[1].op, sends_[1].get());
    std::memcpy(memory_.data(), before.data(), before.size());
  }
}

TEST_F(TcpOutgoingTest, ChunksAreTakenWholeAndAreTheMessagesUntilTheyAreTakenOut) {
  TcpOp send(MadeOp(LaunchRole::kSend, 9, memory_.data(), memory_.size()));
  std::deque<std::unique_ptr<TcpChunk>> ready;
  for (const size_t bytes : {kTcpMessageBytes - 10, size_t{10}, size_t{1}}) {
    ready.push_back(std::make_unique<TcpChunk>());
    ready.back()->op = &send;
    ready.back()->at = 64 * ready.size();
    ready.back()->message.memory = memory_.data() + 64 * ready.size();
    ready.back()->message.size = bytes;
  }
  ASSERT_TRUE(out_.TakeChunks(ready));
  EXPECT_THAT(ready, SizeIs(1)) << "the last one does not fit";
  out_.LetGo(send);
  const std::string message = WriteAll();
  EXPECT_THAT(EntriesOf(message),
              ElementsAre(ElementsAre(9, 64, kTcpMessageBytes - 10), ElementsAre(9, 128, 10)));
  EXPECT_EQ(message.substr(HeadBytes(2) + kTcpMessageBytes - 10), Memory(128, 10));
  const auto parts = out_.TakeOpBytes();
  ASSERT_THAT(parts, SizeIs(2));
  for (const auto& part : parts) {
    EXPECT_EQ(part.op, nullptr);
    EXPECT_NE(part.chunk, nullptr) << "its memory is to be given back";
  }
}

}  // namespace
}  // namespace ferry
