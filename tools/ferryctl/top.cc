// SPDX-License-Identifier: Apache-2.0
// ferryctl top: what moves, live; in a pipe screen after screen.
#include <CLI/CLI.hpp>

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/duration.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"
#include "tools/ferryctl/terminal.h"
#include "tools/ferryctl/top_screen.h"
#include "tools/ferryctl/top_source.h"
#include "tools/ferryctl/top_tables.h"

namespace ferry::tools {
namespace {

// How long a terminal shows the former answers while new ones are awaited.
constexpr absl::Duration kPatience = absl::Milliseconds(250);
constexpr absl::Duration kLeastInterval = absl::Milliseconds(100);

absl::StatusOr<absl::Duration> ParseInterval(const std::string& text) {
  ASSIGN_OR_RETURN(const absl::Duration interval, ParseDuration(text));
  if (interval >= kLeastInterval && interval <= absl::Hours(1)) return interval;
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat("interval '", text, "' is not in 100ms to 1h"));
}

struct TopOptions {
  absl::Duration interval = absl::Seconds(1);
  uint64_t iterations = 0;  // 0: until somebody ends it
  uint32_t limit = 20;
};

class Top {
 public:
  Top(const Globals& globals, const std::vector<std::string>& dirs, TopOptions options)
      : json_(globals.json),
        options_(options),
        answered_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        dirs_(dirs),
        globals_(globals) {}

  absl::StatusOr<int> Run() {
    if (!answered_.valid()) return absl::ErrnoToStatus(errno, "make an eventfd");
    if (!json_ && Terminal::Present()) {
      ASSIGN_OR_RETURN(terminal_, Terminal::Open());  // before other threads are started
    }
    for (const std::string& dir : dirs_) {
      sources_.push_back(
          std::make_unique<TopSource>(globals_, dir, options_.limit, answered_.get()));
    }
    RETURN_IF_ERROR(AwaitFirst());
    if (terminal_ != nullptr) terminal_->Enter();
    return Watch();
  }

 private:
  // The first answers. Later daemons may go and come back. But if none answers to begin with, it is
  // the wrong place.
  absl::Status AwaitFirst() {
    Ask();
    const absl::Time end = MonotonicNow() + globals_.timeout.value_or(kAdminTimeout);
    while (Pending() && MonotonicNow() < end) {
      if (const int ended = Wait(end); ended != 0) terminal_->EndBy(ended);
      Collect();
      if (AnyOk()) break;
    }
    if (AnyOk() || Pending()) return absl::OkStatus();
    return sources_.front()->status();
  }
  bool AnyOk() const {
    return std::any_of(sources_.begin(), sources_.end(), [](const auto& source) {
      return !source->asking() && source->status().ok();
    });
  }
  bool Pending() const {
    return std::any_of(sources_.begin(), sources_.end(),
                       [](const auto& source) { return source->asking(); });
  }

  absl::StatusOr<int> Watch() {
    // A pipe's first screen comes with the second look: rates need two.
    bool drawn = terminal_ == nullptr;
    uint64_t screens = 0;
    absl::Time next = MonotonicNow() + options_.interval;
    absl::Time late = MonotonicNow() + Patience();
    while (true) {
      const absl::Time now = MonotonicNow();
      if (!drawn && (!Pending() || now >= late)) {
        drawn = true;
        RETURN_IF_ERROR(Show());
        if (++screens == options_.iterations) return kExitOk;
      }
      if (now >= next) {
        Ask();
        drawn = false;
        next = std::max(next + options_.interval, now);
        late = now + Patience();
        continue;
      }
      if (const int ended = Wait(drawn ? next : std::min(next, late)); ended != 0) {
        terminal_->EndBy(ended);
      }
      Collect();
      if (over_) return kExitOk;
      if (redraw_) RETURN_IF_ERROR(Show());
    }
  }
  absl::Duration Patience() const {
    return terminal_ == nullptr ? options_.interval : std::min(kPatience, options_.interval);
  }

  void Ask() {
    for (const auto& source : sources_) source->Ask(MonotonicNow());
  }
  void Collect() {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t ignored = read(answered_.get(), &count, sizeof(count));
    for (const auto& source : sources_) source->Collect(MonotonicNow());
  }

