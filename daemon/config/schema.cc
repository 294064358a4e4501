// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/schema.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/nccl_environment.h"
#include "daemon/config/values.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxUint64 = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

std::string Quote(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

std::string FlowList(const std::vector<std::string>& items) {
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

// The text of a scalar; anything else is a problem of `path`.
std::optional<std::string> Text(const std::string& path, const YAML::Node& node,
                                ConfigDraft& draft) {
  if (node.IsScalar()) return node.Scalar();
  draft.Problem(path, node.IsNull() ? "has no value" : "must be a single value");
  return std::nullopt;
}

bool Digits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// A whole number in [min, max]; no sign, no other base.
std::optional<uint64_t> Number(const std::string& path, const YAML::Node& node, uint64_t min,
                               uint64_t max, ConfigDraft& draft) {
  const std::optional<std::string> text = Text(path, node, draft);
  if (!text) return std::nullopt;
  uint64_t value = 0;
  if (!Digits(*text) || !absl::SimpleAtoi(*text, &value) || value < min || value > max) {
    draft.Problem(path, absl::StrCat("'", *text, "' is not a whole number in ", min, "..", max));
    return std::nullopt;
  }
  return value;
}

// The rows. `at` names the member: [](Config& c) -> auto& { return c.node.name; }. It is asked for
// printing too, where nothing is written.

template <typename At>
ConfigField TextField(std::string path, At at,
                      const std::function<std::string(const std::string&)>& wrong = {}) {
  return {
      std::move(path), ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = Text(where, node, draft);
        if (!text) return;
        const std::string problem = wrong ? wrong(*text) : "";
        if (!problem.empty()) return draft.Problem(where, problem);
        at(draft.config) = *text;
      },
      [=](const Config& config) { return Quote(at(const_cast<Config&>(config))); }};
}

template <typename At>
ConfigField NumberField(std::string path, uint64_t min, uint64_t max, At at) {
  return {
      std::move(path), ConfigField::Kind::kNumber,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<uint64_t> number = Number(where, node, min, max, draft);
        if (!number) return;
        auto& member = at(draft.config);
        member = static_cast<std::decay_t<decltype(member)>>(*number);
      },
      [=](const Config& config) { return absl::StrCat(at(const_cast<Config&>(config))); }};
}

template <typename At>
ConfigField SizeField(std::string path, At at) {
  return {
      std::move(path), ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = Text(where, node, draft);
        if (!text) return;
        const absl::StatusOr<uint64_t> size = *text == "0" ? uint64_t{0} : ParseSize(*text);
        if (!size.ok()) return draft.Problem(where, size.status().message());
        if (*size == 0) {
          return draft.Problem(
              where, absl::StrCat("must be more than 0",
                                  absl::StartsWith(where, "limits.")
                                      ? "; it cannot be switched off, only be large, as 1024TiB"
                                      : ""));
        }
        at(draft.config) = *size;
      },
      [=](const Config& config) { return FormatSize(at(const_cast<Config&>(config))); }};
}

template <typename At>
ConfigField DurationField(std::string path, At at) {
  return {
      std::move(path), ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = Text(where, node, draft);
        if (!text) return;
        const absl::StatusOr<absl::Duration> duration = ParseDuration(*text);
        if (!duration.ok()) return draft.Problem(where, duration.status().message());
        at(draft.config) = *duration;
      },
      [=](const Config& config) { return absl::FormatDuration(at(const_cast<Config&>(config))); }};
}

template <typename At>
ConfigField BoolField(std::string path, At at) {
  return {
      std::move(path), ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = Text(where, node, draft);
        if (!text) return;
        if (*text != "true" && *text != "false") {
          return draft.Problem(where, absl::StrCat("'", *text, "' is not true or false"));
        }
        at(draft.config) = *text == "true";
      },
      [=](const Config& config) {
        return std::string(at(const_cast<Config&>(config)) ? "true" : "false");
      }};
}

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
std::optional<Value> Choose(const std::string& path, const std::string& text,
                            const Choices<Value>& choices, ConfigDraft& draft) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (text == name) return value;
    names.push_back(name);
  }
  draft.Problem(path, absl::StrCat("'", text, "' is not one of ", absl::StrJoin(names, ", ")));
  return std::nullopt;
}

