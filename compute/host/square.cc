// SPDX-License-Identifier: Apache-2.0
#include "compute/host/square.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compute/host/view.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kMostSide = 256;
constexpr int64_t kLeastAlong = 4;  // elements that are worth it

// Elements of `T`: those of `along` are closer to each other, and are read so. `follow`: they
// follow each other.
template <typename T, bool follow>
void GatherAcross(const std::byte* base, const Square& square, std::byte* tile) {
  constexpr uint64_t kTogether = 16 / sizeof(T);
  const int64_t along = follow ? 1 : square.along;
  const auto bytes = [](int64_t elements) { return elements * static_cast<int64_t>(sizeof(T)); };
  const std::byte* const first = base + bytes(square.at);
  const uint64_t columns = square.columns;
  int64_t steps[kTogether];
  for (uint64_t k = 0; k < kTogether; ++k) steps[k] = bytes(square.last) * static_cast<int64_t>(k);
  uint64_t j = 0;
  for (; j + kTogether <= columns; j += kTogether) {
    const std::byte* const from = first + bytes(square.last) * static_cast<int64_t>(j);
    for (uint64_t i = 0; i < square.rows; ++i) {
      T values[kTogether];
      const std::byte* const element = from + bytes(along) * static_cast<int64_t>(i);
      for (uint64_t k = 0; k < kTogether; ++k) {
        std::memcpy(&values[k], element + steps[k], sizeof(T));
      }
      std::memcpy(tile + (i * columns + j) * sizeof(T), values, sizeof(values));
    }
  }
  for (; j < columns; ++j) {
    const std::byte* from = first + bytes(square.last) * static_cast<int64_t>(j);
    for (uint64_t i = 0; i < square.rows; ++i, from += bytes(along)) {
      std::memcpy(tile + (i * columns + j) * sizeof(T), from, sizeof(T));
    }
  }
}

// Turns a square of as many words as a word has elements of `bits` bits: what was element i of word
// k is element k of word i.
template <size_t bits>
void Turn(uint64_t (&words)[64 / bits]) {
  for (size_t width = 1; width < 64 / bits; width *= 2) {
    // The lower of two parts of `width` elements, in the whole word.
    const uint64_t low = (uint64_t{1} << width * bits) - 1;
    const uint64_t mask = ~uint64_t{0} / ((low << width * bits) + low) * low;
    for (size_t k = 0; k < 64 / bits; ++k) {
      if (k & width) continue;
      const uint64_t turned = (words[k] >> width * bits ^ words[k + width]) & mask;
      words[k + width] ^= turned;
      words[k] ^= turned << width * bits;
    }
  }
}

// The part of whole words of GatherAcross, of elements of one or two bytes that follow each other.
template <typename T>
void GatherWords(const std::byte* base, const Square& square, std::byte* tile) {
  constexpr size_t kOfWord = 8 / sizeof(T);
  for (uint64_t j = 0; j + kOfWord <= square.columns; j += kOfWord) {
    for (uint64_t i = 0; i + kOfWord <= square.rows; i += kOfWord) {
      uint64_t words[kOfWord];
      for (size_t k = 0; k < kOfWord; ++k) {
        const int64_t at =
            square.at + static_cast<int64_t>(i) + static_cast<int64_t>(j + k) * square.last;
        std::memcpy(&words[k], base + at * static_cast<int64_t>(sizeof(T)), sizeof(uint64_t));
      }
      Turn<8 * sizeof(T)>(words);
      for (size_t k = 0; k < kOfWord; ++k) {
        std::memcpy(tile + ((i + k) * square.columns + j) * sizeof(T), &words[k], sizeof(uint64_t));
      }
    }
  }
}

template <typename T>
void GatherAcross(const std::byte* base, const Square& square, std::byte* tile) {
  if (square.along != 1) return GatherAcross<T, false>(base, square, tile);
  constexpr uint64_t kOfWord = 8 / sizeof(T);
  const bool whole = square.rows % kOfWord == 0 && square.columns % kOfWord == 0;
  if (sizeof(T) <= 2 && whole) return GatherWords<T>(base, square, tile);
  GatherAcross<T, true>(base, square, tile);
}

// One row after the other.
template <typename Run>
void ForEachRow(DType type, const Square& square, Run run) {
  View row{square.at, {static_cast<int64_t>(square.columns)}, {square.last}};
  for (uint64_t i = 0; i < square.rows; ++i, row.offset += square.along) {
    run(row, i * square.columns * TileBytesOf(type));
  }
}

}  // namespace

uint64_t Squares::Count() const {
  uint64_t count = 1;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    const uint64_t part = d == along ? rows : d + 1 == view.dims.size() ? columns : 1;
    count *= (static_cast<uint64_t>(view.dims[d]) + part - 1) / part;
  }
  return count;
}

