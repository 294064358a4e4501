// SPDX-License-Identifier: Apache-2.0
// Checks of several settings together, and what to suggest for an unknown key.
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/nearest.h"
#include "daemon/config/schema.h"
#include "daemon/config/values.h"

namespace ferry {
namespace {

constexpr size_t kMaxSocketPath = 107;  // sizeof(sockaddr_un::sun_path) without its NUL
// The longest of the names under the runtime directory.
constexpr char kLongestSocket[] = "/client/attach.sock";

constexpr char kNeedsInsecure[] =
    "is beyond loopback, where the link is not encrypted; set peer.insecure: true to allow that";

constexpr char kNeedsSecret[] =
    "is beyond loopback, where daemons must prove who they are; make a secret with "
    "`head -c 32 /dev/urandom > ferry.secret`, give it to all nodes, and set peer.secret_file to "
    "it";

std::string NodePath(size_t index, absl::string_view part) {
  return absl::StrCat("membership.nodes[", index, "].", part);
}

void CheckRuntimeDir(ConfigDraft& draft) {
  if (!draft.sound("node.runtime_dir")) return;
  const std::string path =
      absl::StrCat(absl::StripSuffix(draft.config.node.runtime_dir, "/"), kLongestSocket);
  if (path.size() <= kMaxSocketPath) return;
  draft.Problem("node.runtime_dir",
                absl::StrCat("is too long: the socket ", path, " would have ", path.size(),
                             " bytes, and a socket's path may have ", kMaxSocketPath));
}

void CheckUnique(ConfigDraft& draft) {
  std::set<std::string> names;
  std::set<std::string> addresses;
  std::set<GlobalDeviceId> ids;
  const std::vector<Config::Node>& nodes = draft.config.membership.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!names.insert(nodes[i].name).second) {
      draft.Problem(NodePath(i, "name"),
                    absl::StrCat("'", nodes[i].name, "' is another node's too"));
    }
    if (!nodes[i].address.empty() && !addresses.insert(nodes[i].address).second) {
      draft.Problem(NodePath(i, "address"),
                    absl::StrCat("'", nodes[i].address, "' is another node's too"));
    }
    if (nodes[i].ids.empty()) draft.Problem(NodePath(i, "ids"), "is empty");
    for (size_t j = 0; j < nodes[i].ids.size(); ++j) {
      if (ids.insert(nodes[i].ids[j]).second) continue;
      draft.Problem(NodePath(i, absl::StrCat("ids[", j, "]")),
                    absl::StrCat(nodes[i].ids[j].value(), " is another node's too"));
    }
  }
}

void CheckOwnNode(ConfigDraft& draft) {
  Config& config = draft.config;
  const auto own =
      std::find_if(config.membership.nodes.begin(), config.membership.nodes.end(),
                   [&](const Config::Node& node) { return node.name == config.node.name; });
  if (own == config.membership.nodes.end()) {
    std::vector<std::string> names;
    for (const Config::Node& node : config.membership.nodes) names.push_back(node.name);
    draft.Problem("node.name",
                  absl::StrCat("'", config.node.name, "' is not in membership.nodes, which has ",
                               absl::StrJoin(names, ", ")));
    return;
  }
  // Ids that host devices do not take are for GPUs. If all GPUs are meant, their number is known
  // later.
  const size_t ids = own->ids.size();
  const size_t gpus = config.devices.gpus.size();
  if (!draft.given("devices.host") && gpus <= ids) {
    config.devices.host = static_cast<uint32_t>(ids - gpus);
  } else if (draft.sound("devices.host") && draft.sound("devices.gpus") &&
             (config.devices.all_gpus ? config.devices.host > ids
                                      : config.devices.host + gpus != ids)) {
    draft.Problem("devices.host",
                  absl::StrCat("is ", config.devices.host,
                               gpus > 0 ? absl::StrCat(" and devices.gpus names ", gpus) : "",
                               ", but membership.nodes gives '", own->name, "' ", ids, " ids"));
  }
}

bool BeyondLoopback(const std::string& address) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  return parsed.ok() && !IsLoopback(*parsed);
}

// What is missing for a link by `address`; null if nothing is.
const char* MissingFor(const std::string& address, const ConfigDraft& draft) {
  if (!BeyondLoopback(address)) return nullptr;
  const Config& config = draft.config;
  if (!config.peer.insecure && draft.sound("peer.insecure")) return kNeedsInsecure;
  const bool cluster = config.membership.nodes.size() > 1;
  const bool secret = !config.peer.secret_file.empty() || !draft.sound("peer.secret_file");
  return cluster && !secret ? kNeedsSecret : nullptr;
}

// Whether other nodes dial the port on which this node listens.
void CheckOwnPort(ConfigDraft& draft) {
  const Config& config = draft.config;
  const absl::StatusOr<HostPort> listen = ParseHostPort(config.peer.listen);
  if (!listen.ok() || config.peer.forwarded) return;
  for (size_t i = 0; i < config.membership.nodes.size(); ++i) {
    const Config::Node& node = config.membership.nodes[i];
    const absl::StatusOr<HostPort> address = ParseHostPort(node.address);
    if (node.name != config.node.name || !address.ok() || address->port == listen->port) continue;
    draft.Problem("peer.listen",
                  absl::StrCat("'", config.peer.listen, "' has another port than ",
                               NodePath(i, "address"), ", '", node.address,
                               "', which the other nodes dial; if something forwards that to this "
                               "one, set peer.forwarded: true"));
  }
}

