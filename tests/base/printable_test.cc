// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Printable, ShowsWhatTerminalsObeyAndLinesEndWithAsBytes) {
  EXPECT_EQ(Printable("a\x1b[2Jb\n\r\t"), "a\\x1b[2Jb\\x0a\\x0d\\x09");
  EXPECT_EQ(Printable("\x7f"), "\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\x9b") << "U+009B, a terminal's escape";
}

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text :
       {"", "layers.0.wq", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\xa2", "\xc2\xa0"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

// A message with such a string cannot be parsed at its other end.
TEST(Printable, ShowsWhatIsNoUtf8AsBytes) {
  EXPECT_EQ(Printable("a\xc2"), "a\\xc2") << "cut in the middle";
  EXPECT_EQ(Printable("\xc2z"), "\\xc2z");
  EXPECT_EQ(Printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
}

}  // namespace
}  // namespace ferry
