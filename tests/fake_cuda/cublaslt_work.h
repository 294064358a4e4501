// SPDX-License-Identifier: Apache-2.0
// What a product of the fake cuBLASLt does once its turn on the stream comes. Plain data and
// functions of it; any thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace fake_cublaslt {

enum Type : int { kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14, kE4M3 = 28, kE5M2 = 29, kE2M1 = 33 };
enum ScaleMode : int { kNoScales = 0, kOf16 = 1, kOf32 = 2 };
constexpr int kComputeF32 = 68;
constexpr int kComputeF64 = 70;

struct Settings {
  uint64_t version = 130100, cuda = 13000, no_choice = 0, fail_create = 0, fail_queue = 0;
  uint64_t no_type = ~uint64_t{0};
  uint64_t no_blocks = 0, drop_alpha = 0, ignore_scales = 0, plain_scales = 0;
};

// A matrix as the library has it: columns one after the other.
struct Shape {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0, batch_stride = 0;
  int batches = 1;
};

size_t BitsOf(int type);
double ValueAt(int type, const std::byte* memory, int64_t index);
// Scales that tensor cores take: they have no sign.
double DecodeScale(int mode, unsigned code);

struct Side {
  Shape layout;
  bool transposed = false;
  const std::byte* memory = nullptr;
  int mode = kNoScales;
  const std::byte* scales = nullptr;

  int64_t rows() const { return static_cast<int64_t>(transposed ? layout.columns : layout.rows); }
  int64_t columns() const {
    return static_cast<int64_t>(transposed ? layout.rows : layout.columns);
  }
  double At(int64_t batch, int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return ValueAt(layout.type, memory, batch * layout.batch_stride + column * layout.stride + row);
  }
  // The scale of element `k` of line `line`, where a line has `depth` elements. Tensor cores
  // take no sign of a scale.
  double ScaleAt(int64_t line, int64_t k, int64_t depth, const Settings& settings) const {
    if (mode == kNoScales || settings.ignore_scales != 0) return 1;
    return ScaleOf(line, k / Block(), depth, settings);
  }
  int64_t Block() const { return mode == kOf16 ? 16 : 32; }
  // Whether one of the scales of `line` that fill its last tile is no number. Tensor cores take
  // whole tiles: it is multiplied with elements that are 0, and added up with the others.
  bool SpoilsSums(int64_t line, int64_t depth, const Settings& settings) const {
    if (mode == kNoScales || settings.ignore_scales != 0 || settings.plain_scales != 0)
      return false;
    for (int64_t c = depth / Block(); c % 4 != 0; ++c) {
      if (std::isnan(ScaleOf(line, c, depth, settings))) return true;
    }
    return false;
  }
  double ScaleOf(int64_t line, int64_t c, int64_t depth, const Settings& settings) const {
    const int64_t block = Block();
    const int64_t columns = (depth / block + 3) / 4 * 4;
    const int64_t at = settings.plain_scales != 0
                           ? line * (depth / block) + c
                           : (line / 128 * (columns / 4) + c / 4) * 512 + line % 32 * 16 +
                                 line % 128 / 32 * 4 + c % 4;
    return DecodeScale(mode, std::to_integer<unsigned>(scales[at]));
  }
};

struct Work {
  int compute = 0;
  bool rough = false;  // partial sums may be of the result's type
  int scale = kF32;    // the type of alpha and beta
  bool on_device = false;
  double alpha = 0, beta = 0;  // if they are the host's
  const std::byte* device_alpha = nullptr;
  const std::byte* device_beta = nullptr;
  Settings settings;
  Side a, b;
  Shape result;
  std::byte* to = nullptr;
  std::byte* workspace = nullptr;
  size_t workspace_bytes = 0;
};

void Multiply(Work& work);

}  // namespace fake_cublaslt
