// SPDX-License-Identifier: Apache-2.0
// ferryd: flags, signals, exit codes; the daemon itself is daemon/daemon.h.
// Exit codes: 0 drained; 1 could not start, because of what may come back, such as a GPU; 2 usage;
// 75 what is needed is another process's, such as a port; 78 bad configuration, as far as no
// further try helps.
#include <signal.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "base/command_pages.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "daemon/config/config.h"
#include "daemon/daemon.h"
#include "daemon/reports.h"
#include "daemon/supervisor.h"

extern char** environ;

namespace ferry {
extern const char kCommit[];  // made by cmake/commit.cmake
}

namespace {

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

int ExitCode(const absl::Status& status) {
  if (ferry::ReasonOf(status) != ferry::Reason::kConfigInvalid) return 1;
  if (absl::IsAlreadyExists(status) || absl::IsUnavailable(status)) return EX_TEMPFAIL;
  const bool mistake = absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ||
                       absl::IsFailedPrecondition(status);
  return mistake ? EX_CONFIG : 1;
}

int Refuse(const absl::Status& status) {
  fprintf(stderr, "ferryd: %s\n", std::string(status.message()).c_str());
  return ExitCode(status);
}

// Whether the signal stops the daemon. SIGHUP has it reload; the others have their line in the log.
bool Stops(int signal) {
  if (signal == SIGTERM || signal == SIGINT) return true;
  if (signal != SIGHUP) {
    FERRY_LOG(info, "daemon.signal", "{}: does nothing; SIGHUP has the configuration read again",
              strsignal(signal));
  }
  return false;
}

// All signals that this program has something to say to, which its threads leave to the main one.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Instead of these the call fails, and says why.
  for (const int refused : {SIGPIPE, SIGXFSZ}) signal(refused, SIG_IGN);
  return signals;
}

// The next of `signals`, which all threads leave to this one. Tells the supervisor meanwhile.
int NextSignal(const sigset_t& signals, ferry::Supervisor& supervisor, ferry::Reports& reports) {
  int received = 0;
  if (!supervisor.present()) {
    sigwait(&signals, &received);
    return received;
  }
  const timespec period = absl::ToTimespec(reports.period());
  while ((received = sigtimedwait(&signals, nullptr, &period)) < 0) {
    reports.Tell(ferry::MonotonicNow());
  }
  return received;
}

void Reload(const ferry::ConfigSources& sources, ferry::Daemon& daemon, ferry::Reports& reports) {
  reports.Reloading();
  daemon.Reload([&] { return ferry::LoadConfig(sources); });
  reports.Ready(ferry::MonotonicNow());
}

// Waits for what is in flight, up to the configuration's time, or until a second signal stops it.
void Drain(const sigset_t& signals, ferry::Daemon& daemon, ferry::Reports& reports) {
  reports.Stopping(ferry::MonotonicNow());
  daemon.RefuseReloads();
  const uint64_t cancelled = daemon.Drain(daemon.drain_timeout(), [&] {
    reports.Tell(ferry::MonotonicNow());
    const timespec now{0, 0};
    for (int more; (more = sigtimedwait(&signals, nullptr, &now)) > 0;) {
      if (Stops(more)) return true;
      if (more == SIGHUP) FERRY_LOG(info, "daemon.signal", "{}: it stops", strsignal(more));
    }
    return false;
  });
  FERRY_LOG(info, "daemon.stop", "{} transfers ended unfinished", cancelled);
}

int Serve(ferry::Config config, const ferry::ConfigSources& sources,
          ferry::Supervisor& supervisor) {
  absl::StatusOr<ferry::GivenSockets> sockets = supervisor.TakeSockets();
  if (!sockets.ok()) return Refuse(sockets.status());
  // Before any thread starts, so that all of them leave these to this one, and that no library gets
  // them whatever handlers it has. Each would end the daemon with its peers undrained.
  const sigset_t signals = BlockSignals();
  absl::StatusOr<std::unique_ptr<ferry::Daemon>> daemon =
      ferry::Daemon::Start(std::move(config), *std::move(sockets), [] { kill(getpid(), SIGHUP); });
  if (!daemon.ok()) return Refuse(daemon.status());
  ferry::Reports reports(**daemon, supervisor);
  reports.Ready(ferry::MonotonicNow());
  int received = 0;
  while (!Stops(received = NextSignal(signals, supervisor, reports))) {
    if (received == SIGHUP) Reload(sources, **daemon, reports);
  }
  FERRY_LOG(info, "daemon.signal", "{}: draining; once more to stop now", strsignal(received));
  Drain(signals, **daemon, reports);
  return 0;
}

