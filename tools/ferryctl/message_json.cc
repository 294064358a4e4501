// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/message_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry::tools {
namespace {

using Json = nlohmann::ordered_json;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// How people and logs write a daemon's incarnation: 16 hexadecimal digits, not a number.
bool IsIncarnation(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_UINT64 &&
         absl::EndsWith(std::string(field.name()), "incarnation");
}

// Values that protobuf's mapping writes as text: 64-bit numbers, and bytes in base64.
Json ToPeople(const FieldDescriptor& field, const std::string& text) {
  uint64_t number = 0;
  int64_t with_sign = 0;
  std::string bytes;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:  // no message for people has one
      return absl::EndsWith(text, "_UNSPECIFIED") ? Json(nullptr) : Json(text);
    case FieldDescriptor::CPPTYPE_UINT64:
      if (!absl::SimpleAtoi(text, &number)) return text;
      if (!IsIncarnation(field)) return number;
      return absl::StrCat(absl::Hex(number, absl::kZeroPad16));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::SimpleAtoi(text, &with_sign) ? Json(with_sign) : Json(text);
    default:
      break;
  }
  const bool fingerprint =
      field.type() == FieldDescriptor::TYPE_BYTES && field.name() == "fingerprint";
  return fingerprint && absl::Base64Unescape(text, &bytes) ? absl::BytesToHexString(bytes) : text;
}

// The other way round.
Json ToMapping(const FieldDescriptor& field, const std::string& text) {
  uint64_t number = 0;
  if (IsIncarnation(field) && absl::SimpleHexAtoi(text, &number)) return absl::StrCat(number);
  const bool fingerprint = field.type() == FieldDescriptor::TYPE_BYTES &&
                           field.name() == "fingerprint" &&
                           std::all_of(text.begin(), text.end(), absl::ascii_isxdigit);
  return fingerprint ? absl::Base64Escape(absl::HexStringToBytes(text)) : text;
}

using Respelling = Json (*)(const FieldDescriptor&, const std::string&);

void Respell(Json& json, const Descriptor& type, Respelling respell);

void RespellValue(Json& value, const FieldDescriptor& field, Respelling respell) {
  if (value.is_array()) {
    for (Json& one : value) RespellValue(one, field, respell);
  } else if (value.is_object() && field.message_type() != nullptr) {
    Respell(value, *field.message_type(), respell);
  } else if (value.is_string()) {
    value = respell(field, value.get<std::string>());
  }
}

void Respell(Json& json, const Descriptor& type, Respelling respell) {
  for (auto& [key, value] : json.items()) {
    const FieldDescriptor* const field = type.FindFieldByName(key);
    if (field != nullptr) RespellValue(value, *field, respell);
  }
}

}  // namespace

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  FERRY_CHECK(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  Json json = Json::parse(text);
  Respell(json, *message.GetDescriptor(), ToPeople);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status FromMessageJson(const std::string& text, google::protobuf::Message* message,
                             const std::string& what) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat(what, ": it is no JSON object"));
  }
  Respell(json, *message->GetDescriptor(), ToMapping);
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json.dump(), message, options);
  if (parsed.ok()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat(what, ": ", std::string(parsed.message())));
}

}  // namespace ferry::tools
