// SPDX-License-Identifier: Apache-2.0
// A client in a process of its own, which a test can kill, stop and script. Each command is a line,
// and each answer a line that starts with "OK" or with "CODE/REASON". Commands
// (tests/support/client/main.cc):
//
//   arena DEVICE BYTES [nopopulate]      "OK INDEX"; counts from 0
//   import DEVICE BYTES                  the same, of a memfd that the application has made
//   release ARENA
//   fill ARENA OFFSET BYTES SEED         with the bytes of pattern.h
//   check ARENA OFFSET BYTES SEED        "OK", or "DIFFERS AT"
//   punch ARENA OFFSET BYTES             a hole into an imported arena's memfd
//   send|receive DEVICE REMOTE KEY ARENA OFFSET BYTES [count=N] [route=R] [domain=D]
//       [deadline_ms=N] [defined=T:V]    "OK INDEX" of the batch; with a count the keys are KEY.0,
//                                        KEY.1, ... and the ranges follow each other
//   prepare_send|prepare_receive ...     the same words; "OK INDEX" of the prepared batch
//   fire PREPARED TIMES                  waits each time until it is over; "OK FIRINGS" of its life
//   wait BATCH TIMEOUT_MS                how it ended, and its text
//   over BATCH                           "OK 1" if it is over
//   join DOMAIN DEVICE NAME              becomes a member of the domain on the device
//   define TIMELINE VALUE | cancel BATCH | poison BATCH WHY | health
//   scribble SEED                        random bytes over all of the session's timelines
//   fork                                 how a child's use of the session ended; waits for its exit
//   forkhold                             forks a child that lives as long as the process and does
//                                        nothing
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "tests/support/process.h"

namespace ferry::testing {

class ClientProcess {
 public:
  // Returns when the client is attached. Runs as user `uid` if one is given.
  ClientProcess(const std::string& client_dir, const std::string& name,
                std::optional<uid_t> uid = {});

  // Sends a command and waits for its answer; "" if the process died or did not answer in time.
  std::string Tell(const std::string& command);
  // The two halves of Tell.
  void Order(const std::string& command);
  std::string Answer(std::chrono::milliseconds patience = 2 * kSoon);

  pid_t pid() const { return process_.pid(); }
  void Kill() { process_.Kill(); }
  void Signal(int signal) { process_.Signal(signal); }
  // Has the client end its session and exit. Returns its exit status.
  std::optional<int> Finish();

 private:
  Process process_;
  std::string unread_;
};

}  // namespace ferry::testing
