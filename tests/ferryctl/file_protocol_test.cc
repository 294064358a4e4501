// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/make_checkpoint.h"

namespace ferry::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TempFile(const std::string& name, const std::string& contents) {
  const std::string path =
      ::testing::TempDir() + "ferryctl-" + std::to_string(getpid()) + "-" + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

TEST(PreambleTest, SurvivesItsEncoding) {
  for (const bool summed : {false, true}) {
    const Preamble preamble{FileKind::kSafetensors, 1234, uint64_t{5} << 32, UINT64_MAX, summed};
    const std::string bytes = EncodePreamble(preamble);
    ASSERT_EQ(bytes.size(), kPreambleBytes);
    auto decoded = DecodePreamble(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, preamble);
  }
}

TEST(PreambleTest, RefusesWhatNoSenderSends) {
  const auto why = [](std::string bytes) {
    return std::string(DecodePreamble(bytes).status().message());
  };
  std::string good = EncodePreamble({FileKind::kRaw, 0, 10});
  EXPECT_THAT(why(good.substr(1)), HasSubstr("has 47 bytes"));
  std::string other = good;
  other[0] = 'X';
  EXPECT_THAT(why(other), HasSubstr("is not ferryctl's"));
  other = good;
  other[8] = 9;
  EXPECT_THAT(why(other), HasSubstr("has version 9"));
  other = good;
  other[12] = 4;
  EXPECT_THAT(why(other), HasSubstr("unknown kind 4"));
  other = good;
  other[40] = 2;
  EXPECT_THAT(why(other), HasSubstr("is not one of this version"));
  EXPECT_THAT(why(EncodePreamble({FileKind::kStream, 0, 1})), HasSubstr("a stream of 1 bytes"));
  EXPECT_THAT(why(EncodePreamble({FileKind::kRaw, 1, 10})), HasSubstr("a header of 1 bytes"));
  EXPECT_THAT(why(EncodePreamble({FileKind::kSafetensors, 11, 10})),
              HasSubstr("of 11 bytes in a file of 10"));
  EXPECT_THAT(why(EncodePreamble({FileKind::kSafetensors, 7, 10})),
              HasSubstr("a header of 7 bytes"));
  EXPECT_THAT(why(EncodePreamble({FileKind::kSafetensors, 200'000'000, 300'000'000})),
              HasSubstr("a header of 200000000 bytes"));
  EXPECT_THAT(why(EncodePreamble({FileKind::kRaw, 0, UINT64_MAX})),
              HasSubstr("tells of a file of"));
}

TEST(TransferKeyTest, LongNamesAreHashed) {
  EXPECT_EQ(TransferKeyOf("layers.0.wq"), "layers.0.wq");
  const std::string just(64, 'x');
  EXPECT_EQ(TransferKeyOf(just), just);
  const std::string hashed = TransferKeyOf(just + "y");
  EXPECT_EQ(hashed.size(), 64u);
  EXPECT_NE(hashed, TransferKeyOf(just + "z"));
  EXPECT_NE(PreambleKey(just), HeaderKey(just, 1));
  EXPECT_NE(HeaderKey(just, 1), HeaderKey(just, 2));
  EXPECT_LE(HeaderKey(just, 1).size(), kTransferKeyBytes);
  EXPECT_LE(PreambleKey(just).size(), kTransferKeyBytes);
}

TEST(PlanFileTest, BothEndsOfACheckpointPlanTheSame) {
  const std::string path = TempFile("a.safetensors", "");
  const std::vector<CheckpointTensor> tensors = LlamaTensors(6'000'000);
  auto written = WriteCheckpoint(path, tensors, 7);
  ASSERT_TRUE(written.ok()) << written.status();
  auto file = InputFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->bytes(), *written);
  auto head = ReadFileHead(*file, path, false);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->preamble.kind, FileKind::kSafetensors);
  head->preamble.id = 0xabc;
  auto plan = PlanFile(head->preamble, head->header, "a");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->transfers.size(), tensors.size());
  uint64_t at = head->preamble.header_bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(plan->transfers[i].key, TransferKeyOf(tensors[i].name + "@0000000000000abc"));
    EXPECT_EQ(plan->transfers[i].offset, at);
    EXPECT_EQ(plan->transfers[i].data_type, FERRY_BF16);
    EXPECT_EQ(plan->transfers[i].dims, tensors[i].shape);
    at += plan->transfers[i].bytes;
  }
  EXPECT_EQ(at, file->bytes());

  auto raw = ReadFileHead(*file, path, true);
  ASSERT_TRUE(raw.ok());
  EXPECT_EQ(raw->preamble.kind, FileKind::kRaw);
  unlink(path.c_str());
}

