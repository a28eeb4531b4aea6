#!/usr/bin/env python3
"""Prints which software a release has in it, as SPDX 2.3 JSON: the Debian packages whose archives and
headers the programs were linked and compiled with, and npm's packages in the dashboard's page.

  sbom.py ARCHIVES VERSION SECONDS    ARCHIVES: archives.txt of the build; SECONDS: the release's time

It asks dpkg, so it runs where the programs were built. A license is named where the package's
copyright file has the machine-readable form, else it is NOASSERTION.
"""
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                    "client/dashboard/page")
# Only their headers are used, or the compiler adds them by itself.
ALSO = ["libc6-dev", "libstdc++-12-dev", "libgcc-12-dev", "nlohmann-json3-dev", "libspdlog-dev",
        "libfmt-dev", "libcli11-dev", "libtomlplusplus-dev", "ca-certificates"]
# Debian's names of licenses that SPDX names otherwise. Others have the same or no name.
SPDX = {"Apache-2": "Apache-2.0", "Expat": "MIT", "BSD-3-clause": "BSD-3-Clause",
        "BSD-2-clause": "BSD-2-Clause", "GPL-2": "GPL-2.0-only", "GPL-2+": "GPL-2.0-or-later",
        "GPL-3": "GPL-3.0-only", "GPL-3+": "GPL-3.0-or-later", "LGPL-2.1": "LGPL-2.1-only",
        "LGPL-2.1+": "LGPL-2.1-or-later", "MPL-2.0": "MPL-2.0", "zlib": "Zlib", "Zlib": "Zlib",
        "MIT": "MIT", "Apache-2.0": "Apache-2.0", "ISC": "ISC", "BSL-1.0": "BSL-1.0"}


def ask(*command):
    """Returns a command's output, or "" when it fails."""
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def owner(path):
    """Returns the package of a file."""
    for name in (path, os.path.realpath(path)):
        match = re.match(r"([^:,\s]+)", ask("dpkg-query", "-S", name))
        if match:
            return match.group(1)
    sys.exit(f"sbom: no package has {path}")


def license_of(package):
    """Returns the license of a package's main files, as SPDX names it, or NOASSERTION."""
    try:
        with open(f"/usr/share/doc/{package}/copyright", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return "NOASSERTION"
    if not re.match(r"\s*Format:.*copyright-format", text):
        return "NOASSERTION"
    for paragraph in re.split(r"\n\s*\n", text):
        if re.search(r"^Files: *\*", paragraph, re.MULTILINE):
            match = re.search(r"^License: *(\S.*)$", paragraph, re.MULTILINE)
            return SPDX.get(match.group(1).strip(), "NOASSERTION") if match else "NOASSERTION"
    return "NOASSERTION"


def describe(package):
    form = "${source:Package}\t${source:Version}\t${Version}\t${Architecture}\t${Homepage}\n"
    lines = ask("dpkg-query", "-W", "-f", form, package).split("\n")
    if not lines[0]:
        sys.exit(f"sbom: {package} is not installed")
    source, source_version, version, _, homepage = lines[0].split("\t")
    return {"SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', package)}", "name": package,
            "versionInfo": version, "sourceInfo": f"built from Debian's {source} {source_version}",
            "downloadLocation": "NOASSERTION", "homepage": homepage or "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": license_of(package), "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": "pkg:deb/debian/" + urllib.parse.quote(package, safe="-.") + "@" +
                                                  urllib.parse.quote(version, safe="-.~")}]}


def describe_npm():
    """Returns what the page of gpuctl dashboard has in it: of npm's packages those that are not only
    for its build."""
    with open(os.path.join(PAGE, "package-lock.json"), encoding="utf-8") as file:
        packages = json.load(file)["packages"]
    found = []
    for path, package in sorted(packages.items()):
        if not path or package.get("dev"):
            continue
        name = path.rpartition("node_modules/")[2]
        digest = base64.b64decode(package["integrity"].partition("sha512-")[2]).hex()
        found.append({"SPDXID": f"SPDXRef-npm-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}", "name": name,
                      "versionInfo": package["version"],
                      "sourceInfo": "npm's package, in the page of gpuctl dashboard",
                      "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
                      "checksums": [{"algorithm": "SHA512", "checksumValue": digest}],
                      "licenseConcluded": "NOASSERTION",
                      "licenseDeclared": package.get("license", "NOASSERTION"),
                      "copyrightText": "NOASSERTION",
                      "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                        "referenceLocator": "pkg:npm/" + urllib.parse.quote(name) + "@" +
                                                            package["version"]}]})
    return found


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        archives = [line for line in file.read().split("\n") if line.endswith(".a")]
    version, seconds = sys.argv[2], int(sys.argv[3])
    names = sorted({owner(path) for path in archives} | set(ALSO))
    packages = [describe(name) for name in names] + describe_npm()
    own = {"SPDXID": "SPDXRef-gpuctl", "name": "gpuctl", "versionInfo": version,
           "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
           "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
           "copyrightText": "The gpuctl contributors"}
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                  "relatedSpdxElement": "SPDXRef-gpuctl"}]
    relations += [{"spdxElementId": "SPDXRef-gpuctl", "relationshipType": "CONTAINS",
                   "relatedSpdxElement": package["SPDXID"]} for package in packages]
    body = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"gpuctl-{version}",
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
                             "creators": ["Tool: gpuctl-deploy-sbom"]},
            "packages": [own] + packages, "relationships": relations}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    body["documentNamespace"] = f"urn:gpuctl:sbom:{version}:{digest}"
    print(json.dumps(body, indent=1))


if __name__ == "__main__":
    main()
