// SPDX-License-Identifier: Apache-2.0
// ferryctl support: packs one archive for a bug report.
#include "tools/ferryctl/support.h"

#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/version.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/child_process.h"
#include "tools/ferryctl/doctor.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;
namespace fs = std::filesystem;

// Files of this host, besides what doctor looks at; a file that does not exist is left out.
constexpr const char* kHostFiles[] = {
    "/proc/version", "/proc/meminfo", "/proc/driver/nvidia/version",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "/etc/os-release"};

// Reads to the end, because files of /proc have no size. "" if there is no such file.
std::string ReadWhole(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The page that admin/metrics.sock serves.
absl::StatusOr<std::string> ReadMetrics(const std::string& path) {
  RETURN_IF_ERROR(CheckSocket(path));
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = SocketAddress(path);
  const timeval patience{10, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  constexpr char kRequest[] = "GET /metrics HTTP/1.0\r\n\r\n";
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      send(socket.get(), kRequest, strlen(kRequest), MSG_NOSIGNAL) < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("read ", path));
  }
  std::string answer(1 << 16, '\0'), text;
  ssize_t size = 0;
  while ((size = recv(socket.get(), answer.data(), answer.size(), 0)) > 0) {
    text.append(answer, 0, static_cast<size_t>(size));
  }
  if (size < 0) return absl::ErrnoToStatus(errno, absl::StrCat("read ", path));
  const size_t body = text.find("\r\n\r\n");
  return body == std::string::npos ? text : text.substr(body + 4);
}

std::string HostText() {
  utsname host{};
  uname(&host);
  return absl::StrCat("ferryctl ", Version(), "\ntaken ", absl::FormatTime(absl::Now()), "\n",
                      host.sysname, " ", host.release, " ", host.version, " ", host.machine, "\n");
}

