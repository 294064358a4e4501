// SPDX-License-Identifier: Apache-2.0
#include "transfer/pieces.h"

#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

namespace ferry {
namespace {

using Flat = std::vector<std::tuple<size_t, uint64_t, size_t, uint64_t, uint64_t>>;

Flat Cut(std::vector<uint64_t> source, std::vector<uint64_t> destination) {
  Flat flat;
  for (const Piece& piece : CutPieces(source, destination)) {
    flat.emplace_back(piece.source_range, piece.source_offset, piece.destination_range,
                      piece.destination_offset, piece.length);
  }
  return flat;
}

TEST(PiecesTest, OneRangeAtEachEndIsOnePiece) { EXPECT_EQ(Cut({9}, {9}), (Flat{{0, 0, 0, 0, 9}})); }

TEST(PiecesTest, CutsAtTheBoundariesOfBothEnds) {
  EXPECT_EQ(Cut({4, 4}, {3, 3, 2}),
            (Flat{{0, 0, 0, 0, 3}, {0, 3, 1, 0, 1}, {1, 0, 1, 1, 2}, {1, 2, 2, 0, 2}}));
}

TEST(PiecesTest, EqualBoundariesMakeNoExtraPieces) {
  EXPECT_EQ(Cut({2, 5}, {2, 5}), (Flat{{0, 0, 0, 0, 2}, {1, 0, 1, 0, 5}}));
}

TEST(PiecesTest, EmptyRangesAndNoBytesHaveNoPieces) {
  EXPECT_EQ(Cut({}, {}), Flat{});
  EXPECT_EQ(Cut({0, 0}, {}), Flat{});
  EXPECT_EQ(Cut({0, 3, 0}, {1, 0, 2}), (Flat{{1, 0, 0, 0, 1}, {1, 1, 2, 0, 2}}));
}

TEST(PiecesTest, GoesOverFourGigabytes) {
  const uint64_t big = uint64_t{5} << 30;
  EXPECT_EQ(Cut({big, 1}, {1, big}),
            (Flat{{0, 0, 0, 0, 1}, {0, 1, 1, 0, big - 1}, {1, 0, 1, big - 1, 1}}));
}

TEST(PiecesDeathTest, ListsOfDifferentSumsAreABrokenInvariant) {
  EXPECT_DEATH(Cut({4}, {5}), "AtEnd");
}

}  // namespace
}  // namespace ferry
