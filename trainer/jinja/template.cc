#include "trainer/jinja/template.h"

#include "trainer/base/error.h"
#include "trainer/jinja/functions.h"
#include "trainer/jinja/nodes.h"
#include "trainer/jinja/parser.h"
#include "trainer/jinja/run.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer::jinja {

struct Template::Tree {
  Statements statements;
};

Template::Template(std::string name, const std::string& source) : name_(std::move(name)) {
  try {
    tree_ = std::make_unique<const Tree>(Tree{Parse(RepairUtf8(source))});
  } catch (const Error& error) {
    throw DataError(name_ + ", " + error.what());
  }
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::Render(const nlohmann::ordered_json& variables, std::time_t now) const {
  Run run(now);
  try {
    const auto globals = std::make_shared<Scope>();
    for (auto& [name, function] : GlobalFunctions(now)) globals->Set(name, function);
    const auto scope = std::make_shared<Scope>(globals);
    for (const auto& [name, value] : variables.items()) scope->Set(name, Value::OfJson(value));
    ExecuteAll(tree_->statements, run, scope);
  } catch (const Error& error) {
    throw DataError(name_ + ", line " + std::to_string(run.line()) + ": " + error.what());
  }
  Rendered rendered;
  rendered.text = run.TakeText();
  rendered.generations = run.TakeGenerations();
  return rendered;
}

std::string PrintedObject(const nlohmann::ordered_json& value) {
  return Value::OfJson(value).Repr();
}

}  // namespace gpuctl::trainer::jinja
