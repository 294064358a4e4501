// SPDX-License-Identifier: Apache-2.0
// Posts on arenas of GPUs, for the tests of streams.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tests/client/cuda/cuda_fixture.h"

namespace ferry::testing {

class CudaStreamTest : public CudaTest {
 protected:
  // A store of a stream rings no doorbell: the real daemon polls, the small one is told.
  static void Ring(Session& session) {
    ASSERT_OK(session.Define(63, session.DefinedValue(63) + 1));
  }
  static Batch PostReceive(Session& session, Arena& to, const std::string& key, uint64_t from) {
    auto batch = session.Receive(to.device(), {Keyed(key, {to.All()}, from)});
    EXPECT_TRUE(batch.ok()) << batch.status().ToString();
    return std::move(*batch);
  }
  static Batch PostSend(Session& session, Arena& from, const std::string& key, uint64_t to,
                        std::optional<Transfer::DefinedAt> defined = {}) {
    Transfer transfer = Keyed(key, {from.All()}, to);
    transfer.defined_at = defined;
    PostOptions options;
    options.over_timeline = 1;
    auto batch = session.Send(from.device(), {transfer}, options);
    EXPECT_TRUE(batch.ok()) << batch.status().ToString();
    return std::move(*batch);
  }
};

}  // namespace ferry::testing
