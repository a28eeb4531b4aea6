#include "client/plan/plan_text.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/keys/market_access.h"
#include "client/market/instance_target.h"
#include "client/market/offer_plan.h"
#include "client/market/volume_view.h"
#include "client/rent/lease_limits.h"
#include "client/rent/market_expiry.h"
#include "client/spec/run_spec.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/word_wrap.h"
#include "client/trainer/trainer_choice.h"
#include "client/workdir/data_trees.h"
#include "client/workdir/named_results.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/types.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// The width of a line's first word, as in "machine   ".
constexpr int kIndent = 10;

void AddIdle(const LaunchPlan& plan, std::vector<std::string>& lines) {
  const Lease& idle = *plan.rental.idle;
  const bool several = !plan.rental.more_idle.empty();
  std::string names = RentedNodeName(idle.provider, idle.instance_id);
  for (const Lease& lease : plan.rental.more_idle) {
    absl::StrAppend(&names, ", ", RentedNodeName(lease.provider, lease.instance_id));
  }
  lines.push_back(absl::StrCat(several ? "machines  " : "machine   ", names, " (",
                               FormatGpus(idle.gpu_name, idle.gpu_count),
                               several ? " each), rented and idle: they bill now, used or not"
                                       : "), rented and idle: it bills now, used or not"));
  if (plan.rental.in_order.empty()) {
    lines.push_back("          nothing else that fits is on offer");
    return;
  }
  const Offer& offer = Cheapest(plan);
  lines.push_back(absl::StrCat(
      "          else ", several ? absl::StrCat(MachinesToRent(plan), " of ") : "",
      DescribeGpus(offer), " at ", offer.provider, " for ", FormatUsd(offer.price_usd_per_hour),
      several ? " per hour each, if another run takes one of those first"
              : " per hour, if another run takes that one first"));
}

void AddOffers(const LaunchPlan& plan, std::vector<std::string>& lines) {
  const std::vector<Offer>& offers = plan.rental.in_order;
  const Offer& offer = Cheapest(plan);
  const int machines = MachinesToRent(plan);
  const bool several = machines > 1;
  lines.push_back(absl::StrCat(
      several ? absl::StrCat("machines  ", machines, " of ") : "machine   ", DescribeGpus(offer),
      " at ", offer.provider, offer.region.empty() ? "" : absl::StrCat(", ", offer.region),
      offer.spot ? ", can be taken away" : "",
      several ? absl::StrCat(", ", FormatUsd(offer.price_usd_per_hour), " per hour each") : ""));
  if (several) {
    lines.emplace_back(
        "          all of them or none; they reach each other by the region's private network");
  }
  if (offers.size() == 1) return;
  const auto dearest = std::max_element(
      offers.begin(), offers.end(),
      [](const Offer& a, const Offer& b) { return a.price_usd_per_hour < b.price_usd_per_hour; });
  lines.push_back(absl::StrCat(
      "          or ",
      offers.size() == 2 ? std::string("another that fits, for ")
                         : absl::StrCat("one of ", offers.size() - 1, " others that fit, to "),
      FormatUsd(dearest->price_usd_per_hour), several ? " per hour each" : " per hour",
      ", if that one is gone"));
}

// Returns the market of the machine that the plan begins with; null when there is none yet.
const Provider* ChosenMarket(const LaunchPlan& plan) {
  for (const Market& market : plan.rental.markets) {
    if (plan.rental.has_machine() && market.name == MarketOf(plan)) return market.provider.get();
  }
  return nullptr;
}

// Returns after how long the market itself ends a machine that is rented now; nothing where it does
// not, or where the machine is rented already.
std::optional<absl::Duration> MarketEndOf(const LaunchPlan& plan) {
  const Provider* const market = ChosenMarket(plan);
  if (market == nullptr || plan.rental.idle.has_value() || !market->traits().expiry.at_create) {
    return std::nullopt;
  }
  const double price = PriceOf(plan);
  const absl::Time begin = absl::UnixEpoch();
  return ExpiryFor(AgreeLimits(plan.spec, price), price, begin, MostLifetime(plan.spec), begin) -
         begin;
}

