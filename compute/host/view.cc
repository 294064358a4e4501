// SPDX-License-Identifier: Apache-2.0
#include "compute/host/view.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace ferry::compute {
namespace {

constexpr uint64_t kTile = 512;

// Calls `run(at, stride, count)` for stretches of the last dimension: elements at `at`, `at` +
// stride and so on.
template <typename Run>
void ForEachStretch(const View& view, uint64_t first, uint64_t count, Run run) {
  const size_t rank = view.dims.size();
  if (rank == 0) {
    if (count > 0) run(view.offset, 0, uint64_t{1});
    return;
  }
  std::array<int64_t, 16> place = {};
  int64_t at = view.offset;
  for (size_t d = rank; d-- > 0;) {
    const auto dim = static_cast<uint64_t>(view.dims[d]);
    place[d] = static_cast<int64_t>(first % dim);
    first /= dim;
    at += place[d] * view.strides[d];
  }
  const int64_t stride = view.strides[rank - 1];
  while (count > 0) {
    const auto left = static_cast<uint64_t>(view.dims[rank - 1] - place[rank - 1]);
    const uint64_t length = std::min(left, count);
    run(at, stride, length);
    count -= length;
    at -= place[rank - 1] * stride;
    place[rank - 1] = 0;
    for (size_t d = rank - 1; d-- > 0;) {
      at += view.strides[d];
      if (++place[d] < view.dims[d]) break;
      at -= place[d] * view.strides[d];
      place[d] = 0;
    }
  }
}

template <typename T>
void GatherOf(const std::byte* base, const View& view, uint64_t first, uint64_t count,
              std::byte* tile) {
  ForEachStretch(view, first, count, [&](int64_t at, int64_t stride, uint64_t length) {
    const std::byte* from = base + at * static_cast<int64_t>(sizeof(T));
    if (stride == 1) {
      std::memcpy(tile, from, length * sizeof(T));
    } else if (stride == 0) {
      T value;
      std::memcpy(&value, from, sizeof(T));
      for (uint64_t i = 0; i < length; ++i) std::memcpy(tile + i * sizeof(T), &value, sizeof(T));
    } else {
      for (uint64_t i = 0; i < length; ++i) {
        std::memcpy(tile + i * sizeof(T), from, sizeof(T));
        from += stride * static_cast<int64_t>(sizeof(T));
      }
    }
    tile += length * sizeof(T);
  });
}

template <typename T>
void ScatterOf(std::byte* base, const View& view, uint64_t first, uint64_t count,
               const std::byte* tile) {
  ForEachStretch(view, first, count, [&](int64_t at, int64_t stride, uint64_t length) {
    std::byte* to = base + at * static_cast<int64_t>(sizeof(T));
    if (stride == 1) {
      std::memcpy(to, tile, length * sizeof(T));
    } else {
      for (uint64_t i = 0; i < length; ++i) {
        std::memcpy(to, tile + i * sizeof(T), sizeof(T));
        to += stride * static_cast<int64_t>(sizeof(T));
      }
    }
    tile += length * sizeof(T);
  });
}

void PutHalf(std::byte* packed, uint64_t at, std::byte code) {
  std::byte& byte = packed[at / 2];
  byte = at % 2 == 0 ? (byte & std::byte{0xF0}) | code : (byte & std::byte{0xF}) | code << 4;
}

}  // namespace

void PlacesOf(const Views& views, uint64_t first, uint64_t count, int64_t* places) {
  if (count == 0) return;
  int64_t* at_place = places;
  ForEachStretch(views.back(), first, count, [&](int64_t at, int64_t stride, uint64_t length) {
    for (uint64_t i = 0; i < length; ++i) *at_place++ = at + static_cast<int64_t>(i) * stride;
  });
  for (size_t view = views.size() - 1; view-- > 0;) {
    for (uint64_t i = 0; i < count; ++i) {
      ForEachStretch(views[view], static_cast<uint64_t>(places[i]), 1,
                     [&](int64_t at, int64_t, uint64_t) { places[i] = at; });
    }
  }
}

void Gather(DType type, const std::byte* base, const View& view, uint64_t first, uint64_t count,
            std::byte* tile) {
  if (count == 0) return;
  if (type == DType::kF4E2M1FN) {
    ForEachStretch(view, first, count, [&](int64_t at, int64_t stride, uint64_t length) {
      if (stride == 1) {
        UnpackFrom(base, static_cast<uint64_t>(at), length, tile);
        tile += length;
        return;
      }
      for (uint64_t i = 0; i < length; ++i, at += stride) {
        *tile++ = base[at / 2] >> (at % 2 * 4) & std::byte{0xF};
      }
    });
    return;
  }
  switch (TileBytesOf(type)) {
    case 8:
      return GatherOf<uint64_t>(base, view, first, count, tile);
    case 4:
      return GatherOf<uint32_t>(base, view, first, count, tile);
    case 2:
      return GatherOf<uint16_t>(base, view, first, count, tile);
    default:
      GatherOf<uint8_t>(base, view, first, count, tile);
  }
  if (type == DType::kBool) {
    for (uint64_t i = 0; i < count; ++i) tile[i] = std::byte{tile[i] != std::byte{0}};
  }
}

