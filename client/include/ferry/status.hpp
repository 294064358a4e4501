// SPDX-License-Identifier: Apache-2.0
// How calls of ferry.hpp end: a Status, or a Result with what was asked for. Nothing here throws.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ferry/ferry_status.h"

namespace ferry {

// Success; or one of gRPC's codes, a reason of the closed list and a text. Moves, does not copy.
class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(ferry_status* owned) : status_(owned) {}

  bool ok() const { return status_ == nullptr; }
  int code() const { return ferry_status_code(status_.get()); }
  std::string_view code_name() const { return ferry_status_code_name(status_.get()); }
  std::string_view reason() const { return ferry_status_reason(status_.get()); }
  std::string_view message() const { return ferry_status_message(status_.get()); }

  struct Violation {
    std::string_view field;
    std::string_view text;
  };
  std::vector<Violation> violations() const {
    std::vector<Violation> all(ferry_status_violations(status_.get()));
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = {ferry_status_violation_field(status_.get(), i),
                ferry_status_violation_text(status_.get(), i)};
    }
    return all;
  }

  // How long to wait before the same call is worth another try; zero if the daemon does not say.
  std::chrono::nanoseconds retry_after() const {
    return std::chrono::nanoseconds(ferry_status_retry_after_ns(status_.get()));
  }

  // "UNAVAILABLE/DAEMON_LOST: text" for people.
  std::string ToString() const {
    if (ok()) return "OK";
    std::string text(code_name());
    if (!reason().empty()) text.append("/").append(reason());
    return text.append(": ").append(message());
  }

 private:
  struct Free {
    void operator()(ferry_status* status) const { ferry_status_free(status); }
  };
  std::unique_ptr<ferry_status, Free> status_;
};

// A T, or the Status that says why there is none. Reading a value that is not there prints that
// status and aborts the program.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }
  T& value() & { return Checked(*this); }
  const T& value() const& { return Checked(*this); }
  T&& value() && { return std::move(Checked(*this)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  template <typename Self>
  static auto& Checked(Self& self) {
    if (!self.value_.has_value()) {
      std::fprintf(stderr, "ferry::Result has no value: %s\n", self.status_.ToString().c_str());
      std::abort();
    }
    return *self.value_;
  }

  std::optional<T> value_;
  Status status_;
};

}  // namespace ferry