  // Waits for an answer, a key, a signal or the time. Returns the signal that must end the program,
  // or 0.
  int Wait(absl::Time until) {
    std::vector<pollfd> fds = {{answered_.get(), POLLIN, 0}};
    if (terminal_ != nullptr) {
      fds.push_back({terminal_->signals_fd(), POLLIN, 0});
      fds.push_back({terminal_->keys_fd(), POLLIN, 0});
      if (terminal_->busy()) fds.push_back({terminal_->screen_fd(), POLLOUT, 0});
    }
    const absl::Duration left = std::max(until - MonotonicNow(), absl::ZeroDuration());
    const timespec timeout = absl::ToTimespec(left);
    if (ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0 || terminal_ == nullptr) return 0;
    if (fds[1].revents != 0) {
      if (const int ended = terminal_->ReadSignals(); ended != 0) return ended;
      redraw_ = true;  // in another size, or after a stop
    }
    if (fds[2].revents != 0) {
      std::string keys;
      over_ = over_ || !terminal_->ReadKeys(keys) || !screen_.OnKeys(keys);
      redraw_ = true;
    }
    if (fds.size() > 3 && fds[3].revents != 0) terminal_->WriteMore();
    return 0;
  }

  absl::Status Show() {
    redraw_ = false;
    const absl::Time now = MonotonicNow();
    const absl::Duration fresh = std::max(3 * options_.interval, absl::Seconds(3));
    std::vector<DaemonSample> samples;
    for (const auto& source : sources_) samples.push_back(source->Sample(now, fresh));
    std::vector<TopTable> tables = TopTables(samples);
    const std::string title = absl::StrCat(
        "ferryctl top  ", absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone()),
        "  every ", DurationText(options_.interval));
    if (terminal_ != nullptr) {
      terminal_->Draw(screen_.Frame(std::move(tables), title, terminal_->size()));
      return absl::OkStatus();
    }
    const std::string text =
        json_ ? absl::StrCat(TopJson(tables), "\n") : TopScreen::Plain(tables, title);
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
        std::fflush(stdout) == 0) {
      return absl::OkStatus();
    }
    return absl::ErrnoToStatus(errno != 0 ? errno : EIO, "print the screen");
  }

  const bool json_;
  const TopOptions options_;
  const UniqueFd answered_;
  const std::vector<std::string> dirs_;
  const Globals globals_;
  TopScreen screen_;
  bool over_ = false;
  bool redraw_ = false;
  std::vector<std::unique_ptr<TopSource>> sources_;
  // The last member: nothing is waited for before the terminal is restored.
  std::unique_ptr<Terminal> terminal_;
};

class TopCommand : public Command {
 public:
  TopCommand()
      : Command("top",
                "What moves, live: devices, routes, peers, sessions, the oldest transfers, of one "
                "or several daemons; in a pipe screen after screen") {}

  void Define(CLI::App& app) override {
    app.add_option("runtime_dirs", dirs_,
                   "Of each daemon that is watched; none: that of --runtime-dir");
    AddParsed(app, "--interval", options_.interval, ParseInterval, "From look to look (1s)");
    app.add_option("-n,--iterations", options_.iterations, "End after so many screens")
        ->check(AtLeast<uint64_t>(1));
    app.add_option("--limit", options_.limit, "Ask each daemon for at most so many transfers (20)")
        ->check(AtLeast<uint32_t>(1));
    app.footer(
        "Keys: q ends; n d r p s t or Tab choose a table, < and > the column that it is sorted by\n"
        "(which has a *), R turns the order round, Enter shows the table alone. IN and OUT are\n"
        "what went well, counted when a transfer is over, or a firing of a prepared one.");
  }
  std::string Lacks() const override {
    for (const std::string& dir : dirs_) {
      if (std::string bad = CheckRuntimeDir(dir); !bad.empty()) return bad;
    }
    return "";
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    if (dirs_.empty()) dirs_.push_back(globals.runtime_dir);
    return Top(globals, dirs_, options_).Run();
  }

 private:
  std::vector<std::string> dirs_;
  TopOptions options_;
};

}  // namespace

void AddTopCommand(CommandList& commands) { commands.push_back(std::make_unique<TopCommand>()); }

}  // namespace ferry::tools
