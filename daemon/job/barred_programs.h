// SPDX-License-Identifier: Apache-2.0
// The programs that this daemon does not run on its GPUs any more, because a GPU was lost at a
// kernel of theirs, which ended an earlier life of the daemon. An operator releases them. Host
// devices run them.
//
// They are kept in a file, which outlives the daemon: one line for each program, under a line that
// names the format. The file is replaced as a whole, so that it never holds half of a change. A
// file that is damaged, or of another format, is set aside as FILE.bad, and what could be read of
// it counts; the daemon starts in any case.
//
// Invariant: the file has what memory has, unless a write failed: that of the start, or that of a
// call, which then returns the error. Any thread. A call that changes the file takes as long as the
// disk does, during which the others go on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "device/cuda/loss_story.h"

namespace ferry {

// A program, and the run of it at which the GPU was lost last.
struct BarredProgram {
  std::string fingerprint;  // 32 bytes
  GlobalDeviceId device;    // the GPU's id then
  std::string gpu;          // the GPU's UUID, as text
  std::string target;       // what the program was compiled for, such as "sm_90a"
  uint32_t uid = 0;         // the user whose session posted the run
  TransferId job;           // the run
  absl::Time when;          // by the machine's clock, in microseconds
  // How many programs are barred for the same loss. More than one if it was not known which GPU
  // failed: each of them was at a GPU, and one is at fault.
  uint32_t suspects = 1;
  uint32_t losses = 1;  // how often a GPU was lost at it
  std::string what;     // what was being done, and CUDA's error; at most 512 bytes
};

// What a GPU is at, when the process's GPUs are lost.
struct GpuAtWork {
  int ordinal = 0;  // the driver's number of the GPU
  BarredProgram running;
};

// Which of the programs that GPUs are at are to be barred for this loss, with `when`, `suspects`
// and `what` set. None if no kernel was at fault. If the GPU that failed is known: only the program
// that it ran, since what was queued behind that has not begun. If not: the program that each GPU
// ran.
std::vector<BarredProgram> CulpritsOf(const LossStory::Loss& loss,
                                      absl::Span<const GpuAtWork> at_work, absl::Time when);

class BarredPrograms {
 public:
  // The most programs; of more, those whose loss is the longest ago are released by themselves.
  static constexpr size_t kMost = 256;

  // Reads the file `path`, if it is there. Its directory must be this user's alone.
  explicit BarredPrograms(std::string path);

  // What was wrong with the file, for the log; empty: nothing.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Bars programs. When it returns OK the file has them, and does even if the machine fails. A
  // program that is barred already has its losses added up. If the file cannot be written they are
  // barred in this life alone; the error says why.
  absl::Status Bar(std::vector<BarredProgram> culprits);

  // The fewest bytes of a fingerprint that name a program.
  static constexpr size_t kFewestBytes = 8;
  // Releases the programs whose fingerprints begin so, or all, and returns how many. Either all or
  // none: NOT_FOUND/ID_STALE if one is not barred; INVALID_ARGUMENT/FIELD_INVALID for fewer than
  // kFewestBytes, more than 32, or a beginning that several have; UNAVAILABLE/NOT_READY if the file
  // cannot be written.
  absl::StatusOr<size_t> Release(absl::Span<const std::string> beginnings);
  absl::StatusOr<size_t> ReleaseAll();

  // OK unless the program is barred. FAILED_PRECONDITION/NOT_ALLOWED says which program, when and
  // why, and how it is released; it does not say whose run it was.
  absl::Status Check(const std::string& fingerprint) const;
  // How often Check has refused.
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }

  // The last one first.
  std::vector<BarredProgram> List() const;
  size_t size() const;

 private:
  using Programs = std::vector<BarredProgram>;  // the last one first

  void Load();
  absl::Status Write(const Programs& programs) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_);
  absl::StatusOr<size_t> Keep(Programs programs, size_t released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_);

  const std::string path_;
  std::vector<std::string> warnings_;
  Mutex file_;  // who changes the file; taken before mutex_
  mutable Mutex mutex_;
  Programs programs_ ABSL_GUARDED_BY(mutex_);
  mutable std::atomic<uint64_t> refusals_{0};
};

}  // namespace ferry