template <typename Value>
std::string ChoiceName(const Choices<Value>& choices, const Value& value) {
  for (const auto& [name, choice] : choices) {
    if (choice == value) return name;
  }
  return "";
}

template <typename Value, typename At>
ConfigField ChoiceField(std::string path, Choices<Value> choices, At at) {
  return {
      std::move(path), ConfigField::Kind::kText,
      [=](const std::string& where, const YAML::Node& node, const OriginOf&, ConfigDraft& draft) {
        const std::optional<std::string> text = Text(where, node, draft);
        if (!text) return;
        if (auto value = Choose(where, *text, choices, draft)) at(draft.config) = *value;
      },
      [=](const Config& config) { return ChoiceName(choices, at(const_cast<Config&>(config))); }};
}

// A list; `item(path, node, draft)` reads one entry, which also may turn out to be a problem.
template <typename Value>
std::vector<Value> List(
    const std::string& path, const YAML::Node& node, const OriginOf& origin, ConfigDraft& draft,
    const std::function<std::optional<Value>(const std::string&, const YAML::Node&)>& item) {
  std::vector<Value> values;
  if (!node.IsSequence()) {
    draft.Problem(path, "must be a list");
    return values;
  }
  for (size_t i = 0; i < node.size(); ++i) {
    const std::string where = absl::StrCat(path, "[", i, "]");
    draft.origins[where] = origin(node[i]);
    std::optional<Value> value = item(where, node[i]);
    if (!value) continue;
    if (std::find(values.begin(), values.end(), *value) != values.end()) {
      draft.Problem(where, "is in the list twice");
    }
    values.push_back(*std::move(value));
  }
  return values;
}

std::string AddressProblem(const std::string& text) {
  return text.empty() ? "" : std::string(ParseHostPort(text).status().message());
}

std::string ListenProblem(const std::string& text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text);
  return address.ok() && !IsIp(*address)
             ? absl::StrCat("'", text, "' is a name; an IP address to listen on, as 127.0.0.1:7411")
             : AddressProblem(text);
}

// Of another node: port 0 says nothing there.
std::string DialProblem(const std::string& text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text);
  return address.ok() && address->port == 0 ? absl::StrCat("'", text, "' has no port to dial")
                                            : AddressProblem(text);
}

std::string NameProblem(const std::string& text) {
  const bool good = !text.empty() && text.size() <= 253 &&
                    std::all_of(text.begin(), text.end(), [](unsigned char c) {
                      return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
                    });
  return good ? "" : absl::StrCat("'", text, "' is not a name: 1 to 253 of A-Z a-z 0-9 . _ -");
}

// One entry of membership.nodes.
std::optional<Config::Node> ReadNode(const std::string& path, const YAML::Node& node,
                                     const OriginOf& origin, ConfigDraft& draft) {
  if (!node.IsMap()) {
    draft.Problem(path, "must be a map with name, address and ids");
    return std::nullopt;
  }
  Config::Node member;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const std::string where = absl::StrCat(path, ".", key);
    draft.origins[where] = origin(entry.second.IsNull() ? entry.first : entry.second);
    if (!seen.insert(key).second) {
      draft.Problem(where, "given twice");
    } else if (key == "name" || key == "address") {
      const std::optional<std::string> text = Text(where, entry.second, draft);
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
            const std::optional<uint64_t> number = Number(at, id, 0, kMaxUint64, draft);
            return number ? std::optional(GlobalDeviceId(*number)) : std::nullopt;
          });
    } else {
      draft.Problem(where, "unknown key; known here: address, ids, name");
    }
  }
  for (const char* key : {"name", "ids"}) {
    if (seen.count(key) == 0) draft.Problem(path, absl::StrCat("has no ", key));
  }
  return member;
}

