// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/waits.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace ferry::compute {
namespace {

constexpr size_t kBits = 64;

// False if it was all there.
bool AddTo(Waits::Set& set, const Waits::Set& more) {
  bool grown = false;
  for (size_t i = 0; i < set.size(); ++i) {
    grown = grown || (more[i] & ~set[i]) != 0;
    set[i] |= more[i];
  }
  return grown;
}

// False if nothing else was there.
bool KeepOnly(Waits::Set& set, const Waits::Set& these) {
  bool shrunk = false;
  for (size_t i = 0; i < set.size(); ++i) {
    shrunk = shrunk || (set[i] & ~these[i]) != 0;
    set[i] &= these[i];
  }
  return shrunk;
}

bool IsWithin(const Waits::Set& part, const Waits::Set& whole) {
  for (size_t i = 0; i < part.size(); ++i) {
    if ((part[i] & ~whole[i]) != 0) return false;
  }
  return true;
}

bool IsTransfer(const Item& item) { return item.node.op == Op::kSend || item.node.op == Op::kRecv; }

}  // namespace

Waits::Waits(const Graph& graph, const Block& block, const Places& needs, const Places& users)
    : needs_(needs), users_(users) {
  const size_t size = block.items.size();
  std::vector<size_t> numbers(size);
  size_t transfers = 0;
  for (size_t i = 0; i < size; ++i) {
    if (IsTransfer(graph.items[block.items[i]])) numbers[i] = transfers++;
  }
  if (transfers == 0) return;
  words_ = (transfers + kBits - 1) / kBits;
  awaited_.assign(size, Set(words_));
  allowed_.assign(size, Set(words_, ~uint64_t{0}));
  for (uint32_t i = 0; i < size; ++i) {
    fusion_of_.push_back(i);
    members_.push_back({i});
    for (const uint32_t need : needs[i]) {
      AddTo(awaited_[i], awaited_[need]);
      if (!IsTransfer(graph.items[block.items[need]])) continue;
      awaited_[i][numbers[need] / kBits] |= uint64_t{1} << numbers[need] % kBits;
    }
  }
  for (size_t i = size; i > 0; --i) {
    // Whoever waits at the other end waits for no more than it must.
    if (IsTransfer(graph.items[block.items[i - 1]])) allowed_[i - 1] = awaited_[i - 1];
    for (const uint32_t user : users[i - 1]) KeepOnly(allowed_[i - 1], allowed_[user]);
  }
}

bool Waits::MayJoin(uint32_t a, uint32_t b) const {
  return words_ == 0 || (IsWithin(awaited_[a], allowed_[b]) && IsWithin(awaited_[b], allowed_[a]));
}

template <typename Pass>
void Waits::Spread(uint32_t fusion, const Places& places, Pass pass) {
  std::vector<uint32_t> open = {fusion};
  while (!open.empty()) {
    const uint32_t from = open.back();
    open.pop_back();
    for (const uint32_t place : members_[from]) {
      for (const uint32_t other : places[place]) {
        const uint32_t to = fusion_of_[other];
        if (to == from || !pass(from, to)) continue;
        FERRY_CHECK(IsWithin(awaited_[to], allowed_[to]));
        open.push_back(to);
      }
    }
  }
}

void Waits::Join(uint32_t into, uint32_t from) {
  if (words_ == 0) return;
  for (const uint32_t place : members_[from]) fusion_of_[place] = into;
  members_[into].insert(members_[into].end(), members_[from].begin(), members_[from].end());
  members_[from].clear();
  AddTo(awaited_[into], awaited_[from]);
  KeepOnly(allowed_[into], allowed_[from]);
  // Who needs anything of the fusion waits for all that it does, and what it needs must not be made
  // to wait for what it must not.
  Spread(into, needs_,
         [&](uint32_t one, uint32_t need) { return KeepOnly(allowed_[need], allowed_[one]); });
  Spread(into, users_,
         [&](uint32_t one, uint32_t user) { return AddTo(awaited_[user], awaited_[one]); });
}

size_t Waits::Last(uint32_t fusion) const {
  for (size_t word = words_; word > 0; --word) {
    const uint64_t bits = awaited_[fusion][word - 1];
    if (bits != 0) return word * kBits - static_cast<size_t>(std::countl_zero(bits));
  }
  return 0;
}

bool Waits::IsAwaited(uint32_t fusion) const {
  return words_ > 0 && std::any_of(allowed_[fusion].begin(), allowed_[fusion].end(),
                                   [](uint64_t word) { return word != ~uint64_t{0}; });
}

}  // namespace ferry::compute
