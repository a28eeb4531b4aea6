#include "tests/cloudsim/runpod_query.h"

#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl::cloudsim {
namespace {

// Runpod's types: each field, with its own type when it is an object; "" for other fields.
using FieldTypes = std::map<std::string, std::string>;
const std::map<std::string, FieldTypes>& Types() {
  static const auto* const types = [] {
    auto* made = new std::map<std::string, FieldTypes>{
        {"Query", {{"myself", "User"}, {"pod", "Pod"}, {"gpuTypes", "GpuType"}}},
        {"Mutation",
         {{"podFindAndDeployOnDemand", "Pod"},
          {"podRentInterruptable", "Pod"},
          {"podStop", "Pod"},
          {"podResume", "Pod"},
          {"podBidResume", "Pod"},
          {"podTerminate", ""}}},
        {"User",
         {{"pods", "Pod"},
          {"networkVolumes", "NetworkVolume"},
          {"containerRegistryCreds", "ContainerRegistryAuth"}}},
        {"Pod", {{"runtime", "PodRuntime"}, {"machine", "PodMachineInfo"}}},
        {"PodRuntime",
         {{"ports", "PodRuntimePorts"},
          {"gpus", "PodRuntimeGpus"},
          {"container", "PodRuntimeContainer"}}},
        {"NetworkVolume", {{"dataCenter", "DataCenter"}}},
        {"GpuType", {{"lowestPrice", "LowestPrice"}}}};
    const std::map<std::string, std::vector<const char*>> plain = {
        {"User",
         {"id", "authId", "email", "pubKey", "clientBalance", "currentSpendPerHr", "spendLimit"}},
        {"Pod",
         {"id",
          "containerDiskInGb",
          "costPerHr",
          "desiredStatus",
          "dockerArgs",
          "dockerId",
          "env",
          "gpuCount",
          "imageName",
          "lastStatusChange",
          "machineId",
          "memoryInGb",
          "name",
          "podType",
          "port",
          "ports",
          "templateId",
          "uptimeSeconds",
          "vcpuCount",
          "volumeInGb",
          "volumeMountPath"}},
        {"PodRuntime", {"uptimeInSeconds"}},
        {"PodRuntimePorts", {"ip", "isIpPublic", "privatePort", "publicPort", "type"}},
        {"PodRuntimeGpus", {"id", "gpuUtilPercent", "memoryUtilPercent"}},
        {"PodRuntimeContainer", {"cpuPercent", "memoryPercent"}},
        {"PodMachineInfo",
         {"podHostId", "gpuDisplayName", "gpuAvailable", "gpuTypeId", "dataCenterId",
          "maintenanceStart", "maintenanceEnd", "maintenanceNote"}},
        {"NetworkVolume", {"id", "name", "size", "dataCenterId"}},
        {"DataCenter", {"id", "name"}},
        {"ContainerRegistryAuth", {"id", "name"}},
        {"GpuType",
         {"id", "displayName", "manufacturer", "memoryInGb", "cudaCores", "secureCloud",
          "communityCloud", "securePrice", "communityPrice", "oneWeekPrice", "oneMonthPrice",
          "threeMonthPrice", "secureSpotPrice", "communitySpotPrice", "maxGpuCount"}},
        {"LowestPrice",
         {"minimumBidPrice", "uninterruptablePrice", "stockStatus", "minVcpu", "minMemory"}}};
    for (const auto& [type, fields] : plain) {
      for (const char* field : fields) (*made)[type][field] = "";
    }
    return made;
  }();
  return *types;
}

// Returns the first mistake in `fields`, which belong to an object of `type`; "" for none.
std::string Mistake(const std::vector<QueryField>& fields, const std::string& type) {
  const FieldTypes& known = Types().at(type);
  for (const QueryField& field : fields) {
    const auto found = known.find(field.name);
    if (found == known.end()) {
      return absl::StrCat("Cannot query field \"", field.name, "\" on type \"", type, "\".");
    }
    if (found->second.empty()) {
      if (field.fields.empty()) continue;
      return absl::StrCat("Field \"", field.name, "\" must not have a selection.");
    }
    if (field.fields.empty()) {
      return absl::StrCat("Field \"", field.name, "\" of type \"", found->second,
                          "\" must have a selection of subfields.");
    }
    std::string deeper = Mistake(field.fields, found->second);
    if (!deeper.empty()) return deeper;
  }
  return "";
}

class QueryReader {
 public:
  QueryReader(const std::string& text, const Json& variables) : text_(text), variables_(variables) {
    Next();
  }

  QueryDocument Read() {
    QueryDocument document;
    if (token_ == "query" || token_ == "mutation") {
      document.mutation = token_ == "mutation";
      Next();
      if (is_name_) Next();
      if (token_ == "(") SkipDefinitions();
    }
    document.fields = Fields();
    if (error_.empty() && kind_ != Kind::kEnd) Fail();
    document.error = error_;
    return document;
  }

 private:
  enum class Kind { kEnd, kWord, kString, kMark };

