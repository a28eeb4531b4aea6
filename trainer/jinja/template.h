// Renders the Jinja templates of chat models, as transformers renders them.
//
// This is the part of Jinja 3.1 that chat templates use: see "Template Designer Documentation" of
// Jinja. The environment is that of transformers: trim_blocks, lstrip_blocks, loop controls, no
// escaping, tojson without ASCII or HTML escapes, raise_exception, strftime_now, and the tag
// {% generation %}. What is not supported is refused when the template is read, with its line; what
// differs from Jinja is never rendered in silence.

#ifndef TRAINER_JINJA_TEMPLATE_H_
#define TRAINER_JINJA_TEMPLATE_H_

#include <cstddef>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace gpuctl::trainer::jinja {

struct Rendered {
  std::string text;
  // The bytes [begin, end) of the text that {% generation %} blocks made, in order.
  std::vector<std::pair<size_t, size_t>> generations;
};

// Immutable: threads may render at the same time. A thread needs 2 MiB of stack.
class Template {
 public:
  // Throws Error(kBadData), "NAME, line 7: …".
  Template(std::string name, const std::string& source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // Renders with these variables, a JSON object; `now` is for strftime_now. Throws Error(kBadData)
  // as above: where Jinja raises, by raise_exception() of the template, and when the rendering
  // takes too many steps or makes too large a text.
  Rendered Render(const nlohmann::ordered_json& variables, std::time_t now) const;

 private:
  struct Tree;
  std::string name_;
  std::unique_ptr<const Tree> tree_;
};

// Returns what a template writes of a list or an object that it prints: Python's repr. Throws
// Error(kBadData).
std::string PrintedObject(const nlohmann::ordered_json& value);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_TEMPLATE_H_