std::string Manual(const CLI::App& app) {
  ferry::ManualPage::About about;
  about.section = 8;
  about.version = ferry::Version();
  about.footer = app.get_footer();
  about.see_also = "ferryctl(1)";
  return ferry::ManualPage::Print(ferry::CommandPage::Of(app, "ferryd"), about);
}

// What the command line says.
struct Flags {
  std::string config_file, runtime_dir, devices, gpus, cuda_library, log_level;
  bool check = false, print = false, explain = false, manual = false;
};

// The program's command line, which is parsed into `flags`.
void AddFlags(Flags& flags, CLI::App& app) {
  app.add_option("--config", flags.config_file,
                 "Configuration file (YAML); none: one node, its GPUs and two host devices");
  app.add_flag("--check-config", flags.check, "Check the configuration and exit: 0 good, 78 bad");
  app.add_flag("--print-config", flags.print, "Print the configuration with all defaults and exit");
  app.add_flag("--print-settings", flags.explain,
               "Print what can be set, as docs/configuration.md has it, and exit");
  app.add_flag("--print-manual", flags.manual, "Print the manual page, for man, and exit");
  app.add_option("--runtime-dir", flags.runtime_dir, "Directory of the sockets (node.runtime_dir)");
  app.add_option("--devices", flags.devices, "Host devices to own: host:N (devices.host)");
  app.add_option("--gpus", flags.gpus,
                 "GPUs to own: all, none, or indices and UUIDs (devices.gpus)");
  app.add_option("--cuda-library", flags.cuda_library,
                 "CUDA's driver library, name or path (devices.cuda_library)");
  app.add_option("--log-level", flags.log_level,
                 "trace, debug, info, warn, error or off (log.level)");
  app.set_version_flag("--version", "ferryd " + ferry::Version());
  app.footer(
      "Every setting is also an environment variable: FERRY_SECTION__KEY, such as\n"
      "FERRY_LIMITS__SESSION_BYTES=1GiB; FERRY_RUNTIME_DIR and FERRY_LOG_LEVEL for short.\n"
      "A flag goes over the environment, that over the file's drop-ins, those over the file.");
}

// Nothing, and said on stderr, if a flag does not say what it is to say.
std::optional<ferry::ConfigSources> SourcesOf(const Flags& flags) {
  ferry::ConfigSources sources;
  if (!flags.config_file.empty()) sources.file = flags.config_file;
  sources.environment = Environment();
  const auto set = [&](const char* setting, const std::string& value, const char* flag) {
    if (!value.empty()) sources.overrides.push_back({setting, value, flag});
  };
  set("node.runtime_dir", flags.runtime_dir, "--runtime-dir");
  set("log.level", flags.log_level, "--log-level");
  set("devices.gpus", flags.gpus, "--gpus");
  set("devices.cuda_library", flags.cuda_library, "--cuda-library");
  if (flags.devices.empty()) return sources;
  if (!absl::StartsWith(flags.devices, "host:")) {
    fprintf(stderr, "ferryd: --devices '%s': host devices, as host:2; GPUs by --gpus\n",
            flags.devices.c_str());
    return std::nullopt;
  }
  sources.overrides.push_back({"devices.host", flags.devices.substr(5), "--devices"});
  return sources;
}

int RefuseConfig(const absl::Status& why) {
  fprintf(stderr, "ferryd: bad configuration\n%s\n", std::string(why.message()).c_str());
  return EX_CONFIG;
}

}  // namespace

int main(int argc, char** argv) {
  ferry::SetCommit(ferry::kCommit);
  CLI::App app{"The node's transfer daemon.", "ferryd"};
  Flags flags;
  AddFlags(flags, app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (flags.manual) {
    printf("%s", Manual(app).c_str());
    return 0;
  }
  if (flags.explain) {
    printf("%s", ferry::ConfigReference().c_str());
    return 0;
  }
  const std::optional<ferry::ConfigSources> sources = SourcesOf(flags);
  if (!sources.has_value()) return 2;
  absl::StatusOr<ferry::Config> config = ferry::LoadConfig(*sources);
  if (!config.ok()) return RefuseConfig(config.status());
  if (flags.print) {
    printf("%s", ferry::PrintConfig(*config).c_str());
    return 0;
  }
  if (flags.check) {
    if (const absl::Status good = ferry::Daemon::Check(*config); !good.ok()) {
      return RefuseConfig(good);
    }
    printf("ferryd: the configuration is good\n");
    return 0;
  }
  if (absl::Status log = ferry::ConfigureLog(config->log.format, config->log.level); !log.ok()) {
    fprintf(stderr, "ferryd: %s\n", std::string(log.message()).c_str());
    return EX_CONFIG;
  }

  ferry::Supervisor supervisor(sources->environment, getpid());
  return Serve(*std::move(config), *sources, supervisor);
}
