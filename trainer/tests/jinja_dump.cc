// Renders templates for jinja_truth.py: a JSON object on each line of the input, {"template",
// "variables", "now"}, gives one on a line of the output, {"text", "generations"} or {"error"}.

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/base/error.h"
#include "trainer/jinja/template.h"

int main() {
  using gpuctl::trainer::jinja::Template;
  for (std::string line; std::getline(std::cin, line);) {
    const auto asked = nlohmann::ordered_json::parse(line);
    nlohmann::ordered_json answer;
    try {
      const Template parsed("template", asked.at("template").get<std::string>());
      const auto rendered =
          parsed.Render(asked.at("variables"), asked.at("now").get<std::time_t>());
      answer = {{"text", rendered.text}, {"generations", rendered.generations}};
    } catch (const gpuctl::trainer::Error& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