void AddMachine(const LaunchPlan& plan, std::vector<std::string>& lines) {
  if (plan.rental.idle.has_value()) {
    AddIdle(plan, lines);
  } else if (plan.rental.has_machine()) {
    AddOffers(plan, lines);
  } else {
    lines.push_back("machine   none is on offer now; one is looked for when the time comes");
  }
  for (const std::string& line : plan.rental.unused_idle) {
    lines.push_back(absl::StrCat("          ", line));
  }
  std::vector<MarketAnswer> without = plan.rental.offers.markets;
  without.insert(without.end(), plan.rental.left_out.begin(), plan.rental.left_out.end());
  for (const MarketAnswer& answer : without) {
    if (answer.status.ok()) continue;
    lines.push_back(
        absl::StrCat("          no offers from ", answer.market, ": ", answer.status.message()));
  }
  const Provider* const market = ChosenMarket(plan);
  if (market == nullptr) return;
  const ProviderTraits traits = market->traits();
  const std::optional<absl::Duration> end = MarketEndOf(plan);
  if (end.has_value()) {
    lines.push_back(
        absl::StrCat("          ", market->name(), " ends the machine by itself after ",
                     HumanDuration(*end), ", whatever becomes of it and of this laptop; ",
                     traits.expiry.can_move ? "gpuctl extend moves that" : "nothing moves that"));
  }
  if (market->name() == kClusterProvider) {
    lines.push_back(
        "          results that the run names are kept on the login node, where it shares its file "
        "system with the nodes; elsewhere the salvage time is what there is to fetch them");
  }
  if (traits.self_release()) return;
  lines.push_back(absl::StrCat(
      "          ", market->name(), " gives machines no key to end their own bill",
      traits.expiry.at_create ? " before: if this laptop never comes back, it bills until then"
                              : ": if this laptop never comes back, it bills on",
      "; gpuctl keep --install keeps watch here"));
}

// Returns the price per hour with which the plan's cost is counted.
double CountedPrice(const LaunchPlan& plan, PlanOf of) {
  return of == PlanOf::kRun ? PriceOf(plan) : PriceLimitOf(plan);
}

void AddLimits(const LaunchPlan& plan, double price, int columns, std::vector<std::string>& lines) {
  const RunSpec& spec = plan.spec;
  if (!plan.rents) {
    lines.push_back(absl::StrCat("limits    ", HumanDuration(spec.time_limit), " running time, ",
                                 HumanDuration(spec.grace), " to save when stopped"));
    return;
  }
  const char* word = "limits    ";
  for (const std::string& limit : DescribeLimits(spec, AgreeLimits(spec, price), price)) {
    for (std::string& part : WrapAtWords(absl::StrCat(word, limit), columns, 2 * kIndent)) {
      lines.push_back(std::move(part));
    }
    word = "          ";
  }
}

// Returns "$0.30 per hour, $0.38 at most; --max-price allows more".
std::string DescribePriceOf(const LaunchPlan& plan) {
  if (plan.joined.has_value()) {
    return absl::StrCat("nothing more is rented: the machine bills ",
                        FormatUsdPerHour(*plan.joined),
                        " per hour already, and goes on while it "
                        "has a run");
  }
  if (!plan.rents) return "nothing is rented, nothing bills";
  const std::string most = absl::StrCat(FormatUsd(PriceLimitOf(plan)), " at most");
  const bool own = plan.rental.own_limit_usd_per_hour.has_value();
  const int machines = MachinesToRent(plan);
  const std::string together = machines > 1 ? absl::StrCat(" for ", machines, " machines") : "";
  return absl::StrCat(plan.rental.has_machine() ? absl::StrCat(FormatUsd(PriceOf(plan)),
                                                               " per hour", together, ", ", most)
                                                : absl::StrCat("per hour ", most),
                      own ? "; --max-price allows more" : "");
}

// Returns the first line of the setup, with what it means; "" when there is none.
std::string SetupLine(const RunSpec& spec) {
  constexpr size_t kLongest = 120;
  const absl::string_view script = absl::StripAsciiWhitespace(spec.setup);
  if (script.empty()) return "";
  std::string line(script.substr(0, script.find('\n')));
  const bool cut = line.size() != script.size() || line.size() > kLongest;
  line.resize(std::min(line.size(), kLongest));
  return absl::StrCat(line, cut ? " …" : "",
                      " (once for each machine and content of what it reads)");
}

// Returns how often the command is started, for people; "" for once, without ranks.
std::string ProcessesLine(const RunSpec& spec) {
  if (spec.processes == 0) return "";
  if (spec.processes == kOneForEachGpu) return "one for each GPU, each with its RANK";
  return absl::StrCat(spec.processes, ", each with its RANK");
}

std::vector<std::string> NamesIn(const std::map<std::string, std::string>& env) {
  std::vector<std::string> names;
  for (const auto& [name, value] : env) names.push_back(name);
  return names;
}

// Says what there is of the kit, too, which is sent where the trainer cannot be compiled.
nlohmann::ordered_json TrainerToJson(const LaunchPlan& plan) {
  nlohmann::ordered_json json;
  json["build"] = std::string(TrainerBuildName(plan.spec.trainer_build));
  json["compiled_there"] = plan.trainer->may_build();
  if (plan.trainer->kit.has_value()) {
    json["source"] = plan.trainer->kit->shown;
    json["bytes"] = plan.trainer->kit->bytes;
    json["files"] = plan.trainer->kit->files.size();
    json["cuda"] = plan.trainer->kit->has_cuda;
  }
  return json;
}