class SupportCommand : public Command {
 public:
  SupportCommand()
      : Command("support",
                "Write one archive for a bug report: what the daemon and this host say of "
                "themselves, without keys, domains and secrets") {}
  void Define(CLI::App& app) override {
    app.add_option("-o,--output", output_,
                   "The archive (ferry-support-NODE-TIME.tar.gz, in this directory)");
    app.add_option("--config", config_, "Also take the daemon's configuration file, as it is")
        ->check(CLI::ExistingFile);
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    files_.emplace_back("host.txt", HostText());
    for (const char* const path : kHostFiles) AddFile(path);
    files_.emplace_back("doctor.json", FindingsJson(Examine(globals)).dump(2));
    std::string node = "unknown";
    Note("the daemon", AskDaemon(globals, node));
    const absl::StatusOr<std::string> metrics =
        ReadMetrics(globals.runtime_dir + "/admin/metrics.sock");
    Note("metrics", metrics.status());
    if (metrics.ok()) files_.emplace_back("metrics.txt", *metrics);
    if (!config_.empty()) AddFile(config_);
    if (!missing_.empty()) files_.emplace_back("missing.txt", absl::StrJoin(missing_, "\n"));
    const std::string stamp = absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone());
    const std::string name = absl::StrCat("ferry-support-", node, "-", stamp);
    if (output_.empty()) output_ = name + ".tar.gz";
    RETURN_IF_ERROR(Pack(name));
    Show(globals);
    return kExitOk;
  }

 private:
  void Note(const char* what, const absl::Status& status) {
    if (!status.ok()) missing_.push_back(absl::StrCat(what, ": ", std::string(status.message())));
  }
  void AddFile(const std::string& path) {
    std::string text = ReadWhole(path);
    if (text.empty()) return;
    std::string name = path.substr(path.find_first_not_of('/'));
    for (char& c : name) c = c == '/' ? '-' : c;
    files_.emplace_back(name, std::move(text));
  }
  void AddMessage(const char* name, google::protobuf::Message& message) {
    RemoveKeys(message);
    files_.emplace_back(name, MessageJson(message));
  }

  absl::Status AskDaemon(const Globals& globals, std::string& node) {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    admin::GetStatusResponse status;
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      return stub.GetStatus(context, admin::GetStatusRequest(), &status);
    }));
    node = status.node();
    const std::string limits = absl::StrCat("/proc/", status.pid(), "/limits");
    AddMessage("status.json", status);
    AddFile(limits);
    using Stub = admin::AdminService::Stub;
    RETURN_IF_ERROR(Ask(client, &Stub::ListDevices, "devices.json"));
    RETURN_IF_ERROR(Ask(client, &Stub::ListSessions, "sessions.json"));
    RETURN_IF_ERROR(Ask(client, &Stub::ListJobs, "jobs.json"));
    RETURN_IF_ERROR(Ask(client, &Stub::ListComms, "comms.json"));
    return AskFlight(client);
  }
  // Calls a method whose request is empty.
  template <typename Request, typename Response>
  absl::Status Ask(AdminClient& client,
                   grpc::Status (admin::AdminService::Stub::*method)(grpc::ClientContext*,
                                                                     const Request&, Response*),
                   const char* file) {
    Response response;
    RETURN_IF_ERROR(client.Call(
        [&](auto& stub, auto* context) { return (stub.*method)(context, Request(), &response); }));
    AddMessage(file, response);
    return absl::OkStatus();
  }
  absl::Status AskFlight(AdminClient& client) {
    admin::GetFlightResponse all, piece;
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      const auto reader = stub.GetFlight(context, admin::GetFlightRequest());
      while (reader->Read(&piece)) all.MergeFrom(piece);
      return reader->Finish();
    }));
    AddMessage("flight.json", all);
    return absl::OkStatus();
  }

  // All files are in one folder, so that unpacking the archive spills nothing.
  absl::Status Pack(const std::string& name) const {
    std::string pattern = (fs::temp_directory_path() / "ferry-support.XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat("make a directory ", pattern));
    }
    const auto packed = [&]() -> absl::Status {
      std::error_code error;
      fs::create_directory(fs::path(pattern) / name, error);
      for (const auto& [file, text] : files_) {
        std::ofstream stream(fs::path(pattern) / name / file, std::ios::binary);
        stream << text;
        if (!stream.flush()) return absl::ErrnoToStatus(errno, absl::StrCat("write ", file));
      }
      SpawnOptions tar;
      tar.arguments = {"tar",
                       "--create",
                       "--gzip",
                       "--owner=0",
                       "--group=0",
                       "--file",
                       fs::absolute(output_).string(),
                       "--directory",
                       pattern,
                       name};
      return RunAndRead(tar).status();
    }();
    std::error_code ignored;
    fs::remove_all(pattern, ignored);
    return packed;
  }

  void Show(const Globals& globals) const {
    if (globals.json) {
      nlohmann::ordered_json out = {{"archive", output_}, {"missing", missing_}};
      for (const auto& [file, text] : files_) out["files"].push_back(file);
      std::printf("%s\n", out.dump().c_str());
      return;
    }
    std::printf("%s\n", output_.c_str());
    for (const auto& [file, text] : files_) {
      std::printf("  %s, %s\n", file.c_str(), HumanSize(text.size()).c_str());
    }
    for (const std::string& what : missing_) {
      std::printf("not in it: %s\n", Printable(what).c_str());
    }
    std::printf(
        "Left out: keys, domains, secrets, contents of buffers. In it: names of nodes, sessions "
        "and "
        "processes, addresses of peers; look before you send it.\n");
  }

  std::string output_, config_;
  std::vector<std::pair<std::string, std::string>> files_;  // name, text
  std::vector<std::string> missing_;
};

}  // namespace

std::string WithoutKeys(const std::string& text) {
  size_t at = std::string::npos;
  for (const char* const word : {"key ", "keys "}) at = std::min(at, text.find(word));
  return at == std::string::npos ? text : absl::StrCat(text.substr(0, at), "(a key, left out)");
}

void RemoveKeys(google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    if (field->name() == "key") {
      reflection.ClearField(&message, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int i = 0; i < count; ++i) {
        RemoveKeys(*(field->is_repeated() ? reflection.MutableRepeatedMessage(&message, field, i)
                                          : reflection.MutableMessage(&message, field)));
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      for (int i = 0; i < count; ++i) {
        if (field->is_repeated()) {
          reflection.SetRepeatedString(
              &message, field, i, WithoutKeys(reflection.GetRepeatedString(message, field, i)));
        } else {
          reflection.SetString(&message, field, WithoutKeys(reflection.GetString(message, field)));
        }
      }
    }
  }
}

void AddSupportCommand(CommandList& commands) {
  commands.push_back(std::make_unique<SupportCommand>());
}

}  // namespace ferry::tools
