// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_proof.h"

#include <sys/random.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ferry {
namespace {

// Each part is preceded by its length, so that no two introductions have the same text.
void AppendPart(absl::string_view part, std::string& text) {
  absl::StrAppend(&text, part.size(), ":", part);
}

void AppendParty(const PeerIntroduction& party, std::string& text) {
  for (const absl::string_view part :
       {absl::string_view(party.nonce), absl::string_view(party.node),
        absl::string_view(party.boot_id), absl::string_view(party.peer_socket)}) {
    AppendPart(part, text);
  }
  for (const uint64_t number : {party.incarnation.value(), uint64_t{party.protocol.oldest},
                                uint64_t{party.protocol.newest}, uint64_t{party.uid}}) {
    AppendPart(absl::StrCat(number), text);
  }
}

std::string Labelled(absl::string_view label, const PeerParties& parties) {
  std::string text;
  AppendPart(label, text);
  AppendParty(parties.dialler, text);
  AppendParty(parties.acceptor, text);
  return text;
}

}  // namespace

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  FERRY_CHECK(getrandom(bytes.data(), count, 0) == static_cast<ssize_t>(count));
  return bytes;
}

std::string PeerProof(absl::string_view secret, PeerSide side, const PeerParties& parties) {
  return HmacSha256(secret,
                    Labelled(side == PeerSide::kDialler ? "ferry link proof of the dialler"
                                                        : "ferry link proof of the acceptor",
                             parties));
}

std::string PeerLinkSecret(absl::string_view material, const PeerParties& parties) {
  return HmacSha256(material, Labelled("ferry link key", parties));
}

}  // namespace ferry
