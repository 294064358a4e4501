// SPDX-License-Identifier: Apache-2.0
// What holds for every op, and the rules of sources, effects and control.
#include "compute/program/rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ferry::compute {
namespace {

std::string DTypeNames(DTypeSet set) {
  std::string names;
  for (size_t i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    if (Contains(set, type)) absl::StrAppend(&names, names.empty() ? "" : " ", NameOf(type));
  }
  return names;
}

std::string TypesText(absl::Span<const TensorType> types) {
  if (types.empty()) return "nothing";
  return absl::StrJoin(types, ", ", [](std::string* out, const TensorType& type) {
    absl::StrAppend(out, ToString(type));
  });
}

std::string CountText(Count count) {
  return count.least == count.most ? absl::StrCat(count.least)
                                   : absl::StrCat(count.least, " to ", count.most);
}

Inference CheckAttributes(const OpInfo& info, const Attributes& attributes) {
  AttributeSet given = 0;
  for (const auto& [attribute, value] : attributes.entries()) {
    given |= Bit(attribute);
    if (((info.must | info.may) & Bit(attribute)) == 0) {
      return rules::Broken("attributes",
                           absl::StrCat(info.name, " has no ", InfoOf(attribute).name));
    }
    if (std::string problem = ProblemOf(attribute, value); !problem.empty()) {
      return rules::Broken("attributes", std::move(problem));
    }
  }
  for (size_t i = 0; i < kAttributes; ++i) {
    const auto attribute = static_cast<Attribute>(i);
    if ((info.must & ~given & Bit(attribute)) != 0) {
      return rules::Broken("attributes",
                           absl::StrCat(info.name, " needs ", InfoOf(attribute).name));
    }
  }
  return {};
}

}  // namespace

Inference CheckType(const TensorType& type) {
  if (type.dims.size() > static_cast<size_t>(kMaxRank)) {
    return rules::Broken("rank",
                         absl::StrCat(ToString(type), " has more than ", kMaxRank, " dimensions"));
  }
  if (std::any_of(type.dims.begin(), type.dims.end(), [](int64_t dim) { return dim < 0; })) {
    return rules::Broken("shape", absl::StrCat(ToString(type), " has a negative dimension"));
  }
  if (!BytesOf(type)) {
    return rules::Broken("size", absl::StrCat("the bytes of ", ToString(type), " overflow"));
  }
  return {};
}

Inference Infer(const Program& program, const Node& node, absl::Span<const TensorType> said) {
  const OpInfo& info = InfoOf(node.op);
  const size_t operands = node.operands.size();
  if (operands < info.operands.least || operands > info.operands.most) {
    return rules::Broken("operands", absl::StrCat(info.name, " has ", CountText(info.operands),
                                                  " operands, not ", operands));
  }
  if (node.buffers.size() != info.buffers) {
    return rules::Broken("buffers", absl::StrCat(info.name, " names ", info.buffers,
                                                 " buffers, not ", node.buffers.size()));
  }
  if (Inference inference = CheckAttributes(info, node.attributes); !inference.ok()) {
    return inference;
  }
  const size_t results = info.ResultsFor(operands);
  if (!said.empty() && said.size() != results) {
    return rules::Broken(
        "results", absl::StrCat(info.name, " has ", results, " results here, the program says ",
                                TypesText(said)));
  }
  std::vector<const TensorType*> in;
  for (const ValueId operand : node.operands) {
    in.push_back(&program.types[operand]);
    if (Inference bad = CheckType(*in.back()); !bad.ok()) return bad;
  }
  for (const TensorType& type : said) {
    if (Inference bad = CheckType(type); !bad.ok()) return bad;
  }
  const TensorType* first = !in.empty() ? in[0] : !said.empty() ? &said[0] : nullptr;
  if (first != nullptr && !Contains(info.dtypes, first->dtype)) {
    return rules::Broken("type",
                         absl::StrCat(info.name, " takes ", DTypeNames(info.dtypes), ", not ",
                                      ToString(*first), "; convert does more types"));
  }
  Inference inference = info.rule({info, in, node.attributes, said});
  if (!inference.ok()) return inference;
  for (const TensorType& type : inference.results) {
    if (Inference bad = CheckType(type); !bad.ok()) return bad;
  }
  if (!said.empty() &&
      !std::equal(said.begin(), said.end(), inference.results.begin(), inference.results.end())) {
    return rules::Broken("result", absl::StrCat("the result is ", TypesText(inference.results),
                                                ", the program says ", TypesText(said)));
  }
  if (const auto strides = node.attributes.Ints(Attribute::kStrides); !strides.empty()) {
    const bool written = node.op != Op::kInput;
    Inference bad = rules::CheckStrides(written ? *in[0] : inference.results[0], strides, written);
    if (!bad.ok()) return bad;
  }
  return inference;
}

