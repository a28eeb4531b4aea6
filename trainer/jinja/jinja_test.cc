// What the comparison with Jinja itself does not see: messages, the places of generation blocks,
// and templates that mean harm.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "trainer/jinja/template.h"
#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(const std::string& source, const Json& variables = Json::object()) {
  return Template("t", source).Render(variables, 0).text;
}

// Returns the message of the error.
std::string Failure(const std::string& source, const Json& variables = Json::object()) {
  try {
    Text(source, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  ADD_FAILURE() << "no error: " << source;
  return "";
}

TEST(JinjaTest, RendersAConversation) {
  const std::string source =
      "{% for message in messages %}\n"
      "    {{- '<|' ~ message.role ~ '|>' + message['content'] | trim }}\n"
      "{% endfor %}\n"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}\n";
  const Json variables = {
      {"messages",
       {{{"role", "user"}, {"content", " Hi "}}, {{"role", "assistant"}, {"content", "Hello"}}}},
      {"add_generation_prompt", true}};
  EXPECT_EQ(Text(source, variables), "<|user|>Hi\n<|assistant|>Hello\n<|assistant|>");
}

TEST(JinjaTest, ComputesWhatIsRareInTemplates) {
  const Json variables = {{"rows", {{{"a", 1}}, {{"b", 2}}}}};
  EXPECT_EQ(Text("{{ ' 1  2   3  '.split(none, 1) }}"), "['1', '2   3  ']");
  EXPECT_EQ(Text("{{ rows | map(attribute='a.x', default='?') | join }}", variables), "??");
  EXPECT_EQ(Failure("{{ rows | map(attribute='a.x.y', default=none) | list }}", variables),
            "t, line 1: 'int object' has no attribute 'x'");
  EXPECT_EQ(Text("{{ ['x'] | max(attribute='a') }}"), "x");
  EXPECT_EQ(Text("{{ '<b>' | upper | safe }}"), "<B>");
  EXPECT_EQ(Text("{{ +true }}{{ -+2.5 }}"), "1-2.5");
  EXPECT_EQ(Failure("{{ 'a' ~ + 'b' }}"), "t, line 1: bad operand type for unary +: 'str'");
  Failure("{% for a.b in rows %}{% endfor %}", variables);
}

TEST(JinjaTest, NoKeyIsTheEmptyTuple) {
  const Json variables = {{"list", {1, 2, 3}}};
  EXPECT_EQ(Text("{{ list[] }}{{ list[ ] is defined }}", variables), "False");
  EXPECT_EQ(Text("{{ {(): 'none', (1, 2): 'two'}[] }}"), "none");
  EXPECT_EQ(Text("{{ {(): 'none', (1, 2): 'two'}[1, 2] }}"), "two");
  EXPECT_EQ(Text("{{ list[:] }}{{ list[1::-1] }}{{ list[:2:] }}", variables),
            "[1, 2, 3][2, 1][1, 2]");
  Failure("{{ list[0,] }}", variables);
  for (const char* const keys : {"0:1, 0", "0, :1", ":, 0"}) {
    EXPECT_NE(Failure(std::string("{{ list[") + keys + "] }}", variables).find("not supported"),
              std::string::npos);
  }
}

TEST(JinjaTest, SmallNumbersKeepTheirDigits) {
  EXPECT_EQ(
      Text("{{ 0.05 }} {{ -0.001 }} {{ 0.0001 }} {{ 1e-5 }} {{ 120.5 }} {{ 1e15 }} {{ 1e16 }}"),
      "0.05 -0.001 0.0001 1e-05 120.5 1000000000000000.0 1e+16");
  EXPECT_EQ(Text("{{ x | tojson }}", {{"x", {0.01, -0.5}}}), "[0.01, -0.5]");
}

TEST(JinjaTest, TextsBecomeNumbersAsInPython) {
  EXPECT_EQ(
      Text("{{ '1_000' | int }} {{ ' -7 ' | int }} {{ '2_0.5e1' | float }} {{ '1.9' | int }}"),
      "1000 -7 205.0 1");
  EXPECT_EQ(
      Text("{{ '0x10' | float }} {{ '1__0' | int(-1) }} {{ '_1' | int }} {{ 'nan(1)' | float }}"),
      "0.0 -1 0 0.0");
  EXPECT_NE(Failure("{{ '٣' | int }}").find("not supported"), std::string::npos);
  Failure("{{ 1_ }}");
}

TEST(JinjaTest, NamesAndSpacesAreThoseOfPython) {
  const Json variables = {{"größe", 1}, {"日本", 2}, {"n", 3}};
  EXPECT_EQ(Text("{{ größe }}{{ 日本 }}{{\u3000n\u00a0}}", variables), "123");
  EXPECT_EQ(Failure("{{ n▁ }}", variables), "t, line 1: unexpected character '▁'");
  Failure("{{ ｜n }}", variables);
  EXPECT_NE(Failure("{{ 1٣ }}").find("not supported"), std::string::npos);
}

TEST(JinjaTest, ErrorsTellNameAndLine) {
  for (const char* const of : {"x | safe ~ x", "x ~ x | safe", "[x | safe]", "x | safe | upper"}) {
    EXPECT_EQ(Failure(std::string("\n{{ ") + of + " }}", {{"x", "<"}}),
              "t, line 2: the filter 'safe' is not supported but at the end of {{ }}");
  }
  EXPECT_EQ(Failure("a\n{{ x | nosuch }}"), "t, line 2: the filter 'nosuch' is not supported");
  EXPECT_EQ(Failure("{{ x | uper }}"),
            "t, line 1: the filter 'uper' is not supported; did you mean \"upper\"?");
  EXPECT_EQ(Failure("{{ x is none .y }}"),
            "t, line 1: the test 'none.y' is not supported; did you mean \"none\"?");
  EXPECT_EQ(Failure("{{ x | a.b.c }}"), "t, line 1: the filter 'a.b.c' is not supported");
  EXPECT_EQ(Failure("\n\n{% include 'x' %}"),
            "t, line 3: the statement 'include' is not supported");
  EXPECT_EQ(Failure("{% if a %}\nx"),
            "t, line 2: expected {% endif %}, found the end of the template");
  EXPECT_EQ(Failure("{{ a.b.c }}"), "t, line 1: 'a' is undefined");
  EXPECT_EQ(Failure("\n{{ raise_exception('roles must alternate') }}"),
            "t, line 2: the template says: roles must alternate");
  EXPECT_EQ(Failure("{{ 'a' + 1 }}"),
            "t, line 1: unsupported operand type(s) for +: 'str' and 'int'");
  EXPECT_EQ(Failure("{{ s.encode('utf-8') }}", {{"s", "x"}}),
            "t, line 1: the method str.encode is not supported");
}

TEST(JinjaTest, GenerationBlocksAreFound) {
  const Template parsed(
      "t",
      "{% for m in messages %}[{{ m }}{% generation %}<{{ m }}>{% endgeneration %}]"
      "{% endfor %}");
  const Rendered rendered = parsed.Render({{"messages", {"a", "\u00e9"}}}, 0);
  EXPECT_EQ(rendered.text, "[a<a>][\u00e9<\u00e9>]");
  std::vector<std::string> spans;
  for (const auto& [begin, end] : rendered.generations) {
    spans.push_back(rendered.text.substr(begin, end - begin));
  }
  EXPECT_EQ(spans, (std::vector<std::string>{"<a>", "<\u00e9>"}));
  // Within a macro nobody knows where the text goes.
  Failure("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}");
}

TEST(JinjaTest, TheTimeIsTheOneThatIsGiven) {
  EXPECT_EQ(Template("t", "{{ strftime_now('%Y') }}").Render(Json::object(), 86400 * 200).text,
            "1970");
}

TEST(JinjaTest, ATemplateMayBeRenderedAgain) {
  const Template parsed("t",
                        "{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ x }}");
  EXPECT_EQ(parsed.Render({{"x", 1}}, 0).text, "11");
  EXPECT_EQ(parsed.Render(Json::object(), 0).text, "1");
}

TEST(JinjaTest, TemplatesThatNeverEndAreStopped) {
  // Sanitizers make it slow: then the clock stops it.
  const std::string endless =
      Failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  EXPECT_TRUE(endless.find("too many steps") != std::string::npos ||
              endless.find("too long") != std::string::npos)
      << endless;
  EXPECT_NE(Failure("{{ range(1000000000000) }}").find("too big"), std::string::npos);
  EXPECT_NE(Failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("too deeply"),
            std::string::npos);
  EXPECT_NE(Failure("{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}").find("too deeply"),
            std::string::npos);
}

TEST(JinjaTest, TemplatesThatFillTheMemoryAreStopped) {
  for (const std::string source :
       {"{{ 'x' * 1000000000000 }}", "{{ [1] * 1000000000000 }}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('x', "
        "'xx') %}"
        "{% endfor %}",
        "{% for i in range(99999) %}{{ s }}{% endfor %}", "{{ ([s] * 99999) | join }}",
        "{{ s | indent('x' * 1000000, blank=true) }}"}) {
    const std::string message =
        Failure(source, {{"s", std::string(20'000, '\n') + std::string(20'000, 'x')}});
    EXPECT_NE(message.find("too large"), std::string::npos) << source << ": " << message;
  }
}

TEST(JinjaTest, DeepTemplatesAndValuesAreRefused) {
  const auto times = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const std::string& source :
       {"{{ " + times("(", 99999) + "1" + times(")", 99999) + " }}",
        "{{ " + times("[", 99999) + times("]", 99999) + " }}", "{{ " + times("- ", 99999) + "1 }}",
        "{{ " + times("not ", 99999) + "1 }}", "{{ 1" + times(" + 1", 99999) + " }}",
        "{{ 1" + times(" if 1 else 1", 99999) + " }}", "{{ x" + times(".a", 99999) + " }}",
        "{{ x" + times("|upper", 99999) + " }}",
        times("{% if 1 %}", 99999) + times("{% endif %}", 99999),
        "{% set " + times("(", 99999) + "x" + times(")", 99999) + " = 1 %}",
        std::string(
            "{% set ns = namespace(v=[]) %}{% for i in range(99999) %}{% set ns.v = [ns.v] %}"
            "{% endfor %}")}) {
    const std::string message = Failure(source);
    EXPECT_TRUE(message.find("too deeply") != std::string::npos ||
                message.find("too long") != std::string::npos)
        << source.substr(0, 60) << ": " << message;
  }
  Json deep = 1;
  for (int i = 0; i < 2000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_NE(Failure("{{ x }}", {{"x", deep}}).find("too deeply"), std::string::npos);
}

TEST(JinjaTest, WhatCannotBeShownIsNotShown) {
  EXPECT_NE(Failure("{{ range }}").find("not supported"), std::string::npos);
  EXPECT_NE(Failure("{{ [1] | map('string') }}").find("not supported"), std::string::npos);
  EXPECT_NE(Failure("{{ x }}", {{"x", uint64_t{1} << 63}}).find("too large"), std::string::npos);
}

}  // namespace
}  // namespace gpuctl::trainer::jinja
