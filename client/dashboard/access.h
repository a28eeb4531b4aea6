// Who may ask the dashboard's server for what. Pure.
#ifndef GPUCTL_CLIENT_DASHBOARD_ACCESS_H_
#define GPUCTL_CLIENT_DASHBOARD_ACCESS_H_

#include <optional>
#include <string>

#include "client/dashboard/http_message.h"

namespace gpuctl {

// Returns the refusal of a request that did not come from the dashboard's own page, or from
// somebody else whom the user told the token; nothing for one that may be answered.
//   - The host must be this server: the page of another site cannot ask under a name that it points
//     at 127.0.0.1.
//   - GET and HEAD have the token in the query or as "Authorization: Bearer TOKEN"; POST only
//   there,
//     where no other site's form or link can put it, and with no other origin.
std::optional<PageReply> Refuse(const PageRequest& request, const std::string& token, int port);

// Adds the headers that each answer has: it is not kept, tells nobody its address, is no frame of
// another page, and loads nothing but from here. `script` and `style` are hashes of what may stand
// in the page, as a Content-Security-Policy writes them; "" when nothing may.
void AddSafetyHeaders(const std::string& script, const std::string& style, PageReply& reply);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_ACCESS_H_
