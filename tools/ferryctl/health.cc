// SPDX-License-Identifier: Apache-2.0
// ferryctl health: for people, probes, and scripts that wait for a start.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/health_check.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

class HealthCommand : public Command {
 public:
  HealthCommand()
      : Command("health",
                "Whether the daemon serves; exit status 8 if it says that it does not, 4 if nobody "
                "answers") {}
  void Define(CLI::App& app) override {
    app.add_option("--service", service_, "'' (the daemon), startup, readiness or liveness");
    AddParsed(app, "--wait", wait_, ParseDuration,
              "Wait so long for it to serve, also for its start");
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    ServingStatus status;
    if (!wait_.has_value()) {
      ASSIGN_OR_RETURN(status, CheckHealth(globals.AdminSocket(), service_,
                                           globals.timeout.value_or(kAdminTimeout)));
    } else {
      ASSIGN_OR_RETURN(status, AwaitServing(globals.AdminSocket(), service_, *wait_));
    }
    const std::string state = ::grpc::health::v1::HealthCheckResponse::ServingStatus_Name(status);
    if (globals.json) {
      const nlohmann::ordered_json out = {{"service", service_}, {"status", state}};
      std::printf("%s\n", out.dump().c_str());
    } else {
      std::printf("%s\n", state.c_str());
    }
    return status == ::grpc::health::v1::HealthCheckResponse::SERVING ? kExitOk : kExitUnhealthy;
  }

 private:
  std::string service_;
  std::optional<absl::Duration> wait_;
};

}  // namespace

void AddHealthCommand(CommandList& commands) {
  commands.push_back(std::make_unique<HealthCommand>());
}

}  // namespace ferry::tools
