// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/barred_programs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr absl::string_view kFormat = "ferry barred programs 1";
constexpr size_t kFingerprintBytes = 32;
constexpr size_t kMostText = 512;
constexpr size_t kMostFile = size_t{1} << 20;
constexpr size_t kFields = 11;

std::string ShortName(const std::string& fingerprint) {
  return absl::BytesToHexString(fingerprint.substr(0, BarredPrograms::kFewestBytes));
}

// The fields of a line: what they are says LineOf.
std::string LineOf(const BarredProgram& program) {
  return absl::StrCat(absl::BytesToHexString(program.fingerprint), " ", program.device.value(), " ",
                      program.gpu, " ", program.target, " ", program.uid, " ",
                      SessionOf(program.job).value(), " ", SequenceOf(program.job), " ",
                      absl::ToUnixMicros(program.when), " ", program.suspects, " ", program.losses,
                      " ", absl::CEscape(program.what), "\n");
}

bool IsWord(absl::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

std::optional<BarredProgram> FromLine(absl::string_view line) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(line, absl::MaxSplits(' ', kFields - 1));
  if (fields.size() != kFields || fields[0].size() != 2 * kFingerprintBytes) return std::nullopt;
  BarredProgram program;
  uint64_t device = 0, sequence = 0;
  uint32_t session = 0;
  int64_t when = 0;
  const bool good =
      std::all_of(fields[0].begin(), fields[0].end(), absl::ascii_isxdigit) &&
      absl::SimpleAtoi(fields[1], &device) && IsWord(fields[2]) && IsWord(fields[3]) &&
      absl::SimpleAtoi(fields[4], &program.uid) && absl::SimpleAtoi(fields[5], &session) &&
      absl::SimpleAtoi(fields[6], &sequence) && absl::SimpleAtoi(fields[7], &when) &&
      absl::SimpleAtoi(fields[8], &program.suspects) &&
      absl::SimpleAtoi(fields[9], &program.losses) && absl::CUnescape(fields[10], &program.what) &&
      program.what.size() <= kMostText && sequence < uint64_t{1} << 40;
  if (!good) return std::nullopt;
  program.fingerprint = absl::HexStringToBytes(fields[0]);
  program.device = GlobalDeviceId(device);
  program.gpu = std::string(fields[2]);
  program.target = std::string(fields[3]);
  program.job = MakeTransferId(SessionId(session), sequence);
  program.when = absl::FromUnixMicros(when);
  return program;
}

// Nothing if there is no such file, or, with `problem` set, if it cannot be read.
std::optional<std::string> ReadFile(const std::string& path, std::string& problem) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::nullopt;
  struct stat info;
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    problem = strerror(errno);
  } else if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    problem = "it is no plain file of this user's";
  } else if (static_cast<uint64_t>(info.st_size) > kMostFile) {
    problem = absl::StrCat("it has ", info.st_size, " bytes");
  }
  if (!problem.empty()) return std::nullopt;
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) problem = strerror(errno);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0;
}

std::string WhyBarred(const BarredProgram& program) {
  std::string text =
      absl::StrCat(program.gpu, " (device ", program.device.value(), ") was lost at it at ",
                   absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", program.when, absl::UTCTimeZone()));
  if (program.losses > 1) absl::StrAppend(&text, ", for the ", program.losses, ". time");
  absl::StrAppend(&text, ", which ended the daemon: ", program.what);
  if (program.suspects > 1) {
    absl::StrAppend(&text, "; which GPU failed is not known, so it is one of ", program.suspects,
                    " programs that GPUs were at");
  }
  return text;
}

}  // namespace

std::vector<BarredProgram> CulpritsOf(const LossStory::Loss& loss,
                                      absl::Span<const GpuAtWork> at_work, absl::Time when) {
  std::vector<BarredProgram> culprits;
  if (!loss.fault) return culprits;
  for (const GpuAtWork& gpu : at_work) {
    if (loss.gpu >= 0 && loss.gpu != gpu.ordinal) continue;
    const bool known = std::any_of(culprits.begin(), culprits.end(), [&](const auto& other) {
      return other.fingerprint == gpu.running.fingerprint;
    });
    if (!known) culprits.push_back(gpu.running);
  }
  for (BarredProgram& culprit : culprits) {
    culprit.when = when;
    culprit.suspects = static_cast<uint32_t>(culprits.size());
    culprit.what = loss.what.substr(0, kMostText);
  }
  return culprits;
}

BarredPrograms::BarredPrograms(std::string path) : path_(std::move(path)) { Load(); }

void BarredPrograms::Load() {
  std::string problem;
  const std::optional<std::string> text = ReadFile(path_, problem);
  if (!text && problem.empty()) return;
  Programs programs;
  size_t bad = 0;
  const std::string content = text.value_or("");
  const std::vector<absl::string_view> lines = absl::StrSplit(content, '\n');
  if (problem.empty() && (lines.front() != kFormat || !lines.back().empty())) {
    problem = lines.front() != kFormat ? absl::StrCat("it does not begin with '", kFormat, "'")
                                       : "it ends within a line";
  }
  if (lines.front() == kFormat) {
    for (const absl::string_view line : absl::MakeConstSpan(lines).subspan(1)) {
      std::optional<BarredProgram> program = FromLine(line);
      if (program && programs.size() < kMost) {
        programs.push_back(*std::move(program));
      } else if (!line.empty()) {
        ++bad;
      }
    }
  }
  if (bad > 0 && problem.empty()) problem = absl::StrCat(bad, " lines are damaged");
  MutexLock writing(file_);
  if (!problem.empty()) {
    const std::string aside = absl::StrCat(path_, ".bad");
    const bool moved = rename(path_.c_str(), aside.c_str()) == 0;
    warnings_.push_back(absl::StrCat(
        "read the programs that are barred from GPUs in ", path_, ": ", problem, "; ",
        programs.size(), " programs could be read, others may run on GPUs again; the file ",
        moved ? absl::StrCat("is ", aside, " now") : absl::StrCat("stays: ", strerror(errno))));
    // A file that cannot be moved, such as a directory, cannot be replaced either.
    if (const absl::Status kept = moved ? Write(programs) : absl::OkStatus(); !kept.ok()) {
      warnings_.emplace_back(kept.message());
    }
  }
  MutexLock lock(mutex_);
  programs_ = std::move(programs);
}