  void Fail() {
    if (!error_.empty()) return;
    error_ = absl::StrCat("Syntax Error: Unexpected ",
                          kind_ == Kind::kEnd ? "<EOF>" : absl::StrCat("\"", token_, "\""), ".");
  }

  // Reads the next token: a name or number, a string, or one character.
  void Next() {
    token_.clear();
    is_name_ = false;
    while (at_ < text_.size() &&
           (absl::ascii_isspace(Byte(at_)) || text_[at_] == ',' || text_[at_] == '#')) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      ++at_;
    }
    kind_ = Kind::kEnd;
    if (at_ >= text_.size()) return;
    if (text_[at_] == '"') {
      ReadString();
      return;
    }
    const auto in_word = [&](size_t i) {
      return absl::ascii_isalnum(Byte(i)) || absl::StrContains("_-.+", text_[i]);
    };
    kind_ = in_word(at_) ? Kind::kWord : Kind::kMark;
    token_ = text_[at_++];
    if (kind_ == Kind::kMark) return;
    while (at_ < text_.size() && in_word(at_)) token_ += text_[at_++];
    is_name_ = absl::ascii_isalpha(static_cast<unsigned char>(token_[0])) || token_[0] == '_';
  }

  // A string has JSON's escapes.
  void ReadString() {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    const Json read =
        end < text_.size() ? Json::parse(text_.substr(at_, end + 1 - at_), nullptr, false) : Json();
    kind_ = Kind::kString;
    if (!read.is_string()) {
      token_ = "\"";
      Fail();
      at_ = text_.size();
      return;
    }
    token_ = read.get<std::string>();
    at_ = end + 1;
  }

  void Expect(const char* mark) {
    if (kind_ == Kind::kMark && token_ == mark) {
      Next();
    } else {
      Fail();
    }
  }
  bool At(const char* mark) const {
    return error_.empty() && kind_ == Kind::kMark && token_ == mark;
  }

  void SkipDefinitions() {
    int depth = 0;
    do {
      if (At("(")) ++depth;
      if (At(")")) --depth;
      if (kind_ == Kind::kEnd) Fail();
      Next();
    } while (depth > 0 && error_.empty());
  }

  std::vector<QueryField> Fields() {
    std::vector<QueryField> fields;
    Expect("{");
    do {
      if (!is_name_) Fail();
      if (!error_.empty()) return fields;
      QueryField field;
      field.name = field.alias = token_;
      Next();
      if (At(":")) {
        Next();
        field.name = token_;
        Next();
      }
      if (At("(")) {
        Next();
        field.arguments = Members(")");
      }
      if (At("{")) field.fields = Fields();
      fields.push_back(std::move(field));
    } while (error_.empty() && !At("}"));
    Expect("}");
    return fields;
  }

  // Reads "name: value …" up to and with `end`.
  Json Members(const char* end) {
    Json members = Json::object();
    while (error_.empty() && !At(end)) {
      if (!is_name_) Fail();
      const std::string name = token_;
      Next();
      Expect(":");
      members[name] = Value();
    }
    Expect(end);
    return members;
  }

  Json Value() {
    if (At("{")) {
      Next();
      return Members("}");
    }
    if (At("[")) {
      Next();
      Json list = Json::array();
      while (error_.empty() && !At("]")) list.push_back(Value());
      Expect("]");
      return list;
    }
    Json value;
    if (At("$")) {
      Next();
      value = variables_.is_object() ? variables_.value(token_, Json()) : Json();
    } else if (kind_ == Kind::kString ||
               (is_name_ && token_ != "true" && token_ != "false" && token_ != "null")) {
      value = token_;
    } else {
      value = Json::parse(token_, nullptr, false);
      if (value.is_discarded()) Fail();
    }
    Next();
    return value;
  }

  unsigned char Byte(size_t i) const { return static_cast<unsigned char>(text_[i]); }

  const std::string& text_;
  const Json& variables_;
  size_t at_ = 0;
  Kind kind_ = Kind::kEnd;
  bool is_name_ = false;
  std::string token_;
  std::string error_;
};

}  // namespace

const QueryField* QueryField::Find(const std::string& field) const {
  for (const QueryField& one : fields) {
    if (one.name == field) return &one;
  }
  return nullptr;
}

QueryDocument ReadQuery(const std::string& text, const Json& variables) {
  QueryDocument document = QueryReader(text, variables).Read();
  if (document.error.empty()) {
    document.error = Mistake(document.fields, document.mutation ? "Mutation" : "Query");
  }
  return document;
}

Json Selected(const Json& whole, const std::vector<QueryField>& fields) {
  if (fields.empty()) return whole;
  if (whole.is_array()) {
    Json all = Json::array();
    for (const Json& one : whole) all.push_back(Selected(one, fields));
    return all;
  }
  if (!whole.is_object()) return nullptr;
  Json part = Json::object();
  for (const QueryField& field : fields) {
    part[field.alias] = Selected(whole.value(field.name, Json()), field.fields);
  }
  return part;
}

}  // namespace gpuctl::cloudsim
