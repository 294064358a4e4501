// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/waits.h"

#include <bit>

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

bool IsWithin(const Waits::Set& part, const Waits::Set& whole) {
  for (size_t i = 0; i < part.size(); ++i) {
    if ((part[i] & ~whole[i]) != 0) return false;
  }
  return true;
}

bool IsTransfer(const Item& item) { return item.node.op == Op::kSend || item.node.op == Op::kRecv; }

}  // namespace

Waits::Waits(const Graph& graph, const Block& block,
             const std::vector<std::vector<uint32_t>>& needs,
             const std::vector<std::vector<uint32_t>>& users) {
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
  for (size_t i = 0; i < size; ++i) {
    for (const uint32_t need : needs[i]) {
      AddTo(awaited_[i], awaited_[need]);
      if (!IsTransfer(graph.items[block.items[need]])) continue;
      awaited_[i][numbers[need] / kBits] |= uint64_t{1} << numbers[need] % kBits;
    }
  }
  for (size_t i = size; i > 0; --i) {
    // Whoever waits at the other end waits for no more than it must.
    if (IsTransfer(graph.items[block.items[i - 1]])) allowed_[i - 1] = awaited_[i - 1];
    for (const uint32_t user : users[i - 1]) {
      for (size_t word = 0; word < words_; ++word) allowed_[i - 1][word] &= allowed_[user][word];
    }
  }
}

bool Waits::MayJoin(uint32_t a, uint32_t b) const {
  return words_ == 0 || (IsWithin(awaited_[a], allowed_[b]) && IsWithin(awaited_[b], allowed_[a]));
}

void Waits::Join(uint32_t into, uint32_t from, const std::vector<uint32_t>& group_of,
                 const std::vector<std::vector<uint32_t>>& users) {
  if (words_ == 0) return;
  const bool grown = AddTo(awaited_[into], awaited_[from]);
  const bool longer = !IsWithin(awaited_[into], awaited_[from]);
  for (size_t word = 0; word < words_; ++word) allowed_[into][word] &= allowed_[from][word];
  if (!grown && !longer) return;
  // Who needs anything of the group waits for all that it does.
  std::vector<uint32_t> open = {into};
  while (!open.empty()) {
    const uint32_t group = open.back();
    open.pop_back();
    for (size_t place = 0; place < group_of.size(); ++place) {
      if (group_of[place] != group) continue;
      for (const uint32_t user : users[place]) {
        const uint32_t next = group_of[user];
        if (next != group && AddTo(awaited_[next], awaited_[group])) open.push_back(next);
      }
    }
  }
}

size_t Waits::Last(uint32_t group) const {
  for (size_t word = words_; word > 0; --word) {
    const uint64_t bits = awaited_[group][word - 1];
    if (bits != 0) return word * kBits - static_cast<size_t>(std::countl_zero(bits));
  }
  return 0;
}

}  // namespace ferry::compute
