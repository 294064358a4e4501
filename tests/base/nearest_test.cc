// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <utility>

namespace ferry {
namespace {

TEST(AlikeTest, WhichKeysMayBeMeantForEachOther) {
  const std::pair<const char*, const char*> alike[] = {
      {"step-42", "step-41"},
      {"step-42", "step-42/b"},
      {"weights", "Weights"},
      {"runs/7/weights", "old/weights"},
      {"weights", "old/weights"},
      {"1-weights.bin", "12-weights.bin"},
      {"shard-00001-of-8", "shard-11001-of-8"},
  };
  for (const auto& [a, b] : alike) {
    EXPECT_TRUE(Alike(a, b)) << a << " " << b;
    EXPECT_TRUE(Alike(b, a)) << a << " " << b;
  }
  const std::pair<const char*, const char*> not_alike[] = {
      {"k", "j"},
      {"a", "as the crow flies"},
      {"model.safetensors#file", "data.safetensors#file"},
      {"runs/", "old/"},
  };
  for (const auto& [a, b] : not_alike) {
    EXPECT_FALSE(Alike(a, b)) << a << " " << b;
    EXPECT_FALSE(Alike(b, a)) << a << " " << b;
  }
  EXPECT_TRUE(Alike("same", "same"));
}

}  // namespace
}  // namespace ferry
