// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/program_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/status.h"
#include "compute/program/verify.h"
#include "tests/compute/program_generator.h"

namespace ferry {
namespace {

TEST(ProgramCodecTest, RandomProgramsComeBackAsTheyWere) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const compute::Program program = compute::testing::ProgramGenerator(seed).Make();
    v1::Program proto;
    ToProto(program, &proto);
    v1::Program received;
    ASSERT_TRUE(received.ParseFromString(proto.SerializeAsString()));
    const absl::StatusOr<compute::Program> back = FromProto(received);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == program) << seed;
    EXPECT_TRUE(compute::Verify(*back).empty());
  }
}

TEST(ProgramCodecTest, WhatIsNoProgramIsRefusedByName) {
  const auto refusal = [](const std::function<void(v1::Program&)>& change) {
    v1::Program proto;
    proto.set_version(1);
    proto.add_buffers()->set_name("b");
    proto.mutable_buffers(0)->set_access(v1::PROGRAM_ACCESS_READ);
    v1::ProgramNode* node = proto.add_nodes();
    node->set_op("constant");
    node->add_attributes()->set_name("splat");
    node->mutable_attributes(0)->set_data("0000");
    node->add_results()->set_data_type(v1::DATA_TYPE_F32);
    EXPECT_TRUE(FromProto(proto).ok()) << FromProto(proto).status();
    change(proto);
    const absl::StatusOr<compute::Program> program = FromProto(proto);
    EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
    if (HasReason(program.status(), Reason::kFieldInvalid)) {
      EXPECT_THAT(MetadataOf(program.status())["field"], ::testing::StartsWith("program"));
    }
    return std::string(program.status().message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](auto& p) { p.set_version(2); }), HasSubstr("version"));
  EXPECT_THAT(refusal([](auto& p) { p.mutable_buffers(0)->clear_access(); }),
              HasSubstr("buffers[0]"));
  EXPECT_THAT(refusal([](auto& p) { p.mutable_buffers(0)->set_name("a b"); }),
              HasSubstr("names no buffer"));
  EXPECT_THAT(refusal([](auto& p) { p.mutable_nodes(0)->set_op("fly"); }),
              HasSubstr("nodes[0]: there is no op fly"));
  EXPECT_THAT(refusal([](auto& p) { p.mutable_nodes(0)->add_operands(9); }),
              HasSubstr("there is no value 9"));
  EXPECT_THAT(refusal([](auto& p) { p.mutable_nodes(0)->set_body_nodes(7); }),
              HasSubstr("only a repeat has a body"));
  EXPECT_THAT(refusal([](auto& p) { p.mutable_nodes(0)->clear_results(); }),
              HasSubstr("has 1 results here, not 0"));
  EXPECT_THAT(refusal([](auto& p) {
                p.mutable_nodes(0)->mutable_results(0)->set_data_type(v1::DATA_TYPE_C64);
              }),
              HasSubstr("data_type"));
  EXPECT_THAT(
      refusal([](auto& p) { *p.mutable_nodes(0)->add_attributes() = p.nodes(0).attributes(0); }),
      HasSubstr("splat is given twice"));
  EXPECT_THAT(refusal([](auto& p) { p.mutable_nodes(0)->mutable_attributes(0)->set_word("sum"); }),
              HasSubstr("splat is no word"));
  EXPECT_THAT(refusal([](auto& p) {
                p.mutable_nodes(0)->mutable_attributes(0)->set_data(std::string(2000, 'x'));
              }),
              HasSubstr("splat has 1 to 1024 bytes, not 2000"));
  EXPECT_THAT(refusal([](auto& p) {
                p.mutable_numerics()->set_accumulation(static_cast<v1::AccumulationClass>(9));
              }),
              HasSubstr("numerics"));
  EXPECT_THAT(refusal([](auto& p) {
                for (int i = 0; i < 5000; ++i) *p.add_nodes() = p.nodes(0);
              }),
              HasSubstr("5001 ops"));
}

}  // namespace
}  // namespace ferry
