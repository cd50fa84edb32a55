// SPDX-License-Identifier: Apache-2.0
// The profile as JSON.
#include "tinyloop/measure/speculation_profile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tinyloop/error.h"
#include "tinyloop/files/json_object.h"
#include "tinyloop/files/temporary_file.h"
#include "tinyloop/files/text_file.h"

namespace tinyloop {
namespace {

constexpr std::string_view kFormat = "tinyloop speculation 1";
constexpr std::int64_t kMaxBytes = 65536;  // far more than one has

}  // namespace

std::string SpeculationProfile::json() const {
  JsonObject object;
  object.add("format", kFormat)
      .add("fingerprint", fingerprint)
      .add("machine", machine)
      .add("loops", loops)
      .add("kv", kv)
      .add("date", date)
      .add("verdict", speculate ? "speculate" : "plain")
      .add("schedule", speculation.name())
      .add("speedup", speedup)
      .add("threshold", threshold);
  return object.line();
}

SpeculationProfile SpeculationProfile::read(const std::string& path) {
  const std::string text = read_text_file(path, kMaxBytes);
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("format") != kFormat) throw Error(ErrorKind::data, "unknown format");
    SpeculationProfile profile;
    profile.fingerprint = json.at("fingerprint").get<std::string>();
    profile.machine = json.at("machine").get<std::string>();
    profile.loops = json.at("loops").get<std::int32_t>();
    profile.kv = json.at("kv").get<std::string>();
    profile.date = json.at("date").get<std::string>();
    profile.speculate = json.at("verdict").get<std::string>() == "speculate";
    profile.speculation = Speculation::parse(json.at("schedule").get<std::string>());
    profile.speedup = json.at("speedup").get<double>();
    profile.threshold = json.at("threshold").get<double>();
    return profile;
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::data, "{}: not a speculation profile", path);
  } catch (const Error& error) {
    throw Error(ErrorKind::data, "{}: {}", path, error.what());
  }
}

void SpeculationProfile::write(const std::string& path) const {
  AtomicFile file(path);
  file.write(json());
  file.commit();
}

}  // namespace tinyloop
