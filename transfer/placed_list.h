// SPDX-License-Identifier: Apache-2.0
// A list whose links are in its members, in the order in which they were added; it allocates
// nothing. Home: its owner's. Invariant: a member leaves the list before it is destroyed.
#pragma once

namespace ferry {

// A member's links in one list.
template <typename T>
struct ListPlace {
  T* previous = nullptr;
  T* next = nullptr;
};

template <typename T, ListPlace<T> T::*place>
class PlacedList {
 public:
  T* first() const { return first_; }
  static T* Next(const T& member) { return (member.*place).next; }

  void Add(T& member) {
    (member.*place).previous = last_;
    (last_ != nullptr ? (last_->*place).next : first_) = &member;
    last_ = &member;
  }
  // Adds `member` before `next`, which must be in the list.
  void AddBefore(T& next, T& member) {
    T* const previous = (next.*place).previous;
    (member.*place).previous = previous;
    (member.*place).next = &next;
    (next.*place).previous = &member;
    (previous != nullptr ? (previous->*place).next : first_) = &member;
  }
  void Remove(T& member) {
    auto& [previous, next] = member.*place;
    (previous != nullptr ? (previous->*place).next : first_) = next;
    (next != nullptr ? (next->*place).previous : last_) = previous;
    previous = next = nullptr;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace ferry
