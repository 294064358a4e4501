// SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>

#include "absl/container/flat_hash_set.h"

namespace ferry {
namespace {

TEST(IdTest, DifferentKindsDoNotMix) {
  static_assert(!std::is_convertible_v<uint64_t, ArenaId>);
  static_assert(!std::is_convertible_v<ArenaId, TransferId>);
  static_assert(!std::is_constructible_v<ArenaId, TransferId>);
  static_assert(!std::is_convertible_v<ArenaId, uint64_t>);
}

TEST(IdTest, PrintsItsKind) {
  EXPECT_EQ(GlobalDeviceId(3).ToString(), "device 3");
  EXPECT_EQ(Incarnation(0xab).ToString(), "incarnation 00000000000000ab");
  std::ostringstream out;
  out << SessionId(7) << ", " << PeerId(1) << ", " << ArenaId(9);
  EXPECT_EQ(out.str(), "session 7, peer 1, arena 9");
}

TEST(IdTest, ComparesAndHashesByValue) {
  EXPECT_LT(ArenaId(1), ArenaId(2));
  EXPECT_EQ(ArenaId(), ArenaId(0));
  absl::flat_hash_set<ArenaId> set = {ArenaId(1), ArenaId(2), ArenaId(1)};
  EXPECT_EQ(set.size(), 2u);
  EXPECT_TRUE(set.contains(ArenaId(2)));
}

TEST(IdTest, ATransferKnowsItsSessionAndSequence) {
  const uint64_t last = (uint64_t{1} << kTransferSequenceBits) - 1;
  for (uint32_t session : {0u, 1u, 77u, (1u << 24) - 1}) {
    for (uint64_t sequence : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, last}) {
      const TransferId id = MakeTransferId(SessionId(session), sequence);
      EXPECT_EQ(SessionOf(id), SessionId(session));
      EXPECT_EQ(SequenceOf(id), sequence);
    }
  }
  EXPECT_LT(MakeTransferId(SessionId(1), last), MakeTransferId(SessionId(2), 0));
}

}  // namespace
}  // namespace ferry
