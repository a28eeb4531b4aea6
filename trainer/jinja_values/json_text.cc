#include "trainer/jinja_values/json_text.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/text.h"

namespace gpuctl::trainer::jinja {
namespace {

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? Format("\\u%04x", static_cast<unsigned>(c))
                                                    : std::string(1, c);
    }
  }
  return out + '"';
}

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  void Write(const Value& value) {
    CheckSize(out_.size());
    if (value.IsString()) {
      out_ += Quoted(value.string());
    } else if (value.Is(Value::ListKind::kList) || value.IsTuple()) {
      WriteItems('[', ']', value.items().size(), [&](size_t i) { Write(value.items()[i]); });
    } else if (value.IsDict()) {
      WriteDict(value.dict());
    } else {
      out_ += Scalar(value);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  static std::string Scalar(const Value& value) {
    if (value.IsNone()) return "null";
    if (value.IsBool()) return value.Truth() ? "true" : "false";
    if (value.IsInt()) return value.Text();
    if (value.IsFloat()) {
      const double number = value.number();
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
      return value.Text();
    }
    throw TemplateError("object of type " + value.TypeName() + " is not JSON serializable");
  }

  void WriteDict(const Value::Dict& dict) {
    Value::Entries entries = dict.entries;
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return Less(a.first, b.first); });
    }
    WriteItems('{', '}', entries.size(), [&](size_t i) {
      const Value& key = entries[i].first;
      if (key.IsList())
        throw TemplateError("keys must be str, int, float, bool or None, not tuple");
      out_ += Quoted(key.IsString() ? key.string() : Scalar(key));
      out_ += style_.after_key;
      Write(entries[i].second);
    });
  }

  template <typename Each>
  void WriteItems(char open, char close, size_t count, const Each& each) {
    out_ += open;
    ++level_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += style_.between_items;
      NewLine();
      each(i);
    }
    --level_;
    if (count > 0) NewLine();
    out_ += close;
  }

  void NewLine() {
    if (!style_.indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  const JsonStyle& style_;
  int level_ = 0;
  std::string out_;
};

}  // namespace

std::string JsonText(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  writer.Write(value);
  return writer.Take();
}

}  // namespace gpuctl::trainer::jinja
