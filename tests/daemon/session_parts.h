// SPDX-License-Identifier: Apache-2.0
// What a SessionTable is made of, without the table: sessions, their arenas by id, memory of jobs
// and the registrar, on host devices 1 and 2. No client speaks here: a test calls the parts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/arena_registrar.h"
#include "daemon/session/arena_table.h"
#include "daemon/session/job_memory.h"
#include "daemon/session/session_map.h"
#include "tests/daemon/support.h"

namespace ferry::testing {

class SessionParts {
 public:
  explicit SessionParts(uint64_t job_memory = 8192)
      : job_memory(control, sessions, arenas, job_memory, UINT64_MAX) {}

  // A session of uid 1000 + `id` that may have 8,192 bytes in four arenas.
  Session& Open(uint32_t id, std::string name = "trainer") {
    absl::StatusOr<std::unique_ptr<TimelinePages>> pages = TimelinePages::Create();
    EXPECT_TRUE(pages.ok());
    const Credentials process{100, 1000 + id, 1000};
    Session::Limits limits;
    limits.quota = {.bytes = 8192, .arenas = 4, .transfers_in_flight = 10, .batch_transfers = 16};
    limits.default_deadline = absl::Seconds(60);
    return sessions.Add(std::make_unique<Session>(SessionId(id), std::move(name), "token", process,
                                                  *std::move(pages), std::move(limits), of_uid,
                                                  control.Now()));
  }
  LocalDevice& device(uint64_t id = 1) { return *devices.table.Find(GlobalDeviceId(id)); }
  // Runs what was posted to threads, and what that posts to control.
  void Settle() {
    do {
      devices.Settle();
    } while (control.RunAll() > 0);
  }

  ManualExecutor control;
  Devices devices{{1, 2}};
  RecordBytes of_uid{uint64_t{1} << 20};
  std::vector<ArenaId> gone;
  SessionMap sessions;
  ArenaTable arenas{devices.table, [this](ArenaId arena) { gone.push_back(arena); }};
  JobMemory job_memory;
  ArenaRegistrar registrar{{.control = control,
                            .devices = devices.table,
                            .sessions = sessions,
                            .arenas = arenas,
                            .job_memory = job_memory},
                           {.node = "node-a"}};
};

}  // namespace ferry::testing
