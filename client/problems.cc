// SPDX-License-Identifier: Apache-2.0
#include "client/problems.h"

#include <cctype>
#include <string_view>
#include <utility>

namespace ferry::client {
namespace {

bool Eat(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// The API's name of an entry's member: what follows "buffers[3]" or "runs[3]".
std::string MemberInApi(const PostBatch& batch, std::string_view member) {
  if (member == ".deadline") return ".deadline_ns";
  if (member == ".fingerprint") return ".program";
  // In a prepared batch these must be absent; in a posted one the error is about their counter.
  if (member == ".defined_at") return batch.prepare ? ".has_defined_at" : ".defined_timeline";
  if (member == ".defines") return batch.prepare ? ".defines_value" : ".defines_timeline";
  return std::string(member);
}

// The API's name of a field of the message.
std::string FieldInApi(const PostBatch& batch, std::string_view field) {
  const std::string entries = EntriesOf(batch.direction);
  if (field == "device_id") return "device";
  if (field == "buffers") return entries;
  if (field == "prepare") return "prepared";
  if (field == "domain" || field == "request_id") return "options." + std::string(field);
  if (field == "options.deadline") return "options.deadline_ns";
  std::string_view rest = field;
  const bool key = Eat(&rest, "transfer_keys[");
  if (!key && !Eat(&rest, "buffers[") && !Eat(&rest, "runs[")) return std::string(field);
  const size_t end = rest.find(']');
  if (end == std::string_view::npos) return std::string(field);
  const std::string entry = entries + "[" + std::string(rest.substr(0, end)) + "]";
  return entry + (key ? ".key" : MemberInApi(batch, rest.substr(end + 1)));
}

bool IsOfAField(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '[' || c == ']';
}

// The text with the API's names in place of the message's, and `field` after "; ".
std::string TextInApi(const PostBatch& batch, std::string_view text, const std::string& field) {
  std::string said;
  while (!text.empty()) {
    size_t word = 0;
    while (word < text.size() &&
           (IsOfAField(text[word]) ||
            (text[word] == '.' && word + 1 < text.size() && IsOfAField(text[word + 1])))) {
      ++word;
    }
    const std::string_view path = text.substr(0, word);
    const bool whole = path.find('[') != std::string_view::npos ||
                       (path == field && said.size() >= 2 && said.substr(said.size() - 2) == "; ");
    if (path == "defined_at.timeline") {
      said += "defined_timeline";
    } else {
      said += whole ? FieldInApi(batch, path) : std::string(path);
    }
    text.remove_prefix(word);
    if (text.empty()) break;
    said += text.front();
    text.remove_prefix(1);
  }
  return said;
}

}  // namespace

const char* EntriesOf(Direction direction) {
  switch (direction) {
    case Direction::kSend:
      return "sends";
    case Direction::kReceive:
      return "receives";
    case Direction::kRun:
      break;
  }
  return "runs";
}

StatusPtr InApiWords(const PostBatch& batch, StatusPtr error) {
  if (error == nullptr || error->violations.empty()) return error;
  error->message = TextInApi(batch, error->message, error->violations.front().first);
  for (auto& [field, why] : error->violations) {
    why = TextInApi(batch, why, field);
    field = FieldInApi(batch, field);
  }
  return error;
}

Problems::Problems(const char* doing)
    : error_(Error(kInvalidArgument, kReasonFieldInvalid,
                   std::string(doing) + ": arguments are not usable")) {}

void Problems::Add(std::string field, const std::string& why) {
  if (error_->violations.empty()) error_->message += ": " + field + " " + why;
  error_->violations.emplace_back(std::move(field), why);
}

void Problems::CheckOptions(const ferry_post_options& options) {
  const auto prefix = [] { return std::string("options."); };
  CheckList(prefix, "domain", options.domain, "domain_bytes", options.domain_bytes);
  CheckList(prefix, "request_id", options.request_id, "request_id_bytes", options.request_id_bytes);
  CheckNumber([] { return std::string("options.route"); }, options.route, FERRY_ROUTE_TCP);
}

StatusPtr Problems::Take() { return error_->violations.empty() ? nullptr : std::move(error_); }

}  // namespace ferry::client
