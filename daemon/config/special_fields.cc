// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/special_fields.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/fields.h"
#include "daemon/config/nccl_environment.h"
#include "daemon/config/values.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxUint64 = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

std::string AddressProblem(const std::string& text) {
  return text.empty() ? "" : std::string(ParseHostPort(text).status().message());
}

// The address of another node: port 0 would mean nothing there.
std::string DialProblem(const std::string& text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text);
  return address.ok() && address->port == 0 ? absl::StrCat("'", text, "' has no port to dial")
                                            : AddressProblem(text);
}

// Reads one entry of membership.nodes.
std::optional<Config::Node> ReadNode(const std::string& path, const YAML::Node& node,
                                     const OriginOf& origin, ConfigDraft& draft) {
  if (!node.IsMap()) {
    draft.Problem(path, "must be a map with name, address and ids");
    return std::nullopt;
  }
  Config::Node member;
  std::set<std::string> seen;
  bool unknown = false;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const std::string where = absl::StrCat(path, ".", key);
    draft.origins[where] = origin(entry.second.IsNull() ? entry.first : entry.second);
    if (!seen.insert(key).second) {
      draft.Problem(where, "given twice");
    } else if (key == "name" || key == "address") {
      const std::optional<std::string> text = ReadScalar(where, entry.second, draft);
      if (!text) continue;
      const std::string wrong = key == "name" ? NameProblem(*text) : DialProblem(*text);
      if (!wrong.empty()) {
        draft.Problem(where, wrong);
      } else {
        (key == "name" ? member.name : member.address) = *text;
      }
    } else if (key == "ids") {
      member.ids = List<GlobalDeviceId>(
          where, entry.second, origin, draft, [&](const std::string& at, const YAML::Node& id) {
            const std::optional<uint64_t> number = ReadNumber(at, id, 0, kMaxUint64, draft);
            return number ? std::optional(GlobalDeviceId(*number)) : std::nullopt;
          });
    } else {
      unknown = true;
      draft.Problem(where, "unknown key; known here: address, ids, name");
    }
  }
  for (const char* key : {"name", "ids"}) {
    // A key that is missing may be the unknown one, mistyped.
    if (seen.count(key) == 0 && !unknown) draft.Problem(path, absl::StrCat("has no ", key));
  }
  return member;
}

std::string PrintNodes(const Config& config) {
  if (config.membership.nodes.empty()) return "[]";
  std::string out;
  for (const Config::Node& node : config.membership.nodes) {
    absl::StrAppend(&out, "\n- { name: ", QuoteYaml(node.name), ", ", PrintRest(node), " }");
  }
  return out;
}

// A GPU is given by the driver's index, or by a UUID as nvidia-smi prints it.
bool IsGpuName(const std::string& text) {
  if (IsDigits(text)) return text.size() < 4;
  constexpr size_t kUuid = 36;
  return (absl::StartsWith(text, "GPU-") || absl::StartsWith(text, "MIG-")) &&
         text.size() == kUuid + 4 && std::all_of(text.begin() + 4, text.end(), [](unsigned char c) {
           return absl::ascii_isxdigit(c) || c == '-';
         });
}

void ReadGpus(const std::string& where, const YAML::Node& node, const OriginOf& origin,
              ConfigDraft& draft) {
  auto& devices = draft.config.devices;
  // A flag or a variable gives a single word, which is a list of one.
  const YAML::Node word = node.IsSequence() && node.size() == 1 ? node[0] : node;
  if (word.IsScalar() && (word.Scalar() == "all" || word.Scalar() == "none")) {
    devices.all_gpus = word.Scalar() == "all";
    devices.gpus.clear();
    return;
  }
  if (!node.IsSequence()) {
    return draft.Problem(where, "must be all, none, or a list of UUIDs and indices");
  }
  devices.all_gpus = false;
  devices.gpus = List<std::string>(
      where, node, origin, draft,
      [&](const std::string& at, const YAML::Node& entry) -> std::optional<std::string> {
        const std::optional<std::string> text = ReadScalar(at, entry, draft);
        if (!text || IsGpuName(*text)) return text;
        draft.Problem(at, absl::StrCat("'", *text,
                                       "' is neither a GPU's UUID (as nvidia-smi -L "
                                       "says it) nor its index"));
        return std::nullopt;
      });
}

std::string PrintGpus(const Config& config) {
  if (config.devices.all_gpus) return "all";
  if (config.devices.gpus.empty()) return "none";
  std::vector<std::string> names;
  for (const std::string& gpu : config.devices.gpus) names.push_back(QuoteYaml(gpu));
  return FlowList(names);
}

void NameAlone(std::string* out, const Choices<Route>::value_type& choice) {
  absl::StrAppend(out, choice.first);
}

// In the order of the table, without Route::kUnspecified.
const Choices<Route>& RouteNames() {
  static const Choices<Route>* const names = [] {
    auto* const choices = new Choices<Route>();
    for (const RouteTraits& traits : kRouteTable) {
      if (traits.route != Route::kUnspecified) choices->emplace_back(traits.name, traits.route);
    }
    return choices;
  }();
  return *names;
}

}  // namespace

