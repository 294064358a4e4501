// SPDX-License-Identifier: Apache-2.0
// What the client writes and reads of programs, against protoc, field by field.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/arena.h"
#include "client/codec.h"
#include "ferry/v1/job.pb.h"
#include "ferry/v1/session.pb.h"

namespace ferry::client {
namespace {

using google::protobuf::util::MessageDifferencer;

#define EXPECT_SAME_PROGRAM(expected, actual)               \
  EXPECT_TRUE(MessageDifferencer::Equals(expected, actual)) \
      << "expected " << (expected).DebugString() << "got " << (actual).DebugString()

template <typename Message>
Message Read(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.SerializeAsString().size(), bytes.size()) << message.DebugString();
  EXPECT_EQ(message.GetReflection()->GetUnknownFields(message).field_count(), 0);
  return message;
}

TEST(CodecProgramTest, Compile) {
  v1::CompileRequest expected;
  expected.set_device_id(1ull << 40);
  expected.mutable_source()->set_text("program 1\n# \xc3\xa9 ?\n");
  EXPECT_SAME_PROGRAM(expected, Read<v1::CompileRequest>(
                                    EncodeCompile(1ull << 40, "program 1\n# \xc3\xa9 \xff\n")));
  expected.set_device_id(0);
  expected.mutable_source()->set_text("");
  EXPECT_SAME_PROGRAM(expected, Read<v1::CompileRequest>(EncodeCompile(0, "")));
}

TEST(CodecProgramTest, Run) {
  ferry_arena arena(nullptr, 1, 1 << 20, false);
  arena.id = 300;
  const std::vector<ferry_binding> bindings = {{"x", {&arena, 1ull << 33, 4096}, FERRY_F32},
                                               {"y", {&arena, 0, 0}, FERRY_UNSPECIFIED}};
  std::vector<ferry_run> given(2);
  given[0].bindings = bindings.data();
  given[0].binding_count = bindings.size();
  given[0].has_defined_at = 1;
  given[0].defined_timeline = 63;
  given[0].defined_value = 1ull << 40;
  given[0].deadline_ns = 2'000'000'005;
  given[0].defines_timeline = 5;
  given[0].defines_value = 9;
  given[1].has_defined_at = 1;  // all zero, yet there
  const ferry_peer peers[2] = {{"next", 1ull << 42}, {"\xff", 0}};
  given[1].peers = peers;
  given[1].peer_count = 2;
  given[1].key_suffix = "/\0\xff";
  given[1].key_suffix_bytes = 3;
  const std::string fingerprint(32, 'f');
  ProgramRun runs[2] = {{&given[0], fingerprint, 17, 3, 1ull << 39, 4096},
                        {&given[1], fingerprint}};
  ferry_post_options options = {};
  options.over_timeline = 7;
  options.deadline_ns = 1;
  options.priority = -100;
  options.request_id = "once";
  options.request_id_bytes = 4;
  options.domain = "job";
  options.domain_bytes = 3;
  options.route = FERRY_ROUTE_MAPPED;
  PostBatch batch{Direction::kRun, 1ull << 41, nullptr, 2, &options};
  batch.runs = runs;

  v1::RunRequest expected;
  expected.set_request_id("once");
  expected.set_device_id(1ull << 41);
  v1::ProgramRun* run = expected.add_runs();
  run->set_fingerprint(fingerprint);
  v1::ProgramBinding* binding = run->add_bindings();
  binding->set_name("x");
  binding->mutable_range()->set_arena_id(300);
  binding->mutable_range()->set_offset(1ull << 33);
  binding->mutable_range()->set_length(4096);
  binding->set_data_type(v1::DATA_TYPE_F32);
  binding = run->add_bindings();
  binding->set_name("y");
  binding->mutable_range()->set_arena_id(300);
  run->mutable_defined_at()->set_timeline(63);
  run->mutable_defined_at()->set_value(1ull << 40);
  run->mutable_deadline()->set_seconds(2);
  run->mutable_deadline()->set_nanos(5);
  run->mutable_after()->set_first(17);
  run->mutable_after()->set_count(3);
  run->mutable_defines()->set_timeline(5);
  run->mutable_defines()->set_value(9);
  run->mutable_feeds()->set_first(1ull << 39);
  run->mutable_feeds()->set_count(4096);
  run = expected.add_runs();
  run->set_fingerprint(fingerprint);
  run->mutable_defined_at();
  v1::ProgramPeer* peer = run->add_peers();
  peer->set_name("next");
  peer->set_device_id(1ull << 42);
  run->add_peers()->set_name("?");
  run->set_key_suffix(std::string("/\0\xff", 3));
  expected.set_domain("job");
  expected.mutable_options()->set_route(v1::ROUTE_MAPPED);
  expected.mutable_options()->set_over_timeline(7);
  expected.mutable_options()->mutable_deadline()->set_nanos(1);
  expected.mutable_options()->set_priority(-100);
  EXPECT_SAME_PROGRAM(expected, Read<v1::RunRequest>(EncodePost(batch)));
  v1::AttachRequest packet;
  packet.set_sequence(300);
  *packet.mutable_run() = expected;
  EXPECT_SAME_PROGRAM(packet, Read<v1::AttachRequest>(EncodeSocketPost(300, batch)));
  runs[0].joined = {0, ProgramRun::kNotJoined};  // number 0 is one
  batch.prepare = true;
  packet.mutable_run()->mutable_runs(0)->mutable_bindings(0)->set_prepared_batch(0);
  packet.mutable_run()->set_prepare(true);
  EXPECT_SAME_PROGRAM(packet, Read<v1::AttachRequest>(EncodeSocketPost(300, batch)));
  const std::vector<ProgramRun> many(4096, runs[0]);
  batch.count = many.size();
  batch.runs = many.data();
  EXPECT_TRUE(EncodeSocketPost(300, batch).empty());  // no packet holds them
  EXPECT_EQ(Read<v1::RunRequest>(EncodePost(batch)).runs_size(), 4096);
}

// Of requests whose fields are all at their defaults there must still be the field that says which
// request it is, or the daemon takes the packet for garbage and closes the session.
TEST(CodecProgramTest, WhatConsistsOfDefaultsIsARequestAllTheSame) {
  ferry_post_options options = {};
  const auto asks = [&](Direction direction) {
    return Read<v1::AttachRequest>(
               EncodeSocketPost(1, PostBatch{direction, 0, nullptr, 0, &options}))
        .request_case();
  };
  EXPECT_EQ(asks(Direction::kRun), v1::AttachRequest::kRun);
  EXPECT_EQ(asks(Direction::kSend), v1::AttachRequest::kSend);
  EXPECT_EQ(asks(Direction::kReceive), v1::AttachRequest::kReceive);
  EXPECT_EQ(Read<v1::AttachRequest>(EncodeReleaseArena(1, 0, false)).request_case(),
            v1::AttachRequest::kReleaseArena);
  EXPECT_EQ(Read<v1::AttachRequest>(EncodeResetTimeline(1, 0)).request_case(),
            v1::AttachRequest::kResetTimeline);
  EXPECT_EQ(Read<v1::AttachRequest>(EncodeReleasePrepared(1, 0)).request_case(),
            v1::AttachRequest::kReleasePrepared);
  EXPECT_EQ(Read<v1::AttachRequest>(EncodeRegisterArena(1, {})).request_case(),
            v1::AttachRequest::kRegisterArena);
}

TEST(CodecProgramTest, Compiled) {
  v1::CompileResponse response;
  v1::CompiledProgram* program = response.mutable_program();
  program->set_fingerprint(std::string(32, '\1'));
  v1::ProgramBuffer* buffer = program->add_buffers();
  buffer->set_name("x");
  buffer->set_access(v1::PROGRAM_ACCESS_READ_WRITE);
  buffer->set_size_bytes(1ull << 50);
  buffer->set_donated(true);
  program->add_buffers()->set_name("y");
  program->set_scratch_bytes(1ull << 33);
  program->mutable_cost()->set_flops(7);
  program->set_plan("plan 1\n");
  ProgramInfo info;
  ASSERT_TRUE(DecodeCompiled(response.SerializeAsString(), &info));
  EXPECT_EQ(info.fingerprint, std::string(32, '\1'));
  ASSERT_EQ(info.buffers.size(), 2u);
  EXPECT_EQ(info.buffers[0].name, "x");
  EXPECT_EQ(info.buffers[0].access, FERRY_READ_WRITE);
  EXPECT_EQ(info.buffers[0].bytes, 1ull << 50);
  EXPECT_TRUE(info.buffers[0].donated);
  EXPECT_EQ(info.buffers[1].name, "y");
  EXPECT_FALSE(info.buffers[1].donated);
  EXPECT_EQ(info.scratch_bytes, 1ull << 33);
  EXPECT_EQ(info.plan, "plan 1\n");

  ProgramInfo none;
  EXPECT_FALSE(DecodeCompiled("", &none));
  EXPECT_FALSE(DecodeCompiled("\xff", &none));
  program->set_fingerprint("short");
  EXPECT_FALSE(DecodeCompiled(response.SerializeAsString(), &none));
}

TEST(CodecProgramTest, ThePacketThatAnswersARun) {
  v1::AttachResponse packet;
  packet.set_sequence(5);
  packet.mutable_run()->set_first_transfer_id(1ull << 38);
  packet.mutable_run()->set_first_over_value(12);
  packet.mutable_run()->set_prepared_batch(255);
  AttachResponse response;
  ASSERT_TRUE(DecodeAttachResponse(packet.SerializeAsString(), &response));
  EXPECT_EQ(response.kind, AttachResponse::Kind::kPosted);
  EXPECT_EQ(response.first_transfer_id, 1ull << 38);
  EXPECT_EQ(response.first_over_value, 12u);
  EXPECT_EQ(response.prepared_batch, 255u);
}

}  // namespace
}  // namespace ferry::client
