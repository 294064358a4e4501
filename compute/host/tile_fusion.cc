// SPDX-License-Identifier: Apache-2.0
#include "compute/host/tile_fusion.h"

#include <algorithm>

#include "compute/host/tile_runner.h"

namespace ferry::compute {
namespace {

constexpr uint64_t kLeastPart = 16384;  // elements that are worth another thread

// Asks, each `launch` elements that were done, whether the run goes on.
class Stopper {
 public:
  Stopper(RunControl* control, uint64_t launch) : control_(control), launch_(launch) {}
  bool operator()(uint64_t elements) const {
    done_ += elements;
    if (done_ < launch_ || control_ == nullptr) return false;
    done_ = 0;
    return control_->Stops();
  }

 private:
  RunControl* const control_;
  const uint64_t launch_;
  mutable uint64_t done_ = 0;  // since it was asked
};

}  // namespace

const std::byte* RunMemory::Read(const Location& at) const {
  return at.kind == Location::Kind::kConstant ? constants + at.offset : Write(at);
}

std::byte* RunMemory::Write(const Location& at) const {
  if (at.kind == Location::Kind::kBuffer) return buffers[at.buffer].data() + at.offset;
  return (at.kind == Location::Kind::kFromConstants ? from_constants : scratch) + at.offset;
}

uint64_t TileFusion::RegisterBytes() const {
  return TileRunner::Aligned(tile_elements * element_bytes);
}

uint64_t TileFusion::PartBytes() const {
  uint64_t bytes = (memories + 2) * RegisterBytes();
  uint64_t scales = 0;
  for (const TileOp& op : ops) {
    bytes += TileRunner::StateBytesOf(*this, op);
    scales = std::max(scales, TileRunner::Aligned(op.scale_bytes));
  }
  return bytes + scales;
}

uint64_t TileFusion::SharedBytes() const {
  if (!columns || columns->chunks == 1) return 0;
  return TileRunner::Aligned(rows * columns->chunks * columns->bytes);
}

uint64_t TileFusion::Units(uint64_t width) const {
  if (columns) return columns->outer * PartsOf(columns->inner, width);
  if (squares) return squares->Count();
  if (row <= tile_elements) return (rows + tile_rows - 1) / tile_rows;
  return keeps_rows ? rows : rows * ((row + tile_elements - 1) / tile_elements);
}

void TileFusion::RunUnits(const RunMemory& run, std::byte* scratch, uint64_t width, uint64_t begin,
                          uint64_t end) const {
  TileRunner runner(*this, run, scratch, RegisterBytes());
  runner.RunOnce();
  const uint64_t tiles = tile_elements == 0 ? 1 : (row + tile_elements - 1) / tile_elements;
  const Stopper stops(run.control, launch_elements);
  for (uint64_t unit = begin; unit < end; ++unit) {
    if (squares) {
      if (stops(runner.RunSquare(unit))) return;
      continue;
    }
    if (columns) {
      const uint64_t of_outer = PartsOf(columns->inner, width);
      const uint64_t first = unit % of_outer * width;
      const uint64_t some = std::min(width, columns->inner - first);
      if (!runner.RunColumns(unit / of_outer, first, some, stops)) return;
      continue;
    }
    if (row <= tile_elements) {
      const uint64_t first = unit * tile_rows;
      const uint64_t some = std::min(tile_rows, rows - first);
      runner.RunTile(first, some, 0, row);
      if (stops(some * std::max<uint64_t>(row, 1))) return;
      continue;
    }
    const uint64_t first = keeps_rows ? 0 : unit % tiles;
    for (uint64_t tile = first; tile < (keeps_rows ? tiles : first + 1); ++tile) {
      const uint64_t at = tile * tile_elements;
      const uint64_t some = std::min(tile_elements, row - at);
      runner.RunTile(keeps_rows ? unit : unit / tiles, 1, at, some);
      if (stops(some)) return;
    }
  }
}

void TileFusion::RunChunks(const RunMemory& run, std::byte* scratch, size_t parts,
                           Workers& workers) const {
  const uint64_t all = columns->outer * columns->chunks;
  const auto results = [&](uint64_t chunk) {
    return scratch + chunk * columns->inner * columns->bytes;
  };
  std::byte* const own = scratch + SharedBytes();
  workers.Run(parts, [&](size_t part) {
    TileRunner runner(*this, run, own + part * PartBytes(), RegisterBytes());
    runner.RunOnce();
    const Stopper stops(run.control, launch_elements);
    for (uint64_t at = all * part / parts; at < all * (part + 1) / parts; ++at) {
      const uint64_t chunk = at % columns->chunks;
      if (!runner.RunChunk(at / columns->chunks, chunk, stops, results(at))) return;
    }
  });
  if (run.control != nullptr && run.control->stopped()) return;
  TileRunner runner(*this, run, own, RegisterBytes());
  runner.RunOnce();
  for (uint64_t outer = 0; outer < columns->outer; ++outer) {
    runner.EndChunks(outer, results(outer * columns->chunks));
  }
}

void TileFusion::Run(const RunMemory& run, std::byte* scratch, size_t parts,
                     Workers* workers) const {
  if (IsEmpty()) return;
  const uint64_t elements = rows * std::max<uint64_t>(row, 1);
  parts = alone || workers == nullptr ? 1 : std::min<uint64_t>(parts, elements / kLeastPart);
  const uint64_t width = columns ? columns->WidthFor(std::max<size_t>(parts, 1)) : 0;
  const uint64_t units = Units(width);
  const uint64_t step = shares_bytes ? 2 : 1;
  if (columns && columns->chunks > 1 && units < parts) {
    return RunChunks(run, scratch, parts, *workers);
  }
  parts = std::max<uint64_t>(1, std::min<uint64_t>(parts, units / step));
  if (parts == 1) return RunUnits(run, scratch, width, 0, units);
  const auto begin = [&](uint64_t part) { return units * part / parts / step * step; };
  workers->Run(parts, [&](size_t part) {
    RunUnits(run, scratch + part * PartBytes(), width, begin(part),
             part + 1 == parts ? units : begin(part + 1));
  });
}

}  // namespace ferry::compute