std::string ListenProblem(const std::string& text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text);
  return address.ok() && !IsIp(*address)
             ? absl::StrCat("'", text, "' is a name; an IP address to listen on, as 127.0.0.1:7411")
             : AddressProblem(text);
}

std::string NameProblem(const std::string& text) {
  const bool good = !text.empty() && text.size() <= 253 &&
                    std::all_of(text.begin(), text.end(), [](unsigned char c) {
                      return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
                    });
  return good ? "" : absl::StrCat("'", text, "' is not a name: 1 to 253 of A-Z a-z 0-9 . _ -");
}

std::string LibraryProblem(const std::string& text) { return text.empty() ? "is empty" : ""; }

std::string PathProblem(const std::string& text) {
  return absl::StartsWith(text, "/") ? "" : absl::StrCat("'", text, "' is not an absolute path");
}

std::string UserProblem(const std::string& text) {
  return text.empty() || FindUser(text) ? "" : absl::StrCat("there is no user '", text, "'");
}

std::string GroupProblem(const std::string& text) {
  return text.empty() || FindGroup(text) ? "" : absl::StrCat("there is no group '", text, "'");
}

std::string ModeProblem(const std::string& text) {
  return ParseMode(text) ? ""
                         : absl::StrCat("'", text, "' is not a mode; three octal digits, as 0660");
}

std::string PrintRest(const Config::Node& node) {
  std::vector<std::string> ids;
  for (GlobalDeviceId id : node.ids) ids.push_back(absl::StrCat(id.value()));
  return absl::StrCat("address: ", QuoteYaml(node.address), ", ids: ", FlowList(ids));
}

ConfigField GpusField(std::string path, std::string meaning) {
  return {
      std::move(path),          std::move(meaning), "`all`, `none`, or a list of UUIDs and indices",
      ConfigField::Kind::kList, ReadGpus,           PrintGpus};
}

ConfigField NodesField(std::string path, std::string meaning) {
  return {std::move(path),
          std::move(meaning),
          "list of `{ name, address, ids }`",
          ConfigField::Kind::kList,
          [](const std::string& where, const YAML::Node& node, const OriginOf& origin,
             ConfigDraft& draft) {
            draft.config.membership.nodes = List<Config::Node>(
                where, node, origin, draft, [&](const std::string& at, const YAML::Node& entry) {
                  return ReadNode(at, entry, origin, draft);
                });
          },
          PrintNodes,
          [](const Config& from, Config& to) { to.membership.nodes = from.membership.nodes; }};
}

ConfigField UidsField(std::string path, std::string meaning) {
  return {std::move(path),
          std::move(meaning),
          "list of uids",
          ConfigField::Kind::kList,
          [](const std::string& where, const YAML::Node& node, const OriginOf& origin,
             ConfigDraft& draft) {
            draft.config.peer.uids = List<uint32_t>(
                where, node, origin, draft, [&](const std::string& at, const YAML::Node& uid) {
                  const std::optional<uint64_t> number =
                      ReadNumber(at, uid, 0, kMaxUint32 - 1, draft);
                  return number ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
                });
          },
          [](const Config& config) {
            std::vector<std::string> uids;
            for (uint32_t uid : config.peer.uids) uids.push_back(absl::StrCat(uid));
            return FlowList(uids);
          }};
}

ConfigField RoutesField(std::string path, std::string meaning) {
  return {std::move(path),
          std::move(meaning),
          absl::StrCat("list of ", ChoiceNames(RouteNames())),
          ConfigField::Kind::kList,
          [](const std::string& where, const YAML::Node& node, const OriginOf& origin,
             ConfigDraft& draft) {
            std::vector<Route> order = List<Route>(
                where, node, origin, draft, [&](const std::string& at, const YAML::Node& entry) {
                  const std::optional<std::string> text = ReadScalar(at, entry, draft);
                  return text ? Choose(at, *text, RouteNames(), draft) : std::nullopt;
                });
            if (node.IsSequence() && node.size() == 0) {
              draft.Problem(where, absl::StrCat("is empty; one or more of ",
                                                absl::StrJoin(RouteNames(), ", ", NameAlone)));
            }
            draft.config.transfer.order = std::move(order);
          },
          [](const Config& config) {
            std::vector<std::string> names;
            for (Route route : config.transfer.order) {
              names.push_back(ChoiceName(RouteNames(), route));
            }
            return FlowList(names);
          }};
}

ConfigField NcclEnvironmentField(std::string path, std::string meaning) {
  return {std::move(path),          std::move(meaning),  "map of `NCCL_...` to a text",
          ConfigField::Kind::kList, ReadNcclEnvironment, PrintNcclEnvironment};
}

ConfigField UnsupportedField(std::string path) {
  return {std::move(path),
          "",
          "",
          ConfigField::Kind::kText,
          [](const std::string& where, const YAML::Node&, const OriginOf&, ConfigDraft& draft) {
            draft.Problem(where, "not supported in this version");
          },
          nullptr};
}

}  // namespace ferry
