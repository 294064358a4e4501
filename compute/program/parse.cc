// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compute/program/line_reader.h"
#include "compute/program/rules.h"
#include "compute/program/text.h"

namespace ferry::compute {
namespace {

// A name in scope.
struct Name {
  ValueId value = 0;
  bool known = true;  // its type; if not, that was told already
};

// A repeat whose yield is still to come.
struct Open {
  OpIndex repeat = 0;
  int line = 0;
  size_t defined = 0;  // how many names there were before it
  std::vector<Token> results;
  bool known = true;
};

class Parser : private LineReader {
 public:
  ParsedText Run(absl::string_view text) {
    if (text.size() > kMaxTextBytes) {
      Problem(Token(), absl::StrCat("a program has at most ", kMaxTextBytes, " bytes of text"));
      return std::move(out_);
    }
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (!Begin(line)) continue;
      if (out_.problems.size() >= kMaxProblems) {
        out_.whole = false;
        break;
      }
      if (!began_) {
        began_ = true;
        if (!Header()) break;  // it is something else, of which anything would be said
      } else {
        Statement();
      }
    }
    if (!began_) Problem(Token(), "there is no program: the first line is 'program 1'");
    if (!open_.empty()) {
      out_.whole = false;
      Problem(Token(), absl::StrCat("the repeat of line ", open_.back().line, " has no yield"));
    }
    return std::move(out_);
  }

 private:
  bool Header() {
    const Token first = Take();
    const Token version = Take();
    if (first.text != "program" || version.text != "1") {
      out_.whole = false;
      return Problem(first, "the first line is 'program 1'");
    }
    AtEnd();
    return true;
  }

  void Statement() {
    if (Is(TokenKind::kWord, "buffer") || Is(TokenKind::kWord, "accumulation") ||
        Is(TokenKind::kWord, "allow_reassociation")) {
      if (!out_.program.nodes.empty() || !open_.empty()) {
        Problem(Peek(), absl::StrCat(Peek().text, " comes before the first op"));
      } else if (Is(TokenKind::kWord, "buffer")) {
        DeclareBuffer();
      } else {
        SetNumerics();
      }
    } else if (Is(TokenKind::kWord, "yield")) {
      Yield();
    } else if (out_.program.nodes.size() >= kMaxOps) {
      // Said once: what follows would only repeat it.
      if (!full_) Problem(Peek(), absl::StrCat("a program has at most ", kMaxOps, " ops"));
      full_ = true;
      out_.whole = false;
    } else {
      Operation();
    }
  }

  bool SetNumerics() {
    if (Take().text == "allow_reassociation") {
      out_.program.numerics.allow_reassociation = true;
      return AtEnd();
    }
    for (size_t i = 0; i < std::size(kAccumulationNames); ++i) {
      if (!Is(TokenKind::kWord, kAccumulationNames[i])) continue;
      out_.program.numerics.accumulation = static_cast<Accumulation>(i);
      Take();
      return AtEnd();
    }
    return Unexpected("exact_products, fp8_tc, fp8_tc_fast or native_block");
  }

  bool DeclareBuffer() {
    Take();
    if (Peek().kind != TokenKind::kBuffer) return Unexpected("@ and a name");
    const Token name = Take();
    const auto [declared, fresh] = buffers_.try_emplace(name.text);
    if (!fresh) return Problem(name, absl::StrCat("@", name.text, " is declared twice"));
    Buffer buffer;
    buffer.name = name.text;
    const auto access = std::find(std::begin(kAccessNames), std::end(kAccessNames), Peek().text);
    if (access == std::end(kAccessNames)) return Unexpected("read, write or read_write");
    buffer.access = static_cast<Access>(access - std::begin(kAccessNames));
    Take();
    if (!absl::SimpleAtoi(Peek().text, &buffer.bytes)) return Unexpected("a number of bytes");
    Take();
    if (Is(TokenKind::kWord, "donated")) {
      Take();
      buffer.donated = true;
    } else if (Is(TokenKind::kWord, "constant")) {
      Take();
      buffer.constant = true;
    }
    if (!AtEnd()) return false;
    declared->second = static_cast<uint32_t>(out_.program.buffers.size());
    out_.program.buffers.push_back(std::move(buffer));
    return true;
  }

  // The tokens of an attribute's value: one, or what is between the brackets of a list.
  struct Written {
    Attribute attribute;
    Token name;
    bool list = false;
    std::vector<Token> tokens;
  };

