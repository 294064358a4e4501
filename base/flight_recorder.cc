// SPDX-License-Identifier: Apache-2.0
#include "base/flight_recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace ferry {
namespace {
int64_t Nanos(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
}  // namespace

FlightRecorder& FlightRecorder::Get() {
  static FlightRecorder* const recorder = new FlightRecorder;
  return *recorder;
}

void FlightRecorder::Record(const char* what, uint64_t a, uint64_t b, uint64_t c,
                            absl::string_view text) {
  Keep(what, a, false, b, c, text, 0);
}

void FlightRecorder::Record(const char* what, TransferId transfer, uint64_t b, uint64_t c,
                            absl::string_view text, uint64_t key) {
  Keep(what, transfer.value(), true, b, c, text, key);
}

void FlightRecorder::Keep(const char* what, uint64_t a, bool transfer, uint64_t b, uint64_t c,
                          absl::string_view text, uint64_t key) {
  const int64_t monotonic = Nanos(CLOCK_MONOTONIC);
  MutexLock lock(mutex_);
  const uint64_t number = next_++;
  if (ring_.size() < kCapacity) ring_.emplace_back();
  Entry& entry = ring_[number % kCapacity];
  entry.number = number;
  entry.monotonic_nanos = monotonic;
  entry.what = what;
  entry.a = a;
  entry.transfer = transfer;
  entry.key = key;
  entry.b = b;
  entry.c = c;
  const size_t size = std::min(text.size(), sizeof(entry.text) - 1);
  for (size_t i = 0; i < size; ++i) {  // a dump has one line for each entry
    entry.text[i] = static_cast<unsigned char>(text[i]) < 0x20 ? ' ' : text[i];
  }
  entry.text[size] = '\0';
}

std::vector<FlightRecorder::Entry> FlightRecorder::Snapshot() const {
  const int64_t to_realtime = Nanos(CLOCK_REALTIME) - Nanos(CLOCK_MONOTONIC);
  MutexLock lock(mutex_);
  std::vector<Entry> entries;
  entries.reserve(ring_.size());
  const uint64_t first = next_ - ring_.size();
  for (uint64_t number = first; number < next_; ++number)
    entries.push_back(ring_[number % kCapacity]);
  for (Entry& entry : entries) entry.realtime_nanos = entry.monotonic_nanos + to_realtime;
  return entries;
}

std::string FlightRecorder::Dump() const {
  const std::vector<Entry> entries = Snapshot();
  std::string out;
  const int64_t origin = entries.empty() ? 0 : entries.front().monotonic_nanos;
  for (const Entry& entry : entries) {
    const TransferId id(entry.a);
    const std::string a = entry.transfer
                              ? absl::StrCat(SessionOf(id).ToString(), " transfer ", SequenceOf(id))
                              : absl::StrCat("a=", entry.a);
    absl::StrAppendFormat(
        &out, "  #%d %s +%.6fs %s %s b=%d c=%d%s%s%s\n", entry.number,
        absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", absl::FromUnixNanos(entry.realtime_nanos),
                         absl::UTCTimeZone()),
        static_cast<double>(entry.monotonic_nanos - origin) / 1e9, entry.what, a, entry.b, entry.c,
        entry.key == 0 ? "" : absl::StrFormat(" key:%016x", entry.key), entry.text[0] ? " " : "",
        entry.text);
  }
  return out;
}

void CheckFailed(const char* file, int line, const char* expression) {
  fprintf(stderr, "ferry: check failed at %s:%d: %s\nflight recorder, oldest first:\n%s", file,
          line, expression, FlightRecorder::Get().Dump().c_str());
  abort();
}

}  // namespace ferry
