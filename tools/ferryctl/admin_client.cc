// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/admin_client.h"

#include <errno.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry::tools {

std::shared_ptr<grpc::Channel> AdminChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // A daemon that is just starting is tried again soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket),
                                   grpc::InsecureChannelCredentials(), arguments);
}

absl::Status CheckSocket(const std::string& socket) {
  if (access(socket.c_str(), R_OK | W_OK) == 0) return absl::OkStatus();
  if (errno == EACCES) {
    return ErrnoError(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                      absl::StrCat("connect to ", socket), errno);
  }
  return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
               absl::StrCat("connect to ", socket, ": ", strerror(errno), " (is ferryd running?)"));
}

absl::StatusOr<AdminClient> AdminClient::Open(const Globals& globals) {
  RETURN_IF_ERROR(CheckSocket(globals.AdminSocket()));
  AdminClient client;
  client.stub_ = ferry::admin::v1::AdminService::NewStub(AdminChannel(globals.AdminSocket()));
  client.socket_ = globals.AdminSocket();
  client.timeout_ = globals.timeout.value_or(kAdminTimeout);
  return client;
}

namespace {

// What people and logs call a daemon's life, 16 hexadecimal digits, not a number; and a program, by
// its bytes, not in base64.
struct Spelling {
  const char* field;
  std::string (*in_json)(const std::string&);     // of what protobuf's mapping says
  std::string (*in_mapping)(const std::string&);  // and back
};
constexpr Spelling kSpellings[] = {
    {"incarnation",
     [](const std::string& decimal) {
       uint64_t incarnation = 0;
       return absl::SimpleAtoi(decimal, &incarnation)
                  ? absl::StrCat(absl::Hex(incarnation, absl::kZeroPad16))
                  : decimal;
     },
     [](const std::string& hex) {
       uint64_t incarnation = 0;
       return absl::SimpleHexAtoi(hex, &incarnation) ? absl::StrCat(incarnation) : hex;
     }},
    {"fingerprint",
     [](const std::string& base64) {
       std::string bytes;
       return absl::Base64Unescape(base64, &bytes) ? absl::BytesToHexString(bytes) : base64;
     },
     [](const std::string& hex) {
       const bool digits = std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit);
       return digits ? absl::Base64Escape(absl::HexStringToBytes(hex)) : hex;
     }},
};

void Respell(nlohmann::ordered_json& json, std::string (*Spelling::*spell)(const std::string&)) {
  for (auto& [key, value] : json.items()) {
    if (value.is_structured()) Respell(value, spell);
    if (!value.is_string()) continue;
    for (const Spelling& spelling : kSpellings) {
      if (key == spelling.field) value = (spelling.*spell)(value.get<std::string>());
    }
  }
}

}  // namespace

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  FERRY_CHECK(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  Respell(json, &Spelling::in_json);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::Status FromMessageJson(const std::string& text, google::protobuf::Message* message,
                             const std::string& what) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat(what, ": it is no JSON object"));
  }
  Respell(json, &Spelling::in_mapping);
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json.dump(), message, options);
  if (parsed.ok()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat(what, ": ", std::string(parsed.message())));
}

}  // namespace ferry::tools