  bool TakeAttribute(std::vector<Written>& written) {
    const Token name = Take();
    const std::optional<Attribute> attribute = AttributeOf(name.text);
    if (!attribute) return Problem(name, absl::StrCat("there is no attribute ", name.text));
    if (!TakeSign("=")) return Unexpected("= and the value");
    for (const Written& other : written) {
      if (other.attribute == *attribute)
        return Problem(name, absl::StrCat(name.text, " is given twice"));
    }
    Written value = {*attribute, name};
    if (TakeSign("[")) {
      value.list = true;
      if (!TakeSign("]")) {
        if (!List(TokenKind::kWord, "a number", value.tokens, kMaxInlineBytes)) return false;
        if (!TakeSign("]")) return Unexpected("]");
      }
    } else if (Peek().kind == TokenKind::kWord || Peek().kind == TokenKind::kString) {
      value.tokens.push_back(Take());
    } else {
      return Unexpected("a value");
    }
    written.push_back(std::move(value));
    return true;
  }

  // Data is written in elements of `type`, which stands later in the line.
  bool SetAttribute(const Written& written, const TensorType* type, Attributes& attributes) {
    const AttributeInfo& info = InfoOf(written.attribute);
    const Token& first = written.tokens.empty() ? written.name : written.tokens[0];
    AttributeValue value = int64_t{0};
    if (info.kind == AttributeKind::kData) {
      if (type == nullptr)
        return Problem(written.name, "elements are a constant's, whose type is written");
      std::string bytes;
      if (!written.list && first.kind == TokenKind::kWord && first.text[0] == 'x') {
        const std::string digits = first.text.substr(1);
        if (digits.size() % 2 != 0 ||
            !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit)) {
          return Problem(first, "x is followed by two hexadecimal digits a byte");
        }
        bytes = absl::HexStringToBytes(digits);
      } else {
        if (written.list != (written.attribute == Attribute::kValues)) {
          return Problem(first, "splat is one element, values are several: [1,2]");
        }
        for (size_t i = 0; i < written.tokens.size(); ++i) {
          const Token& token = written.tokens[i];
          const std::string wrong = ParseElement(type->dtype, token.text, i, bytes);
          if (!wrong.empty()) return Problem(token, wrong);
        }
      }
      value = std::move(bytes);
    } else if (written.list != (info.kind == AttributeKind::kInts)) {
      return Problem(first,
                     absl::StrCat(info.name, written.list ? " is no list" : " is a list: [1,2]"));
    } else if ((first.kind == TokenKind::kString) != (info.kind == AttributeKind::kBytes)) {
      return Problem(first, absl::StrCat(info.name, info.kind == AttributeKind::kBytes
                                                        ? " is a string: \"...\""
                                                        : " is no string"));
    } else if (info.kind == AttributeKind::kBytes) {
      value = first.text;
    } else if (info.kind == AttributeKind::kWord) {
      const std::optional<int64_t> word = WordOf(written.attribute, first.text);
      if (!word) return Problem(first, absl::StrCat("'", first.text, "' is no ", info.name));
      value = *word;
    } else {
      std::vector<int64_t> numbers;
      for (const Token& token : written.tokens) {
        numbers.push_back(0);
        if (!Int(token, numbers.back())) return false;
      }
      if (written.list) {
        value = std::move(numbers);
      } else {
        value = numbers[0];
      }
    }
    const std::string wrong = ProblemOf(written.attribute, value);
    if (!wrong.empty()) return Problem(first, wrong);
    attributes.Set(written.attribute, std::move(value));
    return true;
  }

  bool Operands(Node& node, bool& known) {
    const auto is_operand = [&] {
      return Peek().kind == TokenKind::kValue || Peek().kind == TokenKind::kBuffer;
    };
    if (!is_operand()) return true;
    do {
      if (!is_operand()) return Unexpected("a value or a buffer");
      const Token token = Take();
      if (node.operands.size() + node.buffers.size() >= kMaxOperands) {
        return Problem(token, absl::StrCat("more than ", kMaxOperands, " operands"));
      }
      if (token.kind == TokenKind::kBuffer) {
        const auto buffer = buffers_.find(token.text);
        if (buffer == buffers_.end())
          return Problem(token, absl::StrCat("there is no buffer @", token.text));
        if (!node.operands.empty()) return Problem(token, "buffers come before values");
        known = known && buffer->second.has_value();
        node.buffers.push_back(buffer->second.value_or(0));
      } else if (!TakeValue(token, node.operands, known)) {
        return false;
      }
    } while (TakeSign(","));
    return true;
  }