std::optional<Squares> SquaresFor(const View& view, DType type) {
  const size_t rank = view.dims.size();
  if (rank < 2 || ElementsOf(view) == 0) return std::nullopt;
  if (view.strides[rank - 1] == 0 || view.dims[rank - 1] == 1) return std::nullopt;
  size_t along = rank;
  int64_t least = std::abs(view.strides[rank - 1]);
  for (size_t d = 0; d + 1 < rank; ++d) {
    const int64_t stride = std::abs(view.strides[d]);
    if (view.dims[d] < kLeastAlong || stride == 0 || stride >= least) continue;
    least = stride;
    along = d;
  }
  if (along == rank) return std::nullopt;
  Squares squares;
  squares.view = view;
  squares.along = along;
  // Of 16 KiB, half of a first-level cache, or twice as much of one byte each: of each row that is
  // read 256 bytes, of each that is written 128 or more. If one side is shorter, the other is
  // longer.
  const uint64_t bytes = TileBytesOf(type);
  const uint64_t most = bytes == 1 ? 32768 : 16384 / bytes;
  const auto columns = static_cast<uint64_t>(view.dims[rank - 1]);
  const auto rows = static_cast<uint64_t>(view.dims[along]);
  const auto other_of = [&](uint64_t one) {
    return std::clamp<uint64_t>(most / one / 16 * 16, 16, kMostSide);
  };
  squares.rows = std::min(rows, other_of(std::min(most / (256 / bytes), columns)));
  squares.columns = std::min(columns, other_of(squares.rows));
  return squares;
}

Square SquareOf(const Squares& squares, const View& view, uint64_t index) {
  Square square{view.offset, view.strides[squares.along], view.strides.back(), 0, 0};
  for (size_t d = squares.view.dims.size(); d-- > 0;) {
    const bool last = d + 1 == squares.view.dims.size();
    const uint64_t part = d == squares.along ? squares.rows : last ? squares.columns : 1;
    const auto dim = static_cast<uint64_t>(squares.view.dims[d]);
    const uint64_t parts = (dim + part - 1) / part;
    const uint64_t begin = index % parts * part;
    index /= parts;
    square.at += static_cast<int64_t>(begin) * view.strides[d];
    if (d == squares.along) square.rows = std::min(part, dim - begin);
    if (last) square.columns = std::min(part, dim - begin);
  }
  return square;
}

void FetchSquare(DType type, const std::byte* base, const Square& square) {
  constexpr int64_t kLine = 64;  // of a cache
  if (std::abs(square.along) >= std::abs(square.last)) return;
  const auto bits = static_cast<int64_t>(InfoOf(type).bits);
  const auto bytes = [&](int64_t elements) { return elements * bits / 8; };
  const int64_t length = bytes(static_cast<int64_t>(square.rows - 1) * square.along);
  for (uint64_t j = 0; j < square.columns; ++j) {
    const std::byte* const from = base + bytes(square.at + static_cast<int64_t>(j) * square.last);
    for (int64_t at = std::min<int64_t>(length, 0); at <= std::max<int64_t>(length, 0);
         at += kLine) {
      __builtin_prefetch(from + at);
    }
  }
}

void GatherSquare(DType type, const std::byte* base, const Square& square, std::byte* tile) {
  if (type == DType::kF4E2M1FN || std::abs(square.along) >= std::abs(square.last)) {
    return ForEachRow(type, square, [&](const View& row, uint64_t at) {
      Gather(type, base, row, 0, square.columns, tile + at);
    });
  }
  switch (TileBytesOf(type)) {
    case 8:
      return GatherAcross<uint64_t>(base, square, tile);
    case 4:
      return GatherAcross<uint32_t>(base, square, tile);
    case 2:
      return GatherAcross<uint16_t>(base, square, tile);
    default:
      GatherAcross<uint8_t>(base, square, tile);
  }
  if (type != DType::kBool) return;
  for (uint64_t i = 0; i < square.rows * square.columns; ++i) {
    tile[i] = std::byte{tile[i] != std::byte{0}};
  }
}

void ScatterSquare(DType type, std::byte* base, const Square& square, const std::byte* tile) {
  ForEachRow(type, square, [&](const View& row, uint64_t at) {
    Scatter(type, base, row, 0, square.columns, tile + at);
  });
}

void PlacesOfSquare(const Square& square, int64_t* places) {
  for (uint64_t i = 0; i < square.rows; ++i) {
    for (uint64_t j = 0; j < square.columns; ++j) {
      *places++ = square.at + static_cast<int64_t>(i) * square.along +
                  static_cast<int64_t>(j) * square.last;
    }
  }
}

}  // namespace ferry::compute
