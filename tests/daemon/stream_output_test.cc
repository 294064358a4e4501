// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/stream_output.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A stream that writes when the test says so; checks what StreamOutput promises to gRPC.
class Stream {
 public:
  Stream()
      : output([this](const std::string* message) { Start(message); },
               [this](int end) {
                 EXPECT_EQ(writing, nullptr) << "finished during a write";
                 ends.push_back(end);
               }) {}
  // The write on its way is over.
  void Done(bool ok = true) {
    ASSERT_NE(writing, nullptr);
    written.push_back(*writing);  // the message lives until here
    writing = nullptr;
    output.OnWriteDone(ok);
  }
  void Add(const std::string& text, bool merge = true) {
    output.Append([&](std::string& message) { message += text; },
                  [&](const std::string&) { return merge; });
  }

  const std::string* writing = nullptr;
  bool inline_writes = false;  // OnWriteDone is called from inside start, as gRPC may
  std::vector<std::string> written;
  std::vector<int> ends;
  StreamOutput<std::string, int> output;

 private:
  void Start(const std::string* message) {
    EXPECT_EQ(writing, nullptr) << "two writes at once";
    EXPECT_THAT(ends, IsEmpty()) << "a write after the end";
    writing = message;
    if (inline_writes) Done();
  }
};

TEST(StreamOutput, MessagesGoOutOneAtATimeAndInOrder) {
  Stream stream;
  stream.output.Push("a");
  stream.output.Push("b");
  stream.output.Push("c");
  ASSERT_NE(stream.writing, nullptr);
  EXPECT_EQ(*stream.writing, "a");
  EXPECT_EQ(stream.output.waiting(), 2u);
  stream.Done();
  EXPECT_EQ(*stream.writing, "b");
  stream.Done();
  stream.Done();
  EXPECT_EQ(stream.writing, nullptr);
  EXPECT_THAT(stream.written, ElementsAre("a", "b", "c"));
  stream.output.Push("d");
  EXPECT_EQ(*stream.writing, "d");
}

TEST(StreamOutput, WhatWaitsIsMergedAndWhatIsOnItsWayIsNot) {
  Stream stream;
  for (const char* text : {"a", "b", "c"}) stream.Add(text);
  EXPECT_EQ(*stream.writing, "a");
  stream.Done();
  EXPECT_EQ(*stream.writing, "bc");
  stream.Add("d", /*merge=*/false);
  stream.Add("e", /*merge=*/false);
  stream.Done();
  stream.Done();
  stream.Done();
  EXPECT_THAT(stream.written, ElementsAre("a", "bc", "d", "e"));
}

TEST(StreamOutput, AMergedMessageHasAtMost32Parts) {
  Stream stream;
  for (int i = 0; i < 1 + 32 + 32 + 1; ++i) stream.Add("x");
  EXPECT_EQ(stream.output.waiting(), 3u);
  for (int i = 0; i < 4; ++i) stream.Done();
  EXPECT_THAT(stream.written, ElementsAre("x", std::string(32, 'x'), std::string(32, 'x'), "x"));
}

TEST(StreamOutput, WritesThatEndInsideStartDoNotRecurseIntoTrouble) {
  Stream stream;
  stream.inline_writes = true;
  for (const char* text : {"a", "b", "c"}) stream.output.Push(text);
  EXPECT_THAT(stream.written, ElementsAre("a", "b", "c"));
  stream.output.Finish(1);
  EXPECT_THAT(stream.ends, ElementsAre(1));
}

TEST(StreamOutput, WhatWaitedIsWrittenFromInsideStartToo) {
  Stream stream;
  for (const char* text : {"a", "b", "c"}) stream.output.Push(text);
  stream.output.Finish(2);
  stream.inline_writes = true;
  stream.Done();
  EXPECT_THAT(stream.written, ElementsAre("a", "b", "c"));
  EXPECT_THAT(stream.ends, ElementsAre(2));
}

TEST(StreamOutput, FinishWithNothingToWriteIsAtOnceAndOnce) {
  Stream stream;
  stream.output.Finish(1);
  stream.output.Finish(2);
  EXPECT_THAT(stream.ends, ElementsAre(1));
}

TEST(StreamOutput, FinishWaitsForTheWriteAndForWhatWaits) {
  Stream stream;
  stream.output.Push("a");
  stream.output.Push("b");
  stream.output.Finish(3);
  stream.output.Finish(4);
  EXPECT_THAT(stream.ends, IsEmpty());
  stream.Done();
  EXPECT_THAT(stream.ends, IsEmpty());
  stream.Done();
  EXPECT_THAT(stream.ends, ElementsAre(3));
  EXPECT_THAT(stream.written, ElementsAre("a", "b"));
}

TEST(StreamOutput, WhatIsSaidAfterTheEndIsDropped) {
  Stream stream;
  stream.output.Push("a");
  stream.output.Finish(1);
  stream.output.Push("b");
  stream.Add("c");
  stream.Done();
  stream.output.Push("d");
  EXPECT_THAT(stream.written, ElementsAre("a"));
  EXPECT_EQ(stream.writing, nullptr);
  EXPECT_THAT(stream.ends, ElementsAre(1));
}

TEST(StreamOutput, AFailedWriteDropsWhatWaitsAndLetsTheEndCome) {
  Stream stream;
  stream.output.Push("a");
  stream.output.Push("b");
  stream.output.Finish(5);
  stream.Done(/*ok=*/false);
  EXPECT_EQ(stream.writing, nullptr);
  EXPECT_EQ(stream.output.waiting(), 0u);
  EXPECT_THAT(stream.ends, ElementsAre(5));
}

TEST(StreamOutput, AfterAFailedWriteTheEndIsAtOnce) {
  Stream stream;
  stream.output.Push("a");
  stream.Done(/*ok=*/false);
  EXPECT_THAT(stream.ends, IsEmpty());
  stream.output.Finish(6);
  EXPECT_THAT(stream.ends, ElementsAre(6));
}

TEST(StreamOutput, DetachedItStartsNothing) {
  Stream stream;
  stream.output.Push("a");
  stream.output.Push("b");
  stream.output.Detach();
  stream.Done();
  EXPECT_EQ(stream.writing, nullptr);
  stream.output.Push("c");
  stream.output.Finish(7);
  EXPECT_THAT(stream.written, ElementsAre("a"));
  EXPECT_THAT(stream.ends, IsEmpty());
}

TEST(StreamOutput, DetachedItDoesNotFinishWhatWasToFinishAfterTheWrite) {
  Stream stream;
  stream.output.Push("a");
  stream.output.Finish(8);
  stream.output.Detach();
  stream.Done(/*ok=*/false);
  EXPECT_THAT(stream.ends, IsEmpty());
}

}  // namespace
}  // namespace ferry
