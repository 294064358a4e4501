// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/stream_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ferry::tools {
namespace {

class StreamIoTest : public ::testing::Test {
 protected:
  StreamIoTest() : pipe_(absl::StrCat(::testing::TempDir(), "stream_io_", getpid())) {
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
  }
  ~StreamIoTest() override { unlink(pipe_.c_str()); }
  const std::string pipe_;
};

TEST_F(StreamIoTest, WhatIsNoFileAndNoDirectoryIsAStream) {
  for (const std::string& path : {std::string("-"), pipe_, std::string("/dev/null")}) {
    EXPECT_TRUE(IsStream(path)) << path;
  }
  for (const char* path : {"/", "/proc/self/exe", "/nowhere"}) EXPECT_FALSE(IsStream(path)) << path;
}

TEST_F(StreamIoTest, WhatIsWrittenIsReadUntilTheEnd) {
  const std::string bytes(3'000'000, 'x');  // more than a pipe holds
  std::thread writer([&] {
    auto out = OutputStream::Open(pipe_);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_TRUE(out->Write(bytes.data(), bytes.size()).ok());
  });
  auto in = InputStream::Open(pipe_);
  ASSERT_TRUE(in.ok()) << in.status();
  std::string read(2'000'000, '\0');
  EXPECT_EQ(in->Read(read.data(), read.size()).value_or(0), read.size());
  EXPECT_EQ(in->Read(read.data(), read.size()).value_or(0), 1'000'000u);
  EXPECT_EQ(in->Read(read.data(), read.size()).value_or(1), 0u);
  writer.join();
}

TEST_F(StreamIoTest, AWaitForBytesIsGivenUp) {
  const UniqueFd writer(open(pipe_.c_str(), O_RDWR | O_CLOEXEC));
  auto in = InputStream::Open(pipe_);
  ASSERT_TRUE(in.ok()) << in.status();
  const UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  in->StopAt(stop.get());
  std::thread stopper([&] { eventfd_write(stop.get(), 1); });
  char byte = 0;
  EXPECT_TRUE(absl::IsCancelled(in->Read(&byte, 1).status()));
  stopper.join();
}

TEST_F(StreamIoTest, NobodyReadsIsAnError) {
  UniqueFd reader(open(pipe_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto out = OutputStream::Open(pipe_);
  ASSERT_TRUE(out.ok()) << out.status();
  reader.Reset();
  EXPECT_TRUE(absl::StrContains(out->Write("x", 1).message(), "Broken pipe"));
}

}  // namespace
}  // namespace ferry::tools