void Gather(DType type, const std::byte* base, const Views& views, uint64_t first, uint64_t count,
            std::byte* tile) {
  if (views.size() == 1) return Gather(type, base, views[0], first, count, tile);
  std::array<int64_t, kTile> places;
  View one{0, {1}, {1}};
  for (uint64_t done = 0; done < count;) {
    const uint64_t some = std::min(kTile, count - done);
    PlacesOf(views, first + done, some, places.data());
    for (uint64_t i = 0; i < some; ++i, tile += TileBytesOf(type)) {
      one.offset = places[i];
      Gather(type, base, one, 0, 1, tile);
    }
    done += some;
  }
}

void Scatter(DType type, std::byte* base, const View& view, uint64_t first, uint64_t count,
             const std::byte* tile) {
  if (count == 0) return;
  if (type == DType::kF4E2M1FN) {
    ForEachStretch(view, first, count, [&](int64_t at, int64_t stride, uint64_t length) {
      if (stride == 1) {
        PackTo(tile, static_cast<uint64_t>(at), length, base);
        tile += length;
        return;
      }
      for (uint64_t i = 0; i < length; ++i, at += stride)
        PutHalf(base, static_cast<uint64_t>(at), *tile++);
    });
    return;
  }
  switch (TileBytesOf(type)) {
    case 8:
      return ScatterOf<uint64_t>(base, view, first, count, tile);
    case 4:
      return ScatterOf<uint32_t>(base, view, first, count, tile);
    case 2:
      return ScatterOf<uint16_t>(base, view, first, count, tile);
    default:
      return ScatterOf<uint8_t>(base, view, first, count, tile);
  }
}

void CopyElements(DType type, const std::byte* from_base, const View& from, std::byte* to_base,
                  const View& to) {
  std::array<std::byte, kTile * 8> tile;
  const uint64_t elements = ElementsOf(from);
  for (uint64_t done = 0; done < elements; done += kTile) {
    const uint64_t count = std::min(kTile, elements - done);
    Gather(type, from_base, from, done, count, tile.data());
    Scatter(type, to_base, to, done, count, tile.data());
  }
}

void Pack(const std::byte* tile, uint64_t count, std::byte* packed) {
  for (; count >= 8; count -= 8, tile += 8, packed += 4) {
    uint64_t codes;
    std::memcpy(&codes, tile, sizeof(codes));
    codes = (codes | codes >> 4) & 0x00FF00FF00FF00FF;
    codes = (codes | codes >> 8) & 0x0000FFFF0000FFFF;
    const auto four = static_cast<uint32_t>(codes | codes >> 16);
    std::memcpy(packed, &four, sizeof(four));
  }
  for (uint64_t i = 0; i < count; i += 2) {
    packed[i / 2] = tile[i] | (i + 1 < count ? tile[i + 1] << 4 : std::byte{0});
  }
}

void Unpack(const std::byte* packed, uint64_t count, std::byte* tile) {
  for (; count >= 8; count -= 8, tile += 8, packed += 4) {
    uint32_t four;
    std::memcpy(&four, packed, sizeof(four));
    uint64_t codes = four;
    codes = (codes | codes << 16) & 0x0000FFFF0000FFFF;
    codes = (codes | codes << 8) & 0x00FF00FF00FF00FF;
    codes = (codes | codes << 4) & 0x0F0F0F0F0F0F0F0F;
    std::memcpy(tile, &codes, sizeof(codes));
  }
  for (uint64_t i = 0; i < count; ++i) tile[i] = packed[i / 2] >> (i % 2 * 4) & std::byte{0xF};
}

void PackTo(const std::byte* tile, uint64_t first, uint64_t count, std::byte* packed) {
  if (count > 0 && first % 2 != 0) {
    PutHalf(packed, first++, *tile++);
    --count;
  }
  const uint64_t whole = count / 2 * 2;
  Pack(tile, whole, packed + first / 2);
  if (count > whole) PutHalf(packed, first + whole, tile[whole]);
}

void UnpackFrom(const std::byte* packed, uint64_t first, uint64_t count, std::byte* tile) {
  if (count > 0 && first % 2 != 0) {
    *tile++ = packed[first++ / 2] >> 4;
    --count;
  }
  Unpack(packed + first / 2, count, tile);
}

}  // namespace ferry::compute