TEST(PlanFileTest, ATensorMayNotHaveTheKeyOfTheHeader) {
  const std::string json = R"({"f#header":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  std::string header(8, '\0');
  header[0] = static_cast<char>(json.size());
  header += json;
  const Preamble preamble{FileKind::kSafetensors, header.size(), header.size() + 1};
  EXPECT_TRUE(PlanFile(preamble, header, "g").ok());
  auto plan = PlanFile(preamble, header, "f");
  EXPECT_TRUE(HasReason(plan.status(), Reason::kKeyInUse));
}

TEST(PlanFileTest, AHeaderThatDisagreesWithThePreambleIsRefused) {
  std::string header(8, '\0');
  header[0] = 2;
  header += "{}  ";
  auto plan = PlanFile({FileKind::kSafetensors, header.size(), header.size()}, header, "f");
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("the header itself of 10"));
}

TEST(ReadFileHeadTest, AMalformedFileIsRefused) {
  const std::string path = TempFile("bad.safetensors", "short");
  auto file = InputFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(std::string(ReadFileHead(*file, path, false).status().message()),
              AllOf(HasSubstr("fewer than the 8"), HasSubstr("--raw sends it as bytes")));
  unlink(path.c_str());
}

TEST(PlanFileTest, ALongTensorIsCutIntoPartsWithoutAType) {
  const uint64_t bytes = 2 * kTransferBytes + 2;
  const std::string json = absl::StrCat(
      R"({"t":{"dtype":"BF16","shape":[)", bytes / 2, R"(],"data_offsets":[0,)", bytes,
      R"(]},"u":{"dtype":"U8","shape":[1],"data_offsets":[)", bytes, ",", bytes + 1, "]}}");
  std::string header(8, '\0');
  header[0] = static_cast<char>(json.size());
  header += json;
  auto plan =
      PlanFile({FileKind::kSafetensors, header.size(), header.size() + bytes + 1}, header, "f");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->transfers.size(), 4u);
  EXPECT_EQ(plan->transfers[0].key, "t#0@0000000000000000");
  EXPECT_EQ(plan->transfers[0].bytes, kTransferBytes);
  EXPECT_EQ(plan->transfers[2].key, "t#2@0000000000000000");
  EXPECT_EQ(plan->transfers[2].bytes, 2u);
  EXPECT_EQ(plan->transfers[2].data_type, FERRY_UNSPECIFIED);
  EXPECT_EQ(plan->transfers[3].key, "u@0000000000000000");
  EXPECT_EQ(plan->transfers[3].offset, header.size() + bytes);
  EXPECT_EQ(LongestChunk(*plan), kTransferBytes);
}

// All chunks of a plan that has a last one.
std::vector<FileChunk> ChunksOf(const FilePlan& plan, size_t max_transfers) {
  std::vector<FileChunk> chunks;
  ChunkCutter cutter(plan, max_transfers);
  while (std::optional<FileChunk> chunk = cutter.Next()) chunks.push_back(*std::move(chunk));
  return chunks;
}

TEST(ChunkCutterTest, ARawFileIsCutEvenly) {
  FilePlan plan{{FileKind::kRaw, 0, 0}, "f", {}};
  EXPECT_TRUE(ChunksOf(plan, 1).empty());
  plan.preamble.file_bytes = kChunkBytes;
  EXPECT_EQ(ChunksOf(plan, 1).size(), 1u);
  plan.preamble.file_bytes = 2 * kChunkBytes + 1;
  const std::vector<FileChunk> chunks = ChunksOf(plan, 1);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[1].offset, kChunkBytes);
  EXPECT_EQ(chunks[1].transfers[0].key, "f#1@0000000000000000");
  EXPECT_EQ(chunks[1].transfers[0].bytes, kChunkBytes);
  EXPECT_EQ(chunks[2].bytes, 1u);
  EXPECT_EQ(LongestChunk(plan), kChunkBytes);
}

