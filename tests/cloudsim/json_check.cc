#include "tests/cloudsim/json_check.h"

#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gpuctl::cloudsim {
namespace {

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    if (value.is_number_integer()) return true;
    if (!value.is_number()) return false;
    const double number = value.get<double>();
    return static_cast<double>(static_cast<int64_t>(number)) == number;
  }
  return false;
}

std::string TypesOf(const Json& type) {
  if (type.is_string()) return type.get<std::string>();
  std::vector<std::string> names;
  for (const Json& one : type) names.push_back(one.get<std::string>());
  return absl::StrJoin(names, " or ");
}

bool HasType(const Json& value, const Json& type) {
  if (type.is_string()) return IsOfType(value, type.get<std::string>());
  for (const Json& one : type) {
    if (IsOfType(value, one.get<std::string>())) return true;
  }
  return false;
}

void Check(const Json& value, const Json& schema, const std::string& path,
           std::vector<std::string>* found);

void CheckObject(const Json& value, const Json& schema, const std::string& path,
                 std::vector<std::string>* found) {
  const Json properties = schema.value("properties", Json::object());
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) {
      found->push_back(absl::StrCat(path, ": missing property '", name.get<std::string>(), "'"));
    }
  }
  if (value.size() < schema.value("minProperties", size_t{0})) {
    found->push_back(absl::StrCat(path, ": must have at least one property"));
  }
  std::vector<std::string> additional;
  for (const auto& member : value.items()) {
    if (properties.contains(member.key())) {
      Check(member.value(), properties[member.key()], absl::StrCat(path, ".", member.key()), found);
    } else if (schema.contains("additionalProperties")) {
      const Json& rest = schema["additionalProperties"];
      if (rest.is_object()) {
        Check(member.value(), rest, absl::StrCat(path, ".", member.key()), found);
      } else if (!rest.get<bool>()) {
        additional.push_back(absl::StrCat("'", member.key(), "'"));
      }
    }
  }
  if (!additional.empty()) {
    found->push_back(absl::StrCat(path, ": additional properties ", absl::StrJoin(additional, ", "),
                                  " not allowed"));
  }
}

void CheckString(const Json& value, const Json& schema, const std::string& path,
                 std::vector<std::string>* found) {
  const std::string& text = value.get_ref<const std::string&>();
  if (text.size() < schema.value("minLength", size_t{0})) {
    found->push_back(absl::StrCat(path, ": must not be shorter than ",
                                  schema["minLength"].get<size_t>(), " characters"));
  }
  if (schema.contains("maxLength") && text.size() > schema["maxLength"].get<size_t>()) {
    found->push_back(absl::StrCat(path, ": must not be longer than ",
                                  schema["maxLength"].get<size_t>(), " characters"));
  }
  if (schema.contains("pattern") &&
      !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
    found->push_back(absl::StrCat(path, ": does not match pattern '",
                                  schema["pattern"].get<std::string>(), "'"));
  }
}

void CheckArray(const Json& value, const Json& schema, const std::string& path,
                std::vector<std::string>* found) {
  if (value.size() < schema.value("minItems", size_t{0}) ||
      (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>())) {
    found->push_back(absl::StrCat(path, ": has ", value.size(), " items"));
  }
  if (!schema.contains("items")) return;
  for (size_t i = 0; i < value.size(); ++i) {
    Check(value[i], schema["items"], absl::StrCat(path, "[", i, "]"), found);
  }
}

void Check(const Json& value, const Json& schema, const std::string& path,
           std::vector<std::string>* found) {
  if (schema.contains("type") && !HasType(value, schema["type"])) {
    found->push_back(
        absl::StrCat(path, ": got ", value.type_name(), ", want ", TypesOf(schema["type"])));
    return;
  }
  if (schema.contains("enum")) {
    const Json& allowed = schema["enum"];
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      std::vector<std::string> names;
      for (const Json& one : allowed) {
        names.push_back(
            absl::StrCat("'", one.is_string() ? one.get<std::string>() : one.dump(), "'"));
      }
      found->push_back(absl::StrCat(path, ": value must be one of ", absl::StrJoin(names, ", ")));
    }
  }
  if (value.is_number()) {
    if (schema.contains("minimum") && value.get<double>() < schema["minimum"].get<double>()) {
      found->push_back(
          absl::StrCat(path, ": minimum: got ", value.dump(), ", want ", schema["minimum"].dump()));
    }
    if (schema.contains("maximum") && value.get<double>() > schema["maximum"].get<double>()) {
      found->push_back(
          absl::StrCat(path, ": maximum: got ", value.dump(), ", want ", schema["maximum"].dump()));
    }
  }
  if (value.is_string()) CheckString(value, schema, path, found);
  if (value.is_object()) CheckObject(value, schema, path, found);
  if (value.is_array()) CheckArray(value, schema, path, found);
}

}  // namespace

std::vector<std::string> CheckJson(const Json& value, const Json& schema) {
  std::vector<std::string> found;
  Check(value, schema, "$", &found);
  return found;
}

std::string WrongBody(const Json& body, const Json& schema) {
  if (body.is_discarded()) return "the body is no JSON";
  const std::vector<std::string> wrong = CheckJson(body, schema);
  return wrong.empty() ? "" : wrong.front();
}

std::string StringAt(const Json& object, const char* name, const std::string& otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

double NumberAt(const Json& object, const char* name, double otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

int64_t IntegerAt(const Json& object, const char* name, int64_t otherwise) {
  return static_cast<int64_t>(NumberAt(object, name, static_cast<double>(otherwise)));
}

bool BoolAt(const Json& object, const char* name, bool otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

}  // namespace gpuctl::cloudsim