void CheckAddresses(ConfigDraft& draft) {
  const Config& config = draft.config;
  const bool cluster = config.membership.nodes.size() > 1;
  const bool nodes_sound = draft.sound("membership.nodes");
  for (size_t i = 0; nodes_sound && i < config.membership.nodes.size(); ++i) {
    const Config::Node& node = config.membership.nodes[i];
    if (cluster && node.address.empty()) {
      draft.Problem(absl::StrCat("membership.nodes[", i, "]"),
                    "has no address, which each of several nodes needs");
    }
    // This node's own entry says how other nodes dial it; it listens on peer.listen.
    const char* const missing =
        node.name == config.node.name ? nullptr : MissingFor(node.address, draft);
    if (missing != nullptr) {
      draft.Problem(NodePath(i, "address"), absl::StrCat("'", node.address, "' ", missing));
    }
  }
  if (draft.sound("metrics.listen") && draft.sound("metrics.insecure") &&
      !config.metrics.insecure && BeyondLoopback(config.metrics.listen)) {
    draft.Problem("metrics.listen",
                  absl::StrCat("'", config.metrics.listen,
                               "' is beyond loopback, where whoever reaches it may read all "
                               "metrics; set metrics.insecure: true to allow that"));
  }
  if (!draft.sound("peer.listen")) return;
  if (cluster && nodes_sound && config.peer.listen.empty()) {
    draft.Problem("peer.listen", "is needed with more than one node, as 127.0.0.1:7411");
  }
  if (cluster && nodes_sound && draft.sound("node.name")) CheckOwnPort(draft);
  if (const char* const missing = MissingFor(config.peer.listen, draft); missing != nullptr) {
    draft.Problem("peer.listen", absl::StrCat("'", config.peer.listen, "' ", missing));
  }
}

// The keys of a section; empty if there is no such section.
std::set<std::string> KeysOf(absl::string_view section) {
  const std::string prefix = section.empty() ? "" : absl::StrCat(section, ".");
  std::set<std::string> known;
  for (const ConfigField& field : ConfigFields()) {
    if (!absl::StartsWith(field.path, prefix)) continue;
    const std::string rest = field.path.substr(prefix.size());
    known.insert(rest.substr(0, rest.find('.')));
  }
  return known;
}

void CheckUcx(ConfigDraft& draft) {
  const auto& ucx = draft.config.transfer.ucx;
  if (!ucx.open_to.empty() || !draft.sound("transfer.ucx.open_to")) return;
  const struct {
    const char* path;
    const std::string& tls;
  } settings[] = {{"transfer.ucx.net_tls", ucx.net_tls}, {"transfer.ucx.shm_tls", ucx.shm_tls}};
  for (const auto& [path, tls] : settings) {
    if (!NamesTcp(tls) || !draft.sound(path)) continue;
    draft.Problem(path,
                  absl::StrCat("'", tls,
                               "' has UCX listen on TCP, on a port that obeys whoever reaches it: "
                               "say who that is in transfer.ucx.open_to, as \"the hosts of rack "
                               "7\", or leave it to route tcp"));
  }
}

}  // namespace

// Reads UCX_TLS as UCX 1.13 and 1.22 were seen to do; what those refuse (patterns, spaces) as
// another version might read it. A word may begin with `\`, which makes it no alias, and end with
// `:` and its use.
bool NamesTcp(const std::string& tls) {
  const auto name_of = [](absl::string_view word) {
    word = absl::StripAsciiWhitespace(word);
    absl::ConsumePrefix(&word, "\\");
    return absl::AsciiStrToLower(word.substr(0, word.find(':')));
  };
  absl::string_view list = absl::StripAsciiWhitespace(tls);
  if (list.empty()) return false;
  const bool all_but = absl::ConsumePrefix(&list, "^");
  for (const absl::string_view word : absl::StrSplit(list, ',')) {
    // A word that leaves out a part of TCP, or a pattern, does not surely leave TCP out.
    if (all_but && (word == "tcp" || word == "\\tcp")) return false;
    const std::string name = name_of(word);
    if (!all_but &&
        (name == "all" || absl::StartsWith(name, "^") || fnmatch(name.c_str(), "tcp", 0) == 0)) {
      return true;
    }
  }
  return all_but;
}

void CheckConfig(ConfigDraft& draft) {
  CheckRuntimeDir(draft);
  if (!draft.config.membership.nodes.empty() && draft.sound("membership.nodes")) {
    CheckUnique(draft);
    if (draft.sound("node.name")) CheckOwnNode(draft);
  }
  CheckAddresses(draft);
  CheckUcx(draft);
}

std::string NearestKey(absl::string_view section, absl::string_view key) {
  const std::string prefix = section.empty() ? "" : absl::StrCat(section, ".");
  std::string elsewhere;
  const std::set<std::string> known = KeysOf(section);
  std::string nearest = Nearest(key, {known.begin(), known.end()});
  if (!nearest.empty()) nearest = prefix + nearest;
  if (!nearest.empty() || key.empty()) return nearest;
  for (const ConfigField& field : ConfigFields()) {
    if (absl::EndsWith(field.path, absl::StrCat(".", key))) elsewhere = field.path;
  }
  return elsewhere;
}

std::string SuggestKey(absl::string_view section, absl::string_view key) {
  const std::string nearest = NearestKey(section, key);
  if (!nearest.empty()) return absl::StrCat("did you mean ", nearest, "?");
  const std::set<std::string> known = KeysOf(section);
  if (known.empty()) return SuggestKey("", "");  // the section is unknown too
  return absl::StrCat("known here: ", absl::StrJoin(known, ", "));
}

}  // namespace ferry