std::string PrintNodes(const Config& config) {
  if (config.membership.nodes.empty()) return "[]";
  std::string out;
  for (const Config::Node& node : config.membership.nodes) {
    std::vector<std::string> ids;
    for (GlobalDeviceId id : node.ids) ids.push_back(absl::StrCat(id.value()));
    absl::StrAppend(&out, "\n- { name: ", Quote(node.name), ", address: ", Quote(node.address),
                    ", ids: ", FlowList(ids), " }");
  }
  return out;
}

std::string LibraryProblem(const std::string& text) { return text.empty() ? "is empty" : ""; }

// An index of the driver's, or a UUID as nvidia-smi says it.
bool IsGpuName(const std::string& text) {
  if (Digits(text)) return text.size() < 4;
  constexpr size_t kUuid = 36;
  return (absl::StartsWith(text, "GPU-") || absl::StartsWith(text, "MIG-")) &&
         text.size() == kUuid + 4 && std::all_of(text.begin() + 4, text.end(), [](unsigned char c) {
           return absl::ascii_isxdigit(c) || c == '-';
         });
}

void ReadGpus(const std::string& where, const YAML::Node& node, const OriginOf& origin,
              ConfigDraft& draft) {
  auto& devices = draft.config.devices;
  // Flags and the environment bring one word as a list of it.
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
        const std::optional<std::string> text = Text(at, entry, draft);
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
  for (const std::string& gpu : config.devices.gpus) names.push_back(Quote(gpu));
  return FlowList(names);
}

// A setting that the format has a place for and this version does not serve: never taken silently.
ConfigField UnsupportedField(std::string path) {
  return {std::move(path), ConfigField::Kind::kText,
          [](const std::string& where, const YAML::Node&, const OriginOf&, ConfigDraft& draft) {
            draft.Problem(where, "not supported in this version");
          },
          nullptr};
}

const Choices<Route> kRouteNames = {{"local", Route::kLocal},
                                    {"mapped", Route::kMapped},
                                    {"tcp", Route::kTcp},
                                    {"ucx", Route::kUcx},
                                    {"nccl", Route::kNccl}};

