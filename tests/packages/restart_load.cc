// SPDX-License-Identifier: Apache-2.0
// One session that lives through every restart of its daemon (tools/packages-test): it sends to
// itself, from device 0 to device 1, transfer after transfer, as long as the file is there, and
// prints how long it was without, and of the restart that took longest what it waited for.
//   restart_load FILE
// Exit status 1 if a transfer that ended well did not bring its bytes, or brought those of another.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "ferry/ferry.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kBytes = 65'536;
constexpr uint64_t kNever = ~uint64_t{0};
constexpr auto kPatience = std::chrono::seconds(60);

double Quantile(std::vector<double> values, double quantile) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(quantile * static_cast<double>(values.size()));
  return values[std::min(place, values.size() - 1)];
}

void Print(const char* what, const std::vector<double>& values) {
  std::printf("%s: p50 %.1f ms, p99 %.1f ms, of %zu\n", what, Quantile(values, 0.5),
              Quantile(values, 0.99), values.size());
}

// For how long some task of this machine has waited for a CPU since it was booted; 0 where the
// kernel does not tell.
double MillisecondsOfPressure() {
  std::ifstream file("/proc/pressure/cpu");
  std::string word;
  while (file >> word) {
    if (word.rfind("total=", 0) == 0) return std::strtod(word.c_str() + 6, nullptr) / 1000;
  }
  return 0;
}

// When what came next, of one restart.
struct Restart {
  Clock::time_point well;                    // the last transfer of the old life was over
  Clock::time_point refused;                 // the next one was
  Clock::time_point lost;                    // the old daemon was
  Clock::time_point attached;                // to the new one
  Clock::time_point first;                   // the first transfer of the new life was over
  long long began = 0;                       // seconds since 1970, of `refused`
  double pressure = 0;                       // at `refused`; once it has ended, since then
  std::map<std::string, unsigned> failures;  // by reason

  static double Milliseconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  }
  double Without() const { return Milliseconds(well, first); }
  void Fails(const std::string& reason) {
    if (failures.empty()) {
      refused = Clock::now();
      began = static_cast<long long>(std::time(nullptr));
      pressure = MillisecondsOfPressure();
    }
    ++failures[reason];
  }
  void Ends() {
    first = Clock::now();
    pressure = MillisecondsOfPressure() - pressure;
  }
  void Print() const {
    std::printf(
        "slowest restart: %.0f ms, from second %lld on: %.0f ms until one was refused, %.0f ms "
        "until the daemon was gone, %.0f ms until the next one was there, %.0f ms until a transfer "
        "was over; tasks waited for a CPU in %.0f ms of that; failures:",
        Without(), began, Milliseconds(well, refused), Milliseconds(refused, lost),
        Milliseconds(lost, attached), Milliseconds(attached, first), pressure);
    for (const auto& [reason, count] : failures) std::printf(" %s %u", reason.c_str(), count);
    std::printf("\n");
  }
};

class Load {
 public:
  Load()
      : session_(*ferry::Session::Open(Options())),
        from_(*session_.CreateArena(0, kBytes)),
        to_(*session_.CreateArena(1, kBytes)) {}

  int Run(const char* file) {
    Restart restart;
    restart.well = Clock::now();
    bool new_life = false;
    while (!wrong_ && access(file, F_OK) == 0) {
      if (TransferOne()) {
        if (new_life) Ended(restart);
        new_life = false;
        restart = Restart();
        restart.well = Clock::now();
        continue;
      }
      ++failed_;
      restart.Fails(reason_);
      if (reason_ != "DAEMON_LOST") {
        // It drains. No transfer is on this timeline, so that only its end, or the time, ends this.
        const ferry::Status gone = session_.WaitOver(1, kNever, std::chrono::milliseconds(100));
        if (gone.reason() != "DAEMON_LOST") continue;
      }
      restart.lost = Clock::now();
      const ferry::Status waited = session_.WaitAttached(kPatience);
      if (!waited.ok()) {
        std::printf("the session is lost: %s\n", waited.ToString().c_str());
        return 1;
      }
      restart.attached = Clock::now();
      new_life = true;
    }
    Report();
    return wrong_ ? 1 : 0;
  }

 private:
  void Ended(Restart& restart) {
    restart.Ends();
    to_first_.push_back(Restart::Milliseconds(restart.attached, restart.first));
    without_.push_back(restart.Without());
    if (without_.size() == 1 || restart.Without() > slowest_.Without()) slowest_ = restart;
  }
  static ferry::SessionOptions Options() {
    ferry::SessionOptions options;
    options.timeout = kPatience;
    return options;
  }
  // Its bytes begin with its number. False if it did not end well.
  bool TransferOne() {
    const std::string key = "restart-load-" + std::to_string(++number_);
    std::memset(from_.data(), static_cast<int>(number_ % 251), kBytes);
    std::memcpy(from_.data(), &number_, sizeof(number_));
    std::memset(to_.data(), 255, kBytes);
    auto receive = session_.Receive(1, {ferry::Transfer(0, key, {to_.All()})});
    if (!receive.ok()) return Failed(receive.status());
    auto send = session_.Send(0, {ferry::Transfer(1, key, {from_.All()})});
    if (!send.ok()) {
      // It may have ended meanwhile.
      (void)receive->Cancel();
      (void)receive->Wait(kPatience);
      return Failed(send.status());
    }
    const ferry::Status sent = send->Wait(kPatience), received = receive->Wait(kPatience);
    if (!received.ok()) return Failed(received);
    ++moved_;
    wrong_ = std::memcmp(from_.data(), to_.data(), kBytes) != 0;
    if (wrong_) std::printf("transfer %llu has not its bytes\n", Number());
    return sent.ok() || Failed(sent);
  }
  bool Failed(const ferry::Status& status) {
    reason_ = status.reason();
    return false;
  }
  void Report() const {
    std::printf(
        "%llu transfers came as they were sent, %llu were told that the daemon goes or has gone\n",
        static_cast<unsigned long long>(moved_), static_cast<unsigned long long>(failed_));
    Print("re-attached to first transfer", to_first_);
    Print("last transfer before a restart to first one after", without_);
    if (!without_.empty()) slowest_.Print();
  }
  unsigned long long Number() const { return static_cast<unsigned long long>(number_); }

  ferry::Session session_;
  ferry::Arena from_, to_;
  uint64_t number_ = 0, moved_ = 0, failed_ = 0;
  bool wrong_ = false;
  std::string reason_;  // of the last failure
  std::vector<double> to_first_, without_;
  Restart slowest_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: restart_load FILE\n");
    return 2;
  }
  return Load().Run(argv[1]);
}
