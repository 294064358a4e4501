// SPDX-License-Identifier: Apache-2.0
// The largest first, each into the smallest gap it fits in among what is there at the same time.
#include "compute/passes/memory_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace ferry::compute {
namespace {

constexpr uint64_t kTooMany = std::numeric_limits<uint64_t>::max();

// What one allocation has, or several, each in place of the one before.
struct Place {
  uint64_t bytes = 0;
  uint64_t alignment = 1;
  uint32_t first = 0;
  uint32_t last = 0;
  std::vector<size_t> allocations;
  uint64_t offset = 0;

  uint64_t end() const { return bytes > kTooMany - offset ? kTooMany : offset + bytes; }
  bool IsBeside(const Place& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Place> PlacesOf(absl::Span<const Allocation> allocations) {
  std::vector<size_t> order(allocations.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return allocations[a].first < allocations[b].first; });
  std::vector<Place> places;
  std::vector<std::optional<size_t>> last_of(allocations.size());  // the place that it is last in
  for (const size_t i : order) {
    const Allocation& allocation = allocations[i];
    if (allocation.bytes == 0) continue;
    size_t place = places.size();
    if (const auto other = allocation.in_place_of; other && last_of[*other] &&
                                                   allocations[*other].bytes == allocation.bytes &&
                                                   allocations[*other].first < allocation.first &&
                                                   allocations[*other].last == allocation.first) {
      place = *std::exchange(last_of[*other], std::nullopt);
    } else {
      places.push_back({allocation.bytes, 1, allocation.first});
    }
    places[place].alignment = std::max(places[place].alignment, allocation.alignment);
    places[place].last = allocation.last;
    places[place].allocations.push_back(i);
    last_of[i] = place;
  }
  return places;
}

uint64_t AlignedUp(uint64_t offset, uint64_t alignment) {
  return offset > kTooMany - alignment ? kTooMany : (offset + alignment - 1) & ~(alignment - 1);
}

// `placed` are in the order of their offsets.
uint64_t BestOffset(const Place& place, const std::vector<const Place*>& placed) {
  std::optional<uint64_t> best;
  uint64_t best_gap = kTooMany;
  uint64_t used = 0;  // by all that were looked at
  for (const Place* other : placed) {
    if (!other->IsBeside(place)) continue;
    const uint64_t offset = AlignedUp(used, place.alignment);
    if (other->offset > offset && other->offset - offset >= place.bytes &&
        other->offset - used < best_gap) {
      best = offset;
      best_gap = other->offset - used;
    }
    used = std::max(used, other->end());
  }
  return best ? *best : AlignedUp(used, place.alignment);
}

void FindPeak(const std::vector<Place>& places, MemoryPlan& plan) {
  using Wide = __int128;
  std::map<uint64_t, Wide> changes;
  for (const Place& place : places) {
    changes[place.first] += place.bytes;
    changes[uint64_t{place.last} + 1] -= place.bytes;
  }
  Wide bytes = 0;
  Wide most = 0;
  for (const auto& [step, change] : changes) {
    bytes += change;
    if (bytes <= most) continue;
    most = bytes;
    plan.peak_step = static_cast<uint32_t>(step);
  }
  plan.peak_bytes = most > kTooMany ? kTooMany : static_cast<uint64_t>(most);
}

}  // namespace

MemoryPlan PlanMemory(absl::Span<const Allocation> allocations) {
  std::vector<Place> places = PlacesOf(allocations);
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tuple(b.bytes, a.first, a.allocations[0]) <
           std::tuple(a.bytes, b.first, b.allocations[0]);
  });
  MemoryPlan plan;
  plan.offsets.resize(allocations.size());
  FindPeak(places, plan);
  std::vector<const Place*> placed;
  for (Place& place : places) {
    place.offset = BestOffset(place, placed);
    const auto at = std::upper_bound(
        placed.begin(), placed.end(), place.offset,
        [](uint64_t offset, const Place* other) { return offset < other->offset; });
    placed.insert(at, &place);
    plan.bytes = std::max(plan.bytes, place.end());
    std::optional<size_t> holder;
    for (const size_t i : place.allocations) {
      plan.offsets[i] = place.offset;
      const Allocation& allocation = allocations[i];
      if (allocation.first <= plan.peak_step && plan.peak_step <= allocation.last) holder = i;
    }
    if (holder && plan.holders.size() < kMaxHolders) plan.holders.push_back(*holder);
  }
  return plan;
}

}  // namespace ferry::compute
