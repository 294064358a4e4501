// SPDX-License-Identifier: Apache-2.0
// Bounds the connections to one socket: how many are open at once, how many of these are one
// visitor's, and how often a visitor may connect. A visitor is a uid on a Unix socket, an address
// on a TCP port, and an address with a uid on a TCP port if it is of this host. So no visitor takes
// the descriptors, or the time of the door's thread, that others need. Any thread.
//
// A connection has a Pass, and counts until its Pass is destroyed. A connection of which nobody
// knows yet whether it is of use may give way: when a newcomer needs its seat, the oldest such
// connection is asked to leave. It must be the newcomer's own if his share is full, else one of the
// visitor with most of them. So a visitor who holds many of them keeps nobody out. A visitor who
// says soon what he comes for is not disturbed. A connection that was asked to leave counts until
// it is gone.
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

// Who is at the other end of a connection, as bounds count.
struct Visitor {
  std::string name;  // "uid 1000", "192.0.2.1", "127.0.0.1 of uid 1000", "2001:db8:0:1::/64"
  // The user who answers for the connection; this process's own if it is unknown.
  uid_t uid = geteuid();
};

class Admission {
  class Book;

 public:
  // Connections that were asked to leave and have not: a visitor may have this many beyond his
  // share, and all visitors together an eighth of `open`.
  static constexpr size_t kMostLeaving = 32;

  // The limits of one socket.
  struct Bounds {
    std::string door;            // the socket's name, for messages
    size_t open = 0;             // connections of all visitors together
    size_t open_each = 0;        // connections of one visitor
    double per_second_each = 0;  // connects of one visitor, in the long run
    // Connects of one visitor that may come at once before that rate counts
    double at_once_each = 0;
  };
  // The right of one connection to be open. Destroying it gives the seat back.
  class Pass {
   public:
    Pass() = default;
    explicit Pass(uid_t uid) : uid_(uid) {}  // a connection of one's own, in nobody's book
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
    // From here on whoever admits another connection may call `leave`, once; `leave` must end this
    // connection soon. A second call of MayGiveWay replaces the first one's `leave`.
    void MayGiveWay(std::function<void()> leave);
    // The connection gives way no more. This holds also if it was asked to leave and did not.
    void Stays();

   private:
    friend class Admission;
    std::shared_ptr<Book> book_;
    uint64_t number_ = 0;
    uid_t uid_ = geteuid();
  };

  // `sweep` is called before a visitor is refused for want of room: it must drop the Passes of
  // connections that have ended without telling.
  explicit Admission(Bounds bounds, std::function<void()> sweep = nullptr);

  // The Pass of a new connection. RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS names the bound that is
  // reached and when to try again.
  absl::StatusOr<Pass> Admit(const Visitor& visitor, absl::Time now);
  // True if all seats are taken and a connection that was asked to leave is still there. There
  // will be a seat soon, unless closing takes long.
  bool BeingLeft() const;
  // From now on. Connections that are open stay open, even if they are more than the new bounds
  // allow.
  void SetBounds(Bounds bounds);
  size_t open() const;
  // How often Admit has refused.
  uint64_t refused() const;
  size_t remembered() const;  // visitors in the book: with open connections, or who came lately

 private:
  const std::function<void()> sweep_;
  const std::shared_ptr<Book> book_;  // shared: a Pass may outlive the Admission
};

}  // namespace ferry