std::vector<ConfigField> MakeFields() {
  std::vector<ConfigField> fields;
  const auto add = [&fields](ConfigField field) { fields.push_back(std::move(field)); };
#define MEMBER(name) \
  [](Config & c) -> auto& { return c.name; }
  add(TextField("node.name", MEMBER(node.name), NameProblem));
  add(TextField("node.runtime_dir", MEMBER(node.runtime_dir), [](const std::string& text) {
    return absl::StartsWith(text, "/") ? "" : absl::StrCat("'", text, "' is not an absolute path");
  }));
  add(NumberField("devices.host", 0, 256, MEMBER(devices.host)));
  add({"devices.gpus", ConfigField::Kind::kList, ReadGpus, PrintGpus});
  add(TextField("devices.cuda_library", MEMBER(devices.cuda_library), LibraryProblem));
  add(TextField("devices.nvml_library", MEMBER(devices.nvml_library), LibraryProblem));
  add(NumberField("devices.ids.base", 0, uint64_t{1} << 62, MEMBER(devices.base_id)));
  add(TextField("membership.provider", MEMBER(membership.provider), [](const std::string& text) {
    if (text == "static") return std::string();
    if (text == "etcd" || text == "seeds") {
      return absl::StrCat("'", text, "' is not supported in this version");
    }
    return absl::StrCat("'", text, "' is not one of static");
  }));
  add({"membership.nodes", ConfigField::Kind::kList,
       [](const std::string& where, const YAML::Node& node, const OriginOf& origin,
          ConfigDraft& draft) {
         draft.config.membership.nodes = List<Config::Node>(
             where, node, origin, draft, [&](const std::string& at, const YAML::Node& entry) {
               return ReadNode(at, entry, origin, draft);
             });
       },
       PrintNodes});
  add(TextField("peer.listen", MEMBER(peer.listen), ListenProblem));
  for (const char* key : {"cert", "key", "ca"}) {
    add(UnsupportedField(absl::StrCat("peer.tls.", key)));
  }
  add(BoolField("peer.insecure", MEMBER(peer.insecure)));
  add(TextField("peer.secret_file", MEMBER(peer.secret_file), [](const std::string& text) {
    return text.empty() || absl::StartsWith(text, "/")
               ? ""
               : absl::StrCat("'", text, "' is not an absolute path");
  }));
  add({"peer.uids", ConfigField::Kind::kList,
       [](const std::string& where, const YAML::Node& node, const OriginOf& origin,
          ConfigDraft& draft) {
         draft.config.peer.uids = List<uint32_t>(
             where, node, origin, draft, [&](const std::string& at, const YAML::Node& uid) {
               const std::optional<uint64_t> number = Number(at, uid, 0, kMaxUint32 - 1, draft);
               return number ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
             });
       },
       [](const Config& config) {
         std::vector<std::string> uids;
         for (uint32_t uid : config.peer.uids) uids.push_back(absl::StrCat(uid));
         return FlowList(uids);
       }});
  add(SizeField("limits.session_bytes", MEMBER(limits.session_bytes)));
  add(NumberField("limits.session_arenas", 1, 1'000'000, MEMBER(limits.session_arenas)));
  add(NumberField("limits.transfers_in_flight", 1, 10'000'000, MEMBER(limits.transfers_in_flight)));
  add(NumberField("limits.session_failures", 1, 10'000'000, MEMBER(limits.session_failures)));
  add(NumberField("limits.sessions", 1, 1'000'000, MEMBER(limits.sessions)));
  add(NumberField("limits.sessions_per_uid", 1, 1'000'000, MEMBER(limits.sessions_per_uid)));
  add(NumberField("limits.connections_per_uid", 1, 1'000'000, MEMBER(limits.connections_per_uid)));
  add(NumberField("limits.connects_per_second", 1, 1'000'000, MEMBER(limits.connects_per_second)));
  add(SizeField("limits.rpc_bytes_per_uid", MEMBER(limits.rpc_bytes_per_uid)));
  add(NumberField("limits.offers_per_peer", 1, 10'000'000, MEMBER(limits.offers_per_peer)));
  add(SizeField("limits.session_kept_bytes", MEMBER(limits.session_kept_bytes)));
  add(SizeField("limits.uid_kept_bytes", MEMBER(limits.uid_kept_bytes)));
  add(SizeField("limits.peer_kept_bytes", MEMBER(limits.peer_kept_bytes)));
  add(SizeField("limits.gpu_bytes", MEMBER(limits.gpu_bytes)));
  add(SizeField("limits.job_bytes", MEMBER(limits.job_bytes)));
  add(SizeField("limits.job_memory", MEMBER(limits.job_memory)));
  add(NumberField("limits.job_flops", 1, uint64_t{1} << 60, MEMBER(limits.job_flops)));
  add(NumberField("limits.launch_flops", 1 << 20, uint64_t{1} << 60, MEMBER(limits.launch_flops)));
  add(NumberField("limits.job_threads", 0, 1024, MEMBER(limits.job_threads)));
  add(SizeField("limits.comm_bytes_per_gpu", MEMBER(limits.comm_bytes_per_gpu)));
  add({"transfer.order", ConfigField::Kind::kList,
       [](const std::string& where, const YAML::Node& node, const OriginOf& origin,
          ConfigDraft& draft) {
         std::vector<Route> order = List<Route>(
             where, node, origin, draft, [&](const std::string& at, const YAML::Node& entry) {
               const std::optional<std::string> text = Text(at, entry, draft);
               return text ? Choose(at, *text, kRouteNames, draft) : std::nullopt;
             });
         if (node.IsSequence() && node.size() == 0) {
           draft.Problem(where, "is empty; one or more of local, mapped, tcp, ucx, nccl");
         }
         draft.config.transfer.order = std::move(order);
       },
       [](const Config& config) {
         std::vector<std::string> names;
         for (Route route : config.transfer.order) names.push_back(ChoiceName(kRouteNames, route));
         return FlowList(names);
       }});
  add(ChoiceField(
      "transfer.choose",
      Choices<RouteChoice>{{"order", RouteChoice::kOrder}, {"estimate", RouteChoice::kEstimate}},
      MEMBER(transfer.choose)));
  add(DurationField("transfer.deadline", MEMBER(transfer.deadline)));
  add(SizeField("transfer.staging", MEMBER(transfer.staging)));
  add(NumberField("transfer.tcp.connections", 1, 15, MEMBER(transfer.tcp.connections)));
  add(TextField("transfer.ucx.library", MEMBER(transfer.ucx.library)));
  add(TextField("transfer.ucx.shm_tls", MEMBER(transfer.ucx.shm_tls)));
  add(TextField("transfer.ucx.net_tls", MEMBER(transfer.ucx.net_tls)));
  add(TextField("transfer.ucx.open_to", MEMBER(transfer.ucx.open_to)));
  add(TextField("transfer.ucx.net_devices", MEMBER(transfer.ucx.net_devices)));
  add(ChoiceField(
      "transfer.ucx.direct",
      Choices<UcxDirect>{
          {"auto", UcxDirect::kAuto}, {"true", UcxDirect::kOn}, {"false", UcxDirect::kOff}},
      MEMBER(transfer.ucx.direct)));
  add(TextField("transfer.nccl.library", MEMBER(transfer.nccl.library), LibraryProblem));
  add(NumberField("transfer.nccl.max_ctas", 0, 64, MEMBER(transfer.nccl.max_ctas)));
  add(DurationField("transfer.nccl.idle", MEMBER(transfer.nccl.idle)));
  add(DurationField("transfer.nccl.group_time", MEMBER(transfer.nccl.group_time)));
  add({"transfer.nccl.environment", ConfigField::Kind::kList, ReadNcclEnvironment,
       PrintNcclEnvironment});
  add(TextField("metrics.listen", MEMBER(metrics.listen), ListenProblem));
  add(BoolField("metrics.insecure", MEMBER(metrics.insecure)));
  Choices<std::string> levels;
  for (const char* level : {"trace", "debug", "info", "warn", "error", "off"}) {
    levels.emplace_back(level, level);
  }
  add(ChoiceField("log.level", levels, MEMBER(log.level)));
  add(ChoiceField("log.format",
                  Choices<LogFormat>{{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
                  MEMBER(log.format)));
  add(DurationField("drain.timeout", MEMBER(drain.timeout)));
#undef MEMBER
  return fields;
}

}  // namespace

void ConfigDraft::Problem(const std::string& path, absl::string_view what) {
  const auto origin = origins.find(path);
  problems.push_back(
      absl::StrCat(origin == origins.end() ? "default" : origin->second, ": ", path, ": ", what));
  // A part that is wrong breaks the setting it is part of.
  broken.insert(path.substr(0, path.find('[')));
}

const std::vector<ConfigField>& ConfigFields() {
  static const std::vector<ConfigField>* const fields = new std::vector<ConfigField>(MakeFields());
  return *fields;
}

const ConfigField* FindConfigField(absl::string_view path) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

bool IsConfigSection(absl::string_view path) {
  const std::string prefix = absl::StrCat(path, ".");
  return std::any_of(ConfigFields().begin(), ConfigFields().end(), [&](const ConfigField& field) {
    return absl::StartsWith(field.path, prefix);
  });
}

}  // namespace ferry
