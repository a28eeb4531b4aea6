#include "tests/cloudsim/service.h"
namespace gpuctl::cloudsim {
std::string VastRoute(const Call&) { return "other"; }
Reply HandleVast(World&, const Call&) { return Reply(); }
Reply VastError(int status, const std::string& code, const std::string&) { return JsonReply(status, {{"error", code}}); }
}