namespace rules {

Inference Broken(absl::string_view rule, std::string text) {
  Inference inference;
  inference.rule = rule;
  inference.text = std::move(text);
  return inference;
}

Inference Results(std::vector<TensorType> types) {
  Inference inference;
  inference.results = std::move(types);
  return inference;
}

Inference MustSay(const RuleInput& input) {
  if (!input.said.empty()) return Results({input.said.begin(), input.said.end()});
  return Broken("result", absl::StrCat("the result type of ", input.info.name,
                                       " does not follow from its operands: write it"));
}

Inference CheckStrides(const TensorType& type, absl::Span<const int64_t> strides, bool written) {
  if (strides.size() != type.dims.size()) {
    return Broken("strides", absl::StrCat(strides.size(), " strides for ", ToString(type)));
  }
  if (InfoOf(type.dtype).bits < 8) {
    return Broken("strides", absl::StrCat(ToString(type), " is packed and has no strides"));
  }
  if (!written || ElementsOf(type) == 0u) return {};
  // An element is written once: each stride is past all that the smaller ones reach.
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride, how often
  for (size_t i = 0; i < strides.size(); ++i) {
    if (type.dims[i] > 1) steps.push_back({strides[i], type.dims[i]});
  }
  std::sort(steps.begin(), steps.end());
  unsigned __int128 reach = 1;
  for (const auto& [stride, count] : steps) {
    if (static_cast<uint64_t>(stride) < reach) {
      return Broken("strides",
                    absl::StrCat("strides [", absl::StrJoin(strides, ","), "] write an element of ",
                                 ToString(type), " over another"));
    }
    reach += static_cast<unsigned __int128>(stride) * static_cast<uint64_t>(count - 1);
  }
  return {};
}

Inference Declared(const RuleInput& input) { return MustSay(input); }

Inference Nothing(const RuleInput& input) {
  (void)input;
  return {};
}

Inference AsOperands(const RuleInput& input) {
  Inference inference;
  for (const TensorType* type : input.in) inference.results.push_back(*type);
  return inference;
}

Inference Constant(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const TensorType& type = inference.results[0];
  const bool splat = input.attributes.Has(Attribute::kSplat);
  if (splat == input.attributes.Has(Attribute::kValues)) {
    return Broken("constant", "a constant has either splat or values");
  }
  const absl::string_view data =
      input.attributes.Bytes(splat ? Attribute::kSplat : Attribute::kValues);
  const uint64_t wanted = splat ? BytesOf(type.dtype, 1) : *BytesOf(type);
  if (data.size() != wanted) {
    return Broken("constant",
                  absl::StrCat(splat ? "one element" : "all elements", " of ", ToString(type),
                               " take ", wanted, " bytes, not ", data.size()));
  }
  // What does not matter is 0, so that equal constants have equal bytes.
  const bool half =
      type.dtype == DType::kF4E2M1FN && !data.empty() && (splat || *ElementsOf(type) % 2 != 0);
  if ((half && (data.back() & 0xf0) != 0) ||
      (type.dtype == DType::kBool &&
       std::any_of(data.begin(), data.end(), [](char byte) { return (byte & 0xfe) != 0; }))) {
    return Broken("constant", absl::StrCat("unused bits of ", ToString(type), " are not 0"));
  }
  return inference;
}

Inference Iota(const RuleInput& input) {
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  if (static_cast<size_t>(input.attributes.Int(Attribute::kDimension)) >=
      input.said[0].dims.size()) {
    return Broken("dimension", absl::StrCat(ToString(input.said[0]), " has no dimension ",
                                            input.attributes.Int(Attribute::kDimension)));
  }
  return inference;
}

Inference RngBits(const RuleInput& input) {
  for (const TensorType* type : input.in) {
    if (*type != TensorType{DType::kU64, {}}) {
      return Broken("operands", absl::StrCat("key and counter are u64[], not ", ToString(*type)));
    }
  }
  Inference inference = MustSay(input);
  if (!inference.ok()) return inference;
  const DType type = input.said[0].dtype;
  if (type == DType::kU32 || type == DType::kU64) return inference;
  return Broken("result",
                absl::StrCat("random bits are u32 or u64, not ", ToString(input.said[0])));
}

}  // namespace rules
}  // namespace ferry::compute
