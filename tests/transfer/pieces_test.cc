// SPDX-License-Identifier: Apache-2.0
#include "transfer/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tests/support/random_layout.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ArenaId kFrom(1);
constexpr ArenaId kTo(2);

using Flat = std::vector<std::tuple<size_t, uint64_t, size_t, uint64_t, uint64_t>>;

Flat Cut(const Layout& source, const Layout& destination, uint64_t most = ~uint64_t{0}) {
  Flat flat;
  for (PieceCutter pieces(source, destination); !pieces.AtEnd();) {
    const Piece piece = pieces.Next(most);
    flat.emplace_back(piece.source_extent, piece.source_offset, piece.destination_extent,
                      piece.destination_offset, piece.length);
  }
  return flat;
}

std::vector<uint64_t> RunLengths(const Layout& layout) {
  std::vector<uint64_t> lengths;
  for (LayoutCursor run(layout); !run.AtEnd(); run.Advance(run.left())) {
    lengths.push_back(run.left());
  }
  return lengths;
}

// Ranges of these lengths that do not touch.
Layout Apart(std::vector<uint64_t> lengths) {
  std::vector<Range> ranges;
  uint64_t at = 0;
  for (const uint64_t length : lengths) {
    ranges.push_back({kFrom, at, length});
    at += length + 1;
  }
  return Layout(std::move(ranges));
}

TEST(PiecesTest, OneRangeAtEachEndIsOnePiece) {
  EXPECT_EQ(Cut(Apart({9}), Apart({9})), (Flat{{0, 0, 0, 0, 9}}));
}

TEST(PiecesTest, CutsAtTheBoundariesOfBothEnds) {
  EXPECT_EQ(Cut(Apart({4, 4}), Apart({3, 3, 2})),
            (Flat{{0, 0, 0, 0, 3}, {0, 3, 1, 0, 1}, {1, 0, 1, 1, 2}, {1, 2, 2, 0, 2}}));
}

TEST(PiecesTest, EqualBoundariesMakeNoExtraPieces) {
  EXPECT_EQ(Cut(Apart({2, 5}), Apart({2, 5})), (Flat{{0, 0, 0, 0, 2}, {1, 0, 1, 0, 5}}));
}

TEST(PiecesTest, EmptyRangesAndNoBytesHaveNoPieces) {
  EXPECT_EQ(Cut({}, {}), Flat{});
  EXPECT_EQ(Cut(Apart({0, 0}), {}), Flat{});
  EXPECT_EQ(Cut(Apart({0, 3, 0}), Apart({1, 0, 2})), (Flat{{1, 0, 0, 0, 1}, {1, 1, 2, 0, 2}}));
  EXPECT_EQ(Cut(*Layout::Strided(kFrom, 5, 8, 16, 0), *Layout::BlockTable(kFrom, 5, 8, {})),
            Flat{});
}

TEST(PiecesTest, GoesOverFourGigabytes) {
  const uint64_t big = uint64_t{5} << 30;
  EXPECT_EQ(Cut(Apart({big, 1}), Apart({1, big})),
            (Flat{{0, 0, 0, 0, 1}, {0, 1, 1, 0, big - 1}, {1, 0, 1, big - 1, 1}}));
}

TEST(PiecesTest, NeighboursAreOnePiece) {
  const Layout list{{kFrom, 0, 4}, {kFrom, 4, 0}, {kFrom, 4, 4}, {kTo, 8, 4}, {kFrom, 0, 4}};
  EXPECT_THAT(RunLengths(list), ElementsAre(8, 4, 4));
  EXPECT_EQ(Cut(list, Apart({16})), (Flat{{0, 0, 0, 0, 8}, {3, 0, 0, 8, 4}, {4, 0, 0, 12, 4}}));
  EXPECT_THAT(RunLengths(*Layout::BlockTable(kFrom, 3, 10, {4, 5, 6, 2, 3, 9})),
              ElementsAre(30, 20, 10));
  EXPECT_THAT(RunLengths(*Layout::Strided(kFrom, 3, 10, 10, 1000)), ElementsAre(10'000));
  EXPECT_THAT(RunLengths(*Layout::Strided(kFrom, 3, 10, 11, 3)), ElementsAre(10, 10, 10));
  EXPECT_THAT(RunLengths({}), IsEmpty());
}

TEST(PiecesTest, OffsetsCountFromTheExtent) {
  EXPECT_EQ(Cut(*Layout::BlockTable(kFrom, 100, 4, {8, 3}), *Layout::Strided(kTo, 7, 4, 6, 2)),
            (Flat{{0, 20, 0, 0, 4}, {0, 0, 0, 6, 4}}));
}

TEST(PiecesTest, RandomLayoutsAreCutByteForByte) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t bytes = random() % 3 == 0 ? 60 * (random() % 8) : random() % 300;
    const Layout source = RandomLayout(random, kFrom, 2 * bytes + 40, bytes);
    const Layout destination = RandomLayout(random, kTo, 2 * bytes + 40, bytes);
    const auto from = Places(source);
    const auto to = Places(destination);
    const uint64_t most = random() % 2 == 0 ? 1 + random() % 50 : ~uint64_t{0};
    size_t at = 0;
    size_t count = 0;
    for (PieceCutter pieces(source, destination); !pieces.AtEnd(); ++count) {
      const Piece piece = pieces.Next(most);
      ASSERT_GT(piece.length, 0u);
      ASSERT_LE(piece.length, most);
      ASSERT_LE(at + piece.length, bytes);
      for (uint64_t byte = 0; byte < piece.length; ++byte, ++at) {
        ASSERT_EQ(from[at].second,
                  source.extents()[piece.source_extent].offset + piece.source_offset + byte);
        ASSERT_EQ(to[at].second, destination.extents()[piece.destination_extent].offset +
                                     piece.destination_offset + byte);
      }
    }
    ASSERT_EQ(at, bytes);
    if (most != ~uint64_t{0}) continue;
    // As few as there can be: a piece for every byte that does not follow the one before.
    size_t fewest = 0;
    for (size_t byte = 0; byte < bytes; ++byte) {
      if (byte == 0 || from[byte].second != from[byte - 1].second + 1 ||
          to[byte].second != to[byte - 1].second + 1) {
        ++fewest;
      }
    }
    ASSERT_EQ(count, fewest);
  }
}

TEST(PiecesDeathTest, LayoutsOfDifferentBytesAreABrokenInvariant) {
  EXPECT_DEATH(Cut(Apart({4}), Apart({5})), "bytes");
}

}  // namespace
}  // namespace ferry