// Returns true when files that no pattern names are lost with the run's machine.
bool LosesUnnamed(const LaunchPlan& plan) {
  return (plan.rents || plan.joined.has_value()) && !plan.names_results;
}

// A run on this machine by the program beside gpuctl sends none.
bool SendsTrainer(const LaunchPlan& plan) {
  return plan.trainer.has_value() && plan.trainer->program.empty();
}

}  // namespace

std::vector<std::string> MachineText(const LaunchPlan& plan) {
  std::vector<std::string> lines;
  AddMachine(plan, lines);
  return lines;
}

std::string ResultsText(const LaunchPlan& plan) {
  if (!LosesUnnamed(plan)) return "";
  return "results   none are named: files that the job makes are lost with the machine; "
         "--checkpoints and --artifacts name them, gpuctl pull RUN '**' brings all while it is "
         "there";
}

std::string IgnoredText(const LaunchPlan& plan) {
  constexpr size_t kShown = 8;
  const std::vector<std::string> options = SbatchOptions(plan.spec, plan.row.workdir);
  if (options.empty()) return "";
  std::vector<std::string> shown;
  for (size_t i = 0; i < options.size() && i < kShown; ++i) shown.push_back(MakeSafe(options[i]));
  if (options.size() > kShown) shown.emplace_back("...");
  return absl::StrCat(
      "ignored   the script's lines #SBATCH count for nothing here: ", absl::StrJoin(shown, ", "),
      "; gpuctl's own flags, such as --time 1h, take their place");
}

std::string NeedsText(const LaunchPlan& plan) {
  const std::vector<std::string>& here = plan.needs_this_gpuctl;
  if (here.empty()) return "";
  return absl::StrCat(absl::StrJoin(here, " and "), here.size() == 1 ? " needs" : " need",
                      " this gpuctl to live: when its terminal is closed, nothing comes home, and "
                      "only the limits end the bill; gpuctl keep --install does it also then");
}

int ColumnsFor(const CommandContext& context, int fd) {
  const bool is_terminal =
      fd == STDERR_FILENO ? context.terminal.stderr_tty : context.terminal.stdout_tty;
  return is_terminal ? GetTerminalSize(fd).columns : 0;
}

std::vector<std::string> PlanText(const LaunchPlan& plan, int columns, PlanOf of) {
  const RunSpec& spec = plan.spec;
  std::vector<std::string> lines;
  const auto add = [&lines](const auto&... parts) { lines.push_back(absl::StrCat(parts...)); };
  if (of == PlanOf::kRun) add("run       ", plan.row.name);
  add("command   ", plan.row.command);
  if (const std::string setup = SetupLine(spec); !setup.empty()) add("setup     ", setup);
  if (const std::string processes = ProcessesLine(spec); !processes.empty()) {
    add("processes ", processes);
  }
  if (plan.rents) {
    AddMachine(plan, lines);
  } else {
    add("machine   ", plan.own_machine.name,
        plan.own_machine.provider == "local" ? " (this machine)" : "");
  }
  if (plan.workdir.has_value()) {
    add("work      ", plan.workdir->path, ": ", plan.workdir->files,
        plan.workdir->files == 1 ? " file, " : " files, ", FormatBytes(plan.workdir->bytes));
  } else {
    add("work      nothing is sent");
  }
  for (const DataTree& tree : plan.data) {
    add("data      ", tree.place(), " at ", tree.path, ": ",
        FormatBytes(tree.manifest.content_bytes()));
  }
  if (plan.rents && !spec.image.empty()) add("image     ", spec.image);
  if (plan.login.has_value()) {
    add("          pulled as ", DescribeLogin(*plan.login), ", with the secret ",
        spec.registry.password, ": the provider gets its value");
  }
  if (plan.volume.has_value()) {
    add("volume    ", DescribeVolume(*plan.volume), " at ", plan.volume->mount_path);
    add("          it stays when the machine goes, and bills ", DescribeVolumePrice(*plan.volume),
        " by itself");
  }
  if (const std::string results = ResultsText(plan); !results.empty()) add(results);
  if (const std::string ignored = IgnoredText(plan); !ignored.empty()) add(ignored);
  if (const std::string needs = NeedsText(plan); !needs.empty()) add("here      ", needs);
  if (SendsTrainer(plan)) add("trainer   ", DescribeTrainerWays(*plan.trainer));
  std::vector<std::string> gpus;
  for (const GpuRequirement& gpu : spec.gpu) gpus.push_back(gpu.text);
  if (!gpus.empty()) add("gpu       ", absl::StrJoin(gpus, " or "));
  if (!spec.env.empty()) add("env       ", absl::StrJoin(NamesIn(spec.env), ", "));
  if (!spec.secrets.empty()) {
    add("secrets   ", absl::StrJoin(spec.secrets, ", "), ": the job gets their values");
  }
  AddLimits(plan, CountedPrice(plan, of), columns, lines);
  if (spec.max_retries > 0) {
    add("retry     up to ", spec.max_retries, " times on ", absl::StrJoin(spec.retry_on, ", "));
  }
  if (spec.notify.given) add("notify    ", DescribeNotify(spec.notify));
  if (plan.last_time.has_value()) add("last time ", DescribeLastTime(*plan.last_time));
  for (const std::string& line : plan.settings.UsedLines()) add("default   ", line);
  add("price     ", DescribePriceOf(plan));
  std::vector<std::string> wrapped;
  for (const std::string& line : lines) {
    for (std::string& part : WrapAtWords(line, columns, kIndent))
      wrapped.push_back(std::move(part));
  }
  return wrapped;
}

