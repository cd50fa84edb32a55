// SPDX-License-Identifier: Apache-2.0
// Writes the safetensors format in one forward sweep, every tensor at a multiple of 64 bytes.
// Not the reader: that is tensor_file.cpp.
#include <cassert>
#include <optional>
#include <utility>

#include "tinyloop/error.h"
#include "tinyloop/files/json_text.h"
#include "tinyloop/files/temporary_file.h"
#include "tinyloop/files/tensor_file.h"

namespace tinyloop {

namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::size_t kLongestHeader = 100'000'000;  // the format's own limit

// What is where in a file.
struct Layout {
  std::vector<TensorPlan> tensors;  // with the padding
  std::vector<std::uint64_t> sizes;
  std::map<std::string, std::string> metadata;

  Layout(std::vector<TensorPlan> plans, std::map<std::string, std::string> texts)
      : metadata(std::move(texts)) {
    std::uint64_t offset = 0;
    const auto plan = [&](TensorPlan tensor, std::uint64_t bytes) {
      tensors.push_back(std::move(tensor));
      sizes.push_back(bytes);
      offset += bytes;
    };
    int pads = 0;
    for (TensorPlan& tensor : plans) {
      const std::optional<std::uint64_t> bytes = bytes_of_shape(tensor.type, tensor.shape);
      assert(bytes.has_value() && !tensor.name.starts_with(".pad"));
      const std::uint64_t gap = (kAlignment - offset % kAlignment) % kAlignment;
      if (gap > 0 && *bytes > 0) {
        plan({fmt::format(".pad{}", pads++), TensorType::u8, {static_cast<std::int64_t>(gap)}},
             gap);
      }
      plan(std::move(tensor), *bytes);
    }
  }

  std::int64_t file_bytes(const std::string& header) const {
    std::uint64_t bytes = 8 + header.size();
    for (const std::uint64_t size : sizes) bytes += size;
    return static_cast<std::int64_t>(bytes);
  }

  std::string header_text() const {
    std::string text = "{\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += fmt::format("{}{}:{}", text.back() == '{' ? "" : ",", json_string(key),
                          json_string(value));
    }
    text += '}';
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          json_string(tensors[i].name), safetensors_name(tensors[i].type),
                          fmt::join(tensors[i].shape, ","), offset, offset + sizes[i]);
      offset += sizes[i];
    }
    text += '}';
    text.resize((8 + text.size() + kAlignment - 1) / kAlignment * kAlignment - 8, ' ');
    return text;
  }
};

}  // namespace

struct TensorFileWriter::State : Layout {
  std::string header;
  AtomicFile file;
  std::size_t current = 0;   // the tensor to append to
  std::uint64_t filled = 0;  // bytes of it that are there
  bool synced = false;

  State(std::string path, Layout layout, bool shared)
      : Layout(std::move(layout)), header(header_text()), file(std::move(path), shared) {}

  // Steps over what is complete: tensors of no bytes, and padding, which is written here.
  void advance() {
    static constexpr std::byte kZeros[kAlignment] = {};
    while (current < tensors.size() && filled == sizes[current]) {
      ++current;
      filled = 0;
      if (current < tensors.size() && tensors[current].name.starts_with(".pad")) {
        file.write(std::span(kZeros).first(sizes[current]));
        filled = sizes[current];
      }
    }
  }
};

TensorFileWriter::TensorFileWriter(std::string path, std::vector<TensorPlan> tensors,
                                   std::map<std::string, std::string> metadata, bool shared)
    : state_(std::make_unique<State>(std::move(path),
                                     Layout(std::move(tensors), std::move(metadata)), shared)) {
  State& state = *state_;
  if (state.header.size() > kLongestHeader) {
    throw Error(ErrorKind::data, "{}: too many tensors for a safetensors header",
                state.file.path());
  }
  const std::uint64_t length = state.header.size();
  state.file.write(std::as_bytes(std::span(&length, 1)));
  state.file.write(state.header);
  state.advance();
}

TensorFileWriter::~TensorFileWriter() = default;

std::int64_t TensorFileWriter::file_bytes() const { return state_->file_bytes(state_->header); }

std::int64_t TensorFileWriter::file_bytes(std::vector<TensorPlan> tensors,
                                          std::map<std::string, std::string> metadata) {
  const Layout layout(std::move(tensors), std::move(metadata));
  return layout.file_bytes(layout.header_text());
}

void TensorFileWriter::append(std::span<const std::byte> bytes) {
  State& state = *state_;
  if (bytes.empty()) return;
  assert(state.current < state.tensors.size() &&
         bytes.size() <= state.sizes[state.current] - state.filled);
  state.file.write(bytes);
  state.filled += bytes.size();
  state.advance();
}

void TensorFileWriter::set_metadata(const std::string& key, const std::string& value) {
  State& state = *state_;
  assert(state.metadata.contains(key));
  state.metadata[key] = value;
  std::string header = state.header_text();
  assert(header.size() == state.header.size());
  state.header = std::move(header);
  state.synced = false;
}

std::string TensorFileWriter::header() const {
  const std::uint64_t length = state_->header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + state_->header;
}

void TensorFileWriter::sync() {
  State& state = *state_;
  assert(state.current == state.tensors.size());
  if (state.synced) return;
  state.file.write_at(8, state.header);
  state.file.sync();
  state.synced = true;
}

void TensorFileWriter::finish() {
  sync();
  state_->file.commit();
}

bool TensorFileWriter::finish_new() {
  sync();
  return state_->file.commit_new();
}

}  // namespace tinyloop