  bool TakeValue(const Token& token, std::vector<ValueId>& values, bool& known) {
    const auto name = names_.find(token.text);
    if (name == names_.end())
      return Problem(token, absl::StrCat("%", token.text, " is not defined here"));
    values.push_back(name->second.value);
    known = known && name->second.known;
    return true;
  }

  void Define(const Token& token, Name name) {
    if (names_.try_emplace(token.text, name).second) {
      defined_.push_back(token.text);
    } else {
      Problem(token, absl::StrCat("%", token.text, " is defined twice"));
    }
  }

  // All names but the first `kept`.
  void Forget(size_t kept) {
    for (; defined_.size() > kept; defined_.pop_back()) names_.erase(defined_.back());
  }

  // A line with an op, as far as it is read.
  struct Line {
    std::vector<Token> results;
    std::vector<Token> parameters;  // of a repeat's body
    Node node;
    std::vector<TensorType> types;
    std::string mark;
    bool known = true;  // what all its operands are
    bool too_deep = false;
  };

  // The names of a line that has a problem are defined all the same, or each use would be one more.
  void Operation() {
    Line line;
    SetOp(out_.program.nodes.size());
    const bool good = OperationLine(line);
    if (!good) {
      line.known = false;
      line.types.clear();
      line.node.attributes = {};
    }
    if (good && line.types.empty() && line.known && InfoOf(line.node.op).results != 0) {
      Inference inference = Infer(out_.program, line.node, {});
      line.known = inference.ok();
      if (!line.known) {
        Problem(tokens_[0], absl::StrCat(inference.rule, ": ", inference.text),
                inference.rule == "bounds" ? Reason::kRangeInvalid : Reason::kFieldInvalid);
      }
      line.types = std::move(inference.results);
    }
    line.types.resize(line.results.size());
    const bool known = line.known;
    const auto index = out_.program.Append(std::move(line.node), std::move(line.types));
    out_.unclear.push_back(!good || !known);
    const Node& added = out_.program.nodes.back();
    out_.lines.push_back(line_);
    if (!line.mark.empty() && !marks_.try_emplace(line.mark, index).second) {
      Problem(tokens_[0], absl::StrCat("^", line.mark, " is given twice"));
    }
    ClearOp();
    if (added.op == Op::kRepeat) {
      open_.push_back({index, line_, defined_.size(), std::move(line.results), known});
      for (size_t i = 0; i < line.parameters.size(); ++i) {
        Define(line.parameters[i],
               {added.first_parameter() + static_cast<ValueId>(i), i == 0 || known});
      }
      return;
    }
    for (size_t i = 0; i < line.results.size(); ++i) {
      Define(line.results[i], {added.first_result + static_cast<ValueId>(i), known});
    }
    if (!line.too_deep) return;
    too_deep_.push_back(defined_.size());
    for (const Token& parameter : line.parameters) Define(parameter, {0, false});
  }

  bool OperationLine(Line& line) {
    if (!MarkAndResults(line)) return false;
    // `empty_like %x` is an `empty` of the type of %x.
    const bool like = Is(TokenKind::kWord, "empty_like");
    const std::optional<Op> op = Peek().kind != TokenKind::kWord ? std::nullopt
                                 : like                          ? Op::kEmpty
                                                                 : OpOf(Peek().text);
    if (!op && Peek().kind == TokenKind::kWord) {
      return Problem(Peek(), absl::StrCat("there is no op '", Peek().text, "'"));
    }
    if (!op) return Unexpected("an op");
    const Token name = Take();
    Node& node = line.node;
    node.op = *op;
    SetOp(out_.program.nodes.size(), name);
    if (open_.size() >= kMaxNesting && node.op == Op::kRepeat) return TooDeep(name, line);
    if (!Operands(node, line.known)) return false;
    if (like) {
      if (node.operands.size() != 1 || !node.buffers.empty()) {
        return Problem(name, "empty_like is like one value");
      }
      if (line.known) line.types = {out_.program.types[node.operands[0]]};
      node.operands.clear();
    }
    std::vector<Written> written;
    while (Peek().kind == TokenKind::kWord && Peek().text != "after") {
      if (!TakeAttribute(written)) return false;
    }
    if (node.op == Op::kRepeat && !Parameters(name, line)) return false;
    if (TakeSign(":")) {
      if (like) return Problem(name, "empty_like has the type of its operand: write none");
      if (!Types(name, line.types)) return false;
    }
    for (const Written& value : written) {
      const bool has_type = node.op == Op::kConstant && !line.types.empty();
      if (!SetAttribute(value, has_type ? &line.types[0] : nullptr, node.attributes)) return false;
    }
    if (Is(TokenKind::kWord, "after") && !After(node)) return false;
    if (Peek().kind == TokenKind::kString) node.label = Take().text;
    if (!AtEnd()) return false;
    const size_t count = InfoOf(node.op).ResultsFor(node.operands.size());
    const size_t results = line.results.size();
    const size_t types = line.types.size();
    if (results != count || (types > 0 && types != count)) {
      return Problem(name, absl::StrCat(name.text, " has ", count, " results here, not ",
                                        results != count ? results : types));
    }
    return true;
  }

