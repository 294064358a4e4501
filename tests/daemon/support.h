// SPDX-License-Identifier: Apache-2.0
// Shared by the daemon's unit tests: what home.h has, memory as clients pass it, and a matcher for
// errors.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/status.h"
#include "tests/daemon/home.h"

namespace ferry::testing {

// A memfd as libferry makes it, unless `seals` are others.
inline UniqueFd SealedMemfd(uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

inline const absl::Status& StatusIn(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusIn(const absl::StatusOr<T>& result) {
  return result.status();
}
inline std::string NameOf(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()), "/", ReasonName(ReasonOf(status)));
}

// EXPECT_THAT(session.arenas().Find(id), Is("NOT_FOUND/ID_STALE", "was released"));
MATCHER_P2(Is, name, text, "") {
  const absl::Status& status = StatusIn(arg);
  *result_listener << "which is " << NameOf(status) << ": " << std::string(status.message());
  return NameOf(status) == name && std::string(status.message()).find(text) != std::string::npos;
}
MATCHER_P(Is, name, "") {
  const absl::Status& status = StatusIn(arg);
  *result_listener << "which is " << NameOf(status) << ": " << std::string(status.message());
  return NameOf(status) == name;
}

}  // namespace ferry::testing