absl::Status BarredPrograms::Write(const Programs& programs) const {
  const std::string unfinished = absl::StrCat(path_, ".new");
  std::string text = absl::StrCat(kFormat, "\n");
  for (const BarredProgram& program : programs) absl::StrAppend(&text, LineOf(program));
  unlink(unfinished.c_str());  // of a life that ended while it wrote
  const UniqueFd file(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written =
      file.valid() && WriteAll(file.get(), text) && rename(unfinished.c_str(), path_.c_str()) == 0;
  const int error = errno;
  if (!written) {
    unlink(unfinished.c_str());
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                      absl::StrCat("keep the programs that are barred from GPUs in ", path_),
                      error);
  }
  const std::string above = std::filesystem::path(path_).parent_path();
  const UniqueFd directory(open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) fsync(directory.get());
  return absl::OkStatus();
}

absl::Status BarredPrograms::Bar(std::vector<BarredProgram> culprits) {
  MutexLock writing(file_);
  Programs all;
  for (BarredProgram& culprit : culprits) {
    FlightRecorder::Get().Record("program.barred", culprit.job, culprit.device.value(),
                                 culprit.suspects, ShortName(culprit.fingerprint));
    all.push_back(std::move(culprit));
  }
  for (BarredProgram& program : List()) {
    const auto again = std::find_if(all.begin(), all.end(), [&](const BarredProgram& other) {
      return other.fingerprint == program.fingerprint;
    });
    if (again == all.end()) {
      all.push_back(std::move(program));
    } else {
      again->losses += program.losses;
    }
  }
  if (all.size() > kMost) all.resize(kMost);
  const absl::Status written = Write(all);
  MutexLock lock(mutex_);
  programs_ = std::move(all);
  return written;
}

absl::StatusOr<size_t> BarredPrograms::Release(absl::Span<const std::string> beginnings) {
  MutexLock writing(file_);
  Programs left = List();
  const size_t before = left.size();
  std::vector<bool> released(before);
  for (const std::string& beginning : beginnings) {
    const std::string doing =
        absl::StrCat("release program ", absl::BytesToHexString(beginning), ": ");
    if (beginning.size() < kFewestBytes || beginning.size() > kFingerprintBytes) {
      return FieldError("fingerprints",
                        absl::StrCat(doing, "a fingerprint is named by its first ", kFewestBytes,
                                     " to ", kFingerprintBytes, " bytes"));
    }
    size_t found = 0;
    for (size_t i = 0; i < before; ++i) {
      if (!absl::StartsWith(left[i].fingerprint, beginning)) continue;
      released[i] = true;
      ++found;
    }
    if (found > 1) {
      return FieldError("fingerprints", absl::StrCat(doing, found, " barred programs begin so"));
    }
    if (found == 0) {
      return Error(absl::StatusCode::kNotFound, Reason::kIdStale,
                   absl::StrCat(doing,
                                "it is not barred; `ferryctl program barred` lists those "
                                "that are"));
    }
  }
  Programs stay;
  for (size_t i = 0; i < before; ++i) {
    if (!released[i]) stay.push_back(std::move(left[i]));
  }
  const size_t count = before - stay.size();
  return Keep(std::move(stay), count);
}

absl::StatusOr<size_t> BarredPrograms::ReleaseAll() {
  MutexLock writing(file_);
  return Keep({}, size());
}

absl::StatusOr<size_t> BarredPrograms::Keep(Programs programs, size_t released) {
  RETURN_IF_ERROR(Write(programs));
  FlightRecorder::Get().Record("program.released", released, programs.size());
  MutexLock lock(mutex_);
  programs_ = std::move(programs);
  return released;
}

absl::Status BarredPrograms::Check(const std::string& fingerprint) const {
  MutexLock lock(mutex_);
  for (const BarredProgram& program : programs_) {
    if (program.fingerprint != fingerprint) continue;
    refusals_.fetch_add(1, std::memory_order_relaxed);
    const std::string name = ShortName(fingerprint);
    FlightRecorder::Get().Record("program.refused", 0, program.device.value(), program.losses,
                                 name);
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotAllowed,
                 absl::StrCat("program ", name,
                              " is barred from the GPUs of this daemon: ", WhyBarred(program),
                              ". Host devices run it; an operator releases it by `ferryctl "
                              "program release ",
                              name, "`"));
  }
  return absl::OkStatus();
}

std::vector<BarredProgram> BarredPrograms::List() const {
  MutexLock lock(mutex_);
  return programs_;
}

size_t BarredPrograms::size() const {
  MutexLock lock(mutex_);
  return programs_.size();
}

}  // namespace ferry
