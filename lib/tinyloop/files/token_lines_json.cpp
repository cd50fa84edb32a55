// SPDX-License-Identifier: Apache-2.0
// Parses one object of the JSONL format. Event-driven, so that nothing nested or long is ever
// built. The rest of token_lines is in token_lines.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/coalition.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/token_lines.h"

namespace tinyloop {
namespace {

using Json = nlohmann::json;

enum Key {
  kTokens,
  kId,
  kMaxTokens,
  kSeed,
  // Of jobs only:
  kStop,
  kPriority,
  kGroup,
  kSnapshot,
  kSegments,
  kPresent,
};
constexpr std::array<std::string_view, 10> kKeys = {
    "tokens",   "id",    "max_tokens", "seed",     "stop",
    "priority", "group", "snapshot",   "segments", "present"};
constexpr std::size_t kPlainKeys = 4;

// Jobs wait in memory by the thousand, so what they carry beside their ids has a limit.
constexpr std::size_t kMaxText = 4096;     // bytes of an id or a group
constexpr std::size_t kMaxStops = 256;     // sequences of one job, each a piece of memory
constexpr std::size_t kMaxStopIds = 4096;  // in all of them

// What all jobs of a batch have in common, so none of them may ask for its own.
constexpr std::string_view kShared[] = {"temperature",
                                        "top_k",
                                        "top_p",
                                        "min_p",
                                        "repetition_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "logit_bias",
                                        "eos",
                                        "ignore_eos",
                                        "loops",
                                        "kv",
                                        "cache_window",
                                        "prefill_chunk",
                                        "init_state",
                                        "exit",
                                        "exit_select"};

class ObjectParser : public nlohmann::json_sax<Json> {
 public:
  explicit ObjectParser(TokenLimits limits) : limits_(limits) {}

  TokenLine line;
  std::string fault;             // why the object is refused; after it only an "id" is looked for
  std::size_t fault_column = 0;  // 0: not known

