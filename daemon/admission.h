// SPDX-License-Identifier: Apache-2.0
// How many connections a door takes: of all, and of each visitor, who is a uid on a Unix socket and
// an address on a TCP port (or a uid of this host); and how often a visitor may come. So nobody
// takes the descriptors, or the time of the door's thread, that others need. Any thread.
//
// A connection counts until its Pass goes. Of those that may give way, because nobody knows yet
// that they are of use, the oldest does when a newcomer needs its place: who holds many of them
// keeps nobody out, and who says what it comes for within the time that others need to fill a
// visitor's share is not disturbed. One that gives way counts among all until it has gone.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ferry {

struct Visitor {
  std::string name;  // "uid 1000", "192.0.2.1", "127.0.0.1 of uid 1000", "2001:db8:0:1::/64"
  uid_t uid = geteuid();
};

class Admission {
  class Book;

 public:
  // Of one visitor, and an eighth of all: places that those who give way have until they have gone.
  static constexpr size_t kLeaving = 32;

  struct Bounds {
    std::string door;  // its name, for messages
    size_t open = 0;   // of all
    size_t open_each = 0;
    double per_second_each = 0;  // in the long run
    double at_once_each = 0;     // before that counts
  };
  class Pass {
   public:
    Pass() = default;
    explicit Pass(uid_t uid) : uid_(uid) {}  // of nobody's admission: a connection of one's own
    Pass(Pass&& other) noexcept
        : book_(std::move(other.book_)), number_(other.number_), uid_(other.uid_) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(book_, other.book_);
      std::swap(number_, other.number_);
      std::swap(uid_, other.uid_);
      return *this;
    }
    ~Pass();
    uid_t uid() const { return uid_; }
    // From here on `leave`, which ends the connection soon, may be called, once, by whoever admits
    // another one. Called again it replaces the former.
    void MayGiveWay(std::function<void()> leave);
    // Not any more; also if it was asked to leave and does not.
    void Stays();

   private:
    friend class Admission;
    std::shared_ptr<Book> book_;
    uint64_t number_ = 0;
    uid_t uid_ = geteuid();
  };

  // `sweep` drops passes of connections that have ended without a word; it is called before one is
  // refused for want of room.
  explicit Admission(Bounds bounds, std::function<void()> sweep = nullptr);

  // RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS with what is too much and when to try again.
  absl::StatusOr<Pass> Admit(const Visitor& visitor, absl::Time now);
  // Full, but somebody who was asked to leave has not gone yet: there will be a place soon, unless
  // their closing takes long.
  bool BeingLeft() const;
  // From now on; who is connected stays so, also if that is more.
  void SetBounds(Bounds bounds);
  size_t open() const;
  uint64_t refused() const;
  size_t remembered() const;  // visitors

 private:
  const std::function<void()> sweep_;
  const std::shared_ptr<Book> book_;  // passes may outlive us
};

}  // namespace ferry
