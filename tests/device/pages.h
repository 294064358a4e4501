// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "device/timeline.h"

namespace ferry::testing {

inline std::unique_ptr<TimelinePages> MakePages() {
  auto pages = TimelinePages::Create();
  EXPECT_TRUE(pages.ok()) << pages.status();
  return *std::move(pages);
}

}  // namespace ferry::testing