nlohmann::ordered_json PlanToJson(const LaunchPlan& plan, PlanOf of) {
  nlohmann::ordered_json json;
  json["name"] = nullptr;
  if (of == PlanOf::kRun) json["name"] = plan.row.name;
  const std::optional<Lease>& idle = plan.rental.idle;
  json["provider"] = nullptr;
  if (!plan.rents) json["provider"] = plan.own_machine.provider;
  if (plan.rents && plan.rental.has_machine()) json["provider"] = MarketOf(plan);
  json["node"] = plan.own_machine.name;
  if (plan.rents) json["node"] = nullptr;
  if (idle.has_value()) json["node"] = RentedNodeName(idle->provider, idle->instance_id);
  if (plan.rents && !plan.spec.image.empty()) json["image"] = plan.spec.image;
  if (plan.login.has_value()) {
    json["registry"] = {{"server", plan.login->server},
                        {"username", plan.login->username},
                        {"password", plan.spec.registry.password}};
  }
  if (plan.volume.has_value()) {
    json["volume"] = VolumeToJson(*plan.volume);
  }
  json["machines"] = std::max(1, plan.spec.nodes);
  json["idle"] = idle.has_value();
  if (plan.rents && !idle.has_value() && plan.rental.has_machine()) {
    const Offer& offer = Cheapest(plan);
    json["offer"] = {{"ref", offer.ref}, {"description", offer.description}};
  }
  json["command"] = plan.row.command;
  json["setup"] =
      plan.spec.setup.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(plan.spec.setup);
  json["processes"] = plan.spec.processes == 0 ? nlohmann::ordered_json()
                                               : nlohmann::ordered_json(plan.spec.processes);
  if (plan.spec.processes == kOneForEachGpu) json["processes"] = "gpus";
  json["workdir"] = plan.row.workdir.empty() ? nlohmann::ordered_json()
                                             : nlohmann::ordered_json(plan.row.workdir);
  json["files"] = plan.workdir.has_value() ? plan.workdir->files : 0;
  json["bytes"] = plan.workdir.has_value() ? plan.workdir->bytes : 0;
  json["names_results"] = plan.names_results;
  json["needs_this_gpuctl"] = plan.needs_this_gpuctl;
  if (SendsTrainer(plan)) json["trainer"] = TrainerToJson(plan);
  json["env"] = NamesIn(plan.spec.env);
  json["secrets"] = plan.spec.secrets;
  json["limits"] = {{"time_s", absl::ToInt64Seconds(plan.spec.time_limit)}};
  if (plan.rents) {
    const double price = CountedPrice(plan, of);
    const LeaseLimits limits = AgreeLimits(plan.spec, price);
    json["limits"]["cost_usd"] = limits.cost_usd;
    json["limits"]["salvage_cost_usd"] = PartsOfCost(limits, price, plan.spec.grace).salvage_usd;
    json["limits"]["idle_s"] = limits.idle_s;
    json["limits"]["salvage_s"] = limits.salvage_s;
    json["limits"]["lease_s"] = limits.contact_s;
    const std::optional<absl::Duration> end = MarketEndOf(plan);
    json["limits"]["market_end_s"] =
        end.has_value() ? nlohmann::ordered_json(absl::ToInt64Seconds(*end)) : nullptr;
  }
  if (plan.last_time.has_value()) {
    json["last_time"] = {{"run", plan.last_time->run_name},
                         {"took_s", absl::ToInt64Seconds(plan.last_time->took)},
                         {"usd", plan.last_time->usd}};
  }
  json["defaults"] = plan.settings.UsedJson();
  json["price_usd_per_hour"] = PriceOf(plan);
  json["max_price_usd_per_hour"] = PriceLimitOf(plan);
  return json;
}

}  // namespace gpuctl
