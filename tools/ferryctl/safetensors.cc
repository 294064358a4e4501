// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ferry/ferry.h"

namespace ferry::tools {
namespace {

using nlohmann::json;

// Types that Ferry has no name for travel too, and so do types that are not listed here: their
// bytes are sent without a type.
constexpr SafetensorsType kTypes[] = {
    {"BOOL", FERRY_PRED, 8},
    {"U8", FERRY_U8, 8},
    {"I8", FERRY_S8, 8},
    {"U16", FERRY_U16, 16},
    {"I16", FERRY_S16, 16},
    {"U32", FERRY_U32, 32},
    {"I32", FERRY_S32, 32},
    {"U64", FERRY_U64, 64},
    {"I64", FERRY_S64, 64},
    {"F16", FERRY_F16, 16},
    {"BF16", FERRY_BF16, 16},
    {"F32", FERRY_F32, 32},
    {"F64", FERRY_F64, 64},
    {"C64", FERRY_C64, 64},
    {"F8_E4M3", FERRY_F8E4M3FN, 8},
    {"F8_E5M2", FERRY_F8E5M2, 8},
    {"F8_E8M0", FERRY_F8E8M0FNU, 8},
    {"F4", FERRY_F4E2M1FN, 4},
    {"F6_E2M3", FERRY_UNSPECIFIED, 6},
    {"F6_E3M2", FERRY_UNSPECIFIED, 6},
};

absl::Status Malformed(absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat("malformed safetensors header: ", what));
}

std::string Quoted(absl::string_view name) {
  return absl::StrCat("'", absl::Utf8SafeCEscape(name.substr(0, 80)), name.size() > 80 ? "..." : "",
                      "'");
}

// nlohmann::json silently keeps the last of two equal keys; two tensors of one name must be
// refused. Returns the key that came twice, or "" and the document.
struct Parsed {
  json document;
  std::string twice;
  std::string error;
};

class Builder : public nlohmann::detail::json_sax_dom_parser<json> {
 public:
  using Base = nlohmann::detail::json_sax_dom_parser<json>;
  explicit Builder(Parsed& out) : Base(out.document, /*allow_exceptions=*/false), out_(out) {}

  bool start_object(std::size_t size) {
    if (!Enter()) return false;
    keys_.emplace_back();
    return Base::start_object(size);
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    return Base::end_object();
  }
  bool start_array(std::size_t size) { return Enter() && Base::start_array(size); }
  bool end_array() {
    --depth_;
    return Base::end_array();
  }
  bool key(std::string& name) {
    if (keys_.size() <= kKnownDepth && !keys_.back().insert(name).second) {
      out_.twice = name;
      return false;
    }
    return Base::key(name);
  }
  template <typename Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    out_.error = absl::StrCat("not valid JSON at byte ", position);
    return false;
  }

 private:
  static constexpr int kDeepest = 64;
  // Depth of objects that are known; what is in them may be anything.
  static constexpr size_t kKnownDepth = 2;

  // {"name": {"shape": [..]}} is as deep as known fields go.
  bool Enter() {
    if (++depth_ <= kDeepest) return true;
    out_.error = "nested deeper than a header can be";
    return false;
  }

  Parsed& out_;
  std::vector<std::set<std::string>> keys_;
  int depth_ = 0;
};

absl::StatusOr<uint64_t> Integer(const json& value, absl::string_view what) {
  if (!value.is_number_unsigned()) {
    return Malformed(absl::StrCat(what, " is not an integer from 0 to 2^64 - 1"));
  }
  return value.get<uint64_t>();
}

absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const json& entry,
                                              uint64_t data_bytes) {
  const std::string which = absl::StrCat("tensor ", Quoted(name));
  if (!entry.is_object()) return Malformed(absl::StrCat(which, " is not an object"));
  SafetensorsTensor tensor;
  tensor.name = name;

  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    return Malformed(absl::StrCat(which, " has no dtype"));
  }
  tensor.type = FindSafetensorsType(dtype->get_ref<const std::string&>());

  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) {
    return Malformed(absl::StrCat(which, " has no shape"));
  }
  // As the format's own library does, in the order of the shape: a 0 excuses whatever follows it,
  // if what comes before it fits 64 bits.
  const auto overflows = [](unsigned __int128 number) { return number >> 64 != 0; };
  const auto overflow = [&] {
    return Malformed(absl::StrCat("the shape of ", which, " overflows"));
  };
  unsigned __int128 elements = 1;
  for (const json& value : *shape) {
    ASSIGN_OR_RETURN(uint64_t dim, Integer(value, absl::StrCat("a dimension of ", which)));
    tensor.shape.push_back(dim);
    elements *= dim;
    if (overflows(elements)) return overflow();
  }

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    return Malformed(absl::StrCat(which, " has no data_offsets of two numbers"));
  }
  ASSIGN_OR_RETURN(tensor.begin, Integer((*offsets)[0], absl::StrCat("an offset of ", which)));
  ASSIGN_OR_RETURN(tensor.end, Integer((*offsets)[1], absl::StrCat("an offset of ", which)));
  if (tensor.begin > tensor.end) {
    return Malformed(
        absl::StrCat(which, " ends at ", tensor.end, ", before it begins at ", tensor.begin));
  }
  if (tensor.end > data_bytes) {
    return Malformed(absl::StrCat(which, " ends at ", tensor.end, ", but the file has ", data_bytes,
                                  " bytes of data"));
  }
  if (tensor.type == nullptr) return tensor;  // only its maker knows how long an element is
  const unsigned __int128 bits = elements * static_cast<unsigned>(tensor.type->bits);
  if (overflows(bits)) return overflow();
  if (bits % 8 != 0) {
    return Malformed(
        absl::StrCat(which, " of ", tensor.type->name, " is not a whole number of bytes"));
  }
  const uint64_t bytes = static_cast<uint64_t>(bits / 8);
  if (bytes != tensor.end - tensor.begin) {
    return Malformed(absl::StrCat(which, " has ", tensor.end - tensor.begin,
                                  " bytes, but its dtype and shape need ", bytes));
  }
  return tensor;
}

absl::Status CheckContiguous(const std::vector<SafetensorsTensor>& tensors, uint64_t data_bytes) {
  uint64_t at = 0;
  const SafetensorsTensor* before = nullptr;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin < at) {
      return Malformed(absl::StrCat("tensors ", Quoted(before->name), " and ", Quoted(tensor.name),
                                    " overlap in bytes ", tensor.begin, " to ", at));
    }
    if (tensor.begin > at) {
      return Malformed(absl::StrCat("bytes ", at, " to ", tensor.begin, " belong to no tensor"));
    }
    at = tensor.end;
    before = &tensor;
  }
  if (at != data_bytes) {
    return Malformed(absl::StrCat("bytes ", at, " to ", data_bytes, " belong to no tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

const SafetensorsType* FindSafetensorsType(absl::string_view name) {
  for (const SafetensorsType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

absl::StatusOr<uint64_t> ParseSafetensorsLength(absl::string_view first_bytes,
                                                uint64_t file_bytes) {
  if (first_bytes.size() < kSafetensorsLengthBytes) {
    return Malformed(
        absl::StrCat("the file has ", file_bytes, " bytes, fewer than the 8 of its length"));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(first_bytes[i]);
  if (length > kSafetensorsMaxHeaderBytes) {
    return Malformed(absl::StrCat("its length ", length, " is over the limit of ",
                                  kSafetensorsMaxHeaderBytes, " bytes"));
  }
  if (length > file_bytes - kSafetensorsLengthBytes) {
    return Malformed(
        absl::StrCat("its length ", length, " goes beyond the file's ", file_bytes, " bytes"));
  }
  if (length < 2) return Malformed(absl::StrCat("its length ", length, " is too short for JSON"));
  return length;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text,
                                                         uint64_t data_bytes) {
  if (text.size() > kSafetensorsMaxHeaderBytes) {
    return Malformed(absl::StrCat("its length ", text.size(), " is over the limit of ",
                                  kSafetensorsMaxHeaderBytes, " bytes"));
  }
  if (text.empty() || text[0] != '{') return Malformed("it does not begin with '{'");
  if (const size_t nul = text.find('\0'); nul != text.npos) {  // where this parser would stop
    return Malformed(absl::StrCat("not valid JSON at byte ", nul));
  }
  Parsed parsed;
  Builder builder(parsed);
  const bool good = json::sax_parse(text.begin(), text.end(), &builder);
  if (!parsed.twice.empty())
    return Malformed(absl::StrCat(Quoted(parsed.twice), " is there twice"));
  if (!good || !parsed.error.empty()) {
    return Malformed(parsed.error.empty() ? "not valid JSON" : parsed.error);
  }
  SafetensorsHeader header;
  for (const auto& [name, entry] : parsed.document.items()) {
    if (name == "__metadata__") {
      if (entry.is_null()) continue;
      if (!entry.is_object()) return Malformed("'__metadata__' is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) {
          return Malformed(absl::StrCat("'__metadata__' field ", Quoted(key), " is not a string"));
        }
        header.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    ASSIGN_OR_RETURN(SafetensorsTensor tensor, ParseTensor(name, entry, data_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  // Empty tensors come before the one that begins at the same place.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  RETURN_IF_ERROR(CheckContiguous(header.tensors, data_bytes));
  return header;
}

}  // namespace ferry::tools