  bool MarkAndResults(Line& line) {
    if (Peek().kind == TokenKind::kMark) {
      line.mark = Take().text;
      if (!TakeSign(":")) return Unexpected(":");
    }
    if (Peek().kind == TokenKind::kValue) {
      if (!List(TokenKind::kValue, "a value", line.results)) return false;
      if (!TakeSign("=")) return Unexpected("=");
    }
    return true;
  }

  // A repeat that is refused. Its body follows all the same, and uses these parameters.
  bool TooDeep(const Token& name, Line& line) {
    line.node.op = Op::kBarrier;  // any op without a body: its own is read and forgotten
    out_.whole = false;
    line.too_deep = true;
    while (Peek().kind != TokenKind::kEnd && !TakeSign("(")) Take();
    while (Peek().kind == TokenKind::kValue) {
      line.parameters.push_back(Take());
      TakeSign(",");
    }
    return Problem(name, absl::StrCat("repeats nest at most ", kMaxNesting, " deep"));
  }

  bool Parameters(const Token& name, Line& line) {
    if (!TakeSign("(")) return Unexpected("( and the body's parameters");
    if (!List(TokenKind::kValue, "a value", line.parameters)) return false;
    if (!TakeSign(")")) return Unexpected(")");
    if (line.parameters.size() == line.node.parameters()) return true;
    return Problem(
        name, absl::StrCat("a body has the count of the trip and what is carried: ",
                           line.node.parameters(), " parameters, not ", line.parameters.size()));
  }

  bool Types(const Token& name, std::vector<TensorType>& types) {
    do {
      types.emplace_back();
      if (types.size() > kMaxOperands) return Unexpected("fewer types");
      if (!Type(types.back())) return false;
      const Inference wrong = CheckType(types.back());
      if (!wrong.ok()) return Problem(name, absl::StrCat(wrong.rule, ": ", wrong.text));
    } while (TakeSign(","));
    return true;
  }

  bool After(Node& node) {
    Take();
    std::vector<Token> marks;
    if (!List(TokenKind::kMark, "^ and a mark", marks)) return false;
    for (const Token& token : marks) {
      const auto at = marks_.find(token.text);
      if (at == marks_.end()) return Problem(token, absl::StrCat("no op above is ^", token.text));
      node.after.push_back(at->second);
    }
    return true;
  }

  bool Yield() {
    const Token token = Take();
    if (!too_deep_.empty()) {
      Forget(too_deep_.back());
      too_deep_.pop_back();
      return true;
    }
    if (open_.empty()) {
      out_.whole = false;
      return Problem(token, "yield ends the body of a repeat; none is open");
    }
    std::vector<Token> tokens;
    std::vector<ValueId> values;
    bool known = true;
    bool good = true;
    if (Peek().kind == TokenKind::kValue) good = List(TokenKind::kValue, "a value", tokens);
    if (good) good = AtEnd();
    for (const Token& value : tokens) good = TakeValue(value, values, known) && good;
    Open open = std::move(open_.back());
    open_.pop_back();
    out_.program.Close(open.repeat, std::move(values));
    if (!good || !known) out_.unclear[open.repeat] = true;
    Forget(open.defined);
    const Node& repeat = out_.program.nodes[open.repeat];
    for (size_t i = 0; i < open.results.size(); ++i) {
      Define(open.results[i], {repeat.first_result + static_cast<ValueId>(i), open.known});
    }
    return good;
  }

  bool began_ = false;
  bool full_ = false;
  std::map<std::string, std::optional<uint32_t>>
      buffers_;  // nothing: what it is was told to be bad
  std::map<std::string, Name> names_;
  std::vector<std::string> defined_;  // the keys of names_, in the order of the text
  std::map<std::string, OpIndex> marks_;
  std::vector<Open> open_;
  std::vector<size_t>
      too_deep_;  // repeats that were refused: how many names there were before each
};

}  // namespace

ParsedText Parse(absl::string_view text) { return Parser().Run(text); }

}  // namespace ferry::compute
