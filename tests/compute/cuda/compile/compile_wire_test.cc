// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/compile_wire.h"

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace ferry::compute {
namespace {

CompiledKernel SomeKernel() {
  CompiledKernel kernel;
  kernel.cubin = std::string(
      "\x7f"
      "ELF\0\1",
      6);
  kernel.registers = 32;
  kernel.spilled = 8;
  kernel.log = "a log\n";
  return kernel;
}

// Nothing that is cut off, or longer, is taken for the whole.
template <typename Decoder>
void ExpectOnlyTheWhole(const std::string& payload, const Decoder& decode) {
  EXPECT_TRUE(decode(payload).ok());
  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(decode(payload.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode(payload + "x").ok());
}

TEST(CompileWireTest, GoesOverAsItIs) {
  const absl::StatusOr<CompileRequest> request =
      DecodeRequest(Encode(CompileRequest{"sm_90a", "a source", Tier::kFirst}));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->tier, Tier::kFirst);
  EXPECT_EQ(DecodeRequest(Encode(CompileRequest{"sm_90a", "a source"}))->tier, Tier::kFull);
  EXPECT_EQ(request->arch, "sm_90a");
  EXPECT_EQ(request->source, "a source");
  EXPECT_EQ(*DecodeGreeting(EncodeGreeting(std::string("13.0"))), "13.0");
  const absl::StatusOr<CompiledKernel> kernel = DecodeAnswer(EncodeAnswer(SomeKernel()));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->cubin, SomeKernel().cubin);
  EXPECT_EQ(kernel->registers, 32);
  EXPECT_EQ(kernel->spilled, 8);
  EXPECT_EQ(kernel->log, "a log\n");
}

TEST(CompileWireTest, FailuresGoOverWithTheirText) {
  const absl::Status missing =
      Error(absl::StatusCode::kUnavailable, Reason::kNotReady, "there is no NVRTC");
  const absl::Status heard = DecodeGreeting(EncodeGreeting(missing)).status();
  EXPECT_EQ(heard.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(HasReason(heard, Reason::kNotReady));
  EXPECT_EQ(heard.message(), "there is no NVRTC");
  const absl::Status wrong =
      Error(absl::StatusCode::kInternal, Reason::kInternal, "it does not compile");
  EXPECT_EQ(DecodeAnswer(EncodeAnswer(wrong)).status().message(), "it does not compile");
}

TEST(CompileWireTest, OnlyTheWholeIsTaken) {
  ExpectOnlyTheWhole(Encode(CompileRequest{"sm_90a", "a source", Tier::kFull}), DecodeRequest);
  ExpectOnlyTheWhole(EncodeGreeting(std::string("13.0")), DecodeGreeting);
  ExpectOnlyTheWhole(EncodeAnswer(SomeKernel()), DecodeAnswer);
  CompiledKernel empty = SomeKernel();
  empty.cubin.clear();
  EXPECT_FALSE(DecodeAnswer(EncodeAnswer(empty)).ok());
}

TEST(CompileWireTest, NoFrameIsLongerThanAgreed) {
  const std::string frame = Framed("abc");
  EXPECT_EQ(*PayloadOf(frame.substr(0, kFrameHeader)), 3u);
  EXPECT_EQ(frame.substr(kFrameHeader), "abc");
  EXPECT_FALSE(PayloadOf(std::string(kFrameHeader, '\xff')).ok());
}

}  // namespace
}  // namespace ferry::compute
