// SPDX-License-Identifier: Apache-2.0
// One session that lives through every restart of its daemon (tools/packages-test): it sends to
// itself, from device 0 to device 1, transfer after transfer, as long as the file is there, and
// prints how long it was without.
//   restart_load FILE
// Exit status 1 if a transfer that ended well did not bring its bytes, or brought those of another.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "ferry/ferry.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kBytes = 65'536;
constexpr uint64_t kNever = ~uint64_t{0};
constexpr auto kPatience = std::chrono::seconds(60);

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

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

class Load {
 public:
  Load()
      : session_(*ferry::Session::Open(Options())),
        from_(*session_.CreateArena(0, kBytes)),
        to_(*session_.CreateArena(1, kBytes)) {}

  int Run(const char* file) {
    Clock::time_point well = Clock::now(), attached = well;
    bool new_life = false;
    while (!wrong_ && access(file, F_OK) == 0) {
      if (TransferOne()) {
        if (new_life) {
          to_first_.push_back(MillisecondsSince(attached));
          without_.push_back(MillisecondsSince(well));
          new_life = false;
        }
        well = Clock::now();
        continue;
      }
      ++failed_;
      if (reason_ != "DAEMON_LOST") {
        // It drains. No transfer is on this timeline, so that only its end, or the time, ends this.
        const ferry::Status gone = session_.WaitOver(1, kNever, std::chrono::milliseconds(100));
        if (gone.reason() != "DAEMON_LOST") continue;
      }
      const ferry::Status waited = session_.WaitAttached(kPatience);
      if (!waited.ok()) {
        std::printf("the session is lost: %s\n", waited.ToString().c_str());
        return 1;
      }
      attached = Clock::now();
      new_life = true;
    }
    Report();
    return wrong_ ? 1 : 0;
  }

 private:
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
  }
  unsigned long long Number() const { return static_cast<unsigned long long>(number_); }

  ferry::Session session_;
  ferry::Arena from_, to_;
  uint64_t number_ = 0, moved_ = 0, failed_ = 0;
  bool wrong_ = false;
  std::string reason_;  // of the last failure
  std::vector<double> to_first_, without_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: restart_load FILE\n");
    return 2;
  }
  return Load().Run(argv[1]);
}