TEST(ChunkCutterTest, TheChunksOfAStreamGrow) {
  const FilePlan plan{{FileKind::kStream, 0, 0}, "f", {}};
  ChunkCutter cutter(plan, 1);
  uint64_t offset = 0, bytes = kFirstStreamBytes;
  for (int i = 0; i < 100; ++i) {
    const std::optional<FileChunk> chunk = cutter.Next();
    ASSERT_TRUE(chunk.has_value());
    EXPECT_EQ(chunk->offset, offset);
    EXPECT_EQ(chunk->bytes, bytes);
    EXPECT_EQ(chunk->transfers[0].bytes, bytes + kTrailerBytes);
    offset += bytes;
    bytes = std::min(2 * bytes, kChunkBytes);
  }
}

TEST(ChunkCutterTest, TensorsAreTakenTogetherByCountAndBytes) {
  FilePlan plan{{FileKind::kSafetensors, 100, 0}, "f", {}};
  uint64_t at = 100;
  for (uint64_t bytes : {uint64_t{10}, uint64_t{10}, uint64_t{10}, kChunkBytes + 1, uint64_t{0}}) {
    plan.transfers.push_back({"k", at, bytes, 0, {}});
    at += bytes;
  }
  const std::vector<FileChunk> chunks = ChunksOf(plan, 2);
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[0].transfers.size(), 2u);
  EXPECT_EQ(chunks[0].offset, 100u);
  EXPECT_EQ(chunks[0].transfers[1].offset, 10u);  // in the chunk
  EXPECT_EQ(chunks[1].bytes, 10u);
  EXPECT_EQ(chunks[2].bytes, kChunkBytes + 1);  // longer than a chunk, so alone
  EXPECT_EQ(chunks[2].offset, 130u);
  EXPECT_EQ(chunks[3].bytes, 0u);
}

TEST(TrailerTest, SaysHowMuchOfAChunkThereIs) {
  auto bytes = DecodeTrailer(EncodeTrailer(70'000), 70'000);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, 70'000u);
  EXPECT_TRUE(
      HasReason(DecodeTrailer(EncodeTrailer(70'001), 70'000).status(), Reason::kProtocolError));
}

TEST(InTermsOfFileTest, WhatTheReceiverPromisesIsToldOfTheFile) {
  const auto told = [](absl::string_view text) {
    const absl::Status status =
        Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, text);
    const absl::Status said = InTermsOfFile(status, "f", 7);
    EXPECT_EQ(ReasonOf(said), Reason::kPeerUnreachable);
    return std::string(said.message());
  };
  for (const std::string& key : {WatchedKey("f"), ReceivedKey("f", 7), MetKey("f", 7)}) {
    EXPECT_EQ(told(absl::StrCat("the send of key '", key, "' from device 2 to device 0: lost")),
              "the receive of key 'f' from device 0 to device 2: lost");
    EXPECT_EQ(told(absl::StrCat("the receive of key '", key, "' from device 2 to device 0: the ",
                                "send of key '", key, "' at node-b (device 2) was not posted")),
              "the send of key 'f' from device 0 to device 2: the receive of key 'f' at node-b "
              "(device 2) was not posted");
    EXPECT_EQ(
        told(absl::StrCat("the send of key '", key, "' at node-b (device 2): full; that send ",
                          "ended 12 ms before this receive was posted")),
        "the receive of key 'f' at node-b (device 2): full; that receive ended 12 ms before "
        "this send was posted");
    EXPECT_EQ(told(absl::StrCat("key '", key, "' from device x; ", key)),
              "key 'f' from device x; f");
  }
  // The sender's promises and data go the file's way already.
  for (const std::string& key : {SentKey("f", 7), PreambleKey("f"), HeaderKey("f", 7)}) {
    EXPECT_EQ(told(absl::StrCat("the send of key '", key, "' from device 0 to device 2: lost")),
              "the send of key 'f' from device 0 to device 2: lost");
  }
}

}  // namespace
}  // namespace ferry::tools