  // After the text: what can be said only now.
  void finish() {
    if (!fault.empty()) return;
    if (!seen_[kSnapshot] && !seen_[kSegments] && !seen_[kPresent]) {
      if (!seen_[kTokens]) fail("key 'tokens' is missing");
      return;
    }
    for (const Key key : {kTokens, kGroup}) {
      if (!seen_[key]) continue;
      return fail(
          fmt::format("'{}' and 'segments' exclude each other: a coalition's {}", kKeys[key],
                      key == kTokens ? "prompt consists of its segments" : "group is computed"));
    }
    for (const Key key : {kSnapshot, kSegments, kPresent}) {
      if (!seen_[key]) return fail(fmt::format("key '{}' is missing", kKeys[key]));
    }
    if (segments_.empty()) return fail("segments: the list is empty");
    if (present_.size() != segments_.size()) {
      return fail(
          fmt::format("present: {} values for {} segments", present_.size(), segments_.size()));
    }
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      ids.push_back(std::move(segments_[i].id));
      const std::vector<TokenId>& tokens = segments_[i].tokens;
      if (present_[i]) line.ids.insert(line.ids.end(), tokens.begin(), tokens.end());
    }
    if (limits_.longest > 0 && static_cast<std::int64_t>(line.ids.size()) > limits_.longest) {
      return fail(too_long());
    }
    line.group = coalition_name(snapshot_, ids, present_);
    line.group_parts = coalition_parts(snapshot_, ids, present_);
  }

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override {
    if (place_ != Place::present) return scalar(value ? "true" : "false");
    present_.push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::segment && segment_key_ == kId) {
      segments_.back().id = value;
      return true;
    }
    if (place_ == Place::object && (key_ == kGroup || key_ == kSnapshot)) {
      if (key_ == kGroup && value.empty()) return refuse("it is empty");
      if (key_ == kGroup && value.size() > kMaxText) return refuse(too_much_text());
      (key_ == kGroup ? line.group : snapshot_) = value;
      return true;
    }
    return scalar(Json(value).dump(-1, ' ', true));
  }
  bool binary(binary_t&) override { return false; }  // not in text
  bool number_integer(number_integer_t value) override {
    if (place_ == Place::object && key_ == kPriority) {
      line.priority = value;
      return true;
    }
    if (value >= 0) return number_unsigned(static_cast<number_unsigned_t>(value));  // -0
    if (!integer_wanted()) return scalar(fmt::format("{}", value));
    return refuse(fmt::format("{} is negative", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    if (!integer_wanted()) return scalar(text);
    if (text.find_first_not_of("0123456789") == std::string::npos) {
      return refuse("number has too many digits");
    }
    return refuse(fmt::format("{} is not an integer", excerpt(text)));
  }
  bool number_unsigned(number_unsigned_t value) override {
    switch (place_) {
      case Place::tokens:
        return id(line.ids, value);
      case Place::sequence:
        if (++stop_ids_ > kMaxStopIds) {
          return refuse(fmt::format("more than {} ids in all sequences", kMaxStopIds));
        }
        return id(line.stop->back(), value);
      case Place::segment_tokens:
        return id(segments_.back().tokens, value);
      case Place::object:
        break;
      default:
        return scalar(fmt::format("{}", value));
    }
    switch (key_) {
      case kMaxTokens:
      case kPriority:
        if (value > INT64_MAX) return refuse("number has too many digits");
        if (key_ == kPriority) {
          line.priority = static_cast<std::int64_t>(value);
        } else {
          line.max_tokens = static_cast<std::int64_t>(value);
        }
        return true;
      case kSeed:
        line.seed = value;
        return true;
      default:
        return scalar(fmt::format("{}", value));
    }
  }

  bool start_object(std::size_t) override {
    ++depth_;
    if (place_ == Place::outside) {
      place_ = Place::object;
    } else if (place_ == Place::segments) {
      place_ = Place::segment;
      segments_.emplace_back();
      segment_seen_ = {};
    } else {
      return refuse("an object is not allowed here");
    }
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) id_unsure_ = false;
    if (place_ == Place::lost) {
      key_ = depth_ == 1 && name == kKeys[kId] && line.id_json.empty() ? kId : kTokens;
      return true;
    }
    const std::size_t known_keys = place_ == Place::segment ? 2
                                   : limits_.job_keys       ? kKeys.size()
                                                            : kPlainKeys;
    const auto end = kKeys.begin() + static_cast<std::ptrdiff_t>(known_keys);
    const auto known = std::find(kKeys.begin(), end, name);
    if (known == end) return fail_key(unknown(name));
    const auto key = static_cast<Key>(known - kKeys.begin());
    if (place_ == Place::segment) {
      segment_key_ = key;
      if (std::exchange(segment_seen_[key], true)) return refuse("duplicate key");
      return true;
    }
    key_ = key;
    if (!std::exchange(seen_[key], true)) return true;
    return fail_key(fmt::format("duplicate key '{}'", name));
  }
  bool end_object() override {
    if (--depth_ == 0) id_unsure_ = false;
    if (place_ != Place::segment) return true;
    place_ = Place::segments;
    for (const Key key : {kId, kTokens}) {
      if (segment_seen_[key]) continue;
      return fail_key(
          fmt::format("segments[{}]: key '{}' is missing", segments_.size() - 1, kKeys[key]));
    }
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    if (place_ == Place::object && key_ == kTokens) {
      place_ = Place::tokens;
    } else if (place_ == Place::object && key_ == kStop) {
      place_ = Place::stop;
      line.stop.emplace();
    } else if (place_ == Place::object && key_ == kPresent) {
      place_ = Place::present;
    } else if (place_ == Place::object && key_ == kSegments) {
      place_ = Place::segments;
    } else if (place_ == Place::stop) {
      if (line.stop->size() == kMaxStops) {
        return refuse(fmt::format("more than {} sequences", kMaxStops));
      }
      place_ = Place::sequence;
      line.stop->emplace_back();
    } else if (place_ == Place::segment && segment_key_ == kTokens) {
      place_ = Place::segment_tokens;
    } else {
      return refuse("an array is not allowed here");
    }
    return true;
  }
  bool end_array() override {
    --depth_;
    switch (place_) {
      case Place::lost:
        return true;
      case Place::sequence:
        place_ = Place::stop;
        return !line.stop->back().empty() ||
               fail_key(fmt::format("stop[{}]: the sequence is empty", line.stop->size() - 1));
      case Place::segment_tokens:
        place_ = Place::segment;
        return true;
      default:
        place_ = Place::object;
        return true;
    }
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // What reads as 0 in 007 and as 12 in 12ab is no id, and might be another line's.
    if (id_unsure_) line.id_json.clear();
    if (!fault.empty()) return false;
    fault_column = position;
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ... -
    // cause; last read: ..."
    std::string_view cause = error.what();
    if (const auto start = cause.find(": "); start != std::string_view::npos) {
      cause.remove_prefix(start + 2);
    }
    if (const auto dash = cause.find(" - "); dash != std::string_view::npos) {
      cause.remove_prefix(dash + 3);
    }
    cause = cause.substr(0, cause.find("; last read"));
    fault = error.id == 406 ? "number is too large" : fmt::format("not valid JSON: {}", cause);
    return false;
  }

 private:
  // Where in the object the next value stands.
  enum class Place {
    outside,
    object,
    tokens,
    stop,
    sequence,
    present,
    segments,
    segment,
    segment_tokens,
    lost,
  };
  struct Segment {
    std::string id;
    std::vector<TokenId> tokens;
  };

  bool id(std::vector<TokenId>& ids, number_unsigned_t value) {
    if (place_ == Place::tokens && limits_.longest > 0 &&
        static_cast<std::int64_t>(ids.size()) == limits_.longest) {
      return fail_key(too_long());
    }
    if (value >= static_cast<std::uint64_t>(limits_.vocab)) {
      return refuse(fmt::format("id {} is not below {}", value, limits_.vocab));
    }
    ids.push_back(static_cast<TokenId>(value));
    return true;
  }
  // A value that only "id" may have; `text` is its JSON text.
  bool scalar(std::string text) {
    const bool at_id =
        key_ == kId && (place_ == Place::object || (place_ == Place::lost && depth_ == 1));
    if (at_id && text.size() > kMaxText) return refuse(too_much_text());
    if (at_id) {
      id_unsure_ = text.front() != '"';
      line.id_json = std::move(text);
      return true;
    }
    return refuse(fmt::format("not {}", wanted()));
  }
  bool integer_wanted() const {
    if (place_ != Place::object) {
      return place_ == Place::tokens || place_ == Place::sequence ||
             place_ == Place::segment_tokens;
    }
    return key_ == kMaxTokens || key_ == kSeed || key_ == kPriority;
  }
  std::string_view wanted() const {
    switch (place_) {
      case Place::stop:
        return "an array";
      case Place::present:
        return "true or false";
      case Place::segments:
        return "an object";
      case Place::segment:
        return segment_key_ == kId ? "a string" : "an array";
      case Place::object:
        if (key_ == kGroup || key_ == kSnapshot) return "a string";
        return integer_wanted() ? "an integer" : "an array";
      default:
        return "an integer";
    }
  }
  // Of the value at hand.
  std::string name() const {
    const std::string segment =
        segments_.empty() ? "" : fmt::format("segments[{}]", segments_.size() - 1);
    switch (place_) {
      case Place::tokens:
        return fmt::format("tokens[{}]", line.ids.size());
      case Place::stop:
        return fmt::format("stop[{}]", line.stop->size());
      case Place::sequence:
        return fmt::format("stop[{}][{}]", line.stop->size() - 1, line.stop->back().size());
      case Place::present:
        return fmt::format("present[{}]", present_.size());
      case Place::segments:
        return fmt::format("segments[{}]", segments_.size());
      case Place::segment:
        return fmt::format("{}.{}", segment, kKeys[segment_key_]);
      case Place::segment_tokens:
        return fmt::format("{}.tokens[{}]", segment, segments_.back().tokens.size());
      default:
        return std::string(kKeys[key_]);
    }
  }
  std::string unknown(std::string_view name) const {
    std::string option(name);
    std::replace(option.begin(), option.end(), '-', '_');
    const bool shared =
        limits_.job_keys && place_ == Place::object &&
        std::find(std::begin(kShared), std::end(kShared), option) != std::end(kShared);
    const bool of_jobs = place_ == Place::object && !limits_.job_keys &&
                         std::find(kKeys.begin(), kKeys.end(), name) != kKeys.end();
    if (of_jobs) return fmt::format("key '{}' is only for jobs of tl-batch", name);
    if (!shared) return fmt::format("unknown key '{}'", excerpt(name));
    std::replace(option.begin(), option.end(), '_', '-');
    return fmt::format("key '{}' cannot be set per job: all lanes share it; use --{}", name,
                       option);
  }
  std::string too_long() const {
    return fmt::format("prompt too long: more than {} ids (the context)", limits_.longest);
  }
  void fail(std::string cause) {
    if (fault.empty()) fault = std::move(cause);
    place_ = Place::lost;
    key_ = kTokens;
  }
  bool fail_key(std::string cause) {
    fail(std::move(cause));
    return true;
  }
  static std::string too_much_text() { return fmt::format("longer than {} bytes", kMaxText); }
  bool refuse(std::string_view cause) {
    if (place_ != Place::lost) {
      fail(place_ == Place::outside ? "not a JSON object" : fmt::format("{}: {}", name(), cause));
    }
    return true;
  }

  TokenLimits limits_;
  std::array<bool, kKeys.size()> seen_{};
  std::array<bool, 2> segment_seen_{};
  Place place_ = Place::outside;
  bool id_unsure_ = false;  // nothing has shown yet that the id's text ends where it was cut
  std::int64_t depth_ = 0;  // of arrays and objects around the next value
  Key key_ = kTokens, segment_key_ = kTokens;
  std::string snapshot_;
  std::vector<Segment> segments_;
  std::size_t stop_ids_ = 0;
  std::vector<bool> present_;
};

}  // namespace

TokenLine parse_json_line(std::string_view text, std::string_view where, std::int64_t number,
                          TokenLimits limits) {
  ObjectParser parser(limits);
  // The library skips a mark and takes NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    parser.fault = "NUL byte";
    parser.fault_column = nul + 1;
  } else if (text.starts_with("\xef\xbb\xbf")) {
    parser.fault = "byte-order mark";
    parser.fault_column = 1;
  } else if (text.find_first_not_of(" \t\r") == std::string_view::npos) {
    parser.fault = "empty line";
    parser.fault_column = 1;
  } else if (Json::sax_parse(text.begin(), text.end(), &parser)) {
    parser.finish();
  }
  if (parser.fault.empty()) {
    parser.line.number = number;
    return std::move(parser.line);
  }
  TokenLine wrong;
  wrong.number = number;
  wrong.id_json = std::move(parser.line.id_json);
  wrong.error = parser.fault_column > 0
                    ? fmt::format("{}:{}:{}: {}", where, number, parser.fault_column, parser.fault)
                    : fmt::format("{}:{}: {}", where, number, parser.fault);
  return wrong;
}

}  // namespace tinyloop
