// SPDX-License-Identifier: Apache-2.0
// What a client gets that repeats a post.
#include "daemon/session/request_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

PostBatch Request(const std::string& id, uint64_t hash) {
  PostBatch batch;
  batch.request_id = id;
  batch.request_hash = hash;
  return batch;
}

PostReply Answer(uint64_t first_transfer_id) {
  PostReply reply;
  reply.first_transfer_id = first_transfer_id;
  return reply;
}

TEST(RequestLogTest, TheSameRequestHasTheSameAnswerAndAnotherOneIsRefused) {
  RequestLog log;
  EXPECT_FALSE(log.Find(Request("step 1", 11)).has_value());
  log.Remember(Request("step 1", 11), Answer(5));
  ASSERT_TRUE(log.Find(Request("step 1", 11)).has_value());
  EXPECT_EQ(log.Find(Request("step 1", 11))->first_transfer_id, 5u);
  ASSERT_TRUE(log.Find(Request("step 1", 12)).has_value());
  EXPECT_THAT(log.Find(Request("step 1", 12))->status,
              Is("ALREADY_EXISTS/REQUEST_ID_REUSED", "step 1"));
  EXPECT_FALSE(log.Find(Request("step 2", 11)).has_value());
}

TEST(RequestLogTest, WhatHasNoIdIsNeverRepeated) {
  RequestLog log;
  log.Remember(Request("", 11), Answer(5));
  EXPECT_FALSE(log.Find(Request("", 11)).has_value());
}

TEST(RequestLogTest, TheOldestIsForgotten) {
  RequestLog log;
  for (uint64_t i = 0; i <= RequestLog::kRequestsKept; ++i) {
    log.Remember(Request(absl::StrCat(i), i), Answer(i));
  }
  EXPECT_FALSE(log.Find(Request("0", 0)).has_value());
  EXPECT_TRUE(log.Find(Request("1", 1)).has_value());
}

}  // namespace
}  // namespace ferry::testing
