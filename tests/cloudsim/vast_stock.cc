#include "tests/cloudsim/vast_stock.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl::cloudsim {
namespace {

VastOffer Machine(int64_t id, const char* gpu, int gpus, int ram_mb, double dph,
                  const char* where) {
  VastOffer offer;
  offer.id = id;
  offer.machine_id = id - 9'000'000;
  offer.gpu_name = gpu;
  offer.gpus = gpus;
  offer.gpu_ram_mb = ram_mb;
  offer.dph_base = dph;
  offer.min_bid = std::round(dph * 600) / 1000;
  offer.geolocation = where;
  return offer;
}

std::vector<VastOffer> VastOffers() {
  std::vector<VastOffer> offers = {
      Machine(9'100'001, "RTX 4090", 1, 24564, 0.29, "Sweden, SE"),
      Machine(9'100'002, "RTX 4090", 1, 24564, 0.31, "Texas, US"),
      Machine(9'100'003, "RTX 4090", 2, 24564, 0.62, "Norway, NO"),
      Machine(9'100'004, "RTX 4090", 1, 24564, 0.22, "Vietnam, VN"),   // no port open
      Machine(9'100'005, "RTX 4090", 1, 24564, 0.19, "Bulgaria, BG"),  // not verified
      Machine(9'100'006, "RTX 3090", 1, 24576, 0.14, "Quebec, CA"),
      Machine(9'100'007, "A100 SXM4", 1, 81920, 0.89, "Washington, US"),
      Machine(9'100'008, "H100 SXM", 1, 81559, 2.1, "Texas, US"),
      Machine(9'100'009, "H100 SXM", 8, 81559, 17.6, "Texas, US"),
      Machine(9'100'010, "H200", 1, 143771, 2.6, "Iceland, IS"),
  };
  offers[3].direct_ports = 0;
  offers[4].verified = false;
  offers[4].reliability = 0.87;
  offers[6].compute_cap = "800";
  for (size_t i = 7; i < offers.size(); ++i) offers[i].compute_cap = "900";
  return offers;
}

void SetTerms(VastOffer* offer, const Json& change) {
  offer->duration_s = NumberAt(change, "duration_s", offer->duration_s);
  offer->direct_ports = static_cast<int>(IntegerAt(change, "direct_ports", offer->direct_ports));
}

}  // namespace

VastStock::VastStock() : offers(VastOffers()) {}

VastOffer* VastStock::Find(int64_t id) {
  for (VastOffer& offer : offers) {
    if (offer.id == id) return &offer;
  }
  return nullptr;
}

// `item` is an offer's id, `count` 0 or 1, and "gone": true removes it for ever; "duration_s" and
// "direct_ports" change the offer.
std::string VastStock::Set(const Json& change) {
  VastOffer* offer = Find(IntegerAt(change, "item"));
  if (offer == nullptr) return absl::StrCat("no offer ", IntegerAt(change, "item"));
  offer->gone = BoolAt(change, "gone", offer->gone);
  if (change.contains("count")) offer->rented = IntegerAt(change, "count") == 0;
  SetTerms(offer, change);
  return "";
}

std::string VastStock::Add(const Json& item) {
  const VastOffer* like = Find(IntegerAt(item, "like"));
  if (like == nullptr) return absl::StrCat("no offer ", IntegerAt(item, "like"));
  VastOffer offer = *like;
  offer.id = IntegerAt(item, "item");
  offer.machine_id = offer.id - 9'000'000;
  offer.gpu_name = StringAt(item, "gpu", offer.gpu_name);
  offer.driver_name = StringAt(item, "driver_gpu");
  offer.gpu_ram_mb = static_cast<int>(IntegerAt(item, "memory_mib", offer.gpu_ram_mb));
  offer.dph_base = NumberAt(item, "usd_per_hour", offer.dph_base);
  offer.rented = offer.gone = false;
  SetTerms(&offer, item);
  offers.push_back(offer);
  return "";
}

std::string VastStock::SetPrice(const Json& change) {
  VastOffer* offer = Find(IntegerAt(change, "item"));
  if (offer == nullptr) return "no such offer";
  offer->dph_base = NumberAt(change, "usd_per_hour", offer->dph_base);
  offer->min_bid = NumberAt(change, "min_bid", offer->min_bid);
  return "";
}

Json VastStock::ToJson() const {
  Json all = Json::object();
  for (const VastOffer& offer : offers) {
    all[absl::StrCat(offer.id)] = {{"rented", offer.rented}, {"gone", offer.gone}};
  }
  return all;
}

void VastStock::Return(const Instance& instance) {
  int64_t id = 0;
  (void)absl::SimpleAtoi(instance.product, &id);
  if (VastOffer* offer = Find(id)) offer->rented = false;
}

}  // namespace gpuctl::cloudsim
