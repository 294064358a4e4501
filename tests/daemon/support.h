// SPDX-License-Identifier: Apache-2.0
// What the daemon's unit tests share: a home whose time and tasks are the test's, one host device,
// memory as clients hand it in, and a matcher for errors.
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
#include "base/executor.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/status.h"
#include "daemon/local_devices.h"
#include "device/host/copy.h"

namespace ferry::testing {

// Tasks run when the test says so, time passes when the test says so. Posting is for any thread.
class ManualExecutor : public Executor {
 public:
  void Post(Task task) override {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
  }
  absl::Time Now() override { return now_; }
  bool IsCurrent() const override { return true; }
  void Advance(absl::Duration by) { now_ += by; }
  // Runs what is posted, and what that posts; how many tasks it was.
  size_t RunAll() {
    size_t count = 0;
    while (true) {
      std::vector<Task> batch;
      {
        MutexLock lock(mutex_);
        batch = std::exchange(queue_, {});
      }
      if (batch.empty()) return count;
      count += batch.size();
      for (Task& task : batch) task();
    }
  }

 private:
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  Mutex mutex_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mutex_);
};

// A daemon's devices with threads and copies, without UCX.
class Devices {
 public:
  explicit Devices(const std::vector<uint64_t>& ids) {
    for (const uint64_t id : ids) {
      auto device = std::make_unique<LocalDevice>();
      device->id = GlobalDeviceId(id);
      device->name = absl::StrCat("host", table.list.size());
      device->memory = std::make_unique<SerialExecutor>("memory");
      device->lane = std::make_unique<Lane>("lane", absl::ZeroDuration());
      device->copy = std::make_unique<CopyTransport>(
          *device->lane, helper_, [](std::vector<OpResult>) {},
          [](PeerId) { return absl::OkStatus(); });
      table.list.push_back(std::move(device));
    }
  }
  // What memory threads and lanes were given to do is done.
  void Settle() {
    for (const auto& device : table.list) {
      device->memory->RunAndWait([] {});
      device->lane->RunAndWait([] {});
    }
  }

 private:
  CopyHelper helper_;  // outlives the devices

 public:
  LocalDevices table;
};

// A memfd as libferry makes it.
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

// EXPECT_THAT(session.FindArena(id), Is("NOT_FOUND/ID_STALE", "was released"));
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
