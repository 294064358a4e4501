// SPDX-License-Identifier: Apache-2.0
// A list whose links are in its members, in the order in which they were added; it allocates
// nothing. Home: its owner's. Invariant: a member leaves the list before it is destroyed.
#pragma once

namespace ferry {

// A member's links in one list.
template <typename T>
struct ListPosition {
  T* previous = nullptr;
  T* next = nullptr;
};

template <typename T, ListPosition<T> T::*position>
class PlacedList {
 public:
  T* first() const { return first_; }
  static T* Next(const T& member) { return (member.*position).next; }

  void Add(T& member) {
    (member.*position).previous = last_;
    (last_ != nullptr ? (last_->*position).next : first_) = &member;
    last_ = &member;
  }
  // Adds `member` before `next`, which must be in the list.
  void AddBefore(T& next, T& member) {
    T* const previous = (next.*position).previous;
    (member.*position).previous = previous;
    (member.*position).next = &next;
    (next.*position).previous = &member;
    (previous != nullptr ? (previous->*position).next : first_) = &member;
  }
  void Remove(T& member) {
    auto& [previous, next] = member.*position;
    (previous != nullptr ? (previous->*position).next : first_) = next;
    (next != nullptr ? (next->*position).previous : last_) = previous;
    previous = next = nullptr;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace ferry
